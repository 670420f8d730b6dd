//! The one writer. It owns its connection, takes up to a few hundred writes at once, and answers them when their
//! common commit is on disk.
//!
//! Settlements of a batch are written in a few statements. If any of it fails, or a job turns out to be settled
//! already, the batch is rolled back and written one by one, each under a savepoint, so that a bad write does not
//! fail its neighbours. When the database is gone everybody is told, and the next batch connects anew, as it does
//! after every commit that failed.

use std::sync::Arc;
use std::time::Duration;

use sqlx::AnyConnection;
use sqlx::Executor;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::protocol::job::Kudos;
use crate::tasks::Tasks;

use super::dialect::Dialect;
use super::insertion::Statements;
use super::location::Location;
use super::pulse::Health;
use super::settlements::Batch;
use super::write::{Pending, Settle, Write};
use super::{PATIENCE, StorageError, connect, too_slow};

/// The most writes under one commit.
const BATCH: usize = 256;
/// How long the writer still listens after the signal to stop, while somebody could write.
const LINGER: Duration = Duration::from_millis(300);

pub fn start(
    location: &Location,
    connection: AnyConnection,
    inbox: mpsc::Receiver<Write>,
    health: Arc<Health>,
    tasks: &Tasks,
) {
    let writer = Writer {
        location: location.clone(),
        dialect: Dialect::of(location),
        connection: Some(connection),
        statements: Statements::default(),
        health,
    };
    tasks.start(writer.run(inbox, tasks.stopping()));
}

struct Writer {
    location: Location,
    dialect: Dialect,
    /// None after it broke, until the next batch.
    connection: Option<AnyConnection>,
    statements: Statements,
    health: Arc<Health>,
}

/// The writes of one batch and what came of each.
struct Work {
    settles: Vec<Settle>,
    rewards: Vec<Result<Kudos, StorageError>>,
    others: Vec<Box<dyn Pending>>,
    outcomes: Vec<Result<(), StorageError>>,
}

impl Writer {
    async fn run(mut self, mut inbox: mpsc::Receiver<Write>, stopping: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        while next_batch(&mut inbox, &mut batch, &stopping).await {
            let mut work = Work::of(&mut batch);
            let committed = self.write(&mut work).await;
            self.note(&committed);
            work.answer(&committed);
        }
        if let Some(connection) = self.connection.take() {
            let _ = sqlx::Connection::close(connection).await;
        }
    }

    async fn write(&mut self, work: &mut Work) -> Result<(), StorageError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.location).await?,
        };
        let writing = timeout(PATIENCE, self.write_on(&mut connection, work));
        let written = writing.await.unwrap_or_else(|_| Err(too_slow()));
        // What fails as a whole may have left anything behind, and a server that has become read-only stays so.
        self.connection = written.is_ok().then_some(connection);
        written
    }

    async fn write_on(
        &mut self,
        connection: &mut AnyConnection,
        work: &mut Work,
    ) -> Result<(), StorageError> {
        let together = self.write_together(connection, work).await;
        match together {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if error.is_of_one_write() => {}
            Err(error) => return Err(error),
        }
        connection.execute("ROLLBACK").await?;
        self.write_one_by_one(connection, work).await
    }

    /// Everything in a few statements; whether that was right. Nothing is committed if not.
    async fn write_together(
        &mut self,
        connection: &mut AnyConnection,
        work: &mut Work,
    ) -> Result<bool, StorageError> {
        connection.execute(self.dialect.begin()).await?;
        let batch = Batch::of(work.settles.iter().map(|settle| &*settle.settlement));
        if !batch.write(connection, &mut self.statements).await? {
            return Ok(false);
        }
        for other in &mut work.others {
            other.apply(connection).await?;
        }
        connection.execute("COMMIT").await?;
        let rewards = work.settles.iter();
        work.rewards = rewards.map(|settle| Ok(settle.settlement.reward)).collect();
        work.outcomes = vec![Ok(()); work.others.len()];
        Ok(true)
    }

    async fn write_one_by_one(
        &mut self,
        connection: &mut AnyConnection,
        work: &mut Work,
    ) -> Result<(), StorageError> {
        connection.execute(self.dialect.begin()).await?;
        work.rewards.clear();
        for settle in &work.settles {
            connection.execute("SAVEPOINT one").await?;
            let settlement = &*settle.settlement;
            let reward = Batch::settle_one(settlement, connection, &mut self.statements).await;
            work.rewards.push(keep(connection, reward).await?);
        }
        work.outcomes.clear();
        for other in &mut work.others {
            connection.execute("SAVEPOINT one").await?;
            let outcome = other.apply(connection).await;
            work.outcomes.push(keep(connection, outcome).await?);
        }
        connection.execute("COMMIT").await?;
        Ok(())
    }

    fn note(&self, committed: &Result<(), StorageError>) {
        let was_good = self.health.note_write(committed.is_ok());
        match committed {
            Err(error) if was_good => warn!("the store cannot be written: {error}"),
            Ok(()) if !was_good => info!("the store can be written again"),
            _ => {}
        }
    }
}

/// Ends a savepoint: what failed by its own fault is undone, and whatever else fails, fails the batch.
async fn keep<T>(
    connection: &mut AnyConnection,
    result: Result<T, StorageError>,
) -> Result<Result<T, StorageError>, StorageError> {
    match result {
        Err(error) if !error.is_of_one_write() => return Err(error),
        Err(_) => connection.execute("ROLLBACK TO SAVEPOINT one").await?,
        Ok(_) => connection.execute("RELEASE SAVEPOINT one").await?,
    };
    Ok(result)
}

/// Waits for writes; false when there will be none.
async fn next_batch(
    inbox: &mut mpsc::Receiver<Write>,
    batch: &mut Vec<Write>,
    stopping: &CancellationToken,
) -> bool {
    let taken = tokio::select! {
        taken = inbox.recv_many(batch, BATCH) => taken,
        () = stopping.cancelled() => {
            timeout(LINGER, inbox.recv_many(batch, BATCH)).await.unwrap_or(0)
        }
    };
    taken > 0
}

impl Work {
    fn of(batch: &mut Vec<Write>) -> Self {
        let mut work = Self {
            settles: Vec::with_capacity(batch.len()),
            rewards: Vec::new(),
            others: Vec::new(),
            outcomes: Vec::new(),
        };
        for write in batch.drain(..) {
            match write {
                Write::Settle(settle) => work.settles.push(settle),
                Write::Other(other) => work.others.push(other),
            }
        }
        work
    }

    fn answer(self, committed: &Result<(), StorageError>) {
        let failed = committed.as_ref().err().cloned();
        let rewards = self
            .rewards
            .into_iter()
            .map(Some)
            .chain(std::iter::repeat_with(|| None));
        for (settle, reward) in self.settles.into_iter().zip(rewards) {
            let _ = settle.answer.send(answer(&failed, reward));
        }
        let outcomes = self
            .outcomes
            .into_iter()
            .map(Some)
            .chain(std::iter::repeat_with(|| None));
        for (other, outcome) in self.others.into_iter().zip(outcomes) {
            other.finish(answer(&failed, outcome));
        }
    }
}

fn answer<T>(
    failed: &Option<StorageError>,
    result: Option<Result<T, StorageError>>,
) -> Result<T, StorageError> {
    match failed {
        Some(error) => Err(error.clone()),
        None => result.unwrap_or(Err(StorageError::Closed)),
    }
}
