//! Workers: a name, the account that first used it, and an id for all its connections.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;
use uuid::Uuid;

use crate::display_name::{FORBIDDEN, is_readable};
use muster_protocol::job::{AccountId, UnixMillis, WorkerId};

use super::rows::{Stored, all};
use super::script::{Column, Script, Table, Verb, select};
use super::values::Values;
use super::write::{Change, Write};
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    pub id: WorkerId,
    /// Public id.
    pub public_id: Uuid,
    pub name: String,
    pub owner: AccountId,
    /// Whether the operator trusts it.
    pub trusted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    #[error("the worker name belongs to another account")]
    NameTaken,
    #[error("a worker name must have 1 to {LONGEST_NAME} bytes and no {FORBIDDEN}")]
    BadName,
    #[error("the account has reached its limit of workers")]
    TooMany,
    #[error(transparent)]
    Storage(#[from] StorageError),
}

const LONGEST_NAME: usize = 200;

/// A registered worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    pub row: WorkerRow,
    /// The name was unknown before.
    pub is_new: bool,
}

/// Registers a worker, created if new.
#[derive(Debug)]
pub struct Join {
    name: String,
    public_id: Uuid,
    owner: AccountId,
    /// The owner's limit of workers, this one included.
    most: usize,
    now: UnixMillis,
}

impl Store {
    /// The worker with this name, created if new. Names are case-sensitive, and belong to their first owner.
    pub async fn worker(
        &self,
        name: &str,
        owner: AccountId,
        now: UnixMillis,
    ) -> Result<WorkerRow, WorkerError> {
        let joined = self.worker_among(usize::MAX, name, owner, now).await;
        Ok(joined?.row)
    }

    /// Creates a worker within the owner's limit, also with concurrent calls.
    pub async fn worker_among(
        &self,
        most: usize,
        name: &str,
        owner: AccountId,
        now: UnixMillis,
    ) -> Result<Joined, WorkerError> {
        if name.is_empty() || name.len() > LONGEST_NAME || !is_readable(name) {
            return Err(WorkerError::BadName);
        }
        let public_id = Uuid::new_v4();
        let join = Join {
            name: name.to_owned(),
            public_id,
            owner,
            most,
            now,
        };
        let row = self.write(|answer| Write::join(join, answer)).await?;
        let row = row.ok_or(WorkerError::TooMany)?;
        match row.owner == owner {
            true => Ok(Joined {
                is_new: row.public_id == public_id,
                row,
            }),
            false => Err(WorkerError::NameTaken),
        }
    }

    /// Older workers of an account, newest first, that may be of this trade: the trade of socket workers is unknown,
    /// and so may be that of new ones.
    pub async fn workers_before(
        &self,
        worker: WorkerId,
        owner: AccountId,
        trade: &str,
    ) -> Result<Vec<WorkerRow>, StorageError> {
        let rows = sqlx::query(
            "SELECT id, public_id, name, owner, trusted FROM workers \
             JOIN rigs ON rigs.worker = workers.id \
             WHERE owner = $1 AND trade IN ('', $2) AND id < $3 ORDER BY id DESC LIMIT 64",
        );
        let rows = rows.bind(owner.0).bind(trade.to_owned()).bind(worker.0);
        all(rows, &self.readers).await
    }

    /// Sets the operator's trust in a worker. False if the name is unknown.
    pub async fn trust_worker(&self, name: &str, trusted: bool) -> Result<bool, StorageError> {
        let name = name.to_owned();
        self.change(Trust { name, trusted }).await
    }
}

#[derive(Debug)]
struct Trust {
    name: String,
    trusted: bool,
}

/// Workers of these names.
pub static NAMED: Table = Table {
    verb: Verb::Select(
        "workers.id, workers.public_id, workers.name, workers.owner, workers.trusted",
    ),
    columns: &[Column::Text("name")],
    tail: "JOIN workers ON workers.name = news.name",
};

static OWNED: Table = Table {
    verb: Verb::Select("workers.owner, COUNT(*) AS count"),
    columns: &[Column::Number("owner")],
    tail: "JOIN workers ON workers.owner = news.owner GROUP BY workers.owner",
};

static WORKERS: Table = Table {
    verb: Verb::Insert("workers"),
    columns: &[
        Column::Number("id"),
        Column::Text("public_id"),
        Column::Text("name"),
        Column::Number("owner"),
        Column::Number("trusted"),
        Column::Number("created_at"),
    ],
    tail: "",
};

static RIGS: Table = Table {
    verb: Verb::Insert("rigs"),
    columns: &[Column::Number("worker"), Column::Number("seen_at")],
    tail: "",
};

/// Looks up or creates workers, in input order; `None` if the owner is at the limit.
pub async fn join(
    joins: &[&Join],
    connection: &mut AnyConnection,
) -> Result<Vec<Option<WorkerRow>>, StorageError> {
    if joins.is_empty() {
        return Ok(Vec::new());
    }
    let mut register = Register {
        next: first_number(joins.len(), connection).await?,
        known: known(joins, connection).await?,
        owned: owned(joins, connection).await?,
        new: Vec::new(),
    };
    let rows = joins.iter().map(|join| register.enter(join)).collect();
    let mut script = Script::default();
    script.add(&WORKERS, &register.new, |(row, now), values| {
        values.number(row.id.0);
        values.text(&row.public_id.to_string());
        values.text(&row.name);
        values.number(row.owner.0);
        values.number(i64::from(row.trusted));
        values.number(now.0);
    });
    script.add(&RIGS, &register.new, |(row, now), values| {
        values.number(row.id.0);
        values.number(now.0);
    });
    script.run(connection).await?;
    Ok(rows)
}

/// The registration of several workers.
struct Register {
    /// The id of the next new worker.
    next: i64,
    known: HashMap<String, WorkerRow>,
    /// Workers of owners with a limit.
    owned: HashMap<AccountId, usize>,
    new: Vec<(WorkerRow, UnixMillis)>,
}

impl Register {
    fn enter(&mut self, join: &Join) -> Option<WorkerRow> {
        if let Some(known) = self.known.get(&join.name) {
            return Some(known.clone());
        }
        let owned = self.owned.entry(join.owner).or_default();
        if *owned >= join.most {
            return None;
        }
        *owned += 1;
        let row = WorkerRow {
            id: WorkerId(self.next),
            public_id: join.public_id,
            name: join.name.clone(),
            owner: join.owner,
            trusted: false,
        };
        self.next += 1;
        self.known.insert(row.name.clone(), row.clone());
        self.new.push((row.clone(), join.now));
        Some(row)
    }
}

/// Reserves `many` worker numbers and returns the first. Numbers are never reused, so that a new worker cannot inherit
/// a deleted one's rows. Locks the counter, so that two processes cannot count the same workers.
async fn first_number(many: usize, connection: &mut AnyConnection) -> Result<i64, StorageError> {
    let last = "UPDATE counters SET value = value + $1 WHERE name = 'workers' RETURNING value";
    let many = i64::try_from(many).unwrap_or(i64::MAX);
    let row = sqlx::query(last).bind(many).fetch_one(connection).await?;
    Ok(row.try_get::<i64, _>(0)? - many + 1)
}

async fn known(
    joins: &[&Join],
    connection: &mut AnyConnection,
) -> Result<HashMap<String, WorkerRow>, StorageError> {
    let name = |join: &&Join, values: &mut Values| values.text(&join.name);
    let rows: Vec<WorkerRow> = select(&NAMED, joins, name, connection).await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.name.clone(), row))
        .collect())
}

/// Counts the workers of owners with a limit only.
async fn owned(
    joins: &[&Join],
    connection: &mut AnyConnection,
) -> Result<HashMap<AccountId, usize>, StorageError> {
    let limited = joins.iter().filter(|join| join.most < usize::MAX);
    let owners: BTreeSet<AccountId> = limited.map(|join| join.owner).collect();
    let owners: Vec<AccountId> = owners.into_iter().collect();
    let owner = |owner: &AccountId, values: &mut Values| values.number(owner.0);
    let rows: Vec<Owned> = select(&OWNED, &owners, owner, connection).await?;
    Ok(rows.into_iter().map(|row| (row.owner, row.count)).collect())
}

struct Owned {
    owner: AccountId,
    count: usize,
}

impl Stored for Owned {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            owner: AccountId(row.try_get("owner")?),
            count: usize::try_from(row.try_get::<i64, _>("count")?).unwrap_or(0),
        })
    }
}

impl Change for Trust {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let done = sqlx::query("UPDATE workers SET trusted = $1 WHERE name = $2");
            let done = done.bind(i64::from(self.trusted)).bind(&*self.name);
            Ok(done.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Stored for WorkerRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let public_id: String = row.try_get("public_id")?;
        let not_a_uuid = |_| StorageError::Broken("a worker's public id is not a UUID".to_owned());
        Ok(Self {
            id: WorkerId(row.try_get("id")?),
            public_id: public_id.parse().map_err(not_a_uuid)?,
            name: row.try_get("name")?,
            owner: AccountId(row.try_get("owner")?),
            trusted: row.try_get::<i64, _>("trusted")? != 0,
        })
    }
}
