//! The record of a line for the worker's owner: jobs and kudos by model, maintenance, and the last problem. The line
//! writes it; the owner's log and status read it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use super::offer::Said;
use muster_protocol::job::{Event, FinishReason, Kudos};
use muster_protocol::link::RefusalCode;

/// Shared by all sockets of a line. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Feedback(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// By model name.
    tallies: BTreeMap<String, Tally>,
    running: BTreeMap<u64, ActiveJob>,
    next: u64,
    /// When the last job came.
    last_job: Option<SystemTime>,
    held: usize,
    maintenance: Option<String>,
    problem: Option<LinkProblem>,
    skips: Option<String>,
}

/// Counts of jobs since the line was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub done: u64,
    pub failed: u64,
    pub handed_back: u64,
    pub cancelled: u64,
    pub tokens: u64,
    pub kudos: Kudos,
}

/// A job that is being done.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveJob {
    pub model: String,
    pub began: Instant,
    /// Tokens generated so far.
    pub tokens: u64,
    /// Steps of a job for media: how many are done, and of how many.
    pub steps: Option<(u32, u32)>,
}

/// Why the line is not connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkProblem {
    pub text: String,
    /// Why the coordinator refused the worker, for programs.
    pub code: Option<RefusalCode>,
    /// The coordinator answered, and refused the worker.
    pub is_refusal: bool,
}

/// The record of one job, until it is dropped.
#[derive(Debug)]
pub struct JobRecord {
    feedback: Feedback,
    id: u64,
}

impl Feedback {
    pub fn begin(&self, model: &str) -> JobRecord {
        let mut inner = self.lock();
        inner.next += 1;
        let id = inner.next;
        inner.last_job = Some(SystemTime::now());
        let job = ActiveJob {
            model: model.to_owned(),
            began: Instant::now(),
            tokens: 0,
            steps: None,
        };
        inner.running.insert(id, job);
        drop(inner);
        JobRecord {
            feedback: self.clone(),
            id,
        }
    }

    /// The reward of a job; an unknown model is empty.
    pub fn earn(&self, model: &str, reward: Kudos) {
        let mut inner = self.lock();
        let tally = inner.tallies.entry(model.to_owned()).or_default();
        tally.kudos.0 = tally.kudos.0.saturating_add(reward.0);
    }

    /// Since the line was opened.
    pub fn earned(&self) -> Kudos {
        let inner = self.lock();
        Kudos(inner.tallies.values().map(|tally| tally.kudos.0).sum())
    }

    /// By model name.
    pub fn tallies(&self) -> BTreeMap<String, Tally> {
        self.lock().tallies.clone()
    }

    pub fn running(&self) -> Vec<ActiveJob> {
        self.lock().running.values().cloned().collect()
    }

    /// When the last job came.
    pub fn last_job(&self) -> Option<SystemTime> {
        self.lock().last_job
    }

    /// Jobs that wait for a reconnection, or whose results wait for the coordinator's confirmation.
    pub fn held(&self) -> usize {
        self.lock().held
    }

    /// Updates the count of held jobs of a socket from `before` to `now`.
    pub fn change_held(&self, before: usize, now: usize) {
        let mut inner = self.lock();
        inner.held = inner.held.saturating_sub(before).saturating_add(now);
    }

    /// Why the worker gets no jobs of others there; `None` while it is in service.
    pub fn maintenance(&self) -> Option<String> {
        self.lock().maintenance.clone()
    }

    /// Whether that is news.
    pub fn set_maintenance(&self, note: Option<String>) -> bool {
        let mut inner = self.lock();
        let is_new = inner.maintenance != note;
        inner.maintenance = note;
        is_new
    }

    /// Why the line is not connected, or was not when it last tried.
    pub fn problem(&self) -> Option<LinkProblem> {
        self.lock().problem.clone()
    }

    pub fn set_problem(&self, problem: Option<LinkProblem>) {
        self.lock().problem = problem;
    }

    /// Why a polled coordinator has no job for the worker though jobs wait there.
    pub fn skips(&self) -> Option<String> {
        self.lock().skips.clone()
    }

    pub fn set_skips(&self, skips: Option<String>) {
        self.lock().skips = skips;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

impl LinkProblem {
    /// The connection failed.
    pub fn failure(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: None,
            is_refusal: false,
        }
    }

    pub fn refusal(text: impl Into<String>, code: Option<RefusalCode>) -> Self {
        Self {
            text: text.into(),
            code,
            is_refusal: true,
        }
    }
}

impl JobRecord {
    pub fn hear(&self, said: &Said) {
        let mut inner = self.feedback.lock();
        let Inner {
            tallies, running, ..
        } = &mut *inner;
        let Some(job) = running.get_mut(&self.id) else {
            return;
        };
        match said {
            Said::Output(events) => job.tokens += events.iter().map(tokens).sum::<u64>(),
            Said::Progress { at, of, .. } => job.steps = Some((*at, *of)),
            _ => {}
        }
        if !said.is_last() {
            return;
        }
        let tally = tallies.entry(job.model.clone()).or_default();
        match said {
            Said::Done {
                finish: FinishReason::Cancelled,
                ..
            } => tally.cancelled += 1,
            Said::Done { .. } | Said::Uploaded(_) => tally.done += 1,
            Said::Busy { .. } => tally.handed_back += 1,
            _ => tally.failed += 1,
        }
        tally.tokens += job.tokens;
        running.remove(&self.id);
    }
}

fn tokens(event: &Event) -> u64 {
    match event {
        Event::Token(token) => token.ids.len().max(1) as u64,
        Event::ToolCall(call) => call.ids.len() as u64,
        _ => 0,
    }
}

impl Drop for JobRecord {
    fn drop(&mut self) {
        self.feedback.lock().running.remove(&self.id);
    }
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.handed_back += other.handed_back;
        self.cancelled += other.cancelled;
        self.tokens += other.tokens;
        self.kudos.0 = self.kudos.0.saturating_add(other.kudos.0);
    }

    /// The difference to an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            done: self.done.saturating_sub(earlier.done),
            failed: self.failed.saturating_sub(earlier.failed),
            handed_back: self.handed_back.saturating_sub(earlier.handed_back),
            cancelled: self.cancelled.saturating_sub(earlier.cancelled),
            tokens: self.tokens.saturating_sub(earlier.tokens),
            kudos: Kudos(self.kudos.0.saturating_sub(earlier.kudos.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_protocol::job::{Failure, FailureKind, Usage};

    #[test]
    fn jobs_are_counted_by_model_and_running_ones_are_listed() {
        let feedback = Feedback::default();
        let (first, second) = (feedback.begin("a"), feedback.begin("b"));
        first.hear(&Said::Progress {
            at: 3,
            of: 8,
            preview: None,
        });
        assert_eq!(feedback.running()[0].steps, Some((3, 8)));
        first.hear(&Said::Done {
            finish: FinishReason::Stop,
            usage: Usage::default(),
        });
        let failure = Failure::new(FailureKind::WorkerFailed, "broken");
        second.hear(&Said::Failed(failure));
        feedback.earn("a", Kudos(250));
        let tallies = feedback.tallies();
        assert_eq!((tallies["a"].done, tallies["b"].failed), (1, 1));
        assert_eq!(tallies["a"].kudos, Kudos(250));
        assert_eq!(feedback.earned(), Kudos(250));
        assert!(feedback.running().is_empty() && feedback.last_job().is_some());
        drop(feedback.begin("a"));
        assert!(feedback.running().is_empty());
    }
}
