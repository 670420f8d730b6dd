//! A summary for the owner's log: once a minute the jobs done, or the reason for none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::info;

use super::owner::Availability;
use super::pace::{LEAST_TIME, Pace};
use crate::link::session::Peer;
use crate::link::{Link, Said, Standing};
use muster_process::tasks::Tasks;
use muster_protocol::job::{FinishReason, Kudos};

const MINUTE: Duration = Duration::from_secs(60);
/// Interval of the reminder in an idle worker's log, in minutes.
const REMINDER: u64 = 60;

/// Counts of everything since the start. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Counters(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    running: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    handed_back: AtomicU64,
    cancelled: AtomicU64,
    tokens: AtomicU64,
    /// Tokens of measured jobs, without the first token of each.
    timed_tokens: AtomicU64,
    timed_micros: AtomicU64,
}

/// A worker's totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    pub running: u64,
    pub done: u64,
    pub failed: u64,
    pub handed_back: u64,
    pub cancelled: u64,
    pub tokens: u64,
    timed_tokens: u64,
    timed_micros: u64,
    pub kudos: i64,
}

/// A job that runs, until it is dropped.
pub struct RunningJob(Counters);

impl Counters {
    /// Whether these are the counts of the same worker.
    pub fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub fn begin(&self) -> RunningJob {
        self.0.running.fetch_add(1, Ordering::Relaxed);
        RunningJob(self.clone())
    }

    pub fn add_tokens(&self, tokens: usize) {
        self.0.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// Jobs too short to measure are ignored.
    pub fn add_pace(&self, pace: &Pace) {
        if pace.writing < LEAST_TIME {
            return;
        }
        let tokens = u64::from(pace.written.saturating_sub(1));
        let micros = u64::try_from(pace.writing.as_micros()).unwrap_or(u64::MAX);
        self.0.timed_tokens.fetch_add(tokens, Ordering::Relaxed);
        self.0.timed_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The last word on a job.
    pub fn end(&self, last: &Said) {
        let count = match last {
            Said::Done {
                finish: FinishReason::Cancelled,
                ..
            } => &self.0.cancelled,
            Said::Done { .. } | Said::Uploaded(_) => &self.0.done,
            Said::Failed(_) => &self.0.failed,
            Said::Busy { .. } => &self.0.handed_back,
            Said::Started { .. }
            | Said::Output(_)
            | Said::Prompt(_)
            | Said::Part(_)
            | Said::Flagged(_)
            | Said::Progress { .. } => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the kudos that coordinators have reported.
    pub fn activity(&self, kudos: Kudos) -> Activity {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Activity {
            running: load(&self.0.running),
            done: load(&self.0.done),
            failed: load(&self.0.failed),
            handed_back: load(&self.0.handed_back),
            cancelled: load(&self.0.cancelled),
            tokens: load(&self.0.tokens),
            timed_tokens: load(&self.0.timed_tokens),
            timed_micros: load(&self.0.timed_micros),
            kudos: kudos.0,
        }
    }
}

impl Activity {
    /// Adds the totals of an earlier worker; its kudos are counted elsewhere.
    pub fn add(&mut self, earlier: &Self) {
        self.done += earlier.done;
        self.failed += earlier.failed;
        self.handed_back += earlier.handed_back;
        self.cancelled += earlier.cancelled;
        self.tokens += earlier.tokens;
        self.timed_tokens += earlier.timed_tokens;
        self.timed_micros += earlier.timed_micros;
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why there may be no work.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Idle {
    Paused,
    /// None of these is connected.
    Away(Vec<String>),
    /// All that are connected have the worker in maintenance.
    Maintenance(Vec<String>),
    /// Connected, without any offers.
    NotOffered(Vec<String>),
}

impl Idle {
    /// Cause and next step.
    fn words(&self) -> String {
        match self {
            Self::Paused => "this worker is paused by its owner; resume it to get jobs".to_owned(),
            Self::Away(labels) => format!(
                "no connection to {}; run `worker doctor` for the cause",
                labels.join(", ")
            ),
            Self::Maintenance(labels) => format!(
                "in maintenance at {}; the owner or a moderator can end it there",
                labels.join(", ")
            ),
            Self::NotOffered(labels) => format!(
                "connected to {}, but no client requests the models served here",
                labels.join(", ")
            ),
        }
    }
}

/// Turns counts into lines.
#[derive(Debug, Default)]
struct Summary {
    before: Activity,
    idle_minutes: u64,
    told: Option<Idle>,
}

impl Summary {
    /// The line to log after a minute, if any.
    fn minute(&mut self, now: Activity, idle: Idle) -> Option<String> {
        let before = std::mem::replace(&mut self.before, now);
        if now.running > 0 || now != before {
            self.idle_minutes = 0;
            self.told = None;
            return Some(work(&before, &now));
        }
        self.idle_minutes += 1;
        if self.told.as_ref() == Some(&idle) && !self.idle_minutes.is_multiple_of(REMINDER) {
            return None;
        }
        let minutes = match self.idle_minutes {
            1 => "the last minute".to_owned(),
            minutes => format!("the last {minutes} minutes"),
        };
        let line = format!("no jobs in {minutes}: {}", idle.words());
        self.told = Some(idle);
        Some(line)
    }
}

fn work(before: &Activity, now: &Activity) -> String {
    let counts = [
        (now.done - before.done, "done"),
        (now.failed - before.failed, "failed"),
        (now.handed_back - before.handed_back, "handed back"),
        (now.cancelled - before.cancelled, "cancelled"),
        (now.running, "running"),
    ];
    let mut parts: Vec<String> = counts
        .iter()
        .filter(|(count, word)| *count > 0 || *word == "done")
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    parts.push(format!("{} tokens", now.tokens - before.tokens));
    let micros = now.timed_micros - before.timed_micros;
    if micros > 0 {
        let tokens = (now.timed_tokens - before.timed_tokens) as f64;
        let speed = tokens * 1_000_000.0 / micros as f64;
        parts.push(format!("{speed:.1} tokens/s per job"));
    }
    let kudos = |thousandths: i64| thousandths as f64 / 1000.0;
    let (earned, total) = (kudos(now.kudos - before.kudos), kudos(now.kudos));
    parts.push(format!(
        "{earned:.2} kudos earned, {total:.2} since the start"
    ));
    format!("jobs in the last minute: {}", parts.join(", "))
}

/// Logs the summary every minute until the tasks stop.
pub async fn keep(
    counters: Counters,
    links: Vec<(String, Link)>,
    availability: watch::Receiver<Availability>,
    tasks: Tasks,
) {
    // Without coordinators the start has already logged it.
    if links.is_empty() {
        return;
    }
    let stopping = tasks.stopping();
    let mut minutes = interval_at(Instant::now() + MINUTE, MINUTE);
    minutes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut summary = Summary::default();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            _ = minutes.tick() => {}
        }
        let now = counters.activity(earned(links.iter().map(|(_, link)| link)));
        if let Some(line) = summary.minute(now, idle(&links, *availability.borrow())) {
            info!("{line}");
        }
    }
}

/// Sum of all lines.
pub fn earned<'a>(links: impl Iterator<Item = &'a Link>) -> Kudos {
    Kudos(links.map(|link| link.feedback().earned().0).sum())
}

fn idle(links: &[(String, Link)], availability: Availability) -> Idle {
    let is_connected = |link: &Link| {
        matches!(
            link.standing(),
            Standing::Connected(Peer::Ours | Peer::Public)
        )
    };
    let labels = |wanted: &dyn Fn(&Link) -> bool| -> Vec<String> {
        let found = links.iter().filter(|(_, link)| wanted(link));
        found.map(|(label, _)| label.clone()).collect()
    };
    let serving = labels(&|link| is_connected(link) && link.feedback().maintenance().is_none());
    if availability != Availability::Open {
        return Idle::Paused;
    }
    if !serving.is_empty() {
        return Idle::NotOffered(serving);
    }
    match labels(&is_connected) {
        none if none.is_empty() => Idle::Away(labels(&|_| true)),
        connected => Idle::Maintenance(connected),
    }
}

#[cfg(test)]
mod tests {
    use super::{Activity, Idle, Summary};

    fn waiting() -> Idle {
        Idle::NotOffered(vec!["muster.example:443".to_owned()])
    }

    #[test]
    fn a_minute_with_work_tells_jobs_tokens_speed_and_kudos() {
        let mut summary = Summary::default();
        let now = Activity {
            running: 1,
            done: 12,
            failed: 1,
            tokens: 3456,
            timed_tokens: 300,
            timed_micros: 5_000_000,
            kudos: 1250,
            ..Activity::default()
        };
        assert_eq!(
            summary.minute(now, waiting()).unwrap(),
            "jobs in the last minute: 12 done, 1 failed, 1 running, 3456 tokens, 60.0 tokens/s per job, \
             1.25 kudos earned, 1.25 since the start"
        );
        let next = Activity {
            running: 0,
            done: 13,
            ..now
        };
        let line = summary.minute(next, waiting()).unwrap();
        assert!(line.contains("1 done, 0 tokens, 0.00 kudos"), "{line}");
    }

    #[test]
    fn an_idle_worker_says_why_once_and_again_when_that_changes() {
        let mut summary = Summary::default();
        let mut minute = |idle: &Idle| summary.minute(Activity::default(), idle.clone());
        let first = minute(&waiting()).unwrap();
        assert!(first.starts_with("no jobs in the last minute: connected to muster"));
        assert_eq!(minute(&waiting()), None);
        assert!(minute(&Idle::Paused).unwrap().contains("paused"));
        let maintenance = Idle::Maintenance(vec!["muster.example:443".to_owned()]);
        let said = minute(&maintenance).unwrap();
        assert!(said.contains("maintenance at muster.example:443"), "{said}");
        let away = Idle::Away(vec!["muster.example:443".to_owned()]);
        assert!(minute(&away).unwrap().contains("worker doctor"));
        let quiet = (0..55).filter_map(|_| minute(&away)).count();
        assert_eq!(quiet, 1, "a reminder each hour");
    }
}
