//! The shell of a worker's session: one task reads, writes and keeps time, and none of these waits for another.
//! Everything read at once is passed on at once, and everything written at once leaves in one write.

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
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};

use super::farewell::{Ended, Farewell};
use super::message_room::MessageRoom;
use super::session::{Session, Told};
use super::uploads::Uploads;
use super::{Guest, WorkersSettings};
use crate::dispatch::Input;
use crate::switchboard::{Order, Orders};
use muster_process::intake::Intake;
use muster_protocol::link::{LARGEST_FRAME, PUBLIC_FRAME, ToWorker};

/// Limit of frames, or of their pieces, per read.
const READ_AT_ONCE: usize = 128;
/// How long a peer may take to read its close frame.
const LEAVING: Duration = Duration::from_secs(2);

pub struct Socket<S> {
    stream: WebSocketStream<Intake<S, MessageRoom>>,
    settings: Arc<WorkersSettings>,
}

/// The connection of one worker.
struct Conversation<'a, S> {
    socket: &'a mut Socket<S>,
    session: Session,
    uploads: Uploads,
    orders: Arc<Orders>,
    negotiates: bool,
    /// Orders that wait for the socket.
    waiting: VecDeque<Order>,
    /// Inputs to pass on.
    inputs: Vec<Input>,
    frame: String,
    unflushed: bool,
    /// Since when the peer has read nothing, and its byte count by then.
    blocked: Option<(Instant, u64)>,
    heard: Instant,
    asked: bool,
    alarm: Pin<Box<Sleep>>,
}

impl<S> Socket<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    pub fn new(
        stream: WebSocketStream<Intake<S, MessageRoom>>,
        settings: Arc<WorkersSettings>,
    ) -> Self {
        Self { stream, settings }
    }

    /// The text of the first text frame.
    pub async fn first_frame(&mut self) -> Result<Utf8Bytes, Farewell> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => {
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

    pub async fn converse(&mut self, guest: Guest) -> Ended {
        let Guest {
            negotiates,
            session,
            orders,
            line,
            ..
        } = guest;
        let uploads = self.settings.results.clone();
        let alarm = Box::pin(sleep(self.settings.ping_every));
        let mut conversation = Conversation {
            socket: self,
            session,
            uploads: Uploads::new(uploads),
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
        conversation.intake().set_allowance(None);
        loop {
            conversation.set_limit();
            let end = poll_fn(|context| conversation.poll(context)).await;
            let mut inputs = std::mem::take(&mut conversation.inputs);
            if end.is_some() {
                inputs.extend(conversation.uploads.finish().await);
            }
            // Inputs received before the end count.
            if !inputs.is_empty() && line.say(inputs).await.is_err() {
                return conversation.stopping();
            }
            conversation.intake().budget_mut().release();
            if let Some(ended) = end {
                return ended;
            }
        }
    }

    /// Sends the last frames, as far as the peer still reads.
    pub async fn leave(mut self, farewell: Farewell) {
        let (close, why) = match farewell {
            Farewell::Silently => {
                // Sends the library's pending frames, such as the reply to a close.
                let _ = timeout(LEAVING, self.stream.flush()).await;
                return;
            }
            Farewell::Close { code, why } => (code, why),
            Farewell::Refused { frame, close } => {
                let text = ToWorker::Error(frame).to_text();
                // A peer that does not read gets no close.
                let sent = self.stream.send(Message::text(text));
                let _ = timeout(LEAVING, sent).await;
                (close, "")
            }
        };
        let _ = timeout(LEAVING, self.close(close, why)).await;
    }

    /// Closes, and reads until the peer does: dropping a socket with unread input may lose written data.
    async fn close(&mut self, code: u16, why: &'static str) -> Result<(), Error> {
        let frame = CloseFrame {
            code: CloseCode::from(code),
            reason: Utf8Bytes::from_static(why),
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
    /// Ready with new inputs, or with the end.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Ended>> {
        let end = self
            .read(context)
            .or_else(|| self.unfinished_end(context))
            .or_else(|| self.write(context))
            .or_else(|| self.keep_time(context));
        for upload in self.session.take_uploads() {
            self.uploads.add(upload);
        }
        self.uploads.poll(context, &mut self.inputs);
        match (&end, self.inputs.is_empty()) {
            (None, true) => Poll::Pending,
            _ => Poll::Ready(end),
        }
    }

    fn read(&mut self, context: &mut Context<'_>) -> Option<Ended> {
        for _ in 0..READ_AT_ONCE {
            if self.inputs.len() >= READ_AT_ONCE {
                break;
            }
            match Pin::new(&mut self.socket.stream).poll_next(context) {
                Poll::Pending => return None,
                Poll::Ready(Some(Ok(message))) => {
                    self.heard = Instant::now();
                    self.asked = false;
                    if let Some(ended) = self.heard(&message) {
                        return Some(ended);
                    }
                }
                Poll::Ready(Some(Err(error))) => return Some(Ended::broken(&error)),
                Poll::Ready(None) => return Some(Ended::silently("the connection ended")),
            }
        }
        // There may be more, but other tasks get a turn first.
        context.waker().wake_by_ref();
        None
    }

    fn intake(&mut self) -> &mut Intake<S, MessageRoom> {
        self.socket.stream.get_mut()
    }

    /// Without jobs, no large frames are expected.
    fn set_limit(&mut self) {
        let limit = match self.session.has_jobs() {
            true => LARGEST_FRAME,
            false => PUBLIC_FRAME,
        };
        self.intake().set_limit(limit);
    }

    /// Ends the socket if its unfinished message is too slow or its memory was needed. Pings do not count as progress.
    fn unfinished_end(&mut self, context: &mut Context<'_>) -> Option<Ended> {
        let intake = self.intake();
        if intake.is_overdue() {
            return Some(Ended::slow_message());
        }
        let gave_way = intake.budget_mut().poll_gave_way(context);
        gave_way.is_ready().then(Ended::gave_way)
    }

    fn heard(&mut self, message: &Message) -> Option<Ended> {
        match message {
            Message::Text(text) => {
                let could_ping = self.session.may_ping();
                if let Err(unreadable) = self.session.hear(text, &mut self.inputs) {
                    let why = format!("invalid frame: {}", unreadable.0);
                    return Some(Ended::silently(why));
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
            Message::Binary(_) => Some(Ended::silently("unexpected binary frame")),
            Message::Close(frame) => Some(Ended::by_peer(frame.as_ref())),
            Message::Frame(_) => None,
        }
    }

    fn write(&mut self, context: &mut Context<'_>) -> Option<Ended> {
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
                    Poll::Ready(Err(error)) => return Some(Ended::unwritable(&error)),
                    Poll::Pending => return self.flush(context),
                }
                if let Some(ended) = self.next_order() {
                    return Some(ended);
                }
            }
        }
    }

    fn next_order(&mut self) -> Option<Ended> {
        let order = self.waiting.pop_front()?;
        self.frame.clear();
        match self.session.tell(order, &mut self.frame) {
            Told::Nothing => {}
            Told::Instead(instead) => self.inputs.push(self.session.heard_instead(*instead)),
            Told::Close(reason) => return Some(Ended::by_dispatch(reason, self.negotiates)),
            Told::Written => {
                self.set_limit();
                // The text is moved into the frame; the next one starts with a new buffer.
                let text = std::mem::take(&mut self.frame);
                if let Err(error) = self.send(Message::text(text)) {
                    return Some(Ended::unwritable(&error));
                }
                self.rest();
            }
        }
        None
    }

    /// Ends the socket at shutdown. A peer with the drain extension reconnects at once; others take the close for a
    /// replacement.
    fn stopping(&mut self) -> Ended {
        let within = Duration::ZERO;
        self.frame.clear();
        if self.session.tell(Order::Drain { within }, &mut self.frame) == Told::Written {
            let text = std::mem::take(&mut self.frame);
            // A closed connection needs no close frame.
            let _ = self.send(Message::text(text));
        }
        Ended::stopping()
    }

    fn send(&mut self, message: Message) -> Result<(), Error> {
        self.unflushed = true;
        Pin::new(&mut self.socket.stream).start_send(message)
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Option<Ended> {
        if !self.unflushed {
            return None;
        }
        match Pin::new(&mut self.socket.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => {
                self.unflushed = false;
                self.blocked = None;
                None
            }
            Poll::Ready(Err(error)) => Some(Ended::unwritable(&error)),
            Poll::Pending => {
                let written = self.socket.stream.get_ref().written();
                if self.blocked.is_none_or(|(_, before)| before != written) {
                    self.blocked = Some((Instant::now(), written));
                }
                None
            }
        }
    }

    fn keep_time(&mut self, context: &mut Context<'_>) -> Option<Ended> {
        while pin!(&mut self.alarm).poll(context).is_ready() {
            let now = Instant::now();
            let settings = &self.socket.settings;
            let blocked = self.blocked.map(|(since, _)| now - since);
            if blocked.is_some_and(|time| time >= settings.write_patience) {
                return Some(Ended::silently("writing timed out"));
            }
            if now - self.heard >= settings.silence {
                return Some(Ended::silently("heartbeat missed"));
            }
            if let Err(error) = self.ping(now) {
                return Some(Ended::unwritable(&error));
            }
            self.rest();
            if let Some(ended) = self.flush(context) {
                return Some(ended);
            }
        }
        None
    }

    /// A ping frame for idle peers; a control ping for busy ones, answered by their library.
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

    /// Resets the time until the next ping.
    fn rest(&mut self) {
        let next = Instant::now() + self.socket.settings.ping_every;
        self.alarm.as_mut().reset(next);
    }
}
