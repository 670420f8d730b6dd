//! Writes as values, with replies after the commit.

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;
use tokio::sync::oneshot;

use crate::kudos::Settlement;
use muster_protocol::job::Kudos;

use super::StorageError;
use super::requests::Accept;
use super::rigs::RigNews;
use super::workers::{Join, WorkerRow};

type Answer<A> = oneshot::Sender<Result<A, StorageError>>;

/// A message to the writer.
#[derive(Debug)]
pub enum Write {
    /// The frequent ones: all of a batch are written together.
    Settle(Asked<Box<Settlement>, Kudos>),
    Accept(Asked<Box<Accept>, ()>),
    Join(Asked<Join, Option<WorkerRow>>),
    Save(Asked<Vec<RigNews>, ()>),
    /// Runs after the commit of its batch.
    Compact(Asked<Compaction, ()>),
    Other(Box<dyn Pending>),
}

/// A write and its reply channel.
#[derive(Debug)]
pub struct Asked<W, A> {
    pub what: W,
    answer: Answer<A>,
}

/// Rewrites the file so that no deleted text is left in it.
#[derive(Debug, Clone, Copy)]
pub struct Compaction;

/// Any other change, defined in the file of its table.
pub trait Change: Debug + Send + Sync + 'static {
    type Answer: Debug + Send + 'static;

    /// Runs inside the writer's transaction, perhaps more than once: a failed attempt was rolled back.
    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Self::Answer, StorageError>>;
}

/// A change whose reply type is erased.
pub trait Pending: Debug + Send {
    fn apply<'a>(
        &'a mut self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>>;

    /// Replies with the result of `apply` if the commit succeeded, else with the error.
    fn finish(self: Box<Self>, committed: Result<(), StorageError>);
}

#[derive(Debug)]
struct Waiting<C: Change> {
    change: C,
    applied: Option<C::Answer>,
    answer: Answer<C::Answer>,
}

impl Write {
    pub fn settle(what: Box<Settlement>, answer: Answer<Kudos>) -> Self {
        Self::Settle(Asked { what, answer })
    }

    pub fn accept(what: Box<Accept>, answer: Answer<()>) -> Self {
        Self::Accept(Asked { what, answer })
    }

    pub fn join(what: Join, answer: Answer<Option<WorkerRow>>) -> Self {
        Self::Join(Asked { what, answer })
    }

    pub fn save(what: Vec<RigNews>, answer: Answer<()>) -> Self {
        Self::Save(Asked { what, answer })
    }

    pub fn compact(answer: Answer<()>) -> Self {
        let what = Compaction;
        Self::Compact(Asked { what, answer })
    }

    pub fn other<C: Change>(change: C, answer: Answer<C::Answer>) -> Self {
        Self::Other(Box::new(Waiting {
            change,
            applied: None,
            answer,
        }))
    }
}

impl<W, A> Asked<W, A> {
    /// The caller may have stopped waiting.
    pub fn answer(self, outcome: Result<A, StorageError>) {
        let _ = self.answer.send(outcome);
    }
}

impl<C: Change> Pending for Waiting<C> {
    fn apply<'a>(
        &'a mut self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            self.applied = None;
            self.applied = Some(self.change.apply(connection).await?);
            Ok(())
        })
    }

    fn finish(self: Box<Self>, committed: Result<(), StorageError>) {
        let Self {
            applied, answer, ..
        } = *self;
        // The caller may have stopped waiting.
        let _ = answer.send(committed.and_then(|()| applied.ok_or(StorageError::Closed)));
    }
}
