//! Reports and totals of workers, saved in batches. Totals are added, so that concurrent writes lose nothing.

use std::collections::BTreeMap;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::storage::rows::Stored;
use crate::storage::script::{Column, Script, Table, Verb};
use crate::storage::values::Values;
use crate::storage::write::Write;
use crate::storage::{StorageError, Store};
use muster_protocol::job::{Kudos, UnixMillis, WorkerId};

use super::Said;

/// Totals of a worker: lifetime, or since the last save.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Seconds online, without maintenance and pauses.
    pub uptime: i64,
    pub fulfilled: i64,
    /// Jobs leased to the worker and not submitted.
    pub uncompleted: i64,
    /// Kudos for jobs.
    pub earned: Kudos,
    /// Kudos for uptime.
    pub rewarded: Kudos,
    /// Pixelsteps, tokens or forms.
    pub work: i64,
}

/// Unsaved changes of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RigNews {
    pub worker: WorkerId,
    pub seen_at: UnixMillis,
    /// `None` if unchanged.
    pub said: Option<(String, Said)>,
    pub done: Tally,
    pub speed: i64,
    /// Share for its team, if it has one.
    pub team: Option<(i64, TeamShare)>,
}

/// Work done for a team.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TeamShare {
    pub fulfilled: i64,
    pub earned: Kudos,
    /// In seconds.
    pub uptime: i64,
}

impl Store {
    /// Adds workers' totals and stores their reports.
    pub async fn save_rigs(&self, news: Vec<RigNews>) -> Result<(), StorageError> {
        self.write(|answer| Write::save(news, answer)).await
    }
}

/// Totals: one row per worker.
static DONE: Table = Table {
    verb: Verb::Update(
        "rigs SET seen_at = CASE WHEN rigs.seen_at < news.seen_at THEN news.seen_at ELSE rigs.seen_at END, \
         speed = news.speed, uptime = rigs.uptime + news.uptime, \
         fulfilled = rigs.fulfilled + news.fulfilled, uncompleted = rigs.uncompleted + news.uncompleted, \
         earned = rigs.earned + news.earned, rewarded = rigs.rewarded + news.rewarded, \
         work = rigs.work + news.work",
    ),
    columns: &[
        Column::Number("worker"),
        Column::Number("seen_at"),
        Column::Number("speed"),
        Column::Number("uptime"),
        Column::Number("fulfilled"),
        Column::Number("uncompleted"),
        Column::Number("earned"),
        Column::Number("rewarded"),
        Column::Number("work"),
    ],
    tail: "WHERE rigs.worker = news.worker",
};

/// Reports: one row per worker.
static SAID: Table = Table {
    verb: Verb::Update(
        "rigs SET trade = news.trade, agent = news.agent, address = news.address, threads = news.threads, \
         nsfw = news.nsfw, models = news.models, takes = news.takes, max_pixels = news.max_pixels, \
         max_length = news.max_length, max_context = news.max_context",
    ),
    columns: &[
        Column::Number("worker"),
        Column::Text("trade"),
        Column::Text("agent"),
        Column::Text("address"),
        Column::Number("threads"),
        Column::Number("nsfw"),
        Column::Text("models"),
        Column::Text("takes"),
        Column::Number("max_pixels"),
        Column::Number("max_length"),
        Column::Number("max_context"),
    ],
    tail: "WHERE rigs.worker = news.worker",
};

/// Shares of teams: one row per team.
static SHARES: Table = Table {
    verb: Verb::Update(
        "teams SET fulfilled = teams.fulfilled + news.fulfilled, earned = teams.earned + news.earned, \
         uptime = teams.uptime + news.uptime",
    ),
    columns: &[
        Column::Number("id"),
        Column::Number("fulfilled"),
        Column::Number("earned"),
        Column::Number("uptime"),
    ],
    tail: "WHERE teams.id = news.id",
};

/// Saves changes in order; a worker may have several.
pub async fn save(news: &[&RigNews], connection: &mut AnyConnection) -> Result<(), StorageError> {
    let (mut done, mut said) = (BTreeMap::new(), BTreeMap::new());
    let mut shares = BTreeMap::new();
    for news in news {
        let sum: &mut Done = done.entry(news.worker).or_default();
        sum.add(news);
        said.extend(news.said.iter().map(|said| (news.worker, said)));
        if let Some((team, share)) = news.team {
            let sum: &mut TeamShare = shares.entry(team).or_default();
            sum.add(&share);
        }
    }
    // PostgreSQL updates a row only once per statement, and a worker's totals and report share a row.
    let mut script = Script::default();
    script.add(&SAID, &rows(said), keep);
    script.run(connection).await?;
    let mut script = Script::default();
    script.add(&SHARES, &rows(shares), share);
    script.add(&DONE, &rows(done), add);
    script.run(connection).await
}

/// In the order of keys: every transaction locks rows in the same order, which prevents deadlocks.
fn rows<K, V>(rows: BTreeMap<K, V>) -> Vec<(K, V)> {
    rows.into_iter().collect()
}

/// Unsaved totals of a worker.
#[derive(Default)]
struct Done {
    seen_at: i64,
    speed: i64,
    tally: Tally,
}

impl Done {
    fn add(&mut self, news: &RigNews) {
        self.seen_at = self.seen_at.max(news.seen_at.0);
        self.speed = news.speed;
        self.tally.add(&news.done);
    }
}

fn add((worker, done): &(WorkerId, Done), values: &mut Values) {
    let tally = &done.tally;
    values.number(worker.0);
    values.number(done.seen_at);
    values.number(done.speed);
    values.number(tally.uptime);
    values.number(tally.fulfilled);
    values.number(tally.uncompleted);
    values.number(tally.earned.0);
    values.number(tally.rewarded.0);
    values.number(tally.work);
}

fn keep((worker, (trade, said)): &(WorkerId, &(String, Said)), values: &mut Values) {
    values.number(worker.0);
    values.whole_text(trade);
    values.whole_text(&said.agent);
    values.text(&said.address);
    values.number(i64::from(said.threads));
    values.number(i64::from(said.nsfw));
    values.whole_text(&serde_json::Value::from(said.models.clone()).to_string());
    values.whole_text(&said.takes.join(" "));
    values.number(said.max_pixels);
    values.number(said.max_length);
    values.number(said.max_context);
}

fn share((team, share): &(i64, TeamShare), values: &mut Values) {
    values.number(*team);
    values.number(share.fulfilled);
    values.number(share.earned.0);
    values.number(share.uptime);
}

impl TeamShare {
    pub fn add(&mut self, other: &Self) {
        self.fulfilled += other.fulfilled;
        self.earned.0 += other.earned.0;
        self.uptime += other.uptime;
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
