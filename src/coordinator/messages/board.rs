//! Valid messages to workers, as stored: loaded again after every change, in any process.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tracing::warn;

use crate::clock::wall_clock;
use crate::storage::{MessageRow, StorageError, Store, Topic};
use muster_process::tasks::Tasks;
use muster_protocol::job::{UnixMillis, WorkerId};

const TRY_AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub struct Board {
    told: RwLock<Told>,
    /// Serialises readings, so that an older one never replaces a newer one.
    reading: Mutex<()>,
}

#[derive(Debug, Default)]
struct Told {
    to_all: Vec<Arc<MessageRow>>,
    to_one: HashMap<WorkerId, Vec<Arc<MessageRow>>>,
}

impl Board {
    pub async fn open(store: &Store, tasks: &Tasks) -> Result<Arc<Self>, StorageError> {
        let revision = store.revision(Topic::Messages);
        let board = Arc::new(Self::default());
        board.catch_up(store).await?;
        let (followed, stopping) = (Arc::downgrade(&board), tasks.stopping());
        let following = follow(followed, store.clone(), revision);
        tasks.start(async move {
            stopping.run_until_cancelled(following).await;
        });
        Ok(board)
    }

    /// Reads all stored messages.
    pub async fn catch_up(&self, store: &Store) -> Result<(), StorageError> {
        let _reading = self.reading.lock().await;
        let told = Told::of(store.messages_at(wall_clock()).await?);
        *self.told.write() = told;
        Ok(())
    }

    /// Valid messages for a worker: those to all first, then its own.
    pub fn of(&self, worker: WorkerId, now: UnixMillis) -> Vec<Arc<MessageRow>> {
        let told = self.told.read();
        let own = told.to_one.get(&worker).into_iter().flatten();
        valid(told.to_all.iter().chain(own), now)
    }

    pub fn only_of(&self, worker: WorkerId, now: UnixMillis) -> Vec<Arc<MessageRow>> {
        let told = self.told.read();
        valid(told.to_one.get(&worker).into_iter().flatten(), now)
    }
}

impl Told {
    fn of(rows: Vec<MessageRow>) -> Self {
        let mut told = Self::default();
        for row in rows {
            match row.worker {
                None => told.to_all.push(row.into()),
                Some(worker) => told.to_one.entry(worker).or_default().push(row.into()),
            }
        }
        told
    }
}

fn valid<'a>(
    rows: impl Iterator<Item = &'a Arc<MessageRow>>,
    now: UnixMillis,
) -> Vec<Arc<MessageRow>> {
    rows.filter(|row| row.expires_at > now).cloned().collect()
}

/// Follows the store until the board is dropped.
async fn follow(board: Weak<Board>, store: Store, mut revision: watch::Receiver<i64>) {
    while revision.changed().await.is_ok() {
        let Some(board) = board.upgrade() else {
            return;
        };
        while let Err(error) = board.catch_up(&store).await {
            warn!("reading messages to workers failed, retrying: {error}");
            sleep(TRY_AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Board, Told};
    use crate::storage::MessageRow;
    use muster_protocol::job::{AccountId, UnixMillis, WorkerId};

    fn row(worker: Option<i64>, message: &str, expires_at: i64) -> MessageRow {
        MessageRow {
            id: Uuid::new_v4(),
            worker: worker.map(WorkerId),
            worker_id: None,
            author: AccountId(1),
            message: message.to_owned(),
            origin: "1".to_owned(),
            created_at: UnixMillis(0),
            expires_at: UnixMillis(expires_at),
        }
    }

    #[test]
    fn a_worker_hears_what_is_for_all_and_what_is_for_it_until_its_time_is_over() {
        let board = Board {
            told: Told::of(vec![
                row(Some(1), "one", 10),
                row(None, "all", 20),
                row(Some(2), "two", 10),
            ])
            .into(),
            ..Board::default()
        };
        let heard = |worker: i64, at: i64| {
            let rows = board.of(WorkerId(worker), UnixMillis(at));
            let texts = rows.iter().map(|row| row.message.clone());
            texts.collect::<Vec<_>>()
        };
        assert_eq!(heard(1, 9), ["all", "one"]);
        assert_eq!(heard(1, 10), ["all"]);
        assert_eq!(heard(3, 0), ["all"]);
        assert!(heard(2, 20).is_empty());
        assert_eq!(board.only_of(WorkerId(2), UnixMillis(0)).len(), 1);
    }
}
