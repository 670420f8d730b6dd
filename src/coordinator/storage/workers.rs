//! Workers: a name, the account that first used it, and the identity it keeps across all connections.

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;
use uuid::Uuid;

use crate::protocol::job::{AccountId, UnixMillis, WorkerId};

use super::rows::{Stored, all, first};
use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    pub id: WorkerId,
    /// The identity that peers are told.
    pub public_id: Uuid,
    pub name: String,
    pub owner: AccountId,
    /// Whether the operator vouches for it.
    pub trusted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    #[error("the worker name belongs to another account")]
    NameTaken,
    #[error("a worker name has 1 to {LONGEST_NAME} bytes and no control characters")]
    BadName,
    #[error("the account has as many workers as it may")]
    TooMany,
    #[error(transparent)]
    Storage(#[from] StorageError),
}

const LONGEST_NAME: usize = 200;

#[derive(Debug)]
struct NewWorker {
    name: String,
    public_id: Uuid,
    owner: AccountId,
    /// With this one.
    most: i64,
    now: UnixMillis,
}

impl Store {
    /// The worker of this name, made if it is new. Names are compared exactly, and are their first owner's.
    pub async fn worker(
        &self,
        name: &str,
        owner: AccountId,
        now: UnixMillis,
    ) -> Result<WorkerRow, WorkerError> {
        self.worker_among(usize::MAX, name, owner, now).await
    }

    /// The same, where the account may have no more than so many: however many come at once.
    pub async fn worker_among(
        &self,
        most: usize,
        name: &str,
        owner: AccountId,
        now: UnixMillis,
    ) -> Result<WorkerRow, WorkerError> {
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains(char::is_control) {
            return Err(WorkerError::BadName);
        }
        let new = NewWorker {
            name: name.to_owned(),
            public_id: Uuid::new_v4(),
            owner,
            most: i64::try_from(most).unwrap_or(i64::MAX),
            now,
        };
        let row = self.change(new).await?.ok_or(WorkerError::TooMany)?;
        match row.owner == owner {
            true => Ok(row),
            false => Err(WorkerError::NameTaken),
        }
    }

    /// Workers of an account, those that are known to have polled before the others, and each the one seen last first:
    /// of one that is on a socket no trade is kept, and of one that is new nothing may be yet.
    pub async fn newest_workers(&self, owner: AccountId) -> Result<Vec<WorkerRow>, StorageError> {
        let rows = sqlx::query(
            "SELECT id, public_id, name, owner, trusted FROM workers \
             JOIN rigs ON rigs.worker = workers.id WHERE owner = $1 \
             ORDER BY CASE WHEN trade = '' THEN 1 ELSE 0 END, seen_at DESC, id DESC LIMIT 64",
        );
        all(rows.bind(owner.0), &self.readers).await
    }

    /// Vouches for a worker, or no longer; whether there is one of this name.
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

impl Change for NewWorker {
    type Answer = Option<WorkerRow>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Option<WorkerRow>, StorageError>> {
        Box::pin(async move {
            let number = next_number(connection).await?;
            // What is there already is returned as it is, which takes an update that changes nothing.
            let new = sqlx::query(
                "INSERT INTO workers (id, public_id, name, owner, trusted, created_at) \
                 SELECT $6, $1, $2, $3, 0, $4 WHERE EXISTS (SELECT 1 FROM workers WHERE name = $2) \
                 OR (SELECT COUNT(*) FROM workers WHERE owner = $3) < $5 \
                 ON CONFLICT (name) DO UPDATE SET name = workers.name \
                 RETURNING id, public_id, name, owner, trusted",
            );
            let new = new.bind(self.public_id.to_string()).bind(&*self.name);
            let new = new.bind(self.owner.0).bind(self.now.0).bind(self.most);
            let new = new.bind(number);
            let row: Option<WorkerRow> = first(new, &mut *connection).await?;
            let Some(row) = row else { return Ok(None) };
            let rig = "INSERT INTO rigs (worker, seen_at) VALUES ($1, $2) ON CONFLICT (worker) DO NOTHING";
            let rig = sqlx::query(rig).bind(row.id.0).bind(self.now.0);
            rig.execute(connection).await?;
            Ok(Some(row))
        })
    }
}

/// Never one that was given out before: what is left of a worker that is gone is not the next one's. It locks the
/// counter, so that two processes do not count the same workers.
async fn next_number(connection: &mut AnyConnection) -> Result<i64, StorageError> {
    let next = "UPDATE counters SET value = value + 1 WHERE name = 'workers' RETURNING value";
    let row = sqlx::query(next).fetch_one(connection).await?;
    Ok(row.try_get(0)?)
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
