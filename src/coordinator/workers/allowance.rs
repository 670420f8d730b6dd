//! Strangers may send so much and no more: whoever has not said who it is cannot make us hold large frames.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Room for the longest registration there is, and for what a library puts around it.
const REGISTRATION: usize = 2 << 20;

/// A stream that ends with an error once more was read than is allowed.
#[derive(Debug)]
pub struct Allowance<S> {
    stream: S,
    /// None: as much as it likes.
    left: Option<usize>,
    /// What it has taken from us: a slow peer is told from one that takes nothing.
    written: u64,
}

impl<S> Allowance<S> {
    pub fn for_a_stranger(stream: S) -> Self {
        Self {
            stream,
            left: Some(REGISTRATION),
            written: 0,
        }
    }

    /// It has said who it is.
    pub fn lift(&mut self) {
        self.left = None;
    }

    pub fn written(&self) -> u64 {
        self.written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Allowance<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        let Some(left) = &mut self.left else {
            return read;
        };
        match left.checked_sub(count) {
            Some(rest) => *left = rest,
            None => return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into())),
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Allowance<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = wrote {
            self.written += count as u64;
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
