//! Statistics by kind and model, recent and lifetime: public totals, and speeds of models. The database counts; here
//! they are read once for all callers, and new lines are folded.

mod figures;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::clock::wall_clock;
use super::storage::{StorageError, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::Kind;

pub use super::storage::{Made, MadeBy, RecentJob};

/// All statistics. Clones share the cache.
#[derive(Debug, Clone)]
pub struct Stats {
    store: Store,
    last: Arc<RwLock<Option<Look>>>,
    /// Held during a query; other callers get the cached result meanwhile.
    looking: Arc<Mutex<()>>,
    recent: Arc<Mutex<Option<Latest>>>,
}

/// Totals, in windows that end now.
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

/// The latest delivered jobs and the time of the query.
#[derive(Debug)]
struct Latest {
    read: Instant,
    jobs: Arc<Vec<RecentJob>>,
}

/// Limit of listed jobs.
pub const MOST_RECENT: u32 = 100;
/// Maximum age of the list of recent jobs.
const RECENT_AGE: Duration = Duration::from_secs(2);

/// Maximum age of a cached result, except when queries are slow: they may take a share of the time.
const FRESH: Duration = Duration::from_millis(500);
const SHARE: u32 = 20;

/// Interval of folding; the pause comes between steps when there is much to fold.
const FOLD: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

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
            looking: Arc::default(),
            recent: Arc::default(),
        }
    }

    /// The statistics. The last known ones while the database is down, or while another caller reads them.
    pub async fn picture(&self) -> Result<Arc<Picture>, StorageError> {
        if let Some(fresh) = self.last(Look::is_fresh) {
            return Ok(fresh);
        }
        let _looking = match (self.looking.try_lock(), self.last(|_| true)) {
            (Ok(looking), _) => looking,
            (Err(_), Some(last)) => return Ok(last),
            (Err(_), None) => self.looking.lock().await,
        };
        // An earlier caller may have refreshed it.
        if let Some(fresh) = self.last(Look::is_fresh) {
            return Ok(fresh);
        }
        match (self.look().await, self.last(|_| true)) {
            (Ok(look), _) => {
                let picture = look.picture.clone();
                let mut last = self.last.write();
                *last = Some(look);
                Ok(picture)
            }
            (Err(_), Some(last)) => Ok(last),
            (Err(error), None) => Err(error),
        }
    }

    /// The cached result, if it is acceptable.
    fn last(&self, will_do: impl Fn(&Look) -> bool) -> Option<Arc<Picture>> {
        let last = self.last.read();
        let look = last.as_ref().filter(|look| will_do(look));
        look.map(|look| look.picture.clone())
    }

    /// The latest delivered jobs, newest first. The last known ones while the database is down.
    pub async fn recent(&self) -> Result<Arc<Vec<RecentJob>>, StorageError> {
        let mut latest = self.recent.lock().await;
        let fresh = latest.as_ref().filter(|it| it.read.elapsed() < RECENT_AGE);
        if let Some(fresh) = fresh {
            return Ok(fresh.jobs.clone());
        }
        let read = Instant::now();
        match (self.store.recent_jobs(MOST_RECENT).await, latest.as_ref()) {
            (Ok(jobs), _) => {
                let jobs = Arc::new(jobs);
                *latest = Some(Latest {
                    read,
                    jobs: jobs.clone(),
                });
                Ok(jobs)
            }
            (Err(_), Some(known)) => Ok(known.jobs.clone()),
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
    /// Totals of all models.
    pub fn total(&self, kind: Kind) -> Made {
        let mut total = Made::default();
        self.of(kind).for_each(|by| total.add(by.made));
        total
    }

    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &MadeBy> {
        self.0.iter().filter(move |by| by.kind == kind)
    }

    /// Totals of every kind and model.
    pub fn all(&self) -> impl Iterator<Item = &MadeBy> {
        self.0.iter()
    }

    /// Totals of one model, zero if it has none.
    pub fn made(&self, kind: Kind, model: &str) -> Made {
        let by = self.of(kind).find(|by| by.model == model);
        by.map(|by| by.made).unwrap_or_default()
    }

    /// Work per second of one job of this model; `None` without work.
    pub fn speed(&self, kind: Kind, model: &str) -> Option<f64> {
        self.made(kind, model).speed()
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
