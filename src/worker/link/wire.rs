//! A socket and the messages that wait for it. Reading and writing never wait for each other.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Sink, Stream};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::warn;

use super::dial::Socket;
use muster_process::intake::MessageRefused;
use muster_protocol::link::LARGEST_FRAME;

/// Limit of unsent bytes, after which the socket counts as lost.
const MOST_UNSENT_BYTES: usize = 32 << 20;
const STANDSTILL: Duration = Duration::from_secs(10);

/// The reason why a socket was closed.
pub struct Closed {
    /// If the coordinator's close frame has a code.
    pub code: Option<u16>,
    /// The reason in the close frame.
    pub why: String,
}

impl Closed {
    /// Closed by the worker if a message exceeds a limit.
    fn of(error: &Error) -> Self {
        if let Error::Io(error) = error
            && let Some(refused) = MessageRefused::of(error)
        {
            warn!("closing the socket to the coordinator: {refused}");
        }
        Self::broken()
    }

    fn broken() -> Self {
        Self {
            code: None,
            why: String::new(),
        }
    }
}

/// A socket and its queue of unsent messages.
pub struct Wire {
    socket: Socket,
    unsent: VecDeque<Message>,
    unsent_bytes: usize,
    needs_flush: bool,
    /// When the socket last accepted bytes.
    moved: Instant,
}

impl Wire {
    pub fn new(socket: Socket) -> Self {
        Self {
            socket,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            needs_flush: false,
            moved: Instant::now(),
        }
    }

    pub fn push(&mut self, message: Message) {
        if self.unsent.is_empty() {
            self.moved = Instant::now();
        }
        self.unsent_bytes += message.len();
        self.unsent.push_back(message);
    }

    pub fn is_overfull(&self) -> bool {
        self.unsent_bytes > MOST_UNSENT_BYTES && self.moved.elapsed() > STANDSTILL
    }

    /// Jobs may be as large as any frame.
    pub fn allow_jobs(&mut self) {
        self.socket.get_mut().set_limit(LARGEST_FRAME);
    }

    /// When a message that has begun has to be there.
    pub fn deadline(&self) -> Option<Instant> {
        self.socket.get_ref().deadline()
    }

    pub fn is_overdue(&self) -> bool {
        self.socket.get_ref().is_overdue()
    }

    /// Writes as much as possible, then returns the next message.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, Closed>> {
        if let Poll::Ready(Err(_)) = self.poll_write(cx) {
            return Poll::Ready(Err(Closed::broken()));
        }
        match Pin::new(&mut self.socket).poll_next(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(Message::Close(frame)))) => {
                let code = frame.as_ref().map(|frame| u16::from(frame.code));
                let why = frame.map(|frame| frame.reason.to_string());
                Poll::Ready(Err(Closed {
                    code,
                    why: why.unwrap_or_default(),
                }))
            }
            Poll::Ready(Some(Ok(message))) => Poll::Ready(Ok(message)),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Err(Closed::of(&error))),
            Poll::Ready(None) => Poll::Ready(Err(Closed::broken())),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut socket = Pin::new(&mut self.socket);
        while let Some(message) = self.unsent.pop_front() {
            match socket.as_mut().poll_ready(cx) {
                Poll::Ready(Ok(())) => {
                    self.unsent_bytes -= message.len();
                    self.moved = Instant::now();
                    socket.as_mut().start_send(message)?;
                    self.needs_flush = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.unsent.push_front(message);
                    return Poll::Pending;
                }
            }
        }
        if self.needs_flush {
            match socket.poll_flush(cx) {
                Poll::Ready(Ok(())) => self.needs_flush = false,
                other => return other,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the rest, and reads until the other side has closed, too.
    pub async fn finish(&mut self) {
        while poll_fn(|cx| self.poll(cx)).await.is_ok() {}
        // The answer to a close is written by reading on.
        let _ = poll_fn(|cx| self.poll(cx)).await;
    }
}
