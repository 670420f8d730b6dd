//! Feels the store's pulse twice a second: whether it answers, and what another process has changed. One small
//! statement serves it all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;
use sqlx::{AnyPool, Row};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use crate::coordinator::modes::{ModeSet, Reading};
use crate::tasks::Tasks;

use super::StorageError;
use super::modes::take_in;
use super::revisions::{Revisions, Watched};
use super::write::{Change, Write};

const EVERY: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(2);

/// What was last seen of the store.
#[derive(Debug)]
pub struct Health {
    read: AtomicBool,
    written: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            read: AtomicBool::new(true),
            written: AtomicBool::new(true),
        }
    }
}

impl Health {
    pub fn is_good(&self) -> bool {
        self.read.load(Ordering::Relaxed) && self.written.load(Ordering::Relaxed)
    }

    /// Gives back what it was before.
    pub fn note_write(&self, good: bool) -> bool {
        self.written.swap(good, Ordering::Relaxed)
    }

    fn note_read(&self, good: bool) -> bool {
        self.read.swap(good, Ordering::Relaxed)
    }
}

/// Changes nothing that anybody reads, and shows whether something could be changed.
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

/// What is kept current.
#[derive(Debug)]
pub struct Followed {
    pub revisions: Watched,
    pub modes: Arc<watch::Sender<Reading>>,
}

/// What one look at the store tells.
#[derive(Debug, Default)]
struct Look {
    /// The counters, by their names.
    counters: Vec<(String, i64)>,
    modes: Reading,
}

/// Starts the task.
pub async fn start(
    readers: &AnyPool,
    writes: &mpsc::Sender<Write>,
    health: Arc<Health>,
    tasks: &Tasks,
) -> Result<Followed, StorageError> {
    let first = look(readers).await?;
    let (revisions, watched) = Revisions::of(&first.counters);
    let modes = Arc::new(watch::Sender::new(first.modes));
    let pulse = Pulse {
        readers: readers.clone(),
        writes: writes.downgrade(),
        health,
        revisions,
        modes: modes.clone(),
    };
    let stopping = tasks.stopping();
    tasks.start(async move { stopping.run_until_cancelled(pulse.run()).await });
    Ok(Followed {
        revisions: watched,
        modes,
    })
}

struct Pulse {
    readers: AnyPool,
    /// Weak, so that the writer ends with the last store.
    writes: mpsc::WeakSender<Write>,
    health: Arc<Health>,
    revisions: Revisions,
    modes: Arc<watch::Sender<Reading>>,
}

impl Pulse {
    async fn run(self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut probing = None;
        while !self.revisions.are_forgotten() {
            ticks.tick().await;
            self.read().await;
            let is_under_way = probing.as_mut().is_some_and(is_open);
            if !is_under_way && !self.health.written.load(Ordering::Relaxed) {
                probing = self.probe();
            }
        }
    }

    async fn read(&self) {
        let read = timeout(PATIENCE, look(&self.readers)).await;
        let was_good = self.health.note_read(matches!(read, Ok(Ok(_))));
        match read {
            Ok(Ok(look)) => {
                self.take_in(&look);
                if !was_good {
                    info!("the store answers again");
                }
            }
            Ok(Err(error)) if was_good => warn!("the store does not answer: {error}"),
            Err(_) if was_good => warn!("the store does not answer in time"),
            _ => {}
        }
    }

    fn take_in(&self, look: &Look) {
        take_in(&self.modes, look.modes);
        self.revisions.note(&look.counters);
    }

    /// The writer notes what came of it. It may take long to find that out, and changed keys do not wait for it.
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

/// No mode is called like a counter.
const LOOK: &str = "SELECT name, value FROM counters \
                    UNION ALL SELECT name, is_on FROM modes WHERE is_on = 1";

async fn look(readers: &AnyPool) -> Result<Look, StorageError> {
    let mut look = Look::default();
    for row in sqlx::query(LOOK).fetch_all(readers).await? {
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
