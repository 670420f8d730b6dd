//! When a connection last did anything: bytes moved, or a request that is being worked on.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

use super::place::Place;

#[derive(Debug)]
pub struct Activity {
    start: Instant,
    /// Milliseconds after the start.
    last: AtomicU64,
    working: AtomicUsize,
}

/// A request that is being worked on, until this is dropped.
#[derive(Debug)]
pub struct Work(Arc<Activity>);

/// A stream that notes when bytes move. It keeps its place among the connections, also after it has become a
/// worker's socket.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    _place: Place,
}

impl Activity {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
            working: AtomicUsize::new(0),
        }
    }

    pub fn work(self: &Arc<Self>) -> Work {
        self.working.fetch_add(1, Ordering::AcqRel);
        Work(self.clone())
    }

    /// Returns when nothing has happened for so long.
    pub async fn idle_for(&self, patience: Duration) {
        self.until(patience, || match self.working.load(Ordering::Acquire) {
            0 => self.still(),
            _ => Duration::ZERO,
        })
        .await;
    }

    /// Returns when no byte has moved for so long, whatever is being worked on.
    pub async fn still_for(&self, patience: Duration) {
        self.until(patience, || self.still()).await;
    }

    async fn until(&self, patience: Duration, passed: impl Fn() -> Duration) {
        loop {
            let left = patience.saturating_sub(passed());
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }

    /// Since the last byte moved.
    fn still(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }

    fn note(&self) {
        let millis = self.start.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.note();
        self.0.working.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<S> Watched<S> {
    pub fn new(stream: S, activity: Arc<Activity>, place: Place) -> Self {
        Self {
            stream,
            activity,
            _place: place,
        }
    }

    fn noting<T>(&self, moved: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Ok(_)) = &moved {
            self.activity.note();
        }
        moved
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.noting(moved)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noting(moved)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.noting(moved)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
