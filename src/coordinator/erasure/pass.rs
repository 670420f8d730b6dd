//! Deletes the stored contents of an account, also in commands without a running coordinator.

use super::{ErasureError, OVER};
use crate::clock::wall_clock;
use crate::media::{Media, Owners};
use crate::storage::Store;
use muster_protocol::job::AccountId;

/// The stores with the contents.
#[derive(Debug, Clone, Copy)]
pub struct StoredContents<'a> {
    pub store: &'a Store,
    pub media: &'a Media,
}

/// Numbers of deleted rows and objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeletionCount {
    pub rows: u64,
    pub objects: usize,
}

impl StoredContents<'_> {
    /// Ids in the names of media objects that may still exist.
    pub async fn owners(&self, account: AccountId) -> Result<Owners, ErasureError> {
        let kept = self.media.kept() + OVER;
        let since = wall_clock().before(kept);
        let ids = self.store.object_owners(account, since).await?;
        Ok(ids.into_iter().collect())
    }

    /// Deletes the contents, and removes deleted texts from the database's files if rows were deleted or `compacts` is
    /// set.
    pub async fn delete(
        &self,
        account: AccountId,
        compacts: bool,
    ) -> Result<DeletionCount, ErasureError> {
        let owners = self.owners(account).await?;
        let rows = self.store.delete_contents(account).await?;
        let objects = self.media.delete_all_of(&owners).await?;
        if compacts || rows > 0 {
            self.store.compact().await?;
        }
        Ok(DeletionCount { rows, objects })
    }
}
