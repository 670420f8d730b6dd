//! A line to a coordinator that is polled: the worker comes for jobs and brings what it has made, by HTTP. The same
//! [`Offer`]s come out of it as of a socket, the same words go back, and one worker may have lines of both kinds.
//!
//! | file | what it is |
//! | --- | --- |
//! | `rounds` | when to ask again: pure |
//! | `client` | the four calls, and what the coordinator's answers mean |
//! | `heard` | what the coordinator tells its workers, once |
//! | `skips` | why there is nothing for this worker, when that changes |
//! | `returns` | what was given back, and the rest that follows |
//! | `task` | the task that asks |
//! | `job` | one job, from its hand-out to its receipt |
//!
//! Such a coordinator speaks only when it is asked. A job whose time is over was taken away there, so it ends here by
//! the same clock; what cannot be brought now is brought again until then.

mod client;
mod heard;
mod job;
mod returns;
mod rounds;
mod skips;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_rustls::rustls::ClientConfig;
use url::Url;

use super::{Condition, Link, Offer, Permissions, Standing, UpToDate};
use muster_process::tasks::Tasks;

use task::Task;

/// One coordinator, and who we are there.
#[derive(Clone)]
pub struct Polling {
    /// What it is called in the log.
    pub label: String,
    /// Its address, as [`base`](super::base) gives it.
    pub base: Url,
    pub tls: Arc<ClientConfig>,
    pub key: String,
    pub name: String,
    /// What the software calls itself there: features are known by it.
    pub agent: String,
    /// As those of a [`Line`](super::Line).
    pub media_hosts: Vec<String>,
    pub served: watch::Receiver<Served>,
}

/// The kind of jobs: each has calls of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolledKind {
    #[default]
    Text,
    Image,
    /// Questions about images; the models are the names of the forms.
    Form,
}

/// What the worker serves there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    pub kind: PolledKind,
    /// What models are called there, and what they are called here.
    pub models: BTreeMap<String, String>,
    /// Jobs at once.
    pub jobs: usize,
    /// Tokens of context that every one of the models of texts has.
    pub context: u32,
    /// Width times height of the largest image, which is made or looked at.
    pub pixels: u64,
    /// Applies LoRAs of its own folder. Jobs that name others are handed back.
    pub has_loras: bool,
    /// The same for textual inversions, which have a folder of their own.
    pub has_inversions: bool,
    pub permissions: Permissions,
}

impl Polling {
    /// Keeps coming until the condition says to leave, the coordinator refuses it for good, or the tasks stop.
    pub fn keep(
        self,
        offers: &mpsc::Sender<Offer>,
        condition: &watch::Receiver<Condition>,
        tasks: &Tasks,
    ) -> Link {
        let (told, standing) = watch::channel(Standing::Away);
        let (present, absent) = watch::channel(());
        let task = Task::new(self, offers.clone(), condition.clone(), tasks.clone());
        let feedback = task.feedback();
        tasks.start(task.run(told, present));
        Link {
            standing,
            up_to_date: UpToDate::Always,
            absent,
            feedback,
        }
    }
}
