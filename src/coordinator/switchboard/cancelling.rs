//! Cancels a job by id, without its stream, or all jobs of an account.

use tokio::sync::oneshot;

use super::desk::{Desk, Message};
use super::{Stopped, Switchboard};
use crate::dispatch::{Input, Outcome};
use muster_protocol::job::{AccountId, Failure, JobId};

impl Switchboard {
    /// Cancels a job of this account. Returns its outcome, which may have been decided before; `None` if the account
    /// has no
    /// such job here.
    pub async fn cancel(&self, job: JobId, account: AccountId) -> Result<Option<Outcome>, Stopped> {
        let (answer, answered) = oneshot::channel();
        let message = Message::Cancel {
            job,
            account,
            answer,
        };
        self.messages.send(message).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// Ends the jobs of an account with this failure. Returns the number of jobs that are still here.
    pub async fn end_jobs_of(
        &self,
        account: AccountId,
        failure: Failure,
    ) -> Result<usize, Stopped> {
        let (answer, answered) = oneshot::channel();
        let message = Message::EndAccount {
            account,
            failure,
            answer,
        };
        self.messages.send(message).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }
}

impl Desk {
    pub fn end_jobs_of(&mut self, account: AccountId, failure: Failure) -> usize {
        if self.dispatcher.jobs_of(account) > 0 {
            self.handle(Input::EndAccount { account, failure });
        }
        self.dispatcher.jobs_of(account)
    }

    pub fn cancel(&mut self, job: JobId, account: AccountId) -> Option<Outcome> {
        if let Some(outcome) = self.dispatcher.decided(job, account)? {
            return Some(outcome.clone());
        }
        self.handle(Input::Cancel { job });
        Some(Outcome::Cancelled)
    }
}
