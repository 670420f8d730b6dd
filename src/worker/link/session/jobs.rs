//! An attempt of a job: numbers its frames, batches its deltas, and keeps frames that may have to be sent again.

use std::collections::VecDeque;
use std::time::Duration;

use super::words::{Agreement, Moment};
use muster_protocol::job::{Channel, Event};
use muster_protocol::link::{About, Claim, Extension, write_tokens};

/// Deltas are batched for this time, or up to this number.
pub const GATHER: Duration = Duration::from_millis(20);
pub const MOST_GATHERED: usize = 16;
/// Limit of a job's kept frames.
pub const MOST_KEPT_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub struct Job {
    /// Without a number: each frame gets its own.
    pub about: About,
    pub model: String,
    agreement: Agreement,
    pub phase: Phase,
    /// The number of the newest frame.
    seq: u64,
    gathered: Vec<Event>,
    /// When the last batch was sent.
    flushed: Option<Moment>,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    /// When the last frame was sent.
    pub spoke: Moment,
    pub has_output: bool,
    pub deadline: Option<Moment>,
    /// The text so far, for public peers, who get it again at the end.
    pub written: Option<Written>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    /// Cancelled; the final frame is pending.
    Stopping,
    /// Time of the final frame. After a `done` a reply is awaited for a limited time.
    Ended {
        at: Moment,
        awaits_ack: bool,
    },
}

#[derive(Debug, Default)]
pub struct Written {
    pub content: String,
    pub reasoning: String,
}

/// A frame that may have to be sent again.
#[derive(Debug)]
struct Kept {
    last: u64,
    text: String,
}

impl Job {
    pub fn new(about: About, model: &str, agreement: Agreement, now: Moment) -> Self {
        let is_public = !agreement.has(Extension::Multi);
        Self {
            about: About { seq: None, ..about },
            model: model.to_owned(),
            agreement,
            phase: Phase::Running,
            seq: 0,
            gathered: Vec::new(),
            flushed: None,
            kept: VecDeque::new(),
            kept_bytes: 0,
            spoke: now,
            has_output: false,
            deadline: None,
            written: is_public.then(Written::default),
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    /// The final frame was sent, has arrived, and needs no reply.
    pub fn is_over(&self) -> bool {
        let is_last_word = matches!(
            self.phase,
            Phase::Ended {
                awaits_ack: false,
                ..
            }
        );
        is_last_word && self.kept.is_empty()
    }

    /// The sequence number for the next frame or this many deltas.
    pub fn next_about(&mut self, deltas: usize) -> About {
        if !self.is_kept() {
            return self.about;
        }
        let first = self.seq + 1;
        self.seq += deltas as u64;
        About {
            seq: Some(first),
            ..self.about
        }
    }

    /// Adds a group of events.
    pub fn gather(&mut self, mut events: Vec<Event>) {
        self.has_output = true;
        if let Some(written) = &mut self.written {
            written.take(&events);
        }
        if !self.is_kept() {
            events.iter_mut().for_each(forget_tokens);
            events.retain(|event| !is_empty(event));
        }
        self.gathered.extend(events);
    }

    /// When the batch has to be sent: at once after a pause, so that a slow stream is not delayed.
    pub fn due(&self) -> Option<Moment> {
        if self.gathered.is_empty() {
            return None;
        }
        let at_once =
            !self.agreement.has(Extension::Coalesce) || self.gathered.len() >= MOST_GATHERED;
        match self.flushed {
            Some(flushed) if !at_once => Some(flushed.after(GATHER)),
            _ => Some(Moment::default()),
        }
    }

    /// The frames of the batch.
    pub fn flush(&mut self, now: Moment) -> Vec<String> {
        let events = std::mem::take(&mut self.gathered);
        if events.is_empty() {
            return Vec::new();
        }
        self.flushed = Some(now);
        self.spoke = now;
        let size = match self.agreement.has(Extension::Coalesce) {
            true => events.len(),
            false => 1,
        };
        let frames = events.chunks(size).map(|events| {
            let about = self.next_about(events.len());
            let mut text = String::with_capacity(128 + 48 * events.len());
            write_tokens(about, events, &mut text);
            text
        });
        frames.collect()
    }

    /// Keeps a frame until it is confirmed. Returns false above the memory limit.
    pub fn keep(&mut self, text: &str) -> bool {
        if self.is_kept() {
            self.kept_bytes += text.len();
            self.kept.push_back(Kept {
                last: self.seq,
                text: text.to_owned(),
            });
        }
        self.kept_bytes <= MOST_KEPT_BYTES
    }

    /// Frames up to this number have arrived.
    pub fn confirm(&mut self, seq: u64) {
        while let Some(first) = self.kept.front()
            && first.last <= seq
        {
            self.kept_bytes -= first.text.len();
            self.kept.pop_front();
        }
    }

    /// Frames to send again.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(|kept| kept.text.as_str())
    }

    /// The claim sent to a coordinator after a reconnection.
    pub fn claim(&self) -> Option<Claim> {
        Some(Claim {
            job: self.about.job,
            attempt: self.about.attempt?,
            last: self.seq,
        })
    }

    /// Whether its frames may have to be sent again.
    pub fn is_kept(&self) -> bool {
        self.agreement.has(Extension::Resume)
    }
}

impl Written {
    fn take(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Token(token) = event {
                match token.channel {
                    Channel::Content => self.content.push_str(&token.text),
                    Channel::Reasoning => self.reasoning.push_str(&token.text),
                    Channel::Refusal => {}
                }
            }
        }
    }
}

/// Only peers with resume need token ids.
fn forget_tokens(event: &mut Event) {
    match event {
        Event::Token(token) => token.ids.clear(),
        Event::ToolCall(call) => call.ids.clear(),
        _ => {}
    }
}

/// A delta without content.
fn is_empty(event: &Event) -> bool {
    matches!(event, Event::Token(token) if token.text.is_empty() && token.logprobs.is_empty())
}
