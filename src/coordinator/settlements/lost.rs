//! Release of lost holds: of an earlier process, and of jobs that could not be settled.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, info};

use crate::clock::wall_clock;
use crate::storage::{StorageError, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::JobId;

const EVERY: Duration = Duration::from_secs(600);
/// Time for the settlement of a job after its lifetime.
const SETTLED_BY: Duration = Duration::from_secs(3600);

/// Most jobs with holds do not outlive their process: at the start all holds are released, except those of `stored`
/// jobs, and later those of jobs past their longest lifetime.
pub async fn release_lost(
    store: Store,
    lifetime: Duration,
    stored: impl Fn() -> Vec<JobId> + Send + Sync + 'static,
    tasks: &Tasks,
) -> Result<(), StorageError> {
    let released = store.release_credits_of_fenced(stored()).await?;
    if released > 0 {
        info!("released the credits held for {released} jobs of an earlier process");
    }
    let stopping = tasks.stopping();
    tasks.start(async move {
        let releasing = release_now_and_then(store, lifetime + SETTLED_BY, stored);
        stopping.run_until_cancelled(releasing).await
    });
    Ok(())
}

async fn release_now_and_then(store: Store, age: Duration, stored: impl Fn() -> Vec<JobId>) {
    loop {
        sleep(EVERY).await;
        let before = wall_clock().before(age);
        match store.release_credits_before(before, stored()).await {
            Ok(0) => {}
            Ok(released) => info!("released the credits held for {released} lost jobs"),
            Err(error) => debug!("releasing credits of lost jobs failed, retrying later: {error}"),
        }
    }
}
