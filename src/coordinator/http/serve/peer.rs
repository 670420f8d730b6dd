//! A TCP stream that reports a closed peer while another task reads and writes. HTTP/1.1 stops reading while it has
//! bytes of a next request, so it would miss the close.

use std::future::pending;
use std::io::{self, IoSlice};
use std::net::{self, Shutdown};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Clones share the stream.
#[derive(Debug, Clone)]
pub struct Peer(Arc<TcpStream>);

impl Peer {
    pub fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Returns when the peer has closed its sending side.
    pub async fn goodbye(&self) {
        // Linux reports the peer's close even while data is unread.
        #[cfg(target_os = "linux")]
        if self
            .0
            .ready(Interest::PRIORITY)
            .await
            .is_ok_and(|ready| ready.is_read_closed())
        {
            return;
        }
        pending().await
    }
}

impl AsyncRead for Peer {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Peer {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Writes go straight to the kernel; nothing is buffered here.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // `shutdown` acts on the connection, so a duplicate descriptor will do.
        let same = self.0.as_fd().try_clone_to_owned()?;
        Poll::Ready(net::TcpStream::from(same).shutdown(Shutdown::Write))
    }
}
