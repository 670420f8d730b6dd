//! What was made lately and ever, by kind and model: totals for everybody to see, and how fast models are. The counting is
//! in the store; here is the look at it, which is shared by all who ask, and the folding of what has been added.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::clock::wall_clock;
use super::storage::{StorageError, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::Kind;

pub use super::storage::{Made, MadeBy};

/// All of it. Clones share their looks.
#[derive(Debug, Clone)]
pub struct Stats {
    store: Store,
    last: Arc<Mutex<Option<Look>>>,
}

/// What was made, in windows that end now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    pub minute: Window,
    pub hour: Window,
    pub day: Window,
    /// Thirty days.
    pub month: Window,
    pub ever: Window,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window(Vec<MadeBy>);

#[derive(Debug)]
struct Look {
    taken: Instant,
    cost: Duration,
    picture: Arc<Picture>,
}

/// A look is at most this old, unless looking has become dear: it may take a part of the time.
const FRESH: Duration = Duration::from_millis(500);
const SHARE: u32 = 20;

/// What was added is folded this often, and in steps with a pause when there is much.
const FOLD: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// Less work says nothing about a model's speed.
const LEAST_SECONDS: f64 = 0.05;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

impl Stats {
    pub fn start(store: Store, tasks: &Tasks) -> Self {
        let (folded, stopping) = (store.clone(), tasks.stopping());
        tasks.start(async move { stopping.run_until_cancelled(fold(folded)).await });
        Self {
            store,
            last: Arc::default(),
        }
    }

    /// While the store does not answer: as it was last.
    pub async fn picture(&self) -> Result<Arc<Picture>, StorageError> {
        let mut last = self.last.lock().await;
        if let Some(look) = last.as_ref().filter(|look| look.is_fresh()) {
            return Ok(look.picture.clone());
        }
        match (self.look().await, last.as_ref()) {
            (Ok(look), _) => Ok(last.insert(look).picture.clone()),
            (Err(_), Some(look)) => Ok(look.picture.clone()),
            (Err(error), None) => Err(error),
        }
    }

    async fn look(&self) -> Result<Look, StorageError> {
        let (taken, now) = (Instant::now(), wall_clock());
        let since = async |time| self.store.made_since(now.before(time)).await.map(Window);
        let picture = Picture {
            minute: since(MINUTE).await?,
            hour: since(HOUR).await?,
            day: since(DAY).await?,
            month: since(MONTH).await?,
            ever: since(Duration::MAX).await?,
        };
        Ok(Look {
            taken,
            cost: taken.elapsed(),
            picture: picture.into(),
        })
    }
}

impl Look {
    fn is_fresh(&self) -> bool {
        self.taken.elapsed() < FRESH.max(self.cost * SHARE)
    }
}

impl Window {
    /// Of all models.
    pub fn total(&self, kind: Kind) -> Made {
        let mut total = Made::default();
        self.of(kind).for_each(|by| total.add(by.made));
        total
    }

    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &MadeBy> {
        self.0.iter().filter(move |by| by.kind == kind)
    }

    /// What one job of this model gets done in a second, if any was done.
    pub fn speed(&self, kind: Kind, model: &str) -> Option<f64> {
        let by = self.of(kind).find(|by| by.model == model)?;
        let seconds = by.made.busy_millis as f64 / 1000.0;
        (by.made.done > 0 && seconds >= LEAST_SECONDS).then(|| by.made.done as f64 / seconds)
    }
}

async fn fold(store: Store) {
    loop {
        let more = store.fold_stats(wall_clock()).await;
        let more = more.unwrap_or_else(|error| {
            debug!("aggregating statistics failed, retrying later: {error}");
            false
        });
        sleep(if more { PAUSE } else { FOLD }).await;
    }
}
