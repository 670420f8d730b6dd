//! Where workers come from.

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use super::write::Change;
use super::{StorageError, Store};

/// What is known of where a worker came from last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerAddress {
    NoWorker,
    /// It was not here since addresses are noted.
    Unknown,
    Known(String),
}

struct Noted {
    worker: String,
    address: String,
}

/// Says neither who nor where.
impl std::fmt::Debug for Noted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noted(hidden)")
    }
}

impl Store {
    /// Where the worker of this name is now.
    pub async fn note_worker_address(
        &self,
        worker: &str,
        address: &str,
    ) -> Result<(), StorageError> {
        let noted = Noted {
            worker: worker.to_owned(),
            address: address.to_owned(),
        };
        self.change(noted).await
    }

    /// By the identity that peers are told.
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
            let noted = sqlx::query(
                "INSERT INTO worker_addresses (worker, address) \
                 SELECT id, CAST($1 AS TEXT) FROM workers WHERE name = $2 \
                 ON CONFLICT (worker) DO UPDATE SET address = excluded.address",
            );
            let noted = noted.bind(&*self.address).bind(&*self.worker);
            noted.execute(connection).await?;
            Ok(())
        })
    }
}
