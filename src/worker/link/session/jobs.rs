//! One attempt of one job: numbers its frames, gathers its deltas, and keeps what may have to be sent again.

use std::collections::VecDeque;
use std::time::Duration;

use super::words::{Agreement, Moment};
use muster_protocol::job::{Channel, Event};
use muster_protocol::link::{About, Claim, Extension, write_tokens};

/// Deltas gather for so long, or until there are so many.
pub const GATHER: Duration = Duration::from_millis(20);
pub const MOST_GATHERED: usize = 16;
/// What a job may keep for sending again.
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
    /// When something last left.
    flushed: Option<Moment>,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    /// When anything was last said about it.
    pub spoke: Moment,
    pub has_output: bool,
    pub deadline: Option<Moment>,
    /// All that was written, for public peers, who are told it again at the end.
    pub written: Option<Written>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    /// Told to stop; the last word is awaited.
    Stopping,
    /// The last word was said then. After a `done` an answer is awaited for a while.
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

    /// The last word has been said, has arrived, and needs no answer.
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

    /// A name for the next so many frames or deltas.
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

    /// Adds what belongs together.
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

    /// When what has gathered has to leave: at once if nothing left for a while, so that a slow stream is not
    /// made slower.
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

    /// The frames of what has gathered.
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

    /// Remembers a frame until it is confirmed. Whether there was room.
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

    /// What has to be sent again.
    pub fn kept(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(|kept| kept.text.as_str())
    }

    /// What a coordinator is told when we come back.
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

/// Only those who can resume want token ids.
fn forget_tokens(event: &mut Event) {
    match event {
        Event::Token(token) => token.ids.clear(),
        Event::ToolCall(call) => call.ids.clear(),
        _ => {}
    }
}

/// A delta that says nothing.
fn is_empty(event: &Event) -> bool {
    matches!(event, Event::Token(token) if token.text.is_empty() && token.logprobs.is_empty())
}
