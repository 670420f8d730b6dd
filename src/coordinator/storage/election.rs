//! Leader election among coordinators of a PostgreSQL database. Two leaders would run the same jobs, and each would
//! take the other's holds for those of an ended process. Commands such as `worker key` may write beside the leader.
//!
//! The lease is authoritative: the leader's row, renewed by the server's clock. Taking over an old row also revokes the
//! right to write ([`Fence`]). An advisory lock, held by a session used for nothing else, shows earlier that a process
//! has died: if the lock is free, a row counts as old sooner. A SQLite file is locked as a file, which ensures a single
//! coordinator.

use std::time::{Duration, Instant};

use sqlx::any::install_default_drivers;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor, Row};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::clock::wall_clock;
use crate::leadership::{Epoch, Leadership};
use muster_process::tasks::Tasks;

use super::dialect::Dialect;
use super::location::Location;
use super::migrate::LeaseSchema;
use super::{StorageError, connect, migrate};

/// Without a renewal for so long, another coordinator takes over.
const LEASE: Duration = Duration::from_secs(2);
/// The same if the leader's session has ended, too. The leader has as long to reconnect.
const SILENCE: Duration = Duration::from_millis(350);
/// The leader stops this long before its lease ends, since its clock and the server's may run at different speeds.
const MARGIN: Duration = Duration::from_millis(500);
const RENEWALS: Duration = Duration::from_millis(100);
/// Interval of a standby's checks and of a leader's reconnects.
const LOOKS: Duration = Duration::from_millis(50);
/// After a restart of the server, a standby lets the leader reconnect first.
const COURTESY: Duration = Duration::from_secs(1);
/// Timeout of a query.
const PATIENCE: Duration = Duration::from_millis(1500);
/// An election waits for the last batch of the earlier leader; the server ends its session if the batch stalls.
const ELECTION: Duration = Duration::from_secs(10);
/// Timeout of the last writes at shutdown.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Specific to the schema, in whatever database.
const LOCK: &str = "SELECT CAST(CASE WHEN pg_try_advisory_lock(778402, hashtext(current_schema())) \
                    THEN 1 ELSE 0 END AS BIGINT)";
const UNLOCK: &str = "SELECT CAST(CASE WHEN pg_advisory_unlock(778402, hashtext(current_schema())) \
                      THEN 1 ELSE 0 END AS BIGINT)";
/// Ends the session of a fenced leader that still holds the lock: its process may be suspended.
const END_LOCK_HOLDER: &str = "SELECT CAST(COUNT(pg_terminate_backend(pid)) AS BIGINT) FROM pg_locks \
     WHERE locktype = 'advisory' AND classid = 778402 AND objsubid = 2 AND granted \
     AND CAST(objid AS BIGINT) = CAST(hashtext(current_schema()) AS BIGINT) & 4294967295 \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()";
const ONE_ELECTION_AT_A_TIME: &str =
    "SELECT pg_advisory_xact_lock(778403, hashtext(current_schema()))";
const LAST_EPOCH: &str = "SELECT CAST(COALESCE(MAX(epoch), 0) AS BIGINT) FROM coordinators";
const RELEASE: &str = "UPDATE coordinators SET renewed_at = 0 WHERE epoch = $1";

/// The first statement of a batch: it locks the leader's row, so that no election can replace the leader before the
/// commit.
#[derive(Debug, Clone, Copy)]
pub struct Fence(pub Epoch);

impl Fence {
    /// Begins a transaction in one round trip.
    pub async fn begin(self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let dialect = Dialect::spoken_by(connection);
        if self.0 == Epoch::default() || dialect == Dialect::Sqlite {
            connection.execute(dialect.begin()).await?;
            return Ok(());
        }
        // Renewals and batches do not wait for each other, since a renewal changes no key.
        let text = format!(
            "{}; SELECT epoch FROM coordinators WHERE epoch = {} FOR KEY SHARE",
            dialect.begin(),
            self.0.0
        );
        match connection.fetch_all(AssertSqlSafe(text)).await?.is_empty() {
            true => Err(StorageError::Fenced),
            false => Ok(()),
        }
    }
}

/// The leader, from its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    pub epoch: Epoch,
    /// The address for other coordinators. `None` before the leader is ready, or without a cluster.
    pub address: Option<String>,
    /// Time since the last renewal of its lease.
    pub lease_age: Duration,
}

/// Waits until this process leads, without a timeout, and starts to renew its lease. Calls `follow` with the leader at
/// each check, except while the database is unreachable.
pub async fn lead(
    location: &Location,
    mut follow: impl FnMut(Option<&Leader>),
    tasks: &Tasks,
) -> Result<Leadership, StorageError> {
    install_default_drivers();
    if let Location::Sqlite(path) = location {
        migrate::prepare_file(path)?;
        let connection = connect(location).await?;
        let mut connection = migrate::migrate(connection, location, migrate::ALL).await?;
        let epoch = succeed(&mut connection, Dialect::Sqlite).await?;
        let _ = connection.close().await;
        return Ok(Leadership::undisputed(epoch));
    }
    let mut session = LeaseSession::open(location.clone()).await?;
    let mut is_first = true;
    let (leadership, sent) = loop {
        let sent = Instant::now();
        match session.try_to_lead().await {
            Ok(Some(epoch)) => break (Leadership::elected(epoch), sent),
            Ok(None) => follow(session.leader.as_ref()),
            Err(error) if is_first || error.needs_operator() => return Err(error),
            Err(error) => session.lose(&error),
        }
        if is_first {
            info!("{location} is in use by another coordinator, waiting as its standby");
            is_first = false;
        }
        sleep(LOOKS).await;
    };
    leadership.renew(sent, LEASE - MARGIN);
    let keep = keep(session, leadership.clone(), tasks.stopping());
    tasks.start(keep);
    Ok(leadership)
}

/// Calls `follow` with the leader at each check, without becoming one, for as long as `follows`. For a coordinator that
/// ends, whose requests go on at the next leader.
pub async fn follow(
    location: &Location,
    mut follow: impl FnMut(Option<&Leader>),
    follows: impl Fn() -> bool,
) {
    let mut connection: Option<AnyConnection> = None;
    while follows() {
        let looked = timeout(PATIENCE, look_on(&mut connection, location)).await;
        match looked.unwrap_or_else(|_| Err(slow())) {
            Ok(leader) => follow(leader.as_ref()),
            Err(error) => {
                connection = None;
                debug!("looking for the leading coordinator of {location} failed: {error}");
            }
        }
        sleep(LOOKS).await;
    }
}

async fn look_on(
    connection: &mut Option<AnyConnection>,
    location: &Location,
) -> Result<Option<Leader>, StorageError> {
    if connection.is_none() {
        *connection = Some(open(location).await?);
    }
    let connection = connection.as_mut().ok_or(StorageError::Closed)?;
    let lease = lease(connection, LeaseSchema::LeaseAndAddress).await?;
    Ok(lease.map(|(leader, _)| leader))
}

/// The session that holds the lock and renews the lease.
struct LeaseSession {
    location: Location,
    /// `None` after an error.
    connection: Option<AnyConnection>,
    has_lock: bool,
    schema: LeaseSchema,
    /// At the last check.
    leader: Option<Leader>,
    /// Time of the last reconnect.
    reopened: Option<Instant>,
    has_ended_lock_holder: bool,
}

impl LeaseSession {
    async fn open(location: Location) -> Result<Self, StorageError> {
        let connection = open(&location).await?;
        Ok(Self {
            location,
            connection: Some(connection),
            has_lock: false,
            schema: LeaseSchema::default(),
            leader: None,
            reopened: None,
            has_ended_lock_holder: false,
        })
    }

    fn lose(&mut self, error: &StorageError) {
        if self.connection.take().is_some() {
            warn!(
                "the connection to {} was lost, reconnecting: {error}",
                self.location
            );
        }
        self.has_lock = false;
    }

    async fn connection(&mut self) -> Result<&mut AnyConnection, StorageError> {
        if self.connection.is_none() {
            let connecting = timeout(PATIENCE, open(&self.location));
            let connection = connecting.await.map_err(|_| slow())??;
            self.reopened = Some(Instant::now());
            self.connection = Some(connection);
        }
        self.connection.as_mut().ok_or(StorageError::Closed)
    }

    /// The epoch of this process, or `None` if another one leads.
    async fn try_to_lead(&mut self) -> Result<Option<Epoch>, StorageError> {
        let looked = timeout(PATIENCE, self.look()).await;
        let (is_lock_free, age) = looked.map_err(|_| slow())??;
        let is_courteous = self.reopened.is_some_and(|at| at.elapsed() < COURTESY);
        let is_old = is_old(age, is_lock_free) && !is_courteous;
        let connection = self.connection().await?;
        let elected = match is_old {
            true => {
                let electing = timeout(ELECTION, elect(connection, is_lock_free));
                electing.await.map_err(|_| slow())??
            }
            false => None,
        };
        match (elected, is_lock_free) {
            (None, true) => {
                connection.fetch_one(UNLOCK).await?;
            }
            _ => self.has_lock = is_lock_free,
        }
        Ok(elected)
    }

    /// Whether the lock was free and is now held, and the time since the last renewal.
    async fn look(&mut self) -> Result<(bool, Option<Duration>), StorageError> {
        let schema = self.schema;
        let connection = self.connection().await?;
        let is_lock_free = number(connection, LOCK).await? == 1;
        let schema = match schema {
            LeaseSchema::LeaseAndAddress => schema,
            _ => migrate::lease_schema(connection).await?,
        };
        let (leader, age) = match schema {
            // Earlier versions use only the lock.
            LeaseSchema::Unknown => (None, (!is_lock_free).then_some(Duration::ZERO)),
            schema => lease(connection, schema).await?.unzip(),
        };
        self.schema = schema;
        self.leader = leader;
        Ok((is_lock_free, age))
    }

    /// Renews the lease. False if another coordinator leads.
    async fn renew(&mut self, epoch: Epoch) -> Result<bool, StorageError> {
        let (has_lock, ends) = (self.has_lock, !self.has_ended_lock_holder);
        let connection = self.connection().await?;
        let renewed = sqlx::query(AssertSqlSafe(renewal())).bind(epoch.0);
        if renewed.execute(&mut *connection).await?.rows_affected() == 0 {
            return Ok(false);
        }
        if !has_lock {
            let has_lock = number(connection, LOCK).await? == 1;
            if !has_lock && ends {
                // The lock only makes the next failover faster: without permission to end its holder's session, the
                // lease alone is used.
                let _ = number(connection, END_LOCK_HOLDER).await;
            }
            self.has_lock = has_lock;
            self.has_ended_lock_holder = true;
        }
        Ok(true)
    }

    async fn release(&mut self, epoch: Epoch) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        let release = sqlx::query(RELEASE).bind(epoch.0);
        if timeout(PATIENCE, release.execute(&mut connection))
            .await
            .is_ok()
        {
            let _ = timeout(PATIENCE, connection.close()).await;
        }
    }
}

/// Renews the lease until the last write is done, or another coordinator leads.
async fn keep(mut session: LeaseSession, leadership: Leadership, stopping: CancellationToken) {
    let epoch = leadership.epoch();
    let mut ending: Option<Instant> = None;
    loop {
        if stopping.is_cancelled() {
            let since = *ending.get_or_insert_with(Instant::now);
            if !leadership.has_writers() || since.elapsed() > LAST_WRITES {
                return session.release(epoch).await;
            }
        }
        let had_connection = session.connection.is_some();
        let sent = Instant::now();
        let renewed = timeout(PATIENCE, session.renew(epoch)).await;
        let pause = match renewed.unwrap_or_else(|_| Err(slow())) {
            Ok(true) => {
                if !had_connection {
                    info!("connected to {} again, still leading", session.location);
                }
                leadership.renew(sent, LEASE - MARGIN);
                RENEWALS
            }
            Ok(false) => {
                error!("another coordinator leads {} now", session.location);
                return leadership.fence();
            }
            Err(error) => {
                session.lose(&error);
                match had_connection {
                    true => Duration::ZERO,
                    false => LOOKS,
                }
            }
        };
        if leadership.has_paused() {
            error!(
                "the lease of {} could not be renewed: no job is placed and no request taken until it is",
                session.location
            );
        }
        tokio::select! {
            () = stopping.cancelled(), if ending.is_none() => {}
            () = leadership.fenced() => return,
            () = sleep(if ending.is_some() { LAST_LOOKS } else { pause }) => {}
        }
    }
}

/// Interval of the checks for the last write at shutdown.
const LAST_LOOKS: Duration = Duration::from_millis(20);

/// Without waiting for the server's disk: a renewal lost in a crash is repeated.
async fn open(location: &Location) -> Result<AnyConnection, StorageError> {
    let mut connection = connect(location).await?;
    connection.execute("SET synchronous_commit = off").await?;
    Ok(connection)
}

/// The leader, and the time since its last renewal. `None` if the database had no election yet.
async fn lease(
    connection: &mut AnyConnection,
    schema: LeaseSchema,
) -> Result<Option<(Leader, Duration)>, StorageError> {
    let address = match schema {
        LeaseSchema::LeaseAndAddress => "address",
        _ => "''",
    };
    let text = format!(
        "SELECT epoch, CAST({NOW} - renewed_at AS BIGINT), CAST({address} AS TEXT) FROM coordinators \
         ORDER BY epoch DESC LIMIT 1"
    );
    let Some(row) = connection.fetch_optional(AssertSqlSafe(text)).await? else {
        return Ok(None);
    };
    let (millis, address): (i64, String) = (row.try_get(1)?, row.try_get(2)?);
    let age = Duration::from_millis(millis.max(0).cast_unsigned());
    let leader = Leader {
        epoch: Epoch(row.try_get(0)?),
        address: Some(address).filter(|address| !address.is_empty()),
        lease_age: age,
    };
    Ok(Some((leader, age)))
}

/// Time since the last renewal; `None` if the database had no election yet.
async fn age(connection: &mut AnyConnection) -> Result<Option<Duration>, StorageError> {
    let text = format!(
        "SELECT CAST({} - MAX(renewed_at) AS BIGINT) FROM coordinators",
        NOW
    );
    let row = connection.fetch_one(AssertSqlSafe(text)).await?;
    let millis: Option<i64> = row.try_get(0)?;
    Ok(millis.map(|millis| Duration::from_millis(millis.max(0).cast_unsigned())))
}

fn is_old(age: Option<Duration>, is_lock_free: bool) -> bool {
    age.is_none_or(|age| age > if is_lock_free { SILENCE } else { LEASE })
}

/// Fences the earlier leader, unless it has renewed its lease meanwhile.
async fn elect(
    connection: &mut AnyConnection,
    is_lock_free: bool,
) -> Result<Option<Epoch>, StorageError> {
    if migrate::lease_schema(connection).await? == LeaseSchema::Unknown {
        migrate::migrate_server(connection).await?;
    }
    connection.execute(Dialect::Postgres.begin()).await?;
    connection
        .execute("SET LOCAL synchronous_commit = on")
        .await?;
    connection.execute(ONE_ELECTION_AT_A_TIME).await?;
    // Waits for a batch of the earlier leader.
    connection
        .fetch_all("SELECT epoch FROM coordinators FOR UPDATE")
        .await?;
    if !is_old(age(connection).await?, is_lock_free) {
        connection.execute("ROLLBACK").await?;
        return Ok(None);
    }
    let epoch = succeed(connection, Dialect::Postgres).await?;
    connection.execute("COMMIT").await?;
    Ok(Some(epoch))
}

/// Records the next epoch as the leader.
async fn succeed(connection: &mut AnyConnection, dialect: Dialect) -> Result<Epoch, StorageError> {
    let epoch = number(connection, LAST_EPOCH).await? + 1;
    let now = match dialect {
        Dialect::Sqlite => "0",
        Dialect::Postgres => NOW,
    };
    let insert = format!("INSERT INTO coordinators (epoch, renewed_at) VALUES ($1, {now})");
    let insert = sqlx::query(AssertSqlSafe(insert)).bind(epoch);
    insert.execute(&mut *connection).await?;
    let delete = sqlx::query("DELETE FROM coordinators WHERE epoch <> $1").bind(epoch);
    delete.execute(&mut *connection).await?;
    Ok(Epoch(epoch))
}

/// Stores the leader's address for the other coordinators, once it is ready.
pub async fn announce(
    location: &Location,
    epoch: Epoch,
    address: &str,
) -> Result<(), StorageError> {
    let mut connection = connect(location).await?;
    let update = sqlx::query("UPDATE coordinators SET address = $1 WHERE epoch = $2");
    let update = update.bind(address.to_owned()).bind(epoch.0);
    update.execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Facts that a follower compares with its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedFacts {
    /// The check value of the server secret; `None` in a new database.
    pub secret_check: Option<String>,
    /// How far this machine's clock is ahead of the server's, in milliseconds.
    pub clock_ahead: i64,
    /// Maximum error of `clock_ahead`.
    pub uncertainty: Duration,
}

/// Reads the facts from a database server, with or without tables.
pub async fn shared_facts(location: &Location) -> Result<SharedFacts, StorageError> {
    install_default_drivers();
    let mut connection = connect(location).await?;
    let now = format!("SELECT {NOW}");
    let (sent, before) = (Instant::now(), wall_clock());
    let row = connection.fetch_one(AssertSqlSafe(now)).await?;
    let took = sent.elapsed();
    let servers: i64 = row.try_get(0)?;
    let half = took / 2;
    let middle = before
        .0
        .saturating_add(i64::try_from(half.as_millis()).unwrap_or(0));
    let secret_check = match migrate::lease_schema(&mut connection).await? {
        LeaseSchema::Unknown => None,
        _ => {
            let check = sqlx::query("SELECT value FROM settings WHERE name = 'secret_check'");
            let row = check.fetch_optional(&mut connection).await?;
            row.map(|row| row.try_get(0)).transpose()?
        }
    };
    connection.close().await?;
    Ok(SharedFacts {
        secret_check,
        clock_ahead: middle.saturating_sub(servers),
        uncertainty: half,
    })
}

/// The server's clock in milliseconds, at the time of the statement and not of its transaction.
const NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

fn renewal() -> String {
    format!("UPDATE coordinators SET renewed_at = {NOW} WHERE epoch = $1")
}

async fn number(connection: &mut AnyConnection, query: &'static str) -> Result<i64, StorageError> {
    Ok(connection.fetch_one(query).await?.try_get(0)?)
}

fn slow() -> StorageError {
    super::too_slow(PATIENCE)
}
