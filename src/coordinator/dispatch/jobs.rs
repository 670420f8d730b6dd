//! An accepted job, from the queue to its settlement.

use std::sync::Arc;
use std::time::Duration;

use muster_protocol::job::{Channel, Event, Job, JobId, Progress, UnixMillis, Usage, WorkerId};

use super::clock::Mono;
use super::effect::{Outcome, Part, Prefill, Timing};
use super::fairness::Work;
use super::input::SessionId;
use super::lanes::LaneId;
use super::queue::Ticket;
use super::wants::Judged;
use super::workers::Choice;

/// Attempts of a job in this process that get numbers of their own. Few jobs have more, since they fail for good or are
/// lost first; a job of an earlier process is numbered from there on.
pub const MOST_ATTEMPTS: u32 = 8;
/// Longer outputs are not kept, so no other worker can continue them.
const MOST_KEPT: usize = 4 << 20;

#[derive(Debug)]
pub struct Entry {
    /// The client's own job.
    pub job: Arc<Job>,
    /// The job as the last worker got it, if its model's defaults filled in settings.
    pub bound: Option<Arc<Job>>,
    /// All jobs of the same request, this one included.
    pub siblings: Arc<[JobId]>,
    pub lane: LaneId,
    pub ticket: Ticket,
    pub accepted_at: UnixMillis,
    /// Attempts by earlier processes, or before the job was parked: later attempts get higher numbers.
    pub earlier: u32,
    pub expires: Mono,
    /// The job fails if no worker has it by then.
    pub start_by: Option<Mono>,
    /// The account may lack the kudos for this job.
    pub short: bool,
    /// Cached results of word lists for its prompt.
    pub judged: Judged,
    pub state: State,
    pub delivered: Delivered,
    pub history: History,
}

#[derive(Debug)]
pub enum State {
    Queued,
    Running(Lease),
    Settling(Settling),
}

/// An attempt on a worker.
#[derive(Debug)]
pub struct Lease {
    pub attempt: u32,
    pub worker: WorkerId,
    pub session: SessionId,
    /// Index of the worker's model.
    pub model: usize,
    /// Size of the worker's batch, this job included.
    pub together: u32,
    pub offered: Mono,
    pub heard: Mono,
    pub first_output: Option<Mono>,
    pub prompt_tokens: u32,
    /// Sequence number of the last frame.
    pub seq: u64,
    pub events: u64,
    /// A step of its image, audio or video is completed.
    pub has_progressed: bool,
    /// Other jobs ran on the worker when its socket was lost.
    pub was_accompanied: bool,
    pub tokens: u64,
    /// Time of the first silence check that failed since the last frame.
    pub doubted: Option<Mono>,
    pub phase: Phase,
}

#[derive(Debug)]
pub enum Phase {
    Live,
    /// The socket is gone; the worker may reconnect and resume. At `look`, another worker may take the job over.
    Orphaned {
        look: Mono,
        until: Mono,
    },
    /// The worker was told to stop; its further output is dropped.
    Cancelling {
        until: Mono,
        ending: Outcome,
    },
}

/// The job has ended and is being settled.
#[derive(Debug)]
pub struct Settling {
    pub outcome: Outcome,
    pub ack: Option<PendingAck>,
    pub tries: u32,
    /// `None` while the store is writing.
    pub next_try: Option<Mono>,
    pub give_up: Mono,
}

/// A `done` whose worker waits for its reward.
#[derive(Debug, Clone, Copy)]
pub struct PendingAck {
    pub worker: WorkerId,
    pub attempt: u32,
    pub seq: u64,
    /// The session of a polling worker's submit, even if that session has ended.
    pub polled: Option<SessionId>,
    /// Timeout of the wait, if there is one.
    pub due: Option<Mono>,
}

/// Output that the client has received.
#[derive(Debug, Default)]
pub struct Delivered {
    pub started: bool,
    pub percent: Option<u8>,
    pub events: u64,
    /// Token ids of the whole text; empty if a part came without.
    pub tokens: Vec<u32>,
    pub text: String,
    /// Token count of the output; a piece without ids counts as one.
    pub written: u32,
    /// Part of the output came without token ids, so only its text can be continued.
    pub lacks_tokens: bool,
    /// Part of the output is reasoning or a tool call, so the text is not the whole output.
    pub is_mixed: bool,
    /// Bytes of all text, kept or not.
    pub bytes: usize,
    /// Size of all output, with calls and log probabilities.
    pub weight: usize,
    /// Part of the output is not text, or is too long to keep, so no other worker can continue it.
    pub opaque: bool,
}

/// The form of a worker's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputSource {
    /// Text with token ids.
    Tokens,
    /// Text only: upstream programs send no token ids.
    Text,
    /// Not to be continued.
    Opaque,
}

#[derive(Debug, Default)]
pub struct History {
    pub attempts: u32,
    /// The last worker's model, under that worker's name.
    pub model: Option<Arc<str>>,
    pub failures: Vec<Failing>,
    /// Workers that dropped it, known once it has ended.
    pub dropped: Vec<WorkerId>,
    /// Workers that refused to continue another's output, once for each time.
    pub refused: Vec<WorkerId>,
    pub losses: u32,
    /// The last worker whose connection was lost.
    pub lost: Option<WorkerId>,
    /// Isolated from other jobs, since this job may have killed its worker.
    pub is_suspect: bool,
    /// Runs alone on its worker, whatever the kind of the other jobs.
    pub is_strict: bool,
    pub parts: Vec<Part>,
    pub usage: Option<Usage>,
    pub first_offer: Option<Mono>,
    pub first_output: Option<Mono>,
}

/// A failed attempt. When the job has ended, it may become a strike.
#[derive(Debug, Clone, Copy)]
pub struct Failing {
    pub worker: WorkerId,
    pub at: Mono,
    /// The worker's fault, unless the job turns out to be invalid.
    pub by_worker: bool,
    pub strikes: bool,
}

impl Lease {
    /// The work of the worker's whole batch, with jobs of this size.
    pub fn work(&self, one: Work) -> Work {
        Work(one.0.saturating_mul(self.together.max(1).into()))
    }
}

impl Entry {
    /// The job as the last worker got it: the size that counts and is paid.
    pub fn as_handed_out(&self) -> &Arc<Job> {
        self.bound.as_ref().unwrap_or(&self.job)
    }

    /// For durable jobs a random model of the request, the same for jobs given out together; the AI Horde API has no
    /// order of preference.
    pub fn choice(&self) -> Choice {
        match self.job.durable {
            true => Choice::Drawn(self.job.request.drawn()),
            false => Choice::First,
        }
    }

    /// Whether a lease of an earlier process may still exist: only for durable jobs without an attempt in this process,
    /// so that a worker that failed the job cannot claim it again.
    pub fn may_be_out_already(&self) -> bool {
        self.job.durable && self.earlier > 0 && self.history.attempts == 0
    }

    /// Timeout of the job while it waits.
    pub fn gives_up(&self) -> Mono {
        let start_by = self.start_by.filter(|_| self.history.attempts == 0);
        start_by.map_or(self.expires, |start_by| start_by.min(self.expires))
    }

    /// Drops the output so far, which no client has seen.
    pub fn start_over(&mut self) {
        self.delivered = Delivered::default();
        self.history.parts.clear();
        self.history.usage = None;
        self.history.first_output = None;
        self.history.refused.clear();
    }

    pub fn has_output(&self) -> bool {
        self.delivered.events > 0
    }

    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Running(lease) => Some(lease),
            State::Queued | State::Settling(_) => None,
        }
    }

    pub fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.state {
            State::Running(lease) => Some(lease),
            State::Queued | State::Settling(_) => None,
        }
    }

    pub fn prefill(&self) -> Option<Box<Prefill>> {
        self.has_output().then(|| {
            Box::new(Prefill {
                tokens: self.delivered.tokens.clone(),
                text: self.delivered.text.clone(),
                written: self.delivered.tokens_in_text(),
            })
        })
    }

    pub fn timing(&self, now: Mono) -> Timing {
        let after = |moment: Option<Mono>| moment.map(|at| at.since(self.ticket.arrived));
        Timing {
            accepted_at: self.accepted_at,
            queued: after(self.history.first_offer),
            first_output: after(self.history.first_output),
            total: now.since(self.ticket.arrived),
        }
    }

    /// Failed attempts of this job on this worker.
    pub fn failures_of(&self, worker: WorkerId) -> usize {
        self.history
            .failures
            .iter()
            .filter(|failing| failing.worker == worker)
            .count()
    }

    pub fn refusals_of(&self, worker: WorkerId) -> usize {
        let refused = self.history.refused.iter();
        refused.filter(|&&refused| refused == worker).count()
    }

    /// The workers that failed or refused this job, without duplicates.
    pub fn tried(&self) -> Vec<WorkerId> {
        let failed = self.history.failures.iter().map(|failing| failing.worker);
        let mut tried: Vec<_> = failed.chain(self.history.refused.iter().copied()).collect();
        tried.sort_unstable();
        tried.dedup();
        tried
    }
}

impl Delivered {
    /// Output that the client received from an earlier coordinator.
    pub fn of(events: &[Event]) -> Self {
        let has_ids = events.iter().any(|event| match event {
            Event::Token(token) => !token.ids.is_empty(),
            Event::ToolCall(call) => !call.ids.is_empty(),
            _ => false,
        });
        let source = match has_ids {
            true => OutputSource::Tokens,
            false => OutputSource::Text,
        };
        let mut delivered = Self::default();
        for event in events {
            delivered.admit(event, source);
        }
        delivered
    }

    /// Records an event before it is relayed. False if the client already has it from an earlier attempt.
    pub fn admit(&mut self, event: &Event, source: OutputSource) -> bool {
        self.weight = self.weight.saturating_add(weight(event));
        match event {
            Event::Started { .. } => !std::mem::replace(&mut self.started, true),
            Event::Progress(Progress { percent, .. }) => {
                let further = self.percent.is_none_or(|before| before < *percent);
                self.percent = self.percent.max(Some(*percent));
                further
            }
            Event::Token(token) => {
                self.is_mixed |= token.channel != Channel::Content;
                self.note(&token.ids, &token.text, source);
                true
            }
            Event::ToolCall(call) => {
                self.is_mixed = true;
                self.note(&call.ids, "", source);
                true
            }
            Event::Media(_) | Event::Part(_) => {
                self.note(&[], "", OutputSource::Opaque);
                true
            }
            Event::Note(_) | Event::Preview { .. } | Event::Usage(_) | Event::Prompt(_) => true,
            // Workers do not send it.
            Event::Restarted => false,
            Event::Done { .. } | Event::Failed(_) => false,
        }
    }

    /// Whether another worker can continue the output without a gap or a repetition.
    pub fn can_go_on(&self) -> bool {
        self.has_tokens() || self.tokens_in_text().is_some()
    }

    /// Whether another worker can continue from the token ids.
    pub fn has_tokens(&self) -> bool {
        !self.opaque && !self.tokens.is_empty()
    }

    /// Token count of the text, if the text is the whole output.
    fn tokens_in_text(&self) -> Option<u32> {
        let is_all = !self.opaque && !self.is_mixed && !self.text.is_empty();
        is_all.then_some(self.written)
    }

    fn note(&mut self, ids: &[u32], text: &str, source: OutputSource) {
        self.events += 1;
        self.bytes = self.bytes.saturating_add(text.len());
        let pieces = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let pieces = pieces.max(u32::from(!text.is_empty()));
        self.written = self.written.saturating_add(pieces);
        self.lacks_tokens |= source == OutputSource::Text;
        let kept = 4 * (self.tokens.len() + ids.len()) + self.text.len() + text.len();
        self.opaque |= source == OutputSource::Opaque || kept > MOST_KEPT;
        if self.opaque {
            (self.tokens, self.text) = (Vec::new(), String::new());
        } else {
            match self.lacks_tokens {
                true => self.tokens = Vec::new(),
                false => self.tokens.extend_from_slice(ids),
            }
            self.text.push_str(text);
        }
    }
}

/// The bytes of an output, approximately.
pub fn weight(event: &Event) -> usize {
    // A number, or the overhead of a string.
    const EACH: usize = 8;
    match event {
        Event::Token(token) => {
            let logprobs = token.logprobs.iter().map(|one| {
                let top = one.top.iter().map(|(text, _)| text.len() + EACH);
                one.bytes.len() + EACH + top.sum::<usize>()
            });
            token.text.len() + logprobs.sum::<usize>()
        }
        Event::ToolCall(call) => {
            let named = [&call.id, &call.name].into_iter().flatten();
            call.arguments.len() + named.map(|text| text.len()).sum::<usize>()
        }
        Event::Prompt(prompt) => {
            let tokens = prompt.tokens.iter().map(|one| {
                let top = one.top.iter().map(|(text, _)| text.len() + EACH);
                one.bytes.len() + EACH + top.sum::<usize>()
            });
            tokens.sum()
        }
        Event::Part(result) => result.weight(),
        _ => 0,
    }
}

impl Lease {
    pub fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// Counts an output event of this attempt.
    pub fn count(&mut self, event: &Event, now: Mono) {
        self.first_output.get_or_insert(now);
        self.events += 1;
        self.tokens += match event {
            Event::Token(token) => token.ids.len() as u64,
            Event::ToolCall(call) => call.ids.len() as u64,
            _ => 0,
        };
    }
}

impl Settling {
    /// The next deadline while the store does not answer.
    pub fn due(&self) -> Mono {
        let ack = self.ack.and_then(|ack| ack.due);
        let moments = [Some(self.give_up), self.next_try, ack]
            .into_iter()
            .flatten();
        moments.min().unwrap_or(self.give_up)
    }

    /// A quarter of a second, doubled up to four.
    pub fn backoff(&self) -> Duration {
        Duration::from_millis(250 << self.tries.min(4))
    }
}
