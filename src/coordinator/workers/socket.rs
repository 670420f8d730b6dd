//! The shell of a worker's conversation: one task reads, writes and keeps time, and never lets one of them wait for
//! another. What is read in one go is handed over in one go, and what is written in one go leaves in one write.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};
use tracing::{debug, info};

use super::admission::{CLOSE_REFUSED, Rejection};
use super::allowance::Allowance;
use super::session::{Session, Told};
use super::{Guest, WorkersSettings};
use crate::coordinator::dispatch::{CloseReason, Input};
use crate::coordinator::switchboard::{Order, Orders};
use crate::protocol::link::{RefusalFrame, ToWorker};

/// Frames read, or words in them, before they are handed over.
const READ_AT_ONCE: usize = 128;
/// A peer that is told to go has so long to read it.
const LEAVING: Duration = Duration::from_secs(2);
/// We are going, or somebody else is here under this name.
const CLOSE_RESTART: u16 = 1012;

pub struct Socket<S> {
    stream: WebSocketStream<Allowance<S>>,
    settings: Arc<WorkersSettings>,
}

/// How a socket ends.
#[derive(Debug)]
pub enum Farewell {
    /// The peer knows, or would not understand.
    Silently,
    Close(u16),
    /// Why, and then the close.
    Refused {
        frame: RefusalFrame,
        close: u16,
    },
}

/// The conversation with one worker.
struct Conversation<'a, S> {
    socket: &'a mut Socket<S>,
    session: Session,
    orders: Arc<Orders>,
    negotiates: bool,
    /// Orders that the socket had no room for.
    waiting: VecDeque<Order>,
    /// What is to be handed over.
    inputs: Vec<Input>,
    frame: String,
    unflushed: bool,
    /// Since when the peer has taken nothing, and what it had taken by then.
    blocked: Option<(Instant, u64)>,
    heard: Instant,
    asked: bool,
    alarm: Pin<Box<Sleep>>,
}

impl<S> Socket<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    pub fn new(stream: WebSocketStream<Allowance<S>>, settings: Arc<WorkersSettings>) -> Self {
        Self { stream, settings }
    }

    /// The text of the first frame that has one.
    pub async fn first_frame(&mut self) -> Result<Utf8Bytes, Farewell> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => {
                    self.stream.get_mut().lift();
                    return Ok(text);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                    self.stream.flush().await.map_err(|_| Farewell::Silently)?;
                }
                Some(Ok(Message::Binary(_) | Message::Close(_))) | None => {
                    return Err(Farewell::Silently);
                }
                Some(Err(error)) => return Err(Farewell::of(&error)),
            }
        }
    }

    pub async fn converse(&mut self, guest: Guest) -> Farewell {
        let Guest {
            negotiates,
            session,
            orders,
            line,
            ..
        } = guest;
        let alarm = Box::pin(sleep(self.settings.ping_every));
        let mut conversation = Conversation {
            socket: self,
            session,
            orders,
            negotiates,
            waiting: VecDeque::new(),
            inputs: Vec::new(),
            frame: String::new(),
            unflushed: false,
            blocked: None,
            heard: Instant::now(),
            asked: false,
            alarm,
        };
        loop {
            let end = poll_fn(|context| conversation.poll(context)).await;
            let inputs = std::mem::take(&mut conversation.inputs);
            // What was said before the end counts.
            if !inputs.is_empty() && line.say(inputs).await.is_err() {
                return conversation.stopping();
            }
            if let Some(farewell) = end {
                return farewell;
            }
        }
    }

    /// Says the last words, as far as the peer still reads.
    pub async fn leave(mut self, farewell: Farewell) {
        let close = match farewell {
            Farewell::Silently => {
                // What the library still has to say, such as the answer to a close.
                let _ = timeout(LEAVING, self.stream.flush()).await;
                return;
            }
            Farewell::Close(code) => code,
            Farewell::Refused { frame, close } => {
                let text = ToWorker::Error(frame).to_text();
                // A peer that does not read is not told.
                let sent = self.stream.send(Message::text(text));
                let _ = timeout(LEAVING, sent).await;
                close
            }
        };
        let _ = timeout(LEAVING, self.close(close)).await;
    }

    /// Closes, and reads on until the peer has: a socket dropped with unread input may lose what was written.
    async fn close(&mut self, code: u16) -> Result<(), Error> {
        let frame = CloseFrame {
            code: CloseCode::from(code),
            reason: Utf8Bytes::default(),
        };
        self.stream.send(Message::Close(Some(frame))).await?;
        while let Some(Ok(_)) = self.stream.next().await {}
        self.stream.get_mut().shutdown().await?;
        Ok(())
    }
}

impl<S> Conversation<'_, S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Ready when there is something to hand over, or with the end.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Farewell>> {
        let end = self
            .read(context)
            .or_else(|| self.write(context))
            .or_else(|| self.keep_time(context));
        match (&end, self.inputs.is_empty()) {
            (None, true) => Poll::Pending,
            _ => Poll::Ready(end),
        }
    }

    fn read(&mut self, context: &mut Context<'_>) -> Option<Farewell> {
        for _ in 0..READ_AT_ONCE {
            if self.inputs.len() >= READ_AT_ONCE {
                break;
            }
            match Pin::new(&mut self.socket.stream).poll_next(context) {
                Poll::Pending => return None,
                Poll::Ready(Some(Ok(message))) => {
                    self.heard = Instant::now();
                    self.asked = false;
                    if let Some(farewell) = self.heard(&message) {
                        return Some(farewell);
                    }
                }
                Poll::Ready(Some(Err(error))) => return Some(Farewell::of(&error)),
                Poll::Ready(None) => return Some(Farewell::Silently),
            }
        }
        // There may be more, and others have their turn first.
        context.waker().wake_by_ref();
        None
    }

    fn heard(&mut self, message: &Message) -> Option<Farewell> {
        match message {
            Message::Text(text) => {
                let could_ping = self.session.may_ping();
                if let Err(unreadable) = self.session.hear(text, &mut self.inputs) {
                    debug!(reason = %unreadable.0, "a worker's frame is unreadable");
                    return Some(Farewell::Silently);
                }
                if !could_ping && self.session.may_ping() {
                    self.rest();
                }
                None
            }
            Message::Ping(_) | Message::Pong(_) => {
                self.unflushed = true;
                self.inputs.push(self.session.alive());
                None
            }
            Message::Binary(_) | Message::Close(_) => Some(Farewell::Silently),
            Message::Frame(_) => None,
        }
    }

    fn write(&mut self, context: &mut Context<'_>) -> Option<Farewell> {
        loop {
            if self.waiting.is_empty() {
                match self.orders.poll_take(&mut self.waiting, context) {
                    Poll::Pending => return self.flush(context),
                    Poll::Ready(false) => return Some(self.stopping()),
                    Poll::Ready(true) => {}
                }
            }
            while !self.waiting.is_empty() {
                match Pin::new(&mut self.socket.stream).poll_ready(context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return Some(Farewell::Silently),
                    Poll::Pending => return self.flush(context),
                }
                if let Some(farewell) = self.next_order() {
                    return Some(farewell);
                }
            }
        }
    }

    fn next_order(&mut self) -> Option<Farewell> {
        let order = self.waiting.pop_front()?;
        self.frame.clear();
        match self.session.tell(order, &mut self.frame) {
            Told::Nothing => {}
            Told::Instead(instead) => self.inputs.push(self.session.heard_instead(*instead)),
            Told::Close(reason) => return Some(self.closing(reason)),
            Told::Written => {
                // The text of a whole frame is handed over; a small buffer is as good for the next one.
                let text = std::mem::take(&mut self.frame);
                if self.send(Message::text(text)).is_err() {
                    return Some(Farewell::Silently);
                }
                self.rest();
            }
        }
        None
    }

    /// Whoever is told that we drain comes back at once; others take this close for a replacement.
    fn stopping(&mut self) -> Farewell {
        let within = Duration::ZERO;
        self.frame.clear();
        if self.session.tell(Order::Drain { within }, &mut self.frame) == Told::Written {
            let text = std::mem::take(&mut self.frame);
            // A peer that is gone needs no farewell.
            let _ = self.send(Message::text(text));
        }
        Farewell::Close(CLOSE_RESTART)
    }

    fn closing(&self, reason: CloseReason) -> Farewell {
        info!(?reason, "a worker's socket is closed");
        match reason {
            CloseReason::Barred { retry_after } => Farewell::Refused {
                frame: Rejection::cooling_down(retry_after).frame(self.negotiates),
                close: CLOSE_REFUSED,
            },
            other => other.code().map_or(Farewell::Silently, Farewell::Close),
        }
    }

    fn send(&mut self, message: Message) -> Result<(), Error> {
        self.unflushed = true;
        Pin::new(&mut self.socket.stream).start_send(message)
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Option<Farewell> {
        if !self.unflushed {
            return None;
        }
        match Pin::new(&mut self.socket.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => {
                self.unflushed = false;
                self.blocked = None;
                None
            }
            Poll::Ready(Err(_)) => Some(Farewell::Silently),
            Poll::Pending => {
                let written = self.socket.stream.get_ref().written();
                if self.blocked.is_none_or(|(_, before)| before != written) {
                    self.blocked = Some((Instant::now(), written));
                }
                None
            }
        }
    }

    fn keep_time(&mut self, context: &mut Context<'_>) -> Option<Farewell> {
        while pin!(&mut self.alarm).poll(context).is_ready() {
            let now = Instant::now();
            let settings = &self.socket.settings;
            let blocked = self.blocked.map(|(since, _)| now - since);
            if blocked.is_some_and(|time| time >= settings.write_patience)
                || now - self.heard >= settings.silence
            {
                info!("a worker's socket is dead");
                return Some(Farewell::Silently);
            }
            if self.ping(now).is_err() {
                return Some(Farewell::Silently);
            }
            self.rest();
            if let Some(farewell) = self.flush(context) {
                return Some(farewell);
            }
        }
        None
    }

    /// A frame for idle peers, which answer it; for those at work a control ping, which their library answers.
    fn ping(&mut self, now: Instant) -> Result<(), Error> {
        if self.blocked.is_some() {
            return Ok(());
        }
        if self.session.may_ping() {
            self.send(Message::text(ToWorker::Ping.to_text()))?;
        }
        if now - self.heard >= self.socket.settings.silence / 3 && !self.asked {
            self.asked = true;
            self.send(Message::Ping(Bytes::new()))?;
        }
        Ok(())
    }

    /// The pause until the next ping begins anew.
    fn rest(&mut self) {
        let next = Instant::now() + self.socket.settings.ping_every;
        self.alarm.as_mut().reset(next);
    }
}

impl Farewell {
    /// Peers are told what of theirs cannot be read where the protocol of sockets has a word for it.
    fn of(error: &Error) -> Self {
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => Self::Close(1009),
            Error::Utf8(_) => Self::Close(1007),
            Error::Protocol(_) => Self::Close(1002),
            _ => Self::Silently,
        }
    }
}
