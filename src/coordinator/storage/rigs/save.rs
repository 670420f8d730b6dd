//! What workers say and do, saved for many of them under one commit. What they have done is added, so that nobody's
//! share is lost when two write at once.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::coordinator::storage::rows::Stored;
use crate::coordinator::storage::values::{storable, without_zeros};
use crate::coordinator::storage::write::Change;
use crate::coordinator::storage::{StorageError, Store};
use crate::protocol::job::{Kudos, UnixMillis, WorkerId};

use super::Said;

/// What a worker has done: all of it, or since it was last saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Seconds online, not in maintenance and not paused.
    pub uptime: i64,
    pub fulfilled: i64,
    /// Jobs it took and did not bring.
    pub uncompleted: i64,
    /// For jobs.
    pub earned: Kudos,
    /// For being there.
    pub rewarded: Kudos,
    /// Pixelsteps, tokens or forms.
    pub work: i64,
}

/// What is new of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RigNews {
    pub worker: WorkerId,
    pub seen_at: UnixMillis,
    /// None if it said nothing new.
    pub said: Option<(String, Said)>,
    pub done: Tally,
    pub speed: i64,
    /// What it did for its team, if it has one.
    pub team: Option<(i64, TeamShare)>,
}

/// What workers have done for a team.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TeamShare {
    pub fulfilled: i64,
    pub earned: Kudos,
    /// Seconds.
    pub uptime: i64,
}

#[derive(Debug)]
struct Save(Vec<RigNews>);

impl Store {
    /// Adds what workers have done and keeps what they said.
    pub async fn save_rigs(&self, news: Vec<RigNews>) -> Result<(), StorageError> {
        self.change(Save(news)).await
    }
}

impl Change for Save {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            for news in &self.0 {
                add(news, connection).await?;
                if let Some((trade, said)) = &news.said {
                    keep(news.worker, trade, said, connection).await?;
                }
                if let Some((team, share)) = &news.team {
                    share.add_to(*team, connection).await?;
                }
            }
            Ok(())
        })
    }
}

async fn add(news: &RigNews, connection: &mut AnyConnection) -> Result<(), StorageError> {
    let done = &news.done;
    let row = sqlx::query(
        "UPDATE rigs SET seen_at = CASE WHEN seen_at < $1 THEN $1 ELSE seen_at END, speed = $2, \
         uptime = uptime + $3, fulfilled = fulfilled + $4, uncompleted = uncompleted + $5, \
         earned = earned + $6, rewarded = rewarded + $7, work = work + $8 WHERE worker = $9",
    );
    let row = row.bind(news.seen_at.0).bind(news.speed);
    let row = row.bind(done.uptime).bind(done.fulfilled);
    let row = row.bind(done.uncompleted).bind(done.earned.0);
    let row = row.bind(done.rewarded.0).bind(done.work);
    row.bind(news.worker.0).execute(connection).await?;
    Ok(())
}

async fn keep(
    worker: WorkerId,
    trade: &str,
    said: &Said,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let row = sqlx::query(
        "UPDATE rigs SET trade = $1, agent = $2, address = $3, threads = $4, nsfw = $5, models = $6, \
         takes = $7, max_pixels = $8, max_length = $9, max_context = $10 WHERE worker = $11",
    );
    let models = serde_json::Value::from(said.models.clone()).to_string();
    let row = row.bind(trade.to_owned()).bind(without_zeros(&said.agent));
    let row = row.bind(storable(&said.address));
    let row = row.bind(i64::from(said.threads)).bind(i64::from(said.nsfw));
    let row = row.bind(models).bind(said.takes.join(" "));
    let row = row.bind(said.max_pixels).bind(said.max_length);
    let row = row.bind(said.max_context).bind(worker.0);
    row.execute(connection).await?;
    Ok(())
}

impl TeamShare {
    pub fn add(&mut self, other: &Self) {
        self.fulfilled += other.fulfilled;
        self.earned.0 += other.earned.0;
        self.uptime += other.uptime;
    }

    async fn add_to(&self, team: i64, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let row = sqlx::query(
            "UPDATE teams SET fulfilled = fulfilled + $1, earned = earned + $2, uptime = uptime + $3 \
             WHERE id = $4",
        );
        let row = row.bind(self.fulfilled).bind(self.earned.0);
        let row = row.bind(self.uptime).bind(team);
        row.execute(connection).await?;
        Ok(())
    }
}

impl Stored for TeamShare {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            fulfilled: row.try_get("fulfilled")?,
            earned: Kudos(row.try_get("earned")?),
            uptime: row.try_get("uptime")?,
        })
    }
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.uptime += other.uptime;
        self.fulfilled += other.fulfilled;
        self.uncompleted += other.uncompleted;
        self.earned.0 += other.earned.0;
        self.rewarded.0 += other.rewarded.0;
        self.work = self.work.saturating_add(other.work);
    }
}
