//! Change notifications between processes that share a database. Each topic has a counter that rises with every change,
//! in the same transaction; `pulse` reads the counters, and in-memory caches follow them.

use std::sync::Arc;

use sqlx::{AnyConnection, Row};
use tokio::sync::watch;

use super::StorageError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// Keys and their accounts.
    Keys,
    /// Prompt filters.
    Filters,
    /// Blocked networks.
    Timeouts,
    /// Messages to workers.
    Messages,
}

impl Topic {
    const ALL: &[Self] = &[Self::Keys, Self::Filters, Self::Timeouts, Self::Messages];

    /// Name of the counter.
    const fn counter(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Filters => "filters",
            Self::Timeouts => "timeouts",
            Self::Messages => "messages",
        }
    }
}

/// The last known revision of each topic.
#[derive(Debug)]
pub struct Revisions(Vec<(Topic, watch::Sender<i64>)>);

/// The receivers, for waiting on the next change.
#[derive(Debug, Clone)]
pub struct Watched(Arc<[(Topic, watch::Receiver<i64>)]>);

impl Revisions {
    pub fn of(counters: &[(String, i64)]) -> (Self, Watched) {
        let topics = || Topic::ALL.iter().copied();
        let senders: Vec<_> = topics()
            .map(|topic| (topic, watch::Sender::new(0)))
            .collect();
        let watched = senders
            .iter()
            .map(|(topic, sender)| (*topic, sender.subscribe()));
        let watched = Watched(watched.collect());
        let revisions = Self(senders);
        revisions.note(counters);
        (revisions, watched)
    }

    /// Whether no receiver is left.
    pub fn are_forgotten(&self) -> bool {
        self.0.iter().all(|(_, sender)| sender.is_closed())
    }

    pub fn note(&self, counters: &[(String, i64)]) {
        for (topic, sender) in &self.0 {
            let counter = counters.iter().find(|(name, _)| name == topic.counter());
            let Some((_, revision)) = counter else {
                continue;
            };
            sender.send_if_modified(|known| {
                let changed = *known != *revision;
                *known = *revision;
                changed
            });
        }
    }
}

impl Watched {
    /// # Panics
    ///
    /// Never: every topic has a channel.
    pub fn of(&self, topic: Topic) -> watch::Receiver<i64> {
        let found = self.0.iter().find(|(known, _)| *known == topic);
        let (_, receiver) = found.expect("every topic is watched");
        receiver.clone()
    }
}

/// Locks the counter until the commit, so that revisions become visible in order.
pub async fn next(topic: Topic, connection: &mut AnyConnection) -> Result<i64, StorageError> {
    let row = sqlx::query("UPDATE counters SET value = value + 1 WHERE name = $1 RETURNING value");
    let row = row.bind(topic.counter()).fetch_one(connection).await?;
    Ok(row.try_get(0)?)
}
