//! Work for the owner's page that knows the command line: its configuration file, its checks.

use futures_util::future::BoxFuture;

use muster_config::{Found, SettingChange};

/// The settings of the file, and how the program takes them over.
pub trait OwnerTools: Send + Sync {
    /// Reads the configuration; blocks.
    fn settings(&self) -> Result<FileSettings, String>;
    /// Writes these settings to the file, where the configuration with them is valid; blocks.
    fn change(&self, changes: &[SettingChange]) -> Result<(), String>;
    /// Whether a running worker takes a change of this setting over.
    fn is_live(&self, name: &str) -> bool;
    /// Has the process read its configuration again, as SIGHUP does.
    fn reload(&self);
    /// The checks of `worker doctor` that are possible next to a running worker.
    fn doctor(&self) -> BoxFuture<'static, Vec<DoctorFinding>>;
}

/// The configuration file, and the value of each setting.
#[derive(Debug, Clone)]
pub struct FileSettings {
    /// `None` if the program runs without a file, so that settings cannot be changed.
    pub file: Option<String>,
    pub found: Vec<Found>,
}

/// A line of `worker doctor`.
#[derive(Debug, Clone)]
pub struct DoctorFinding {
    pub check: String,
    /// `ok`, `warn` or `fail`.
    pub verdict: String,
    pub finding: String,
    pub advice: Option<String>,
}
