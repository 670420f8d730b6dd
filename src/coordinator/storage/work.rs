//! The writes of one batch and their outcomes.
//!
//! Settlements, accepted requests, new workers and workers' reports are written in a few calls, however many there are.
//! Should any of it fail, perhaps since a job was settled before, everything is written one by one, each under a
//! savepoint, so that a bad write does not fail its neighbours.

use sqlx::{AnyConnection, Executor};

use crate::kudos::Settlement;
use muster_protocol::job::Kudos;

use super::StorageError;
use super::batch::Batch;
use super::election::Fence;
use super::requests::Accept;
use super::rigs::{RigNews, save};
use super::script::Script;
use super::settlements::reward;
use super::workers::{Join, WorkerRow, join};
use super::write::{Asked, Compaction, Pending, Write};

type Outcomes<T> = Vec<Result<T, StorageError>>;

#[derive(Default)]
pub struct Work {
    settles: Vec<Asked<Box<Settlement>, Kudos>>,
    rewards: Outcomes<Kudos>,
    accepts: Vec<Asked<Box<Accept>, ()>>,
    accepted: Outcomes<()>,
    joins: Vec<Asked<Join, Option<WorkerRow>>>,
    joined: Outcomes<Option<WorkerRow>>,
    saves: Vec<Asked<Vec<RigNews>, ()>>,
    saved: Outcomes<()>,
    compactions: Vec<Asked<Compaction, ()>>,
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
                Write::Join(join) => work.joins.push(join),
                Write::Save(save) => work.saves.push(save),
                Write::Compact(compact) => work.compactions.push(compact),
                Write::Other(other) => work.others.push(other),
            }
        }
        work
    }

    /// Writes everything in one new transaction. On an error the caller rolls back.
    pub async fn write_together(
        &mut self,
        fence: Fence,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        let settled = self.settles.iter().map(|settle| &*settle.what);
        let accepted = self.accepts.iter().map(|accept| &*accept.what);
        let script = Script::in_new_transaction(fence);
        let batch = Batch::of(settled, accepted);
        batch.write(script, connection).await?;
        let joins: Vec<&Join> = self.joins.iter().map(|join| &join.what).collect();
        let joined = join(&joins, connection).await?;
        let news: Vec<&RigNews> = self.saves.iter().flat_map(|save| &save.what).collect();
        save(&news, connection).await?;
        for other in &mut self.others {
            other.apply(connection).await?;
        }
        let rewards = self.settles.iter();
        self.rewards = rewards.map(|settle| Ok(settle.what.reward)).collect();
        self.accepted = vec![Ok(()); self.accepts.len()];
        self.joined = joined.into_iter().map(Ok).collect();
        self.saved = vec![Ok(()); self.saves.len()];
        self.outcomes = vec![Ok(()); self.others.len()];
        Ok(())
    }

    pub async fn write_one_by_one(
        &mut self,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        for settle in &self.settles {
            let settlement = &*settle.what;
            begin_one(connection).await?;
            let settled = Batch::of([settlement], []);
            let settled = settled.write(Script::default(), connection).await;
            let settled = end_one(connection, settled).await?;
            let reward = match settled {
                Ok(()) => Ok(settlement.reward),
                // The error may mean that the job is settled already.
                Err(refused) => reward(settlement.job, &mut *connection)
                    .await?
                    .ok_or(refused),
            };
            self.rewards.push(reward);
        }
        for accept in &self.accepts {
            begin_one(connection).await?;
            let accepted = Batch::of([], [&*accept.what]);
            let accepted = accepted.write(Script::default(), connection).await;
            self.accepted.push(end_one(connection, accepted).await?);
        }
        for new in &self.joins {
            begin_one(connection).await?;
            let joined = join(&[&new.what], connection).await;
            let joined = joined.map(|mut joined| joined.pop().flatten());
            self.joined.push(end_one(connection, joined).await?);
        }
        for some in &self.saves {
            begin_one(connection).await?;
            let news: Vec<&RigNews> = some.what.iter().collect();
            let saved = save(&news, connection).await;
            self.saved.push(end_one(connection, saved).await?);
        }
        for other in &mut self.others {
            begin_one(connection).await?;
            let outcome = other.apply(connection).await;
            self.outcomes.push(end_one(connection, outcome).await?);
        }
        Ok(())
    }

    /// Compactions to run after a successful commit; the rest fails with it.
    pub fn take_compactions(&mut self) -> Vec<Asked<Compaction, ()>> {
        std::mem::take(&mut self.compactions)
    }

    /// Answers every caller: with its own outcome if the commit succeeded, with the error otherwise.
    pub fn answer(self, committed: &Result<(), StorageError>) {
        answer_each(self.settles, committed, self.rewards);
        answer_each(self.accepts, committed, self.accepted);
        answer_each(self.joins, committed, self.joined);
        answer_each(self.saves, committed, self.saved);
        answer_each(self.compactions, committed, Outcomes::new());
        for (other, outcome) in self.others.into_iter().zip(each(committed, self.outcomes)) {
            other.finish(outcome);
        }
    }
}

fn answer_each<W, A>(
    asked: Vec<Asked<W, A>>,
    committed: &Result<(), StorageError>,
    outcomes: Outcomes<A>,
) {
    for (asked, outcome) in asked.into_iter().zip(each(committed, outcomes)) {
        asked.answer(outcome);
    }
}

/// The outcome of each write, or the error of the commit for all.
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

/// Ends a savepoint: undoes a write that failed by its own fault; any other error fails the batch.
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
