//! All SQL of the program. One SQL text for SQLite and PostgreSQL.
//!
//! | file | contents |
//! | --- | --- |
//! | `location`, `dialect` | the database URL; differences between SQLite and PostgreSQL |
//! | `migrate` | the schema and its versions (`migrations/`) |
//! | `election` | leader election: one coordinator per database, and fencing of earlier leaders |
//! | `writer`, `work`, `write` | the writer task; a batch under one commit; a single write |
//! | `compaction` | removal of deleted texts from the files |
//! | `script`, `values`, `rows` | many rows in one statement and many statements in one call, and their results |
//! | `settlements`, `entries`, `postings`, `fees`, `holds`, `credits`, `requests`, `accounts`, `people`, `keys`, `shared_keys`, `budgets`, `workers`, `rigs`, `teams`, `messages`, `ledger`, `recent` | one file a noun |
//! | `styles`, `collections`, `named` | styles of users, collections of them, and what both have in common |
//! | `pulse`, `revisions`, `modes` | health of the database, and changes by other processes |
//! | `file`, `rescue` | a check that the open file was not deleted or replaced, and a copy if it was |
//! | `model_names` | further names of models |
//! | `stats` | statistics by kind and model, in spans of time |
//! | `filters`, `timeouts`, `addresses`, `suspicions` | records of moderation |
//! | `records` | lifetime totals of users |
//! | `responses` | responses that clients may read again |
//! | `erasures` | deletion and suspension of accounts |
//! | `export` | the rows of an account, table by table |
//! | `succession` | queues and holds taken over from fenced coordinators |
//! | `passkeys` | passkeys of services that act for their own users |
//! | `secret` | the check of the server secret, and encryption under it |
//! | `retention`, `expiry` | retention of ended jobs and their totals; lifetime of requests |
//!
//! Every change is a value sent to the one writer; readers are a pool of their own that never writes. A pool of
//! transactions that read and then write loses nine in ten of them on SQLite, and on PostgreSQL one connection with
//! group commit already writes more than a machine can generate. A write is answered when it is on disk.

mod accounts;
mod addresses;
mod batch;
mod budgets;
mod collections;
mod compaction;
mod credits;
mod dialect;
mod election;
mod entries;
mod erasures;
mod error;
mod expiry;
mod export;
mod fees;
mod file;
mod filters;
mod holds;
mod keys;
mod ledger;
mod location;
mod messages;
mod migrate;
mod model_names;
mod modes;
mod named;
mod passkeys;
mod people;
mod postings;
mod pulse;
mod ratings;
mod recent;
mod records;
mod replies;
mod requests;
mod rescue;
mod responses;
mod retention;
mod revisions;
mod rigs;
mod rows;
mod script;
mod secret;
mod settlements;
mod shared_keys;
mod stats;
mod styles;
mod succession;
mod suspicions;
mod teams;
mod timeouts;
mod values;
mod work;
mod workers;
mod write;
mod writer;

#[cfg(test)]
pub mod tests;

pub use accounts::{AccountRow, RoleChange};
pub use addresses::WorkerAddress;
pub use collections::{CollectionChange, NewCollection};
pub use credits::{
    AccountCredits, CreditGrant, CreditHold, CreditKind, CreditOutcome, CreditRelease, CreditRow,
    RequestCount,
};
pub use election::{Leader, SharedFacts, announce, follow, lead, shared_facts};
pub use erasures::AccountChange;
pub use error::StorageError;
pub use export::ExportSection;
pub use filters::{FilterChange, FilterChanged, FilterMade, FilterRow, MOST_FILTERS, NewFilter};
pub use holds::{Hold, Purse};
pub use keys::{KeyLimit, KeyRow, NewKeyRow};
pub use ledger::LedgerSums;
pub use location::Location;
pub use messages::{MessageRow, MessageSearch, NewMessage};
pub use model_names::{MOST_MODEL_NAMES, ModelName};
pub use named::NotNamed;
pub use people::{
    Amounts, Attended, Changed, Leaving, Left, LoggedIn, NewLogin, Order, PersonChange, PersonRow,
    Promotion, Records,
};
pub use ratings::RatingRow;
pub use recent::{AccountJob, RecentJob};
pub use replies::ReplyRow;
pub use requests::{Dues, OpenRequest, RequestRow, ResultRow, Wanted};
pub use responses::{OpenResponse, ResponseHead, ResponseRow, ResponseUsage};
pub use retention::HITS_KEPT;
pub use revisions::Topic;
pub use rigs::{
    Crew, Decided, Decision, Owner, RigChange, RigNews, RigRow, Said, Tally, Team, TeamShare,
};
pub use secret::SecretState;
pub use stats::{Made, MadeBy};
pub use styles::{NewStyle, StylePage};
pub use teams::{NewTeam, TeamChange, TeamChanged, TeamRow};
pub use timeouts::{Hit, TimeoutRow};
pub use workers::{Joined, WorkerError, WorkerRow};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{AnyConnection, AnyPool, ConnectOptions, Connection, Executor};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::leadership::{Leadership, Tenure};
use crate::values::modes::Reading;
use muster_process::tasks::Tasks;

use dialect::Dialect;
pub use file::write_private;
use file::{Companions, OpenFiles};
use pulse::Health;
use rescue::Rescuer;
use revisions::Watched;
use write::{Change, Write};
use writer::Writer;

/// The store. Clones share one writer.
#[derive(Debug, Clone)]
pub struct Store {
    readers: AnyPool,
    writes: mpsc::Sender<Write>,
    health: Arc<Health>,
    revisions: Watched,
    modes: Arc<watch::Sender<Reading>>,
    companions: Companions,
    is_sqlite: bool,
    leadership: Leadership,
}

/// Writes queued for the writer; beyond it, callers wait.
const QUEUE: usize = 4096;
const READERS: u32 = 4;
/// Lifetime of a reader's connection to a server.
const RENEWED: Duration = Duration::from_secs(30 * 60);
/// A connection that was used this recently is not tested.
const TRUSTED: Duration = Duration::from_secs(1);
/// A server without a reply for so long counts as down.
const PATIENCE: Duration = Duration::from_secs(10);

impl Store {
    /// Opens the database without leading it, beside its coordinator or without one.
    pub async fn open(location: &Location, tasks: &Tasks) -> Result<Self, StorageError> {
        Self::open_as(Leadership::default(), location, tasks).await
    }

    /// Opens the database, creates or migrates it if needed, and starts its writer.
    pub async fn open_as(
        leadership: Leadership,
        location: &Location,
        tasks: &Tasks,
    ) -> Result<Self, StorageError> {
        install_default_drivers();
        if let Location::Sqlite(path) = location {
            migrate::prepare_file(path)?;
        }
        let connection = connect(location).await?;
        let connection = migrate::migrate(connection, location, migrate::ALL).await?;
        let readers = readers(location)?;
        let health = Arc::new(Health::default());
        let (writes, inbox) = mpsc::channel(QUEUE);
        let rescuer = match location {
            Location::Sqlite(_) => Some(Rescuer::open(location).await?),
            Location::Postgres(_) => None,
        };
        let first = pulse::look(&readers).await?;
        let files = OpenFiles::of(location)?;
        let watched = (health.clone(), files.clone());
        let writer = Writer::new(location, connection, watched, leadership.clone());
        writer.start(inbox, tasks);
        let companions = Companions::default();
        let files = (files, companions.clone(), rescuer);
        let watched = (health.clone(), files);
        let followed = pulse::start(first, &readers, &writes, watched, tasks);
        Ok(Self {
            readers,
            writes,
            health,
            revisions: followed.revisions,
            modes: followed.modes,
            companions,
            is_sqlite: matches!(location, Location::Sqlite(_)),
            leadership,
        })
    }

    /// Whether a coordinator has created its tables there. Changes nothing.
    pub async fn is_made(location: &Location) -> Result<bool, StorageError> {
        install_default_drivers();
        if !location.exists() {
            return Ok(false);
        }
        if let Location::Sqlite(path) = location {
            migrate::prepare_file(path)?;
        }
        let options = location.options()?;
        let connecting = timeout(PATIENCE, options.connect());
        let connected = connecting.await.map_err(|_| too_slow(PATIENCE))?;
        let mut connection = connected.map_err(|error| named(error.into(), location))?;
        migrate::is_made(&mut connection, location).await
    }

    /// Whether the last check succeeded, less than two seconds ago, and this process leads.
    pub fn is_reachable(&self) -> bool {
        self.health.is_good() && self.leadership.is_leading()
    }

    /// The lease that covers the writes of this store.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// The owner of rows that this store writes.
    fn owner(&self) -> i64 {
        self.leadership.epoch().0
    }

    pub fn is_sqlite(&self) -> bool {
        self.is_sqlite
    }

    /// Removes all deleted data from the files, as far as possible: a server keeps its free space.
    pub async fn compact(&self) -> Result<(), StorageError> {
        self.write(Write::compact).await
    }

    /// Writes this file again beside the copy of a database that was deleted while in use.
    pub fn keep_file(&self, path: PathBuf, text: String) {
        self.companions.add(path, text);
    }

    /// The reason why the database cannot be used now. New work is refused then, since it could not be settled.
    pub fn problem(&self) -> Option<StorageError> {
        match self.leadership.tenure() {
            Tenure::Leading => self.health.problem(),
            Tenure::Paused => Some(StorageError::Paused),
            Tenure::Fenced => Some(StorageError::Fenced),
        }
    }

    /// Rises with every change of a key, in any process.
    pub fn keys_revision(&self) -> watch::Receiver<i64> {
        self.revision(Topic::Keys)
    }

    /// Rises with every change of the topic, in any process.
    pub fn revision(&self, topic: Topic) -> watch::Receiver<i64> {
        self.revisions.of(topic)
    }

    async fn change<C: Change>(&self, change: C) -> Result<C::Answer, StorageError> {
        self.write(|answer| Write::other(change, answer)).await
    }

    /// Sends a write to the writer and waits until it is on disk.
    async fn write<A>(
        &self,
        write: impl FnOnce(oneshot::Sender<Result<A, StorageError>>) -> Write,
    ) -> Result<A, StorageError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.writes.send(write(answer)).await;
        sent.map_err(|_| StorageError::Closed)?;
        answered.await.map_err(|_| StorageError::Closed)?
    }
}

/// A connection that can write.
async fn connect(location: &Location) -> Result<AnyConnection, StorageError> {
    let options = location.options()?;
    let connecting = timeout(PATIENCE, options.connect());
    let connected = match connecting.await {
        Ok(connected) => connected.map_err(StorageError::from),
        Err(_) => Err(too_slow(PATIENCE)),
    };
    let mut connection = connected.map_err(|error| named(error, location))?;
    for setting in Dialect::of(location).writer_settings() {
        set(&mut connection, setting).await?;
    }
    Ok(connection)
}

/// When another program enables the log of a new file at the same time, SQLite reports a lock at once without waiting.
/// Locks that it waited for are not retried here.
async fn set(connection: &mut AnyConnection, setting: &'static str) -> Result<(), StorageError> {
    let began = Instant::now();
    loop {
        match connection
            .execute(setting)
            .await
            .map_err(StorageError::from)
        {
            Err(StorageError::Locked(_)) if began.elapsed() < AT_ONCE => sleep(AGAIN).await,
            done => return done.map(drop),
        }
    }
}

/// An earlier lock error was reported without waiting.
const AT_ONCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);

/// Adds the server's address to the error of an unreachable server.
fn named(error: StorageError, location: &Location) -> StorageError {
    match (error, location) {
        (StorageError::Unreachable(why), Location::Postgres(_)) => {
            StorageError::Unreachable(format!("{location}: {why}"))
        }
        (error, _) => error,
    }
}

fn readers(location: &Location) -> Result<AnyPool, StorageError> {
    let settings = Dialect::of(location).reader_settings();
    // Connections to a server are renewed regularly. SQLite would delete its log if all of them closed at once.
    let renewed = match location {
        Location::Postgres(_) => Some(RENEWED),
        Location::Sqlite(_) => None,
    };
    let pool = AnyPoolOptions::new()
        .max_lifetime(renewed)
        .idle_timeout(renewed)
        .max_connections(READERS)
        // Opened in advance, so that the first query does not wait.
        .min_connections(READERS)
        .acquire_timeout(Duration::from_secs(2))
        // Returned connections are tested; here only those that have been idle are tested again.
        .test_before_acquire(false)
        .before_acquire(|connection, last| {
            Box::pin(async move {
                if last.idle_for > TRUSTED {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .after_connect(move |connection, _| {
            Box::pin(async move {
                for setting in settings {
                    connection.execute(*setting).await?;
                }
                Ok(())
            })
        });
    Ok(pool.connect_lazy_with(location.options()?))
}

fn too_slow(patience: Duration) -> StorageError {
    StorageError::Unreachable(format!("no response within {} seconds", patience.as_secs()))
}
