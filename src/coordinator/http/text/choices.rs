//! The events of all choices of a request, in order of arrival. Dropping them cancels the unfinished jobs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::dispatch::{Outcome, Timing};
use crate::http::journal::{Journal, JournalEntry};
use crate::http::room::Room;
use crate::switchboard::{Delivery, JobStream};
use muster_protocol::job::{Event, Failure, FailureKind, Formats};
use muster_protocol::openai::chat::{Ending, Grid, Routing};

#[derive(Debug)]
pub struct Choices {
    /// None for an ended choice.
    streams: Vec<Option<JobStream>>,
    /// Events of an earlier coordinator, which come first.
    replayed: VecDeque<Next>,
    /// The choice to poll first, rotated so that all get their turn.
    turn: usize,
    seed: u64,
    routing: Option<Routing>,
    /// The client's API, if public workers may support it.
    api: Option<Formats>,
    /// Bytes of text received.
    size: usize,
    /// The memory permit of the request, for as long as its jobs may need the body.
    _kept: Arc<Room>,
}

/// Limit for all choices together, so that an endless reply of a worker cannot exhaust the memory.
const LARGEST_OUTPUT: usize = 64 << 20;

#[derive(Debug)]
pub enum Next {
    Event(u32, Event),
    End(u32, Ending, Grid),
    /// The choice restarts; its earlier output is void.
    Restarted(u32),
    /// A choice failed, and the request with it.
    Failed(Failure),
    /// The choice is left to another coordinator, unsettled.
    HandedOver,
}

impl Choices {
    pub fn new(
        streams: Vec<Option<JobStream>>,
        seed: u64,
        routing: Option<Routing>,
        api: Option<Formats>,
        kept: Arc<Room>,
    ) -> Self {
        Self {
            streams,
            replayed: VecDeque::new(),
            turn: 0,
            seed,
            routing,
            api,
            size: 0,
            _kept: kept,
        }
    }

    /// Begins with the events that the client received from an earlier coordinator.
    pub fn after(self, journal: &Journal) -> Self {
        let entries = journal.entries.iter().cloned();
        let replayed = entries.map(|(choice, entry)| match entry {
            JournalEntry::Event(event) => Next::Event(choice, event),
            JournalEntry::End(ending) => Next::End(choice, ending, Grid::default()),
        });
        Self {
            replayed: replayed.collect(),
            ..self
        }
    }

    /// Whether the next event is one of an earlier coordinator.
    pub fn is_replaying(&self) -> bool {
        !self.replayed.is_empty()
    }

    /// None when all have ended.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Next>> {
        if let Some(next) = self.replayed.pop_front() {
            return Poll::Ready(Some(next));
        }
        let count = self.streams.len();
        let mut waiting = false;
        for step in 0..count {
            let choice = (self.turn + step) % count;
            let Some(stream) = &mut self.streams[choice] else {
                continue;
            };
            match stream.poll_delivery(context) {
                Poll::Pending => waiting = true,
                Poll::Ready(delivery) => {
                    self.turn = choice + 1;
                    return Poll::Ready(Some(self.read(choice, delivery)));
                }
            }
        }
        if waiting {
            Poll::Pending
        } else {
            Poll::Ready(None)
        }
    }

    fn read(&mut self, choice: usize, delivery: Option<Delivery>) -> Next {
        let index = u32::try_from(choice).unwrap_or(u32::MAX);
        match delivery {
            Some(Delivery::Event(Event::Restarted)) => Next::Restarted(index),
            Some(Delivery::Event(event)) => {
                self.size = self.size.saturating_add(size(&event));
                match self.size > LARGEST_OUTPUT {
                    true => Next::Failed(too_long()),
                    false => Next::Event(index, event),
                }
            }
            Some(Delivery::End {
                outcome,
                timing,
                worker,
                upstream,
                format,
            }) => {
                self.streams[choice] = None;
                let (seed, routing) = (self.seed, self.routing.clone());
                let translated = self.api.filter(|_| is_translation(format));
                let translated = translated.and_then(|api| api.names().next());
                ended(index, outcome, |tokens| {
                    let Timing {
                        first_output,
                        total,
                        ..
                    } = timing;
                    let seed = seed.cast_signed();
                    Grid {
                        routing,
                        translated,
                        upstream,
                        ..Grid::new(worker, total, first_output, tokens, seed)
                    }
                })
            }
            None if self.streams[choice]
                .as_ref()
                .is_some_and(JobStream::is_parked) =>
            {
                Next::HandedOver
            }
            None => Next::Failed(shutting_down()),
        }
    }
}

/// The neutral request of our own workers has every field of the client's body; these formats may not.
fn is_translation(format: Formats) -> bool {
    format.meets(Formats::OPENAI_CHAT.with(Formats::LEGACY))
}

fn size(event: &Event) -> usize {
    match event {
        Event::Token(token) => token.text.len(),
        Event::ToolCall(call) => call.arguments.len(),
        _ => 0,
    }
}

pub fn shutting_down() -> Failure {
    Failure::new(
        FailureKind::ShuttingDown,
        "the coordinator is shutting down",
    )
}

fn too_long() -> Failure {
    let most = LARGEST_OUTPUT >> 20;
    let message = format!("the worker sent more than {most} MiB of output");
    Failure::new(FailureKind::WorkerFailed, message)
}

fn ended(choice: u32, outcome: Outcome, grid: impl FnOnce(u32) -> Grid) -> Next {
    if let Some(failure) = outcome.failure() {
        return Next::Failed(failure);
    }
    match outcome {
        Outcome::Delivered { finish, usage } => {
            let grid = grid(usage.completion_tokens);
            Next::End(choice, Ending { finish, usage }, grid)
        }
        Outcome::Failed(failure) => Next::Failed(failure),
        Outcome::Cancelled | Outcome::Expired => Next::Failed(Failure::new(
            FailureKind::Internal,
            "the job ended without a result",
        )),
    }
}
