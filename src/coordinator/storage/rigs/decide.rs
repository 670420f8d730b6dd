//! Changes of a worker by owners and moderators.

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;

use crate::storage::revisions::{Topic, next};
use crate::storage::teams::exists;
use crate::storage::values::without_zeros;
use crate::storage::write::Change;
use crate::storage::{StorageError, Store};
use muster_protocol::job::{AccountId, WorkerId};

/// Changes of a worker; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RigChange {
    pub maintenance: Option<bool>,
    pub maintenance_note: Option<String>,
    pub paused: Option<bool>,
    pub info: Option<String>,
    pub name: Option<String>,
    /// `Some(None)` leaves the team.
    pub team: Option<Option<i64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Done,
    /// Another worker has this name; nothing was changed.
    NameTaken,
    /// Nothing was changed: the team does not exist any more.
    NoTeam,
    Gone,
}

#[derive(Debug)]
struct Decide {
    worker: WorkerId,
    change: RigChange,
}

#[derive(Debug)]
struct Delete(WorkerId);

impl Store {
    /// Changes a worker's settings.
    pub async fn decide(
        &self,
        worker: WorkerId,
        change: RigChange,
    ) -> Result<Decision, StorageError> {
        self.change(Decide { worker, change }).await
    }

    /// Deletes a worker and its messages. The ledger keeps the worker's rewards.
    pub async fn delete_rig(&self, worker: WorkerId) -> Result<(), StorageError> {
        self.change(Delete(worker)).await
    }
}

/// Resumes all paused workers of an account that becomes trusted.
pub async fn resume_all_of(
    owner: AccountId,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let resumed = sqlx::query(
        "UPDATE rigs SET paused = 0 WHERE paused = 1 AND worker IN (SELECT id FROM workers WHERE owner = $1)",
    );
    resumed.bind(owner.0).execute(connection).await?;
    Ok(())
}

impl Change for Decide {
    type Answer = Decision;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Decision, StorageError>> {
        Box::pin(async move {
            if let Some(Some(team)) = self.change.team
                && !exists(team, connection).await?
            {
                return Ok(Decision::NoTeam);
            }
            if let Some(name) = &self.change.name
                && let Some(refused) = self.rename(name, connection).await?
            {
                return Ok(refused);
            }
            match self.set(connection).await? {
                0 => Ok(Decision::Gone),
                _ => Ok(Decision::Done),
            }
        })
    }
}

impl Decide {
    async fn rename(
        &self,
        name: &str,
        connection: &mut AnyConnection,
    ) -> Result<Option<Decision>, StorageError> {
        let name = without_zeros(name);
        let taken = sqlx::query("SELECT 1 FROM workers WHERE name = $1 AND id <> $2");
        let taken = taken.bind(name.clone()).bind(self.worker.0);
        if taken.fetch_optional(&mut *connection).await?.is_some() {
            return Ok(Some(Decision::NameTaken));
        }
        let row = sqlx::query("UPDATE workers SET name = $1 WHERE id = $2");
        let row = row.bind(name).bind(self.worker.0);
        let renamed = row.execute(connection).await?.rows_affected();
        Ok((renamed == 0).then_some(Decision::Gone))
    }

    /// Ending maintenance clears its note.
    fn note(&self) -> Option<String> {
        match self.change.maintenance {
            Some(false) => Some(String::new()),
            _ => self.change.maintenance_note.as_deref().map(without_zeros),
        }
    }

    /// Missing fields stay unchanged.
    async fn set(&self, connection: &mut AnyConnection) -> Result<u64, StorageError> {
        let change = &self.change;
        let row = sqlx::query(
            "UPDATE rigs SET maintenance = COALESCE($1, maintenance), \
             maintenance_note = COALESCE($2, maintenance_note), paused = COALESCE($3, paused), \
             info = COALESCE($4, info), team = CASE WHEN $5 = 1 THEN $6 ELSE team END WHERE worker = $7",
        );
        let row = row.bind(change.maintenance.map(i64::from));
        let row = row.bind(self.note());
        let row = row.bind(change.paused.map(i64::from));
        let row = row.bind(change.info.as_deref().map(without_zeros));
        let row = row.bind(i64::from(change.team.is_some()));
        let row = row.bind(change.team.flatten()).bind(self.worker.0);
        Ok(row.execute(connection).await?.rows_affected())
    }
}

impl Change for Delete {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            for text in [
                "DELETE FROM worker_messages WHERE worker = $1",
                "DELETE FROM worker_addresses WHERE worker = $1",
                "DELETE FROM rigs WHERE worker = $1",
                "DELETE FROM workers WHERE id = $1",
            ] {
                let gone = sqlx::query(text).bind(self.0.0);
                gone.execute(&mut *connection).await?;
            }
            next(Topic::Messages, connection).await?;
            Ok(())
        })
    }
}
