//! A line to a coordinator with the AI Horde API: the worker pops jobs and submits results by HTTP. [`Offer`]s and
//! replies are the same as those of a socket, and a worker may have lines of both kinds.
//!
//! | file | content |
//! | --- | --- |
//! | `rounds` | the schedule of pops: pure |
//! | `client` | the four calls, and the interpretation of replies |
//! | `heard` | messages of the coordinator, logged once |
//! | `skips` | reasons why this worker gets no jobs, logged when they change |
//! | `returns` | returned jobs, and the pause after them |
//! | `task` | the polling task |
//! | `job` | one job, from pop to submission |
//!
//! Such a coordinator only replies to requests. After a job's time limit the coordinator has cancelled it, so it ends
//! here by the same clock; failed submissions are retried until then.

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

/// A coordinator, and the worker's identity there.
#[derive(Clone)]
pub struct Polling {
    /// The coordinator's name in the log.
    pub label: String,
    /// The URL from [`base`](super::base).
    pub base: Url,
    pub tls: Arc<ClientConfig>,
    pub key: String,
    pub name: String,
    /// The software name sent to the coordinator, which identifies supported features.
    pub agent: String,
    /// Like those of a [`Line`](super::Line).
    pub media_hosts: Vec<String>,
    pub served: watch::Receiver<Served>,
}

/// The kinds of jobs: each has separate calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolledKind {
    #[default]
    Text,
    Image,
    /// Questions about images; the models are the names of the forms.
    Form,
}

/// The models and limits that the worker offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    pub kind: PolledKind,
    /// The coordinator's names of models, mapped to ours.
    pub models: BTreeMap<String, String>,
    /// Jobs at once.
    pub jobs: usize,
    /// Tokens of context that every one of the models of texts has.
    pub context: u32,
    /// Width times height of the largest image, for generation and interrogation.
    pub pixels: u64,
    /// Applies LoRAs of its folder. Jobs with others are handed back.
    pub has_loras: bool,
    /// The same for textual inversions, which have a separate folder.
    pub has_inversions: bool,
    pub permissions: Permissions,
}

impl Polling {
    /// Polls until the condition requests to leave, the coordinator refuses the worker for good, or the tasks stop.
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
