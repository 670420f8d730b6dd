//! Last addresses of workers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use muster_protocol::job::{AccountId, WorkerId};

use super::script::{Column, Table, Verb, insert, select};
use super::values::Values;
use super::workers::{NAMED, WorkerRow};
use super::write::Change;
use super::{StorageError, Store};

/// Last known address of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerAddress {
    NoWorker,
    /// The worker has not connected since addresses are recorded.
    Unknown,
    Known(String),
}

static NOTED: Table = Table {
    verb: Verb::Insert("worker_addresses"),
    columns: &[Column::Number("worker"), Column::Text("address")],
    tail: "ON CONFLICT (worker) DO UPDATE SET address = excluded.address",
};

/// Addresses by worker name.
struct Noted(Vec<(Arc<str>, String)>);

/// Without names and addresses, since values appear in logs.
impl std::fmt::Debug for Noted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noted(hidden)")
    }
}

impl Store {
    /// Records the present addresses of workers, by name.
    pub async fn note_worker_addresses(
        &self,
        workers: Vec<(Arc<str>, String)>,
    ) -> Result<(), StorageError> {
        self.change(Noted(workers)).await
    }

    /// `None` if the worker does not exist.
    pub async fn worker_owner(&self, public_id: Uuid) -> Result<Option<AccountId>, StorageError> {
        let row = sqlx::query("SELECT owner FROM workers WHERE public_id = $1");
        let row = row.bind(public_id.to_string());
        let row = row.fetch_optional(&self.readers).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(AccountId))
    }

    /// Looks up by public id.
    pub async fn worker_address(&self, public_id: Uuid) -> Result<WorkerAddress, StorageError> {
        let row = sqlx::query(
            "SELECT address FROM workers LEFT JOIN worker_addresses ON worker = workers.id \
             WHERE public_id = $1",
        );
        let row = row.bind(public_id.to_string());
        let Some(row) = row.fetch_optional(&self.readers).await? else {
            return Ok(WorkerAddress::NoWorker);
        };
        let address: Option<String> = row.try_get(0)?;
        Ok(address.map_or(WorkerAddress::Unknown, WorkerAddress::Known))
    }
}

impl Change for Noted {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let name = |(name, _): &(Arc<str>, String), values: &mut Values| values.text(name);
            let known: Vec<WorkerRow> = select(&NAMED, &self.0, name, connection).await?;
            let known: HashMap<&str, WorkerId> =
                known.iter().map(|row| (&*row.name, row.id)).collect();
            // Each worker once, in the order of their ids. Deleted workers are skipped.
            let places = self.0.iter();
            let places = places.filter_map(|(name, at)| Some((*known.get(&**name)?, at)));
            let places: BTreeMap<WorkerId, &String> = places.collect();
            let places: Vec<_> = places.into_iter().collect();
            insert(&NOTED, &places, place, connection).await
        })
    }
}

fn place((worker, address): &(WorkerId, &String), values: &mut Values) {
    values.number(worker.0);
    values.text(address);
}
