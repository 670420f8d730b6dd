//! Queries of coordinators by HTTP: the demand for models if the worker is connected, and the cause if not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::posts::labelled_inquiries;
use super::state::WorkerState;
use crate::link::inquiry::{Demand, Finding, Inquiry, Verdict};
use muster_config::Config;
use muster_process::tasks::Tasks;

/// Interval of checks whether a coordinator is connected.
const LOOK: Duration = Duration::from_secs(2);
/// Between inquiries while that does not change.
const INTERVAL: Duration = Duration::from_secs(120);

/// The replies, by the coordinators' names in the log. Clones are the same.
#[derive(Clone, Default)]
pub struct Inquiries(Arc<Mutex<BTreeMap<String, InquiryReply>>>);

#[derive(Debug, Clone, Default)]
pub struct InquiryReply {
    pub demand: Option<Demand>,
    /// Why the worker is not connected.
    pub finding: Option<Finding>,
}

impl Inquiries {
    pub fn of(&self, label: &str) -> InquiryReply {
        let replies = self.0.lock();
        replies.get(label).cloned().unwrap_or_default()
    }

    /// Asks the coordinators of the configuration again and again, until the tasks stop.
    pub fn follow(&self, config: &Config, state: &WorkerState, tasks: &Tasks) {
        for (label, inquiry) in labelled_inquiries(config) {
            self.follow_one(label, move || Some(inquiry.clone()), state, tasks);
        }
    }

    /// Queries one coordinator, whose address may become known later.
    pub fn follow_one(
        &self,
        label: String,
        inquiry: impl Fn() -> Option<Inquiry> + Send + 'static,
        state: &WorkerState,
        tasks: &Tasks,
    ) {
        let (inquiries, state) = (self.clone(), state.clone());
        let stopping = tasks.stopping();
        tasks.start(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = inquiries.ask(label, inquiry, state) => {}
            }
        });
    }

    async fn ask(
        &self,
        label: String,
        inquiry: impl Fn() -> Option<Inquiry> + Send,
        state: WorkerState,
    ) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The line has just been opened.
        looks.tick().await;
        let mut last: Option<(bool, Instant)> = None;
        loop {
            looks.tick().await;
            let Some(is_connected) = state.is_connected(&label) else {
                continue;
            };
            if last.is_some_and(|(was, at)| was == is_connected && at.elapsed() < INTERVAL) {
                continue;
            }
            let Some(inquiry) = inquiry() else {
                continue;
            };
            let reply = match is_connected {
                true => InquiryReply {
                    demand: inquiry.demand().await,
                    finding: None,
                },
                false => {
                    let findings = inquiry.run().await.into_iter();
                    let mut failures = findings.filter(|finding| finding.verdict == Verdict::Bad);
                    InquiryReply {
                        demand: None,
                        finding: failures.next(),
                    }
                }
            };
            last = Some((is_connected, Instant::now()));
            let mut replies = self.0.lock();
            replies.insert(label.clone(), reply);
        }
    }
}
