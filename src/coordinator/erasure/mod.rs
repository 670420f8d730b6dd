//! Deletion and suspension of accounts: their jobs end, and stored data of a deleted account is removed.
//!
//! The database lists these accounts, changed by the API or by a command beside the coordinator. Later passes delete
//! results and uploads that arrive after the deletion: of jobs on polling workers, and by links that are still valid.

mod export;
mod pass;

pub use export::{AccountExport, ExportError, pieces};
pub use pass::StoredContents;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::accounts::Accounts;
use super::clock::wall_clock;
use super::media::{Media, MediaError};
use super::requests::Requests;
use super::responses::Responses;
use super::storage::{AccountChange, StorageError, Store};
use super::switchboard::Switchboard;
use crate::values::Roles;
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, Failure, FailureKind, UnixMillis};

/// Interval of passes over recently deleted accounts.
const PASSES: Duration = Duration::from_secs(60);
/// Limit of the lifetime of requests and upload links after the deletion of their account.
pub const OVER: Duration = Duration::from_secs(2 * 3600);
/// Time for running jobs to end before the stored contents are deleted. A later pass deletes the results of slower
/// jobs.
const ENDING: Duration = Duration::from_secs(3);
/// Interval of checks whether jobs have ended.
const LOOK: Duration = Duration::from_millis(50);

/// Clones share the state.
#[derive(Debug, Clone)]
pub struct Erasures(Arc<ErasureState>);

/// The services whose data an erasure deletes.
#[derive(Debug)]
pub struct ErasureParts {
    pub store: Store,
    pub accounts: Accounts,
    pub media: Media,
    pub switchboard: Switchboard,
    pub requests: Requests,
    pub responses: Responses,
}

#[derive(Debug)]
struct ErasureState {
    parts: ErasureParts,
    /// Erasures with a pass in this process.
    passed: Mutex<HashMap<AccountId, ErasurePass>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ErasurePass {
    /// Start of the erasure.
    begun: UnixMillis,
    /// Whether the next check starts another pass.
    is_due: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ErasureError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Media(#[from] MediaError),
}

impl Erasures {
    /// Starts the passes over the database's erasures.
    pub fn start(parts: ErasureParts, tasks: &Tasks) -> Self {
        let changes = parts.store.keys_revision();
        let erasures = Self(Arc::new(ErasureState {
            parts,
            passed: Mutex::default(),
        }));
        let (following, stopping) = (erasures.clone(), tasks.stopping());
        tasks.start(async move {
            stopping
                .run_until_cancelled(following.follow(changes))
                .await
        });
        erasures
    }

    /// When this returns, the account's keys are refused and its stored contents are deleted.
    pub async fn delete(&self, account: AccountId) -> Result<AccountChange, ErasureError> {
        let parts = &self.0.parts;
        let deleted = parts.store.delete_account(account, wall_clock()).await?;
        parts.accounts.catch_up().await?;
        if deleted == AccountChange::Done {
            self.erase(account).await?;
        }
        Ok(deleted)
    }

    /// Deletes the contents of a marked account.
    pub async fn erase(&self, account: AccountId) -> Result<(), ErasureError> {
        let mut passed = self.0.passed.lock().await;
        let begun = self.0.parts.store.erasures().await?;
        let begun = begun.into_iter().find(|(one, _)| *one == account);
        self.pass(account, true).await?;
        passed.extend(begun.map(|(account, at)| (account, ErasurePass::at(at))));
        Ok(())
    }

    pub async fn suspend(
        &self,
        account: AccountId,
        is_suspended: bool,
    ) -> Result<AccountChange, StorageError> {
        let parts = &self.0.parts;
        let changed = parts.store.suspend_account(account, is_suspended).await?;
        parts.accounts.catch_up().await?;
        if changed == AccountChange::Done && is_suspended {
            self.end_jobs_of(account, suspended()).await;
        }
        Ok(changed)
    }

    async fn follow(self, mut changes: watch::Receiver<i64>) {
        loop {
            changes.mark_unchanged();
            if let Err(error) = self.follow_once().await {
                warn!("deleting the contents of an account failed, retrying later: {error}");
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = sleep(PASSES) => {
                    let mut passed = self.0.passed.lock().await;
                    passed.values_mut().for_each(|passed| passed.is_due = true);
                }
            }
        }
    }

    async fn follow_once(&self) -> Result<(), ErasureError> {
        let store = &self.0.parts.store;
        for account in store.accounts_with(Roles::SUSPENDED).await? {
            self.end_jobs_of(account, suspended()).await;
        }
        let now = wall_clock();
        let begun = store.erasures().await?;
        if begun.iter().any(|(_, at)| at.after(OVER) < now) {
            store.end_erasures(now.before(OVER)).await?;
            let mut passed = self.0.passed.lock().await;
            passed.retain(|_, passed| passed.begun.after(OVER) >= now);
        }
        for (account, at) in begun {
            let mut passed = self.0.passed.lock().await;
            let last = passed.get(&account).filter(|passed| passed.begun == at);
            if last.is_none_or(|passed| passed.is_due) {
                self.pass(account, last.is_none()).await?;
                passed.insert(account, ErasurePass::at(at));
            }
        }
        Ok(())
    }

    /// Deletes an account's data in memory, in the database and in the media store.
    async fn pass(&self, account: AccountId, is_first: bool) -> Result<(), ErasureError> {
        let ErasureParts {
            store,
            media,
            requests,
            responses,
            ..
        } = &self.0.parts;
        responses.forget_all_of(account);
        requests.forget_all_of(account);
        self.end_jobs_of(account, deleted()).await;
        let contents = StoredContents { store, media };
        let gone = contents.delete(account, is_first).await?;
        if gone.rows > 0 || gone.objects > 0 {
            info!(
                "deleted {} rows and {} media objects of account {}",
                gone.rows, gone.objects, account.0
            );
        }
        Ok(())
    }

    /// Waits until they have ended, up to a limit.
    async fn end_jobs_of(&self, account: AccountId, failure: Failure) {
        let parts = &self.0.parts;
        if let Err(error) = parts.requests.cancel_all_of(account).await {
            warn!("cancelling the requests of an account failed: {error}");
        }
        for _ in 0..ENDING.as_millis() / LOOK.as_millis() {
            match parts
                .switchboard
                .end_jobs_of(account, failure.clone())
                .await
            {
                Ok(0) | Err(_) => return,
                Ok(_) => sleep(LOOK).await,
            }
        }
    }
}

impl ErasurePass {
    fn at(begun: UnixMillis) -> Self {
        Self {
            begun,
            is_due: false,
        }
    }
}

fn suspended() -> Failure {
    let message = "the account of this request was suspended";
    Failure::new(FailureKind::AccountSuspended, message)
}

fn deleted() -> Failure {
    let message = "the account of this request was deleted";
    Failure::new(FailureKind::AccountDeleted, message)
}
