//! Modes of the service. Every change increments the counter `modes` in the same transaction; the periodic check reads
//! both, so other processes learn of it.

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};
use tokio::sync::watch;

use crate::values::modes::{ModeSet, Reading, Switch};

use super::write::Change;
use super::{StorageError, Store};

impl Store {
    /// The service modes, as changed by any process.
    pub fn modes(&self) -> watch::Receiver<Reading> {
        self.modes.subscribe()
    }

    pub async fn switch_modes(&self, switches: Vec<Switch>) -> Result<(), StorageError> {
        let reading = self.change(Switching(switches)).await?;
        take_in(&self.modes, reading);
        Ok(())
    }
}

/// Ignores a reading that is older than the known one.
pub fn take_in(known: &watch::Sender<Reading>, reading: Reading) {
    known.send_if_modified(|known| {
        let is_newer = reading.revision > known.revision;
        if is_newer {
            *known = reading;
        }
        is_newer
    });
}

#[derive(Debug)]
struct Switching(Vec<Switch>);

impl Change for Switching {
    type Answer = Reading;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Reading, StorageError>> {
        Box::pin(async move {
            let raise =
                "UPDATE counters SET value = value + 1 WHERE name = 'modes' RETURNING value";
            let raised = sqlx::query(raise).fetch_one(&mut *connection).await?;
            for (modes, is_on) in &self.0 {
                for name in modes.names() {
                    let put = sqlx::query(
                        "INSERT INTO modes (name, is_on) VALUES ($1, $2) \
                         ON CONFLICT (name) DO UPDATE SET is_on = excluded.is_on",
                    );
                    let put = put.bind(name).bind(i64::from(*is_on));
                    put.execute(&mut *connection).await?;
                }
            }
            let rows = sqlx::query("SELECT name FROM modes WHERE is_on = 1");
            let rows = rows.fetch_all(connection).await?;
            let names = rows.iter().map(|row| Ok(row.try_get(0)?));
            let names: Vec<&str> = names.collect::<Result<_, StorageError>>()?;
            Ok(Reading {
                revision: raised.try_get(0)?,
                modes: names.into_iter().filter_map(ModeSet::named).collect(),
            })
        })
    }
}
