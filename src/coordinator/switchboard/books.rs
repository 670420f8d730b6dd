//! The destination of settlements: the database, or a test's recorder.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::dispatch::Facts;
use crate::metering::Counted;
use muster_protocol::job::Kudos;

/// Why a job is not settled. Retries are safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsettled {
    /// The store failed or did not reply: the job may be settled.
    Unknown,
    /// The disk is full. Retries fail until the operator frees space.
    Full,
}

type Settling = Pin<Box<dyn Future<Output = Result<Kudos, Unsettled>> + Send>>;

/// Settles an ended job once, and returns the reward of its last worker.
#[derive(Clone)]
pub struct Books(Arc<dyn Fn(Box<Facts>, Counted) -> Settling + Send + Sync>);

impl Books {
    pub fn new<F>(settle: impl Fn(Box<Facts>, Counted) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Kudos, Unsettled>> + Send + 'static,
    {
        Self(Arc::new(move |facts, counted| {
            Box::pin(settle(facts, counted))
        }))
    }

    pub async fn settle(&self, facts: Box<Facts>, counted: Counted) -> Result<Kudos, Unsettled> {
        (self.0)(facts, counted).await
    }
}

impl fmt::Debug for Books {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Books")
    }
}
