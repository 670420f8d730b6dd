//! Events as a body of server-sent events, or of lines: everything that is ready goes into one frame of one buffer.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use hyper::body::Frame;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::error::ApiError;
use crate::http::journal::{JOURNAL, JournalWriter};
use crate::http::reply::streamed;
use crate::state::DoorSettings;
use muster_protocol::job::{Event, Failure};
use muster_protocol::openai::chat::StreamWriter;

use super::choices::{Choices, Next, shutting_down};
use super::refused;

/// A streamed reply.
#[derive(Debug)]
pub struct Relay {
    writer: Box<dyn StreamWriter>,
    out: BytesMut,
    /// None when the stream has ended.
    choices: Option<Choices>,
    count: u32,
    kind: &'static str,
    heartbeat: Duration,
    silence: Pin<Box<Sleep>>,
    commit_after: Duration,
    mode: RelayMode,
    /// The body breaks off behind `out`, so that the node of the client goes on elsewhere.
    is_handed_over: bool,
}

/// Whether a node can continue the reply at another coordinator.
#[derive(Debug)]
pub enum RelayMode {
    /// The reply ends with this coordinator.
    Plain,
    /// The events of each frame come beside it.
    Journaled(JournalWriter),
    /// The same, and the client has the beginning of the reply from an earlier coordinator.
    Continued(JournalWriter),
}

/// The end of a reply before its last choice has ended.
enum RelayBreak {
    Failed(Failure),
    HandedOver,
}

/// Another coordinator goes on with the reply.
#[derive(Debug, thiserror::Error)]
#[error("another coordinator goes on with this reply")]
pub struct HandoverError;

/// A frame is sent at this size, even if more is ready.
const LARGEST_FRAME: usize = 64 << 10;
/// Usual size of a frame.
const FRAME: usize = 4 << 10;

impl Relay {
    pub fn new(
        (writer, kind): (Box<dyn StreamWriter>, &'static str),
        count: u32,
        choices: Choices,
        settings: &DoorSettings,
        mode: RelayMode,
    ) -> Self {
        let mut relay = Self {
            writer,
            out: BytesMut::with_capacity(FRAME),
            choices: Some(choices),
            count,
            kind,
            heartbeat: settings.heartbeat,
            silence: Box::pin(sleep(settings.heartbeat)),
            commit_after: settings.commit_after,
            mode,
            is_handed_over: false,
        };
        let is_replaying = relay.choices.as_ref().is_some_and(Choices::is_replaying);
        if relay.is_continued() && !is_replaying {
            // The client has the beginning, though no event.
            relay.drop_replayed();
        }
        relay
    }

    fn is_continued(&self) -> bool {
        matches!(self.mode, RelayMode::Continued(_))
    }

    /// Waits a short time for the first event, so that an early failure gets its own status.
    pub async fn open(mut self) -> Result<Response, ApiError> {
        let first = timeout(self.commit_after, poll_fn(|context| self.fill(context))).await;
        match first {
            Ok(Err(RelayBreak::Failed(failure))) if self.is_continued() => {
                self.writer.fail(&failure.into(), &mut self.out);
            }
            Ok(Err(RelayBreak::Failed(failure))) => return Err(refused::failed(failure)),
            Ok(Err(RelayBreak::HandedOver)) => self.is_handed_over = true,
            Ok(Ok(())) | Err(_) => {}
        }
        self.open_choices();
        let (kind, has_journal) = (self.kind, self.mode.journal().is_some());
        let mut response = streamed(Body::new(self), kind);
        if has_journal {
            let yes = HeaderValue::from_static("1");
            response.headers_mut().insert(JOURNAL, yes);
        }
        Ok(response)
    }

    fn open_choices(&mut self) {
        for choice in 0..self.count {
            self.writer.open(choice, &mut self.out);
        }
    }

    /// The client has the output up to here.
    fn drop_replayed(&mut self) {
        self.open_choices();
        self.out.clear();
    }

    /// Writes everything that is ready. Ready after any event, even one without output.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RelayBreak>> {
        let mut happened = false;
        while self.out.len() < LARGEST_FRAME {
            let Some(choices) = &mut self.choices else {
                break;
            };
            let is_replayed = choices.is_replaying();
            let Poll::Ready(next) = choices.poll_next(context) else {
                break;
            };
            let is_last = is_replayed && !choices.is_replaying();
            happened = true;
            if let (Some(journal), Some(next), false) = (self.mode.journal(), &next, is_replayed) {
                match next {
                    Next::Event(choice, event) => journal.note(*choice, event),
                    Next::End(choice, ending, _) => journal.end(*choice, ending),
                    Next::Restarted(_) | Next::Failed(_) | Next::HandedOver => {}
                }
            }
            match next {
                Some(Next::Event(choice, event)) => self.write(choice, &event),
                // Streamed jobs are resumed, never restarted.
                Some(Next::Restarted(_)) => {}
                Some(Next::End(choice, ending, grid)) => {
                    self.writer.end(choice, ending, &grid, &mut self.out);
                }
                Some(Next::Failed(failure)) => {
                    self.choices = None;
                    return Poll::Ready(Err(RelayBreak::Failed(failure)));
                }
                Some(Next::HandedOver) => {
                    self.choices = None;
                    return Poll::Ready(Err(match self.mode {
                        RelayMode::Plain => RelayBreak::Failed(shutting_down()),
                        _ => RelayBreak::HandedOver,
                    }));
                }
                None => self.choices = None,
            }
            if is_last {
                self.drop_replayed();
            } else if is_replayed {
                self.out.clear();
            }
        }
        if happened || self.choices.is_none() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    fn write(&mut self, choice: u32, event: &Event) {
        // The first chunk may report the length of the prompt.
        self.writer.event(choice, event, &mut self.out);
        if let Event::Started { .. } = event {
            self.writer.open(choice, &mut self.out);
        }
    }

    /// Takes the bytes written since the last frame.
    fn frame(&mut self) -> Poll<Option<Result<Frame<Bytes>, HandoverError>>> {
        let silent_until = Instant::now() + self.heartbeat;
        self.silence.as_mut().reset(silent_until);
        let frame = self.out.split().freeze();
        self.out.reserve(FRAME);
        let frame = match self.mode.journal() {
            Some(journal) => journal.frame(&frame),
            None => frame,
        };
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}

impl RelayMode {
    fn journal(&mut self) -> Option<&mut JournalWriter> {
        match self {
            Self::Plain => None,
            Self::Journaled(journal) | Self::Continued(journal) => Some(journal),
        }
    }
}

impl hyper::body::Body for Relay {
    type Data = Bytes;
    type Error = HandoverError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HandoverError>>> {
        let this = self.get_mut();
        loop {
            if this.is_handed_over {
                return match this.out.is_empty() {
                    true => Poll::Ready(Some(Err(HandoverError))),
                    // With its journal.
                    false => this.frame(),
                };
            }
            match this.fill(context) {
                Poll::Ready(Ok(())) if this.out.is_empty() && this.choices.is_none() => {
                    return Poll::Ready(None);
                }
                Poll::Ready(Ok(())) if this.out.is_empty() => {}
                Poll::Ready(Ok(())) => return this.frame(),
                Poll::Ready(Err(RelayBreak::Failed(failure))) => {
                    this.writer.fail(&failure.into(), &mut this.out);
                    return this.frame();
                }
                Poll::Ready(Err(RelayBreak::HandedOver)) => this.is_handed_over = true,
                Poll::Pending if !this.out.is_empty() => return this.frame(),
                Poll::Pending => {
                    std::task::ready!(this.silence.as_mut().poll(context));
                    this.writer.heartbeat(&mut this.out);
                    return this.frame();
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.choices.is_none() && self.out.is_empty() && !self.is_handed_over
    }
}
