//! Messages to workers, by their owners and by moderators.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use muster_protocol::job::{AccountId, UnixMillis, WorkerId};
use muster_protocol::legacy::words::Word;
use muster_protocol::legacy::worker::{MESSAGES_PAGE, Validity};

use super::revisions::{Topic, next};
use super::rigs::uuid;
use super::rows::{Stored, all, first};
use super::values::without_zeros;
use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    pub id: Uuid,
    /// `None` is for all workers.
    pub worker: Option<WorkerId>,
    pub worker_id: Option<Uuid>,
    pub author: AccountId,
    pub message: String,
    /// The claimed origin of the message, unverified.
    pub origin: String,
    pub created_at: UnixMillis,
    pub expires_at: UnixMillis,
}

#[derive(Debug, Clone)]
pub struct NewMessage {
    pub id: Uuid,
    pub worker: Option<WorkerId>,
    pub author: AccountId,
    pub message: String,
    pub origin: String,
    pub created_at: UnixMillis,
    pub expires_at: UnixMillis,
    /// Limit of messages for one worker, or for all.
    pub most: i64,
}

/// Filter of a message list.
#[derive(Debug, Clone, Copy)]
pub struct MessageSearch {
    pub author: Option<AccountId>,
    pub worker: Option<WorkerId>,
    /// Only messages that this account may read: its own, those to its workers, and those to all.
    pub reader: Option<AccountId>,
    pub validity: Validity,
    /// Page 0 is the first.
    pub page: u32,
    pub now: UnixMillis,
}

#[derive(Debug)]
struct Removal(Uuid);

/// Selects the columns of a [`MessageRow`], followed by `$rest`.
macro_rules! select_messages {
    ($rest:literal) => {
        concat!(
            "SELECT worker_messages.id, worker, workers.public_id AS worker_id, author, message, origin, \
             worker_messages.created_at, expires_at \
             FROM worker_messages LEFT JOIN workers ON workers.id = worker_messages.worker ",
            $rest
        )
    };
}

impl Store {
    /// False at the limit of messages.
    pub async fn create_message(&self, message: NewMessage) -> Result<bool, StorageError> {
        self.change(message).await
    }

    pub async fn message(&self, id: Uuid) -> Result<Option<MessageRow>, StorageError> {
        let row = sqlx::query(select_messages!("WHERE worker_messages.id = $1"));
        first(row.bind(id.to_string()), &self.readers).await
    }

    /// All valid messages, oldest first.
    pub async fn messages_at(&self, now: UnixMillis) -> Result<Vec<MessageRow>, StorageError> {
        let rows = sqlx::query(select_messages!(
            "WHERE expires_at > $1 ORDER BY worker_messages.created_at, worker_messages.id"
        ));
        all(rows.bind(now.0), &self.readers).await
    }

    /// One page of messages, the newest first.
    pub async fn messages(&self, search: MessageSearch) -> Result<Vec<MessageRow>, StorageError> {
        let rows = sqlx::query(select_messages!(
            "WHERE ($1 = -1 OR author = $1) AND ($2 = 0 OR worker = $2) \
             AND ($3 = -1 OR author = $3 OR worker IS NULL OR workers.owner = $3) \
             AND ($4 = 'all' OR $4 = CASE WHEN expires_at > $5 THEN 'active' ELSE 'expired' END) \
             ORDER BY worker_messages.created_at DESC, worker_messages.id LIMIT $6 OFFSET $7"
        ));
        let nobody = AccountId(-1);
        let page = i64::try_from(MESSAGES_PAGE).unwrap_or(i64::MAX);
        let rows = rows.bind(search.author.unwrap_or(nobody).0);
        let rows = rows.bind(search.worker.map_or(0, |worker| worker.0));
        let rows = rows.bind(search.reader.unwrap_or(nobody).0);
        let rows = rows.bind(search.validity.word()).bind(search.now.0);
        let rows = rows.bind(page).bind(page * i64::from(search.page));
        all(rows, &self.readers).await
    }

    /// Whether it existed.
    pub async fn remove_message(&self, id: Uuid) -> Result<bool, StorageError> {
        self.change(Removal(id)).await
    }
}

impl Change for NewMessage {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let new = sqlx::query(
                "INSERT INTO worker_messages (id, worker, author, message, origin, created_at, expires_at) \
                 SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (SELECT COUNT(*) FROM worker_messages \
                 WHERE COALESCE(worker, 0) = $8 AND expires_at > $6) < $9",
            );
            let worker = self.worker.map(|worker| worker.0);
            let new = new.bind(self.id.to_string()).bind(worker);
            let new = new.bind(self.author.0);
            let new = new.bind(without_zeros(&self.message));
            let new = new.bind(without_zeros(&self.origin));
            let new = new.bind(self.created_at.0).bind(self.expires_at.0);
            let new = new.bind(worker.unwrap_or(0)).bind(self.most);
            let made = new.execute(&mut *connection).await?.rows_affected() > 0;
            if made {
                next(Topic::Messages, connection).await?;
            }
            Ok(made)
        })
    }
}

impl Change for Removal {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let gone = sqlx::query("DELETE FROM worker_messages WHERE id = $1");
            let gone = gone.bind(self.0.to_string());
            let gone = gone.execute(&mut *connection).await?.rows_affected() > 0;
            if gone {
                next(Topic::Messages, connection).await?;
            }
            Ok(gone)
        })
    }
}

impl Stored for MessageRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let worker_id: Option<String> = row.try_get("worker_id")?;
        Ok(Self {
            id: uuid(&row.try_get::<String, _>("id")?)?,
            worker: row.try_get::<Option<i64>, _>("worker")?.map(WorkerId),
            worker_id: worker_id.map(|id| uuid(&id)).transpose()?,
            author: AccountId(row.try_get("author")?),
            message: row.try_get("message")?,
            origin: row.try_get("origin")?,
            created_at: UnixMillis(row.try_get("created_at")?),
            expires_at: UnixMillis(row.try_get("expires_at")?),
        })
    }
}
