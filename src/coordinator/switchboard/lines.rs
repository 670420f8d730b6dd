//! The jobs that are here, as the switchboard sees them: where their clients listen, what was said to them, and what
//! their end will need to tell.

use std::collections::HashMap;
use std::sync::Arc;

use super::departures::Departures;
use super::pipe::{Overdraft, Overflow, Pipe};
use super::stream::{Delivery, JobStream};
use crate::coordinator::dispatch::{Outcome, Timing};
use crate::coordinator::metering::{Counted, Output};
use crate::protocol::job::{Event, JobId, Usage};

use std::task::Waker;

#[derive(Debug, Default)]
pub struct Lines {
    open: HashMap<JobId, Line>,
    overdraft: Arc<Overdraft>,
}

#[derive(Debug, Default)]
pub struct Line {
    pipe: Arc<Pipe>,
    output: Output,
    /// Whoever has it, or had it last.
    worker: Option<Arc<str>>,
    public: bool,
    counted: Option<Counted>,
    timing: Timing,
    overflowed: bool,
}

/// What a settlement needs to know besides the facts.
#[derive(Debug)]
pub enum Count {
    Known(Counted),
    Open { output: Output, public: bool },
}

impl Lines {
    pub fn open(&mut self, jobs: Vec<JobId>, departures: &Arc<Departures>) -> Vec<JobStream> {
        let open = |job| {
            let pipe = Arc::new(Pipe::new(self.overdraft.clone()));
            let stream = JobStream::new(job, pipe.clone(), departures.clone());
            let line = Line {
                pipe,
                ..Line::default()
            };
            self.open.insert(job, line);
            stream
        };
        jobs.into_iter().map(open).collect()
    }

    pub fn relay(&mut self, job: JobId, event: Event) -> Result<Option<Waker>, Overflow> {
        let Some(line) = self.open.get_mut(&job).filter(|line| !line.overflowed) else {
            return Ok(None);
        };
        line.output.note(&event);
        let pushed = line.pipe.push(event);
        line.overflowed = pushed.is_err();
        pushed
    }

    pub fn offered(&mut self, job: JobId, worker: Arc<str>, public: bool) {
        if let Some(line) = self.open.get_mut(&job) {
            line.worker = Some(worker);
            line.public = public;
        }
    }

    /// What was written is handed out once; later the count is known.
    pub fn settle(&mut self, job: JobId, timing: Timing) -> Count {
        let Some(line) = self.open.get_mut(&job) else {
            return Count::Known(Counted::default());
        };
        line.timing = timing;
        let public = line.public;
        match line.counted {
            Some(counted) => Count::Known(counted),
            None => Count::Open {
                output: std::mem::take(&mut line.output),
                public,
            },
        }
    }

    pub fn counted(&mut self, job: JobId, counted: Counted) {
        if let Some(line) = self.open.get_mut(&job) {
            line.counted = Some(counted);
        }
    }

    pub fn end(&mut self, job: JobId, outcome: Outcome) -> Option<(Timing, Option<Waker>)> {
        let line = self.open.remove(&job)?;
        let outcome = match line.counted {
            Some(counted) => believed(outcome, counted),
            None => outcome,
        };
        let waker = line.pipe.end(Delivery::End {
            outcome,
            timing: line.timing,
            worker: line.worker,
        });
        Some((line.timing, waker))
    }

    /// It leaves memory without an end.
    pub fn park(&mut self, job: JobId) -> Option<Waker> {
        self.open.remove(&job).and_then(|line| line.pipe.close())
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn jobs(&self) -> Vec<JobId> {
        self.open.keys().copied().collect()
    }

    pub fn pipes(&self) -> impl Iterator<Item = &Arc<Pipe>> {
        self.open.values().map(|line| &line.pipe)
    }
}

/// A public worker's numbers are replaced by ours.
pub fn believed(outcome: Outcome, counted: Counted) -> Outcome {
    match outcome {
        Outcome::Delivered { finish, usage } if counted.public => Outcome::Delivered {
            finish,
            usage: ours(usage, counted),
        },
        other => other,
    }
}

pub fn ours(said: Usage, counted: Counted) -> Usage {
    Usage {
        prompt_tokens: counted.prompt_tokens,
        completion_tokens: counted.output_tokens,
        cached_tokens: said.cached_tokens.min(counted.prompt_tokens),
        reasoning_tokens: said.reasoning_tokens.min(counted.output_tokens),
    }
}
