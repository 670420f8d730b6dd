//! Lifetimes of durable requests: every job taken or submitted renews the lifetime of its whole request, finished
//! outputs included. A worker keeps a job for one lifetime at most.

use std::time::Duration;

use muster_protocol::job::{Capabilities, JobId, Kind, WorkerId};

use super::Dispatcher;
use super::clock::Mono;
use super::jobs::{Entry, Lease, State};
use super::workers::Worker;

/// Lifetime of a job that a very slow worker takes.
const SLOW_LIFE: Duration = Duration::from_secs(3600);
/// Factor on the lease of images for slow workers.
const SLOW_PATIENCE: u32 = 3;

impl Dispatcher {
    /// Renews the lease when the worker takes the job.
    pub(super) fn renew_taken(&mut self, job: JobId, worker: WorkerId) {
        let Some((entry, worker)) = self.jobs.get(&job).zip(self.workers.get(&worker)) else {
            return;
        };
        let life = life_with(entry, worker);
        self.renew(job, life);
    }

    /// When a polling worker has held the job for a whole lifetime of it, regardless of its progress reports and of
    /// extensions by other workers.
    pub(super) fn kept_until(&self, entry: &Entry, lease: &Lease) -> Option<Mono> {
        let worker = self.workers.get(&lease.worker)?;
        let life = life_with(entry, worker).filter(|_| worker.polls())?;
        Some(lease.offered + life.min(self.settings.longest_life))
    }

    /// Records that a polling worker dropped the job: the job expired after the whole timeout for a result.
    pub(super) fn note_dropped(&mut self, job: JobId) {
        let now = self.now.mono;
        let held = self.jobs.get(&job).and_then(|entry| {
            let lease = entry.lease()?;
            let worker = self.workers.get(&lease.worker)?;
            let patience = patience(entry, worker).unwrap_or(self.settings.poll_patience);
            (worker.polls() && lease.offered + patience <= now).then_some(lease.worker)
        });
        if let Some((worker, entry)) = held.zip(self.jobs.get_mut(&job)) {
            entry.history.dropped.push(worker);
        }
    }

    /// A worker submitted the job: extends the lifetime.
    pub(super) fn renew_brought(&mut self, job: JobId) {
        let life = self.jobs.get(&job).and_then(|entry| entry.job.limits.life);
        self.renew(job, life);
    }

    fn renew(&mut self, job: JobId, life: Option<Duration>) {
        let Some((life, entry)) = life.zip(self.jobs.get(&job)) else {
            return;
        };
        let until = self.now.mono + life.min(self.settings.longest_life);
        for job in entry.siblings.clone().iter() {
            let entry = self.jobs.get_mut(job);
            let lives_on = |entry: &&mut Entry| {
                entry.expires < until && !matches!(entry.state, State::Settling(_))
            };
            if let Some(entry) = entry.filter(lives_on) {
                entry.expires = until;
                self.set_alarm(*job);
            }
        }
    }
}

/// Lifetime of a job from the start of its lease by this worker.
fn life_with(entry: &Entry, worker: &Worker) -> Option<Duration> {
    entry.job.limits.life.map(|life| match worker.is_timely() {
        true => life.max(patience(entry, worker).unwrap_or_default()),
        false => SLOW_LIFE,
    })
}

/// Timeout of a polling worker for this job, if the job has one.
pub fn patience(entry: &Entry, worker: &Worker) -> Option<Duration> {
    let usual = entry.job.limits.patience?;
    Some(match entry.job.kind {
        Kind::Image if !worker.is_timely() => usual.saturating_mul(SLOW_PATIENCE),
        _ => usual,
    })
}

impl Worker {
    /// Whether the worker is fast enough for jobs without `slow_workers`.
    fn is_timely(&self) -> bool {
        self.profile.capabilities.contains(Capabilities::TIMELY)
    }
}
