//! Who may connect under which name: asked of accounts and the store, or in tests of whoever stands in for them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use uuid::Uuid;

use crate::protocol::job::{AccountId, WorkerId};
use crate::protocol::link::Key;

/// Somebody wants to connect a worker of this name.
#[derive(Debug, Clone)]
pub struct Applicant {
    pub key: Key,
    pub name: Arc<str>,
    pub agent: Arc<str>,
}

/// The worker's row: the same for one name forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    pub worker: WorkerId,
    pub public_id: Uuid,
    pub owner: AccountId,
    /// The operator vouches for it.
    pub trusted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    UnknownKey,
    /// The key is for other things.
    NoScope,
    /// The key is for a worker of another name.
    OtherRig,
    /// The name belongs to another account.
    NameTaken,
    /// Nobody can say now.
    Unavailable,
}

type Asking = Pin<Box<dyn Future<Output = Result<Admitted, Denial>> + Send>>;

#[derive(Clone)]
pub struct Gate(Arc<dyn Fn(Applicant) -> Asking + Send + Sync>);

impl Gate {
    pub fn new<F>(ask: impl Fn(Applicant) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Admitted, Denial>> + Send + 'static,
    {
        Self(Arc::new(move |applicant| Box::pin(ask(applicant))))
    }

    pub async fn ask(&self, applicant: Applicant) -> Result<Admitted, Denial> {
        (self.0)(applicant).await
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Gate")
    }
}
