//! Blocked networks, and the refused prompts that led to the blocks. Every change of blocks increments the counter
//! `timeouts`. Networks are stored in canonical notation.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use muster_protocol::job::UnixMillis;

use super::revisions::{self, Topic};
use super::rows::{Stored, all};
use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutRow {
    pub network: String,
    pub until: UnixMillis,
}

/// Blocks a network, replacing an earlier timeout.
#[derive(Debug)]
struct Timeout {
    row: TimeoutRow,
    now: UnixMillis,
}

#[derive(Debug)]
struct Release {
    network: String,
}

/// A refused prompt from this network.
#[derive(Debug, Clone)]
pub struct Hit {
    pub network: String,
    pub now: UnixMillis,
    /// Earlier hits count from this time on.
    pub since: UnixMillis,
    /// Duration of the block in milliseconds, by the number of earlier hits.
    pub penalty: fn(u32) -> i64,
}

/// Deletes expired blocks, and refused prompts from before a time.
#[derive(Debug)]
struct AddressExpiry {
    now: UnixMillis,
    hits_before: UnixMillis,
}

impl Store {
    /// Deletes the addresses of expired blocks, and of prompts refused before a time.
    pub async fn expire_addresses(
        &self,
        now: UnixMillis,
        hits_before: UnixMillis,
    ) -> Result<(), StorageError> {
        self.change(AddressExpiry { now, hits_before }).await
    }

    /// Timeouts in force at this moment.
    pub async fn timeouts(&self, now: UnixMillis) -> Result<Vec<TimeoutRow>, StorageError> {
        let rows =
            sqlx::query("SELECT network, until FROM timeouts WHERE until > $1 ORDER BY network");
        all(rows.bind(now.0), &self.readers).await
    }

    pub async fn keep_out(&self, row: TimeoutRow, now: UnixMillis) -> Result<(), StorageError> {
        self.change(Timeout { row, now }).await
    }

    /// Whether it was blocked.
    pub async fn let_in(&self, network: String) -> Result<bool, StorageError> {
        self.change(Release { network }).await
    }

    /// Returns the end of the network's block.
    pub async fn note_hit(&self, hit: Hit) -> Result<UnixMillis, StorageError> {
        self.change(hit).await
    }
}

impl Change for Timeout {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            forget(self.now, connection).await?;
            keep_out(&self.row, connection).await
        })
    }
}

impl Change for Release {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            revisions::next(Topic::Timeouts, connection).await?;
            let gone = sqlx::query("DELETE FROM timeouts WHERE network = $1").bind(&*self.network);
            Ok(gone.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Change for Hit {
    type Answer = UnixMillis;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<UnixMillis, StorageError>> {
        Box::pin(async move {
            forget(self.now, connection).await?;
            forget_hits(self.since, connection).await?;
            let earlier = sqlx::query("SELECT COUNT(*) FROM prompt_hits WHERE network = $1");
            let earlier = earlier.bind(&*self.network);
            let earlier: i64 = earlier.fetch_one(&mut *connection).await?.try_get(0)?;
            let hit = sqlx::query("INSERT INTO prompt_hits (network, at) VALUES ($1, $2)");
            let hit = hit.bind(&*self.network).bind(self.now.0);
            hit.execute(&mut *connection).await?;
            let penalty = (self.penalty)(u32::try_from(earlier).unwrap_or(u32::MAX));
            let until = UnixMillis(self.now.0.saturating_add(penalty));
            let known = sqlx::query("SELECT until FROM timeouts WHERE network = $1");
            let known = known.bind(&*self.network);
            let known = known.fetch_optional(&mut *connection).await?;
            let known = known.map(|row| row.try_get(0)).transpose()?.map(UnixMillis);
            // A timeout by a moderator is not shortened.
            let row = TimeoutRow {
                network: self.network.clone(),
                until: known.map_or(until, |known| known.max(until)),
            };
            keep_out(&row, connection).await?;
            Ok(row.until)
        })
    }
}

async fn keep_out(row: &TimeoutRow, connection: &mut AnyConnection) -> Result<(), StorageError> {
    revisions::next(Topic::Timeouts, connection).await?;
    let kept = sqlx::query(
        "INSERT INTO timeouts (network, until) VALUES ($1, $2) \
         ON CONFLICT (network) DO UPDATE SET until = excluded.until",
    );
    let kept = kept.bind(&*row.network).bind(row.until.0);
    kept.execute(connection).await?;
    Ok(())
}

/// Deletes expired timeouts.
async fn forget(now: UnixMillis, connection: &mut AnyConnection) -> Result<(), StorageError> {
    let over = sqlx::query("DELETE FROM timeouts WHERE until <= $1").bind(now.0);
    over.execute(connection).await?;
    Ok(())
}

async fn forget_hits(
    before: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let old = sqlx::query("DELETE FROM prompt_hits WHERE at < $1").bind(before.0);
    old.execute(connection).await?;
    Ok(())
}

impl Change for AddressExpiry {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            forget(self.now, connection).await?;
            forget_hits(self.hits_before, connection).await
        })
    }
}

impl Stored for TimeoutRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            network: row.try_get("network")?,
            until: UnixMillis(row.try_get("until")?),
        })
    }
}
