//! Checks the database twice a second: its health, and changes by other processes. A single small statement does both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use sqlx::{Any, AnyConnection, AnyPool, Executor, Row};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{error, info};

use crate::clock::wall_clock;
use crate::values::modes::{ModeSet, Reading};
use muster_process::tasks::Tasks;

use super::file::{Companions, OpenFiles};
use super::modes::take_in;
use super::rescue::Rescuer;
use super::revisions::{Revisions, Watched};
use super::write::{Change, Write};
use super::{StorageError, too_slow};

const EVERY: Duration = Duration::from_millis(400);
/// After this time without writes the store is probed, so that a disk that has become read-only is known before a
/// request comes whose work would be lost.
const PROBES: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(2);

/// Last known health of the store.
#[derive(Debug, Default)]
pub struct Health {
    read: Side,
    written: Side,
    disk: Side,
    /// Number of successful writes.
    writes: AtomicU64,
}

/// State of reads, of writes or of the disk.
#[derive(Debug, Default)]
struct Side {
    is_bad: AtomicBool,
    why: Mutex<Option<StorageError>>,
}

impl Health {
    pub fn is_good(&self) -> bool {
        self.read.is_good() && self.written.is_good() && self.disk.is_good()
    }

    /// A write problem takes precedence over a read problem.
    pub fn problem(&self) -> Option<StorageError> {
        match self.is_good() {
            true => None,
            false => {
                let sides = [&self.written, &self.disk, &self.read];
                sides.into_iter().find_map(Side::why)
            }
        }
    }

    /// Returns whether writes were healthy before.
    pub fn note_write(&self, written: &Result<(), StorageError>) -> bool {
        self.writes
            .fetch_add(u64::from(written.is_ok()), Ordering::Relaxed);
        self.written.note(written.as_ref().err())
    }

    fn note_disk(&self, error: Option<&StorageError>) -> bool {
        self.disk.note(error)
    }

    fn note_read(&self, error: Option<&StorageError>) -> bool {
        self.read.note(error)
    }
}

impl Side {
    fn is_good(&self) -> bool {
        !self.is_bad.load(Ordering::Relaxed)
    }

    fn why(&self) -> Option<StorageError> {
        self.lock().clone()
    }

    fn note(&self, error: Option<&StorageError>) -> bool {
        // The usual case needs no lock.
        if error.is_none() && self.is_good() {
            return true;
        }
        *self.lock() = error.cloned();
        !self.is_bad.swap(error.is_some(), Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<StorageError>> {
        self.why.lock()
    }
}

/// A write that changes no visible row; shows whether the database is writable.
#[derive(Debug)]
struct Probe;

impl Change for Probe {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            sqlx::query("UPDATE counters SET value = value + 1 WHERE name = 'probe'")
                .execute(connection)
                .await?;
            Ok(())
        })
    }
}

/// The values that the pulse keeps current.
#[derive(Debug)]
pub struct Followed {
    pub revisions: Watched,
    pub modes: Arc<watch::Sender<Reading>>,
}

/// The results of one check.
#[derive(Debug, Default)]
pub struct Look {
    /// The counters by name.
    counters: Vec<(String, i64)>,
    modes: Reading,
}

/// The open files of a database, its companions, and the connection that copies it when they are gone.
pub type WatchedFiles = (OpenFiles, Companions, Option<Rescuer>);

/// Starts the task, from the results of the first check.
pub fn start(
    first: Look,
    readers: &AnyPool,
    writes: &mpsc::Sender<Write>,
    (health, (files, companions, rescuer)): (Arc<Health>, WatchedFiles),
    tasks: &Tasks,
) -> Followed {
    let (revisions, watched) = Revisions::of(&first.counters);
    let modes = Arc::new(watch::Sender::new(first.modes));
    let pulse = Pulse {
        readers: readers.clone(),
        writes: writes.downgrade(),
        health,
        files,
        companions,
        rescuer,
        is_rescued: false,
        revisions,
        modes: modes.clone(),
        tasks: tasks.clone(),
    };
    let stopping = tasks.stopping();
    tasks.start(async move { stopping.run_until_cancelled(pulse.run()).await });
    Followed {
        revisions: watched,
        modes,
    }
}

struct Pulse {
    readers: AnyPool,
    /// Weak, so that the writer ends when the last store is dropped.
    writes: mpsc::WeakSender<Write>,
    health: Arc<Health>,
    files: OpenFiles,
    companions: Companions,
    rescuer: Option<Rescuer>,
    /// A copy was made or failed since the files were last in place.
    is_rescued: bool,
    revisions: Revisions,
    modes: Arc<watch::Sender<Reading>>,
    tasks: Tasks,
}

impl Pulse {
    async fn run(mut self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut probing = None;
        let (mut probed, mut writes) = (Instant::now(), 0);
        while !self.revisions.are_forgotten() {
            ticks.tick().await;
            self.read().await;
            self.look_at_files();
            self.look_at_disk();
            let is_under_way = probing.as_mut().is_some_and(is_open);
            let done = self.health.writes.load(Ordering::Relaxed);
            let is_idle = done == writes && probed.elapsed() >= PROBES;
            if !is_under_way && (is_idle || !self.health.written.is_good()) {
                probing = self.probe();
            }
            if done != writes || is_idle {
                (probed, writes) = (Instant::now(), done);
            }
        }
    }

    async fn read(&self) {
        let read = timeout(PATIENCE, look(&self.readers)).await;
        let read = read.unwrap_or_else(|_| Err(too_slow(PATIENCE)));
        let was_good = self.health.note_read(read.as_ref().err());
        match read {
            Ok(look) => {
                self.take_in(&look);
                if !was_good {
                    info!("database reads work again");
                }
            }
            Err(error) if was_good => error!("database reads fail: {error}"),
            Err(_) => {}
        }
    }

    /// The writer refuses every write while the files are missing, so the copy has all confirmed writes.
    fn look_at_files(&mut self) {
        match self.files.check() {
            Ok(()) => self.is_rescued = false,
            Err(_) if self.is_rescued => {}
            Err(gone) => {
                self.is_rescued = true;
                error!("requests are refused: {gone}");
                let _ = self.health.note_write(&Err(gone));
                let path = self.files.rescue_path(wall_clock().0 / 1000);
                if let (Some(path), Some(rescuer)) = (path, self.rescuer.clone()) {
                    let (companions, stopping) = (self.companions.clone(), self.tasks.stopping());
                    let rescue = async move { rescuer.rescue(&path, &companions).await };
                    self.tasks
                        .start(async move { stopping.run_until_cancelled(rescue).await });
                }
            }
        }
    }

    /// Small writes may still succeed where large ones fail, so the writer alone would notice too late.
    fn look_at_disk(&self) {
        let full = self.files.is_disk_full().then_some(StorageError::Full);
        let had_room = self.health.note_disk(full.as_ref());
        match full {
            Some(full) if had_room => error!("requests are refused: {full}; free disk space"),
            None if !had_room => info!("the disk of the database has room again"),
            _ => {}
        }
    }

    fn take_in(&self, look: &Look) {
        take_in(&self.modes, look.modes);
        self.revisions.note(&look.counters);
    }

    /// Sends a probe; the writer records its outcome. A hanging probe does not delay the check for changed keys.
    fn probe(&self) -> Option<Probing> {
        let (answer, answered) = oneshot::channel();
        let sent = self.writes.upgrade()?.try_send(Write::other(Probe, answer));
        sent.is_ok().then_some(answered)
    }
}

type Probing = oneshot::Receiver<Result<(), StorageError>>;

fn is_open(probing: &mut Probing) -> bool {
    matches!(probing.try_recv(), Err(TryRecvError::Empty))
}

/// No mode has the name of a counter.
const LOOK: &str = "SELECT name, value FROM counters \
                    UNION ALL SELECT name, is_on FROM modes WHERE is_on = 1";

pub async fn look<'e>(store: impl Executor<'e, Database = Any>) -> Result<Look, StorageError> {
    let mut look = Look::default();
    for row in sqlx::query(LOOK).fetch_all(store).await? {
        let (name, value): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        if name == "modes" {
            look.modes.revision = value;
        }
        look.modes.modes = look
            .modes
            .modes
            .with(ModeSet::named(&name).unwrap_or_default());
        look.counters.push((name, value));
    }
    Ok(look)
}
