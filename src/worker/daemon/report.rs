//! The reply to `worker status`, as JSON between the running worker and the command, and the samples of its history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The state of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    pub name: String,
    pub version: String,
    /// The devices of models, and reasons against better ones.
    pub placement: String,
    /// The current step before the worker takes jobs.
    pub starting: Option<String>,
    /// Why its owner has the machine back; absent while it takes jobs.
    #[serde(default)]
    pub pause: Option<PauseReport>,
    pub models: Vec<ModelReport>,
    #[serde(default)]
    pub upstreams: Vec<UpstreamReport>,
    pub coordinators: Vec<CoordinatorReport>,
    pub jobs: JobsReport,
    /// Jobs that are being done, the oldest first.
    #[serde(default)]
    pub running: Vec<RunningJobReport>,
    /// Since midnight, local time, also of earlier processes.
    #[serde(default)]
    pub today: TallyReport,
    /// Seconds since the epoch.
    #[serde(default)]
    pub last_job_at: Option<i64>,
    #[serde(default)]
    pub gpus: Vec<GpuReport>,
    #[serde(default)]
    pub energy: EnergyReport,
    /// The rules of `[owner]` that are set.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Address of the owner's page, without its token.
    #[serde(default)]
    pub page: Option<String>,
    /// All that keeps jobs away; empty while jobs come.
    #[serde(default)]
    pub no_jobs: Vec<NoJobsReport>,
}

/// Counts of jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TallyReport {
    pub done: u64,
    pub failed: u64,
    pub handed_back: u64,
    pub cancelled: u64,
    pub tokens: u64,
    /// Thousandths of a kudo.
    pub earned_thousandths: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningJobReport {
    pub model: String,
    pub coordinator: String,
    pub seconds: f64,
    /// Tokens written so far.
    pub tokens: u64,
    /// Steps of a job for media that are done, and all of them.
    pub steps: Option<(u32, u32)>,
}

/// The current state of a GPU. Unavailable values are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuReport {
    pub name: String,
    /// From 0 to 1.
    pub load: Option<f64>,
    pub memory_used_bytes: u64,
    pub memory_total_bytes: u64,
    pub watts: Option<f64>,
    pub celsius: Option<u32>,
}

/// The power of GPUs and processors, as far as this machine reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyReport {
    /// Sum of all GPUs that report it.
    pub gpu_watts: Option<f64>,
    pub processor_watts: Option<f64>,
    /// Why the power of the processors is unknown.
    pub processor_note: Option<String>,
    /// Since midnight, while a worker ran here; absent if no device reports its power.
    pub today_watt_hours: Option<f64>,
    /// The share of time in which models compute, while `owner.most_watts` has them rest.
    #[serde(default)]
    pub computing: Option<f64>,
    /// `owner.energy_price`, for a kilowatt-hour.
    pub price: Option<f64>,
    /// Cost of today's energy, in the currency of the price.
    pub today_cost: Option<f64>,
}

/// A reason why no jobs arrive, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoJobsReport {
    /// For programs: `paused`, `not_connected`, `wrong_key`, `no_demand` and others.
    pub cause: String,
    pub text: String,
    pub remedy: Option<String>,
    pub coordinator: Option<String>,
    pub model: Option<String>,
}

/// A sample of one minute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HistorySample {
    /// Seconds since the epoch at its end.
    pub at: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, TallyReport>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub coordinators: BTreeMap<String, TallyReport>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuSample>,
    /// Energy of GPUs and processors, as far as they report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watt_hours: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_paused: bool,
}

/// Means of a GPU's values within a minute, as far as it reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    pub load: Option<f64>,
    pub memory_used_bytes: u64,
    pub watts: Option<f64>,
    pub celsius: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseReport {
    /// `closing` while running jobs end, then `paused`.
    pub state: String,
    /// The command and the rules that keep jobs away.
    pub reasons: Vec<String>,
    /// Seconds since the epoch at which a command expires.
    pub until: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReport {
    pub name: String,
    /// Unknown until the files are on disk.
    pub kind: Option<String>,
    /// Tokens of one job, of a model that has a context.
    pub context: Option<usize>,
    /// The devices that have it, or the program that serves it.
    pub devices: Vec<String>,
    /// `loaded`, `unloaded`, `downloading` or `served` by another program.
    pub state: String,
    /// Seconds since the epoch at which an unused model leaves memory.
    pub unloads_at: Option<i64>,
    pub download: Option<DownloadReport>,
    /// Speed of a recent single job; jobs below 0.1 s are ignored.
    #[serde(default)]
    pub tokens_per_second: Option<f64>,
    #[serde(default)]
    pub prompt_tokens_per_second: Option<f64>,
    #[serde(default)]
    pub running: u32,
    #[serde(default)]
    pub since_start: TallyReport,
    #[serde(default)]
    pub today: TallyReport,
}

/// A model that another program serves; nothing is known of it while it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamReport {
    pub name: String,
    pub url: String,
    pub software: Option<String>,
    pub kind: Option<String>,
    pub context: Option<u32>,
    pub jobs: Option<u32>,
    /// Why it is not served.
    pub failure: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownloadReport {
    pub received_bytes: u64,
    /// 0 until the hub has reported it.
    pub total_bytes: u64,
    /// The reason of the last failure; the next attempt is automatic.
    pub failure: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoordinatorReport {
    pub name: String,
    /// `connected`, `connecting`, `refused`, `maintenance` or `left`.
    pub state: String,
    /// The coordinator's words where it refuses the worker or has it in maintenance; the last error while the worker
    /// connects.
    pub reason: Option<String>,
    /// Whether it sends only jobs of the owner's account.
    #[serde(default)]
    pub own_jobs: bool,
    #[serde(default)]
    pub since_start: TallyReport,
    #[serde(default)]
    pub today: TallyReport,
    /// Jobs that wait for the connection to come back, or for the coordinator's confirmation.
    #[serde(default)]
    pub held_jobs: usize,
    /// Kudos that the coordinator holds back until it trusts the account, if it reports them.
    #[serde(default)]
    pub held_kudos: Option<f64>,
    /// Seconds since the epoch.
    #[serde(default)]
    pub last_job_at: Option<i64>,
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
