//! The switchboard's open jobs: their clients' buffers, the output so far, and data for their settlement.

use std::collections::HashMap;
use std::sync::Arc;

use super::departures::Departures;
use super::pipe::{Overdraft, Overflow, Pipe};
use super::sessions::Card;
use super::stage::{Stage, Whereabouts};
use super::stream::{Delivery, JobStream};
use crate::clock::wall_clock;
use crate::dispatch::{Facts, Offer, Outcome, Timing};
use crate::metering::{Belief, Counted, Output};
use muster_protocol::job::{Event, Formats, Job, JobId, Note, Product, Text};

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
    /// Present or last worker.
    worker: Option<Arc<str>>,
    /// The worker's upstream program.
    upstream: Option<Arc<str>>,
    /// The format of the output.
    format: Formats,
    belief: Belief,
    counted: Option<Counted>,
    timing: Timing,
    overflowed: bool,
    /// For durable jobs.
    whereabouts: Option<Arc<Whereabouts>>,
    /// Output of a durable job other than text.
    media: Product,
    /// Remarks of the worker about a text.
    note: Note,
    /// The stored output, after the end.
    written: Option<Arc<str>>,
}

/// Data of a settlement besides the facts.
#[derive(Debug)]
pub enum Count {
    Known(Counted),
    Open { output: Output, belief: Belief },
}

impl Lines {
    pub fn open(&mut self, jobs: Vec<Arc<Job>>, departures: &Arc<Departures>) -> Vec<JobStream> {
        let open = |job: Arc<Job>| {
            let pipe = Arc::new(Pipe::new(self.overdraft.clone()));
            let whereabouts = job.durable.then(Arc::<Whereabouts>::default);
            let stream = JobStream::new(job.id, pipe.clone(), departures.clone());
            let stream = stream.told_of(whereabouts.clone());
            let line = Line {
                pipe,
                whereabouts,
                ..Line::default()
            };
            self.open.insert(job.id, line);
            stream
        };
        jobs.into_iter().map(open).collect()
    }

    /// Counts output that the client received from an earlier coordinator.
    pub fn note(&mut self, job: JobId, events: &[Event]) {
        if let Some(line) = self.open.get_mut(&job) {
            events.iter().for_each(|event| line.output.note(event));
        }
    }

    pub fn relay(&mut self, job: JobId, event: Event) -> Result<Option<Waker>, Overflow> {
        let Some(line) = self.open.get_mut(&job).filter(|line| !line.overflowed) else {
            return Ok(None);
        };
        line.output.note(&event);
        match &event {
            // For other jobs the route collects the output.
            Event::Media(_) | Event::Part(_) | Event::Restarted if line.whereabouts.is_some() => {
                line.media.note(&event);
            }
            Event::Note(note) => line.note.clone_from(note),
            _ => {}
        }
        let pushed = line.pipe.push(event);
        line.overflowed = pushed.is_err();
        pushed
    }

    pub fn offered(&mut self, offer: &Offer, card: &Card) {
        if let Some(line) = self.open.get_mut(&offer.job.id) {
            line.worker = Some(card.name.clone());
            line.upstream.clone_from(&offer.upstream);
            line.format = offer.format;
            line.belief = card.belief;
            if let Some(whereabouts) = &line.whereabouts {
                let stage = Stage::Running {
                    worker: card.name.clone(),
                    public_id: card.public_id,
                    model: offer.model.clone(),
                };
                whereabouts.taken(stage, wall_clock().after(offer.remaining));
            }
        }
    }

    /// The job is queued again.
    pub fn returned(&mut self, job: JobId) {
        let line = self.open.get(&job);
        if let Some(whereabouts) = line.and_then(|line| line.whereabouts.as_ref()) {
            whereabouts.returned();
        }
    }

    /// Returns the output to be counted at the first call, and the known count later.
    pub fn settle(&mut self, facts: &Facts) -> (Count, Option<Arc<str>>) {
        let Some(line) = self.open.get_mut(&facts.job.id) else {
            return (Count::Known(Counted::default()), None);
        };
        line.timing = facts.timing;
        let belief = line.belief;
        if let (Some(whereabouts), None) = (&line.whereabouts, &line.written) {
            if let (Outcome::Delivered { .. }, Some(life)) = (&facts.outcome, facts.job.limits.life)
            {
                whereabouts.brought(wall_clock().after(life));
            }
            let is_whole = matches!(facts.outcome, Outcome::Delivered { .. });
            let media = std::mem::take(&mut line.media);
            let product = match is_whole && !media.is_empty() || media.is_of_use_in_part() {
                true => media,
                false => Product::Text(Text {
                    text: line.output.text().to_owned(),
                    note: std::mem::take(&mut line.note),
                }),
            };
            line.written = Some(product.stored().into());
        }
        if !matches!(facts.outcome, Outcome::Delivered { .. }) {
            line.output.cut_off();
        }
        let count = match line.counted {
            Some(counted) => Count::Known(counted),
            None => Count::Open {
                output: std::mem::take(&mut line.output),
                belief,
            },
        };
        (count, line.written.clone())
    }

    pub fn counted(&mut self, job: JobId, counted: Counted) {
        if let Some(line) = self.open.get_mut(&job) {
            line.counted = Some(counted);
        }
    }

    pub fn end(&mut self, job: JobId, outcome: Outcome) -> Option<(Timing, Option<Waker>)> {
        let line = self.open.remove(&job)?;
        if let Some(whereabouts) = &line.whereabouts {
            whereabouts.ended();
        }
        let outcome = match line.counted {
            Some(counted) => believed(outcome, counted),
            None => outcome,
        };
        let waker = line.pipe.end(Delivery::End {
            outcome,
            timing: line.timing,
            worker: line.worker,
            upstream: line.upstream,
            format: line.format,
        });
        Some((line.timing, waker))
    }

    /// Removes a job from memory without an end.
    pub fn park(&mut self, job: JobId) -> Option<Waker> {
        self.open.remove(&job).and_then(|line| line.pipe.park())
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// All jobs, and whether each is durable.
    pub fn jobs(&self) -> Vec<(JobId, bool)> {
        let lines = self.open.iter();
        lines
            .map(|(job, line)| (*job, line.whereabouts.is_some()))
            .collect()
    }

    pub fn pipes(&self) -> impl Iterator<Item = &Arc<Pipe>> {
        self.open.values().map(|line| &line.pipe)
    }
}

/// An outcome with verified token counts.
pub fn believed(outcome: Outcome, counted: Counted) -> Outcome {
    match outcome {
        Outcome::Delivered { finish, usage } => Outcome::Delivered {
            finish,
            usage: counted.usage(Some(usage)),
        },
        other => other,
    }
}
