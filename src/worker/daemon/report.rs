//! The reply to `worker status`, as JSON between the running worker and the command.

use serde::{Deserialize, Serialize};

/// The state of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    pub name: String,
    pub version: String,
    /// Where models run, and why not on something better.
    pub placement: String,
    /// What it does before it takes jobs.
    pub starting: Option<String>,
    /// Why its owner has the machine back; absent while it takes jobs.
    #[serde(default)]
    pub pause: Option<PauseReport>,
    pub models: Vec<ModelReport>,
    pub coordinators: Vec<CoordinatorReport>,
    pub jobs: JobsReport,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseReport {
    /// `closing` while running jobs end, then `paused`.
    pub state: String,
    /// The command and the rules that keep jobs away.
    pub reasons: Vec<String>,
    /// Seconds since the epoch, where a command ends by itself.
    pub until: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReport {
    pub name: String,
    /// Unknown until the files are on disk.
    pub kind: Option<String>,
    /// Tokens of one job, of a model that has a context.
    pub context: Option<usize>,
    /// The devices that have it.
    pub devices: Vec<String>,
    /// `loaded`, `unloaded` or `downloading`.
    pub state: String,
    /// Seconds since the epoch at which an unused model leaves memory.
    pub unloads_at: Option<i64>,
    pub download: Option<DownloadReport>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownloadReport {
    pub received_bytes: u64,
    /// 0 until the hub has told.
    pub total_bytes: u64,
    /// Why the last attempt failed; the next one follows by itself.
    pub failure: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorReport {
    pub name: String,
    /// `connected`, `connecting`, `refused`, `maintenance` or `left`.
    pub state: String,
    /// The coordinator's words where it refuses the worker or has it in maintenance.
    pub reason: Option<String>,
}

/// Counts since the start of the worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsReport {
    pub running: u64,
    pub done: u64,
    pub failed: u64,
    pub handed_back: u64,
    pub cancelled: u64,
    pub tokens: u64,
    /// Thousandths of a kudo.
    pub earned_thousandths: i64,
}
