//! A store that settles each job once, but may lose its reply, and is sometimes down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::random::Random;
use crate::dispatch::{Facts, Input, Outcome, Part};
use muster_protocol::job::{JobId, Kudos, WorkerId};

#[derive(Default)]
pub struct Store {
    pub down: bool,
    settled: BTreeMap<JobId, Row>,
    /// The first settlement asked of each job.
    asked: BTreeMap<JobId, (Outcome, Vec<Part>)>,
    /// Jobs whose worker got its reward.
    told: BTreeSet<JobId>,
}

struct Row {
    reward: Kudos,
    worker: Option<WorkerId>,
}

impl Store {
    /// Settles a job or fails to; returns the reply and its delay, if there is one.
    pub fn settle(&mut self, facts: &Facts, random: &mut Random) -> Option<(Duration, Input)> {
        let job = facts.job.id;
        self.check_asked_the_same(facts);
        let failed = Input::SettleFailed { job };
        if self.down {
            return random
                .permille(700)
                .then(|| (random.millis(1, 3000), failed));
        }
        match random.below(100) {
            // Settled, but the reply is lost or reports a failure.
            0..2 => {
                self.apply(facts);
                None
            }
            2..6 => {
                self.apply(facts);
                Some((random.millis(1, 100), failed))
            }
            6..8 => Some((random.millis(1, 100), failed)),
            _ => {
                let reward = self.apply(facts);
                Some((random.millis(1, 40), Input::Settled { job, reward }))
            }
        }
    }

    pub fn has(&self, job: JobId) -> bool {
        self.settled.contains_key(&job)
    }

    /// P2, as the worker sees it: every reward is stored, and sent once.
    pub fn told(&mut self, job: JobId, worker: WorkerId, reward: Kudos) {
        if reward == Kudos(0) {
            return;
        }
        let row = &self.settled[&job];
        assert_eq!(row.reward, reward, "{job} was settled with another reward");
        assert_eq!(
            row.worker,
            Some(worker),
            "{job} was settled for another worker"
        );
        assert!(self.told.insert(job), "{job} was acked twice");
    }

    /// A job ends once: repeated settlements must equal the first.
    fn check_asked_the_same(&mut self, facts: &Facts) {
        let (outcome, parts) = (facts.outcome.clone(), facts.parts.clone());
        let asked = self.asked.entry(facts.job.id);
        let first = asked.or_insert((outcome, parts));
        assert_eq!(*first, (facts.outcome.clone(), facts.parts.clone()));
    }

    /// Once per job, like the key of the real one.
    fn apply(&mut self, facts: &Facts) -> Kudos {
        let last = facts.parts.last();
        let pays = matches!(
            facts.outcome,
            Outcome::Delivered { .. } | Outcome::Cancelled
        );
        let made = last.map_or(0, |part| part.tokens.max(part.events));
        let row = self.settled.entry(facts.job.id).or_insert_with(|| Row {
            reward: Kudos(if pays { made as i64 } else { 0 }),
            worker: last.map(|part| part.worker),
        });
        row.reward
    }
}
