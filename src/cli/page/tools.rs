//! Settings and checks for the owner's page, by the configuration file and `worker doctor`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::{Root, doctor, reload};
use crate::config::{self, SettingChange, Sources};
use crate::daemon::page::{DoctorFinding, FileSettings, OwnerTools};

/// Of the process that reads the configuration with these options.
pub struct PageTools {
    root: Root,
    /// The process that hears SIGHUP.
    process: Pid,
    /// Whether the worker has the coordinators of the configuration.
    has_coordinators: bool,
}

impl PageTools {
    /// Of a worker alone, in this process.
    pub fn of_worker(root: &Root) -> Self {
        Self {
            root: root.clone(),
            process: rustix::process::getpid(),
            has_coordinators: true,
        }
    }

    /// Of the engine that this process started for `worker up`.
    #[cfg(feature = "coordinator")]
    pub fn of_engine(root: &Root, coordinator: u32) -> Self {
        let coordinator = i32::try_from(coordinator).ok().and_then(Pid::from_raw);
        Self {
            root: root.clone(),
            process: coordinator.unwrap_or_else(rustix::process::getpid),
            has_coordinators: false,
        }
    }
}

impl OwnerTools for PageTools {
    fn settings(&self) -> Result<FileSettings, String> {
        let loaded = self.root.load().map_err(|failure| failure.to_string())?;
        let file = self.root.config.as_ref();
        Ok(FileSettings {
            file: file.map(|file| file.display().to_string()),
            found: loaded.found,
        })
    }

    fn change(&self, changes: &[SettingChange]) -> Result<(), String> {
        let Some(file) = &self.root.config else {
            return Err(
                "this worker runs without a configuration file: `worker init` writes one, --config names it"
                    .to_owned(),
            );
        };
        let failed = |what: &str, error: &io::Error| {
            format!(
                "{what} {} failed: {error}; change the file as its owner",
                file.display()
            )
        };
        // A link to the file stays a link.
        let file = fs::canonicalize(file).map_err(|error| failed("finding", &error))?;
        let text = fs::read_to_string(&file).map_err(|error| failed("reading", &error))?;
        let sources = Sources::of_process(Some(file.clone()), Vec::new());
        let changed =
            config::change(&text, changes, &sources).map_err(|error| error.to_string())?;
        if changed == text {
            return Ok(());
        }
        replace(&file, &changed).map_err(|error| failed("writing", &error))
    }

    fn is_live(&self, name: &str) -> bool {
        reload::is_live_of_owners(name)
    }

    fn reload(&self) {
        // The process is this one, or the one without which this one ends.
        let _ = kill_process(self.process, Signal::HUP);
    }

    fn doctor(&self) -> BoxFuture<'static, Vec<DoctorFinding>> {
        let (root, has_coordinators) = (self.root.clone(), self.has_coordinators);
        async move {
            let checks = doctor::beside_worker(&root, has_coordinators).await;
            let checks = checks.into_iter().map(|check| DoctorFinding {
                check: check.name.to_owned(),
                verdict: check.verdict.word().to_owned(),
                finding: check.finding,
                advice: check.advice,
            });
            checks.collect()
        }
        .boxed()
    }
}

/// The file is whole at any time, and as readable as before.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let permissions = file.metadata()?.permissions();
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = file.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(permissions.mode() & 0o600)
        .open(&new)
        .and_then(|mut draft| {
            draft.write_all(text.as_bytes())?;
            draft.set_permissions(permissions)?;
            draft.sync_all()
        });
    written
        .and_then(|()| fs::rename(&new, file))
        .inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
}
