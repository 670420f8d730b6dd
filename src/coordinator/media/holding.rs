//! Objects needed for a while: deleted when their `Holding` is dropped.

use parking_lot::Mutex;

use futures_util::{StreamExt, stream};
use tokio::sync::Notify;
use tracing::warn;

use super::{Key, Media, QuotaShare};

/// Deletes these objects soon after the drop.
#[derive(Debug)]
pub struct Holding {
    media: Media,
    keys: Vec<Key>,
    shares: Vec<QuotaShare>,
}

/// Objects to delete. Bounded, since each was stored before.
#[derive(Debug, Default)]
pub struct Unwanted {
    keys: Mutex<Vec<Key>>,
    some: Notify,
}

/// Limit of concurrent deletions.
const AT_ONCE: usize = 8;

impl Holding {
    /// Adds an object, which need not be stored yet.
    pub fn add(&mut self, key: Key) {
        self.keys.push(key);
    }

    /// Keeps the share for as long as this exists.
    pub fn count(&mut self, share: QuotaShare) {
        self.shares.push(share);
    }

    /// Keeps the objects, since another process needs them.
    pub fn leave(mut self) {
        self.keys.clear();
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        self.media.inner.unwanted.add(keys);
    }
}

impl Unwanted {
    fn add(&self, keys: Vec<Key>) {
        if !keys.is_empty() {
            self.lock().extend(keys);
            self.some.notify_one();
        }
    }

    fn take(&self) -> Vec<Key> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<Key>> {
        self.keys.lock()
    }
}

impl Media {
    pub fn hold(&self, keys: Vec<Key>) -> Holding {
        let media = self.clone();
        Holding {
            media,
            keys,
            shares: Vec::new(),
        }
    }

    /// Retries deletions until they succeed; otherwise the objects expire.
    pub(super) async fn delete_on(self) {
        loop {
            self.inner.unwanted.some.notified().await;
            let keys = stream::iter(self.inner.unwanted.take());
            let delete = async |key| {
                if let Err(error) = self.delete(key).await {
                    warn!(
                        "deleting an unused media object failed, leaving it to the media cleanup: {error}"
                    );
                }
            };
            keys.for_each_concurrent(AT_ONCE, delete).await;
        }
    }
}
