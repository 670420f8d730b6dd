//! The writes of one batch and what came of each.
//!
//! What is settled and what is accepted is written in a few calls, however much it is. Should any of it fail, perhaps since
//! a job was settled before, everything is written one by one, each under a savepoint, so that a bad write does not fail
//! its neighbours.

use sqlx::{AnyConnection, Executor};

use crate::protocol::job::Kudos;

use super::StorageError;
use super::batch::Batch;
use super::script::Script;
use super::settlements::reward;
use super::write::{Accepting, Pending, Settle, Write};

type Outcomes<T> = Vec<Result<T, StorageError>>;

#[derive(Default)]
pub struct Work {
    settles: Vec<Settle>,
    rewards: Outcomes<Kudos>,
    accepts: Vec<Accepting>,
    accepted: Outcomes<()>,
    others: Vec<Box<dyn Pending>>,
    outcomes: Outcomes<()>,
}

impl Work {
    pub fn of(batch: &mut Vec<Write>) -> Self {
        let mut work = Self::default();
        for write in batch.drain(..) {
            match write {
                Write::Settle(settle) => work.settles.push(settle),
                Write::Accept(accept) => work.accepts.push(accept),
                Write::Other(other) => work.others.push(other),
            }
        }
        work
    }

    /// Everything in a transaction of its own, which is to be rolled back if that fails.
    pub async fn write_together(
        &mut self,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        let settled = self.settles.iter().map(|settle| &*settle.settlement);
        let accepted = self.accepts.iter().map(|accepting| &*accepting.accept);
        let script = Script::in_new_transaction();
        let batch = Batch::of(settled, accepted);
        batch.write(script, connection).await?;
        for other in &mut self.others {
            other.apply(connection).await?;
        }
        let rewards = self.settles.iter();
        self.rewards = rewards.map(|settle| Ok(settle.settlement.reward)).collect();
        self.accepted = vec![Ok(()); self.accepts.len()];
        self.outcomes = vec![Ok(()); self.others.len()];
        Ok(())
    }

    pub async fn write_one_by_one(
        &mut self,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        for settle in &self.settles {
            let settlement = &*settle.settlement;
            begin_one(connection).await?;
            let settled = Batch::of([settlement], []);
            let settled = settled.write(Script::default(), connection).await;
            let settled = end_one(connection, settled).await?;
            let reward = match settled {
                Ok(()) => Ok(settlement.reward),
                // It may be refused because it is settled already.
                Err(refused) => reward(settlement.job, &mut *connection)
                    .await?
                    .ok_or(refused),
            };
            self.rewards.push(reward);
        }
        for accepting in &self.accepts {
            begin_one(connection).await?;
            let accepted = Batch::of([], [&*accepting.accept]);
            let accepted = accepted.write(Script::default(), connection).await;
            self.accepted.push(end_one(connection, accepted).await?);
        }
        for other in &mut self.others {
            begin_one(connection).await?;
            let outcome = other.apply(connection).await;
            self.outcomes.push(end_one(connection, outcome).await?);
        }
        Ok(())
    }

    /// Tells everybody, if the commit succeeded each its own outcome.
    pub fn answer(self, committed: &Result<(), StorageError>) {
        for (settle, reward) in self.settles.into_iter().zip(each(committed, self.rewards)) {
            // Whoever asked may have stopped waiting.
            let _ = settle.answer.send(reward);
        }
        for (accept, accepted) in self.accepts.into_iter().zip(each(committed, self.accepted)) {
            let _ = accept.answer.send(accepted);
        }
        for (other, outcome) in self.others.into_iter().zip(each(committed, self.outcomes)) {
            other.finish(outcome);
        }
    }
}

/// What came of each, or else, of however many, why nothing did.
fn each<T>(
    committed: &Result<(), StorageError>,
    outcomes: Outcomes<T>,
) -> impl Iterator<Item = Result<T, StorageError>> {
    let failed = committed.as_ref().err().cloned();
    let outcomes = match failed {
        Some(_) => Outcomes::new(),
        None => outcomes,
    };
    let reason = failed.unwrap_or(StorageError::Closed);
    let rest = std::iter::repeat_with(move || Err(reason.clone()));
    outcomes.into_iter().chain(rest)
}

async fn begin_one(connection: &mut AnyConnection) -> Result<(), StorageError> {
    connection.execute("SAVEPOINT one").await?;
    Ok(())
}

/// Ends a savepoint: what failed by its own fault is undone, and whatever else fails, fails the batch.
async fn end_one<T>(
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
