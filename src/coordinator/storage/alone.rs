//! A database has one coordinator: the queue is in its memory, and what waits when it starts it takes for its own. Two
//! would do the same jobs. Commands such as `worker key` may look in.
//!
//! A file is locked as a file; here a server's database is, for as long as a connection lives that does nothing else.

use std::time::Duration;

use sqlx::any::install_default_drivers;
use sqlx::{AnyConnection, Connection, Row};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use muster_process::tasks::Tasks;

use super::location::Location;
use super::{StorageError, connect};

/// How often it is tried, and looked at.
const AGAIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_secs(5);
/// What is written last, when the process ends, is written under the lock.
const LAST_WRITES: Duration = Duration::from_millis(500);

/// Of this schema, in whatever database it stands.
const TAKE: &str = "SELECT CAST(CASE WHEN pg_try_advisory_lock(778402, hashtext(current_schema())) \
                    THEN 1 ELSE 0 END AS BIGINT)";

/// Whether the database is this process's from here to its end. Whoever has it may leave within the patience, as at an
/// update.
pub async fn have_alone(
    location: &Location,
    patience: Duration,
    tasks: &Tasks,
) -> Result<bool, StorageError> {
    if matches!(location, Location::Sqlite(_)) {
        return Ok(true);
    }
    install_default_drivers();
    let mut connection = connect(location).await?;
    let until = Instant::now() + patience;
    let mut is_told = false;
    while !take(&mut connection).await? {
        if Instant::now() >= until {
            return Ok(false);
        }
        if !is_told {
            let seconds = patience.as_secs();
            info!(
                "{location} is in use by another coordinator, waiting up to {seconds} s for it to stop"
            );
            is_told = true;
        }
        sleep(AGAIN).await;
    }
    let keep = keep(connection, location.clone(), tasks.stopping());
    tasks.start(keep);
    Ok(true)
}

async fn take(connection: &mut AnyConnection) -> Result<bool, StorageError> {
    let taken = sqlx::query(TAKE).fetch_one(connection).await?;
    Ok(taken.try_get::<i64, _>(0)? == 1)
}

/// A connection that breaks lets go of the lock: it is taken again.
async fn keep(first: AnyConnection, location: Location, stopping: CancellationToken) {
    let mut held = Some(first);
    loop {
        tokio::select! {
            () = stopping.cancelled() => break,
            () = sleep(LOOK) => {}
        }
        let is_held = match &mut held {
            Some(connection) => connection.ping().await.is_ok(),
            None => false,
        };
        if !is_held {
            held = retaken(&location).await;
        }
    }
    sleep(LAST_WRITES).await;
}

async fn retaken(location: &Location) -> Option<AnyConnection> {
    let mut connection = connect(location).await.ok()?;
    match take(&mut connection).await {
        Ok(true) => {
            warn!("the connection to {location} was lost, reconnected and locked it again");
            Some(connection)
        }
        Ok(false) => {
            error!("another coordinator has locked {location}: stop one of the two");
            None
        }
        Err(_) => None,
    }
}
