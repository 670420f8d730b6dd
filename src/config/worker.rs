//! `[worker]`: the program itself.

use std::path::PathBuf;
use std::time::Duration;

use super::choice::choice;
use super::setting::settings;

settings! {
    /// The worker process.
    pub struct WorkerConfig = "worker" {
        /// Name of this worker in its log. Set it to tell machines apart.
        name: Option<String>; unset "the host name",
        /// Folder for the program's own files. Change it to use another disk.
        data_dir: PathBuf = "~/.local/share/muster"; shared &[("XDG_DATA_HOME", "/muster")],
        /// Log level: error, warn, info, debug or trace. Set debug to find a fault.
        log_level: LogLevel = "info",
        /// Log format: text for people, json for log collectors.
        log_format: LogFormat = "text",
        /// How long running jobs may continue after a stop signal. Raise it for long generations.
        drain: Duration where (0..=86_400) = "30s",
    }
}

choice! {
    /// Least severe level of the log.
    pub enum LogLevel { Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace" }
}

choice! {
    pub enum LogFormat { Text = "text", Json = "json" }
}

impl WorkerConfig {
    /// The name to go by.
    pub fn name(&self) -> String {
        let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let name = self.name.clone().or_else(machine).unwrap_or_default();
        match name.trim() {
            "" => "worker".to_owned(),
            name => name.to_owned(),
        }
    }
}
