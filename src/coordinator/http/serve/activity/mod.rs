//! When a connection was last active: moved bytes, and progress of a request or a reply. Keep-alives, such as HTTP/2
//! pings or a few bytes a minute, move bytes and are no progress.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::PIECE;
use super::place::Place;

#[derive(Debug)]
pub struct Activity {
    start: Instant,
    /// The first request has begun.
    begun: CancellationToken,
    /// Time of the last moved bytes, in milliseconds after the start.
    moved: AtomicU64,
    /// Time of the last progress.
    got_on: AtomicU64,
    working: AtomicUsize,
    /// Unwritten bytes of replies, wherever they are buffered.
    ahead: AtomicUsize,
    /// Bytes written since the last step.
    written: AtomicUsize,
}

/// A request being handled, until dropped.
#[derive(Debug)]
pub struct Work(Arc<Activity>);

/// A reply body whose consumption counts as activity. Large frames are split, as a frame alone reports nothing before
/// its end.
#[derive(Debug)]
pub struct Taken {
    body: Body,
    /// Rest of the last frame.
    rest: Bytes,
    activity: Arc<Activity>,
}

/// A stream that records when bytes move. Holds its connection's place, also after the upgrade to a worker's socket.
#[derive(Debug)]
pub struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    _place: Place,
}

/// Written bytes of a reply that count as progress. Pings reach this within the idle timeout only if sent every two
/// seconds, far more often than keep-alives are.
const STEP: usize = 1 << 10;

impl Activity {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            begun: CancellationToken::new(),
            moved: AtomicU64::new(0),
            got_on: AtomicU64::new(0),
            working: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
        }
    }

    pub fn work(self: &Arc<Self>) -> Work {
        self.working.fetch_add(1, Ordering::AcqRel);
        self.begun.cancel();
        Work(self.clone())
    }

    /// Returns once the first request has begun, or the connection is this old.
    pub async fn begun_within(&self, patience: Duration) {
        let _ = timeout_at(self.start + patience, self.begun.cancelled()).await;
    }

    /// Returns when there was no progress for this long.
    pub async fn idle_for(&self, patience: Duration) {
        self.until(patience, || match self.working.load(Ordering::Acquire) {
            0 => self.since(&self.got_on),
            _ => Duration::ZERO,
        })
        .await;
    }

    /// Returns when no byte has moved for this long, even during work.
    pub async fn still_for(&self, patience: Duration) {
        self.until(patience, || self.since(&self.moved)).await;
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

    /// Counts as progress.
    pub fn get_on(&self) {
        self.note(&self.got_on);
    }

    fn given(&self, bytes: usize) {
        self.ahead.fetch_add(bytes, Ordering::AcqRel);
        self.get_on();
    }

    /// Counts written bytes of a reply as progress, too, since its last piece was handed out long before. On a stalled
    /// stream, keep-alives alone never reach [`STEP`].
    fn wrote(&self, bytes: usize) {
        let less = |ahead: usize| Some(ahead.saturating_sub(bytes));
        let order = Ordering::AcqRel;
        let ahead = self.ahead.fetch_update(order, Ordering::Acquire, less);
        if ahead.is_ok_and(|ahead| ahead == 0) {
            return;
        }
        if self.written.fetch_add(bytes, order) + bytes >= STEP {
            self.written.store(0, Ordering::Release);
            self.get_on();
        }
    }

    fn since(&self, last: &AtomicU64) -> Duration {
        let last = Duration::from_millis(last.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }

    fn note(&self, last: &AtomicU64) {
        let millis = self.start.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        last.store(millis, Ordering::Relaxed);
    }
}

impl Work {
    /// Ends the work with its reply.
    pub fn replied(self, body: Body) -> Taken {
        Taken {
            body,
            rest: Bytes::new(),
            activity: self.0.clone(),
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let activity = &self.0;
        activity.note(&activity.moved);
        activity.get_on();
        activity.working.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HttpBody for Taken {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let length = self.rest.len().min(PIECE);
        self.activity.given(length);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut all = SizeHint::new();
        all.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            all.set_upper(upper.saturating_add(rest));
        }
        all
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
            self.activity.note(&self.activity.moved);
        }
        moved
    }

    fn noting_written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.activity.wrote(*bytes);
        }
        self.noting(written)
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
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.noting_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.noting_written(written)
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

#[cfg(test)]
mod tests;
