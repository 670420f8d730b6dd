//! Downloads a model of the catalog, with progress in the log.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::DaemonError;
use super::fit::{Room, Wishes, quantization};
use super::report::DownloadReport;
use crate::catalog::{Catalog, EntrySource, Source};
use crate::hub::{Event, Hub, Progress};

/// Downloads the named or preferred quantization, or else one that fits: larger ones are refused before the download.
/// Dropping the future stops it, and the received bytes are kept.
pub async fn fetch(
    wanted: &str,
    preferred: Option<&str>,
    wishes: Wishes,
    room: &Room,
    (catalog, hub): (&Catalog, &Hub),
    transfer: &Transfer,
) -> Result<(), DaemonError> {
    let (entry, named) = catalog.find_with_quantization(wanted)?;
    let preferred = entry.preferred(preferred).map(|(name, _)| name);
    let chosen = match named.or(preferred) {
        Some(named) => named,
        None => match quantization(entry, wishes, room) {
            Ok((fitting, _)) => fitting,
            Err(Some(refusal)) => {
                return Err(DaemonError::DoesNotFit {
                    model: wanted.to_owned(),
                    refusal: Box::new(refusal),
                });
            }
            Err(None) => &entry.default_quantization,
        },
    };
    let (name, _) = entry.source(Some(chosen))?;
    for EntrySource { component, source } in entry.sources_of(name) {
        if let Source::Hub(source) = source
            && hub.locate(source).is_none()
        {
            let part = component.map_or(String::new(), |(component, _)| format!(", {component}"));
            info!("{}:{name}{part} is not on disk, downloading", entry.id);
            hub.pull(source, transfer, &CancellationToken::new())
                .await?;
        }
    }
    Ok(())
}

/// The files of a model, or of a component of it, on their way. A line in the log for each tenth.
#[derive(Debug, Default)]
pub struct Transfer {
    all_bytes: AtomicU64,
    here_bytes: AtomicU64,
    /// Error of the last attempt.
    failure: Mutex<Option<String>>,
}

impl Progress for Transfer {
    fn report(&self, event: Event<'_>) {
        match event {
            Event::Planned {
                wanted_bytes,
                present_bytes,
                ..
            } => {
                let all = wanted_bytes.saturating_add(present_bytes);
                self.all_bytes.store(all, Ordering::Relaxed);
                self.here_bytes.store(present_bytes, Ordering::Relaxed);
                *self.failure.lock() = None;
            }
            Event::Received { bytes, .. } => {
                if let Some(percent) = self.received(bytes) {
                    let all = self.all_bytes.load(Ordering::Relaxed);
                    info!("downloaded {percent} % of {} MiB", all >> 20);
                }
            }
            Event::Waiting { what, why, wait } => {
                warn!(
                    "fetching {what} failed ({why}), retrying in {} s",
                    wait.as_secs()
                );
            }
            Event::Locked { file } => {
                info!("another process is downloading {file}, waiting for it")
            }
            Event::Restarted { file, why } => warn!("restarting the download of {file}: {why}"),
            Event::Removed {
                repository, bytes, ..
            } => info!(
                "removed files of {repository} that were not used for the longest time, {} MiB, to keep to hub.disk",
                bytes >> 20
            ),
            Event::Started { .. } | Event::Verifying { .. } | Event::Finished { .. } => {}
        }
    }
}

impl Transfer {
    pub fn fail(&self, failure: &impl Display) {
        let mut last = self.failure.lock();
        *last = Some(failure.to_string());
    }

    pub fn state(&self) -> DownloadReport {
        let total_bytes = self.all_bytes.load(Ordering::Relaxed);
        let received_bytes = self.here_bytes.load(Ordering::Relaxed).min(total_bytes);
        let failure = self.failure.lock();
        DownloadReport {
            received_bytes,
            total_bytes,
            failure: failure.clone(),
        }
    }

    /// The percentage to log, if it has changed. A restarted file counts again, but the total never exceeds 100 %.
    fn received(&self, bytes: u64) -> Option<u64> {
        let all = self.all_bytes.load(Ordering::Relaxed).max(1);
        let before = self.here_bytes.fetch_add(bytes, Ordering::Relaxed);
        let tenth = |bytes: u64| (bytes.saturating_mul(10) / all).min(10);
        let now = tenth(before.saturating_add(bytes));
        (now > tenth(before)).then_some(now * 10)
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Progress, Transfer};

    #[test]
    fn what_was_here_counts_and_nothing_comes_to_more_than_all() {
        let transfer = Transfer::default();
        transfer.report(Event::Planned {
            files: 1,
            wanted_bytes: 40,
            present_bytes: 60,
        });
        let told: Vec<_> = (0..16).filter_map(|_| transfer.received(5)).collect();
        assert_eq!(told, [70, 80, 90, 100]);
        transfer.fail(&"the hub is away");
        let report = transfer.state();
        assert_eq!((report.received_bytes, report.total_bytes), (100, 100));
        assert_eq!(report.failure.as_deref(), Some("the hub is away"));
    }
}
