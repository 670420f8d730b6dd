//! A client cancels a job by its id, from outside of its stream; an account loses all of its jobs.

use tokio::sync::oneshot;

use super::desk::{Desk, Message};
use super::{Stopped, Switchboard};
use crate::dispatch::{Input, Outcome};
use muster_protocol::job::{AccountId, Failure, JobId};

impl Switchboard {
    /// Cancels a job of this account: how it ends, which is otherwise only where that was decided before. None if the
    /// account has no such job here (any more).
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

    /// Ends the jobs of an account with this failure: how many of them are still here.
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
