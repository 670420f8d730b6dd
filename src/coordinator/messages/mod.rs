//! Messages to workers, delivered with their pops: from their owners, and from moderators, who may write to all. A
//! message is delivered with every pop until it expires, so deliveries are not recorded.
//!
//! | file | contents |
//! | --- | --- |
//! | `board` | valid messages in memory, so that a pop needs no query |

mod board;

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::accounts::{ANONYMOUS, Caller};
use super::clock::wall_clock;
use super::rigs::{Rig, Rigs};
use super::storage::{MessageRow, MessageSearch, NewMessage, StorageError, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, WorkerId};
use muster_protocol::legacy::worker::{Validity, WorkerMessageInput};
use muster_protocol::legacy::{Code, Refusal};

use board::Board;

/// Limit of messages for one worker, or for all workers: every pop sends them.
const MOST: i64 = 20;
const HOUR: Duration = Duration::from_secs(3600);

/// All messages. Clones share them.
#[derive(Debug, Clone)]
pub struct Messages {
    store: Store,
    rigs: Rigs,
    board: Arc<Board>,
    /// Default author name of moderators' messages.
    moderators: Arc<str>,
}

/// Why a change of a message was refused.
#[derive(Debug, thiserror::Error)]
pub enum NotTold {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<Code> for NotTold {
    fn from(code: Code) -> Self {
        Self::Refused(code.into())
    }
}

/// Filter of a list of messages.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub author: Option<AccountId>,
    pub worker: Option<&'a str>,
    pub validity: Validity,
    /// Page 0 is the first.
    pub page: u32,
}

impl Messages {
    /// `service` is the service's display name.
    pub async fn open(
        store: Store,
        rigs: Rigs,
        service: &str,
        tasks: &Tasks,
    ) -> Result<Self, StorageError> {
        Ok(Self {
            board: Board::open(&store, tasks).await?,
            store,
            rigs,
            moderators: format!("{service} Moderators").into(),
        })
    }

    /// Valid messages for a worker: those to all, and its own.
    pub fn of(&self, worker: WorkerId) -> Vec<Arc<MessageRow>> {
        self.board.of(worker, wall_clock())
    }

    /// Messages for this worker alone.
    pub fn only_of(&self, worker: WorkerId) -> Vec<Arc<MessageRow>> {
        self.board.only_of(worker, wall_clock())
    }

    pub async fn find(&self, id: Option<Uuid>) -> Result<MessageRow, NotTold> {
        let found = match id {
            Some(id) => self.store.message(id).await?,
            None => None,
        };
        found.ok_or_else(|| Code::WorkerMessageNotFound.into())
    }

    /// Lists messages: all for moderators; for others their own, and those to their workers.
    pub async fn list(
        &self,
        caller: &Caller,
        wanted: Wanted<'_>,
    ) -> Result<Vec<MessageRow>, NotTold> {
        let moderates = caller.roles.moderates();
        let of_another = wanted.author.is_some_and(|author| author != caller.account);
        Code::Forbidden.when(of_another && !moderates)?;
        let worker = match wanted.worker {
            Some(id) => Some(self.rig(id).await?),
            None => None,
        };
        let is_anothers = |rig: &Rig| rig.row.owner.account != caller.account;
        Code::Forbidden.when(worker.as_ref().is_some_and(is_anothers) && !moderates)?;
        let search = MessageSearch {
            author: wanted.author,
            worker: worker.map(|rig| rig.row.id),
            reader: (!moderates).then_some(caller.account),
            validity: wanted.validity,
            page: wanted.page,
            now: wall_clock(),
        };
        Ok(self.store.messages(search).await?)
    }

    pub async fn create(
        &self,
        author: &Caller,
        asked: WorkerMessageInput,
    ) -> Result<MessageRow, NotTold> {
        Code::AnonForbidden.when(author.account == ANONYMOUS)?;
        let moderates = author.roles.moderates();
        let rig = match &asked.worker_id {
            Some(id) => Some(self.rig(id).await?),
            None => None,
        };
        let is_own = |rig: &Rig| rig.row.owner.account == author.account;
        Code::MessagesOnlyOwnWorkers.when(!moderates && !rig.as_ref().is_some_and(is_own))?;
        let now = wall_clock();
        let new = NewMessage {
            id: Uuid::new_v4(),
            worker: rig.map(|rig| rig.row.id),
            author: author.account,
            message: asked.message,
            // Only moderators can set the origin.
            origin: match moderates {
                true => asked.origin.unwrap_or_else(|| self.moderators.to_string()),
                false => author.account.0.to_string(),
            },
            created_at: now,
            expires_at: now.after(HOUR * asked.expiry),
            most: MOST,
        };
        let id = new.id;
        if !self.store.create_message(new).await? {
            let message =
                format!("the limit of {MOST} messages per recipient is reached: delete one first");
            return Err(Refusal::new(Code::Forbidden, message).into());
        }
        self.board.catch_up(&self.store).await?;
        self.find(Some(id)).await
    }

    /// Deletes a message, for its author or a moderator.
    pub async fn delete(&self, caller: &Caller, id: Option<Uuid>) -> Result<(), NotTold> {
        let row = self.find(id).await?;
        if !caller.may_manage(row.author, &self.store).await? {
            let message = "this message belongs to another account";
            return Err(Refusal::new(Code::Forbidden, message).into());
        }
        let gone = self.store.remove_message(row.id).await?;
        self.board.catch_up(&self.store).await?;
        Ok(Code::WorkerMessageNotFound.when(!gone)?)
    }

    /// A malformed id counts as an unknown worker.
    async fn rig(&self, id: &str) -> Result<Rig, NotTold> {
        let found = match Uuid::parse_str(id) {
            Ok(id) => self.rigs.find(id).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| Code::WorkerNotFound.into())
    }
}
