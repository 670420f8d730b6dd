//! `[worker]`: the program itself.

use std::path::PathBuf;
use std::time::Duration;

use super::choice::choice;
use super::setting::settings;

settings! {
    /// The program itself.
    pub struct WorkerConfig = "worker" {
        /// What this worker is called in its log. Change it to tell several machines apart.
        name: Option<String>; unset "the name of the machine",
        /// Where the worker keeps its own files. Change it to use another disk.
        data_dir: PathBuf = "~/.local/share/muster"; shared &[("XDG_DATA_HOME", "/muster")],
        /// How much the log says: error, warn, info, debug or trace. Raise it when looking for a fault.
        log_level: LogLevel = "info",
        /// How the log looks: text for people, json for programs that collect logs.
        log_format: LogFormat = "text",
        /// How long running jobs may go on after the signal to stop. Raise it for long generations.
        drain: Duration where (0..=86_400) = "30s",
    }
}

choice! {
    /// What is worth a line in the log.
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
