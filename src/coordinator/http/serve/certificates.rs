//! The TLS certificate: reloaded when its files change, kept if the new files are invalid, and checked for expiry.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::clock::wall_clock;
use crate::condition::Condition;
use crate::file_id::FileId;
use muster_process::tasks::Tasks;
use muster_protocol::job::UnixMillis;

use super::tls::{Tls, TlsError, TlsFiles};

/// Clones share the certificate.
#[derive(Debug, Clone)]
pub struct Certificates {
    tls: Tls,
    condition: Condition,
    watched: Arc<Mutex<Watched>>,
}

#[derive(Debug)]
struct Watched {
    files: TlsFiles,
    /// Stamps of the files as last read.
    read: [Option<Stamp>; 2],
    /// The last expiry warning that was logged.
    told: Option<Nearness>,
}

/// Properties that change with a file.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    id: FileId,
    modified: (i64, i64),
    bytes: u64,
}

/// How near the expiry is; each stage is logged once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    Month,
    Week,
    Day,
    Expired,
}

/// Interval of checks of the files.
const LOOKS: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(86_400);

impl Certificates {
    pub fn open(files: TlsFiles, condition: Condition) -> Result<Self, TlsError> {
        let read = stamps(&files);
        let (tls, expiry) = Tls::read(&files)?;
        let certificates = Self {
            tls,
            condition,
            watched: Arc::new(Mutex::new(Watched {
                files,
                read,
                told: None,
            })),
        };
        certificates.note(expiry);
        certificates.warn_of_expiry(&mut certificates.watched());
        Ok(certificates)
    }

    pub fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Starts checking the files.
    pub fn watch(&self, tasks: &Tasks) {
        let (certificates, stopping) = (self.clone(), tasks.stopping());
        let looking = async move {
            loop {
                sleep(LOOKS).await;
                let certificates = certificates.clone();
                // `look` logs its own errors.
                let _ = spawn_blocking(move || certificates.look()).await;
            }
        };
        tasks.start(async move { stopping.run_until_cancelled(looking).await });
    }

    /// Reloads the certificate, and uses these files from now on.
    pub fn reload(&self, files: TlsFiles) {
        let mut watched = self.watched();
        watched.files = files;
        self.read_again(&mut watched);
    }

    fn look(&self) {
        let mut watched = self.watched();
        if stamps(&watched.files) != watched.read {
            self.read_again(&mut watched);
        }
        self.warn_of_expiry(&mut watched);
    }

    fn read_again(&self, watched: &mut Watched) {
        watched.read = stamps(&watched.files);
        match Tls::read(&watched.files) {
            Ok((tls, expiry)) => {
                self.tls.replace(&tls);
                watched.told = None;
                self.note(expiry);
                match expiry {
                    Some(expiry) => info!("certificate reloaded; expires {}", date(expiry)),
                    None => info!("certificate reloaded"),
                }
            }
            Err(error) => warn!(
                "reloading the certificate failed, the old one stays in use until the files change: {error}"
            ),
        }
    }

    fn note(&self, expiry: Option<UnixMillis>) {
        if let Some(expiry) = expiry {
            self.condition.note_certificate_expiry(expiry);
        }
    }

    fn warn_of_expiry(&self, watched: &mut Watched) {
        let Some(expiry) = self.condition.certificate_expiry() else {
            return;
        };
        let nearness = nearness(expiry, wall_clock());
        if nearness <= watched.told {
            return;
        }
        watched.told = nearness;
        let date = date(expiry);
        let remedy =
            "replace the files of serve.tls_certificate and serve.tls_key; no restart needed";
        match nearness {
            Some(Nearness::Expired) => {
                error!("the certificate expired {date} and clients refuse it: {remedy}");
            }
            _ => warn!("the certificate expires {date}: {remedy}"),
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock()
    }
}

fn nearness(expiry: UnixMillis, now: UnixMillis) -> Option<Nearness> {
    let left = u64::try_from(expiry.0.saturating_sub(now.0)).unwrap_or(0);
    match Duration::from_millis(left) {
        Duration::ZERO => Some(Nearness::Expired),
        left if left <= DAY => Some(Nearness::Day),
        left if left <= 7 * DAY => Some(Nearness::Week),
        left if left <= 30 * DAY => Some(Nearness::Month),
        _ => None,
    }
}

/// `2026-01-31T12:00:00Z`
fn date(moment: UnixMillis) -> String {
    let millis = u64::try_from(moment.0).unwrap_or(0);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(millis)).to_string()
}

fn stamps(files: &TlsFiles) -> [Option<Stamp>; 2] {
    [&files.certificate, &files.key].map(|path| Stamp::of(path).ok())
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            id: FileId::of(path)?,
            modified: (found.mtime(), found.mtime_nsec()),
            bytes: found.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::{Certificates, Nearness, nearness};
    use crate::condition::Condition;
    use crate::http::serve::TlsFiles;
    use muster_protocol::job::UnixMillis;

    const OLD: i64 = 4_948_862_051_000;

    fn put(folder: &TempDir, fixture: &str, name: &str) {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let fixture = root.join("tests/fixtures/tls").join(fixture);
        fs::copy(fixture, folder.path().join(name)).unwrap();
    }

    fn opened() -> (TempDir, Condition, Certificates) {
        let folder = tempfile::tempdir().unwrap();
        put(&folder, "certificate.pem", "certificate.pem");
        put(&folder, "key.pem", "key.pem");
        let files = TlsFiles {
            certificate: folder.path().join("certificate.pem"),
            key: folder.path().join("key.pem"),
        };
        let condition = Condition::default();
        let certificates = Certificates::open(files, condition.clone()).unwrap();
        (folder, condition, certificates)
    }

    #[test]
    fn a_renewed_certificate_is_served_when_both_of_its_files_are_there() {
        let (folder, condition, certificates) = opened();
        let expiry = || condition.certificate_expiry().unwrap().0;
        assert_eq!(expiry(), OLD);
        let before = certificates.tls().identity();
        certificates.look();
        assert_eq!(certificates.tls().identity(), before);
        put(&folder, "other-certificate.pem", "certificate.pem");
        certificates.look();
        assert_eq!(certificates.tls().identity(), before, "its key is another");
        assert_eq!(expiry(), OLD);
        put(&folder, "other-key.pem", "key.pem");
        certificates.look();
        assert_ne!(certificates.tls().identity(), before);
        assert_ne!(expiry(), OLD);
    }

    #[test]
    fn a_certificate_that_is_broken_or_gone_leaves_the_old_one_in_use() {
        let (folder, condition, certificates) = opened();
        let before = certificates.tls().identity();
        fs::write(folder.path().join("certificate.pem"), "nonsense").unwrap();
        certificates.look();
        fs::remove_file(folder.path().join("key.pem")).unwrap();
        certificates.look();
        assert_eq!(certificates.tls().identity(), before);
        assert_eq!(condition.certificate_expiry(), Some(UnixMillis(OLD)));
    }

    #[test]
    fn an_expiry_is_told_a_month_a_week_and_a_day_before_and_after_it() {
        let day = 86_400_000;
        let check = |days: i64, expected| {
            let found = nearness(UnixMillis(1000 * day), UnixMillis((1000 - days) * day));
            assert_eq!(found, expected, "{days} days before");
        };
        check(31, None);
        check(30, Some(Nearness::Month));
        check(7, Some(Nearness::Week));
        check(1, Some(Nearness::Day));
        check(0, Some(Nearness::Expired));
        check(-5, Some(Nearness::Expired));
        assert!(Some(Nearness::Month) > None && Nearness::Expired > Nearness::Day);
    }
}
