//! What a worker that comes for its jobs takes of those it could do.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::jobs::Entry;
use crate::protocol::job::{Body, JobId, RequestId};

/// Of one pop.
#[derive(Debug, Clone, Default)]
pub struct Wants {
    /// Jobs, all of one request where nothing else is said.
    pub most: u32,
    /// They need not be of one request.
    pub scattered: bool,
    /// Room for all of them together, in pixels; none: whatever their size.
    pub room: Option<f64>,
    /// In lower case: it takes no prompt that holds one of these.
    pub unwanted: Arc<[String]>,
    /// It wants to be sure that whoever asks has the kudos.
    pub paid: bool,
    /// No others than its owner's.
    pub own_only: bool,
    /// No other than one of these, if there are any: it says it has done it.
    pub only: Vec<JobId>,
    /// Nothing it makes is believed: where there is nothing of its owner's it gets a copy of a job, of another request than
    /// these.
    pub decoys: Option<Arc<BTreeSet<RequestId>>>,
}

/// Why it does not take a job it could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwanted {
    Words,
    Kudos,
}

impl Wants {
    pub fn most(most: u32) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// The job that it brings though nobody here knows that it has it, which may be any of these.
    pub fn only(jobs: Vec<JobId>) -> Self {
        Self {
            only: jobs,
            ..Self::most(1)
        }
    }

    /// How many jobs of this bulk it is given at once; one, however large it is.
    pub fn batch(&self, bulk: u64) -> u32 {
        let most = match self.room {
            Some(room) if bulk > 0 => {
                let fitting = (room * 100.0 / bulk as f64).round_ties_even();
                // A cast saturates: who has less than no room takes one all the same.
                self.most.min(fitting as u32)
            }
            _ => self.most,
        };
        most.max(1)
    }

    /// Whether it takes whatever it can do.
    pub fn takes_all(&self) -> bool {
        self.unwanted.is_empty() && !self.paid && !self.own_only
    }

    pub fn unwanted(&self, entry: &Entry) -> Option<Unwanted> {
        if self.paid && entry.short {
            return Some(Unwanted::Kudos);
        }
        let holds_one = match &entry.job.body {
            Body::Image(image) => {
                let unseen = image.negative_prompt.as_deref();
                self.holds_one(&image.prompt) || unseen.is_some_and(|text| self.holds_one(text))
            }
            Body::Text(_) | Body::Form(_) => false,
        };
        holds_one.then_some(Unwanted::Words)
    }

    fn holds_one(&self, prompt: &str) -> bool {
        if self.unwanted.is_empty() {
            return false;
        }
        let prompt = prompt.to_lowercase();
        self.unwanted.iter().any(|word| prompt.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::Wants;

    #[test]
    fn a_batch_is_what_the_room_holds_and_one_at_least() {
        let wants = |room| Wants {
            room,
            ..Wants::most(4)
        };
        let check = |room, bulk, expected| assert_eq!(wants(room).batch(bulk), expected);
        check(None, 100, 4);
        check(Some(10.0), 0, 4);
        check(Some(10.0), 400, 2);
        check(Some(10.0), 100, 4);
        check(Some(-1.0), 100, 1);
        check(Some(10.0), u64::MAX, 1);
    }
}
