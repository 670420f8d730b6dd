//! Statistics by kind and model. Settlements add lines ([`super::settlements`]); here they are folded into spans of
//! time, and spans into longer ones as they grow old. Reads cover both tables, so totals are complete and the records
//! of jobs can be deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::kudos::{Settlement, State};
use muster_protocol::job::{Blame, FailureKind, Kind, UnixMillis};

use super::rows::{Stored, all};
use super::script::{Column, Script, Table, Verb, insert};
use super::values::{Values, storable};
use super::write::Change;
use super::{StorageError, Store};

/// Totals of one kind and model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    pub outputs: u64,
    /// Requested tokens or pixelsteps.
    pub size: u64,
    /// Generated tokens or pixelsteps.
    pub done: u64,
    /// Running time on workers.
    pub busy_millis: u64,
    /// Kudos paid to workers, in thousandths.
    pub reward: u64,
    /// Delivered jobs.
    pub delivered: u64,
    /// Jobs failed by workers.
    pub failed: u64,
    /// Delivered jobs with a first output, and their total time until it.
    pub firsts: u64,
    pub first_millis: u64,
    /// Total time of delivered jobs from acceptance to end.
    pub total_millis: u64,
}

/// The same with kind and model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeBy {
    pub kind: Kind,
    pub model: String,
    pub made: Made,
}

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// Target of the longest span: totals.
const EVER: i64 = 0;

/// Spans: length, retention, and the length they are folded into.
const SPANS: [(i64, i64, i64); 4] = [
    (SECOND, 2 * MINUTE, MINUTE),
    (MINUTE, 2 * HOUR, 10 * MINUTE),
    (10 * MINUTE, 25 * HOUR, HOUR),
    (HOUR, 31 * 24 * HOUR, EVER),
];
/// The columns of [`Made`].
const COUNTS: [&str; 10] = [
    "outputs",
    "size",
    "done",
    "busy_ms",
    "reward",
    "delivered",
    "failed",
    "firsts",
    "first_ms",
    "total_ms",
];
/// Lines folded per step: a few hundredths of a second of the writer.
const STEP: i64 = 2000;

static MADE: Table = Table {
    verb: Verb::Insert("made"),
    columns: &[
        Column::Text("kind"),
        Column::Text("model"),
        Column::Number("at"),
        Column::Number("outputs"),
        Column::Number("size"),
        Column::Number("done"),
        Column::Number("busy_ms"),
        Column::Number("reward"),
        Column::Number("delivered"),
        Column::Number("failed"),
        Column::Number("firsts"),
        Column::Number("first_ms"),
        Column::Number("total_ms"),
    ],
    tail: "",
};
static ROLLUPS: Table = Table {
    verb: Verb::Insert("rollups"),
    columns: &[
        Column::Text("kind"),
        Column::Text("model"),
        Column::Number("span"),
        Column::Number("at"),
        Column::Number("outputs"),
        Column::Number("size"),
        Column::Number("done"),
        Column::Number("busy_ms"),
        Column::Number("reward"),
        Column::Number("delivered"),
        Column::Number("failed"),
        Column::Number("firsts"),
        Column::Number("first_ms"),
        Column::Number("total_ms"),
    ],
    tail: "ON CONFLICT (kind, model, span, at) DO UPDATE SET outputs = rollups.outputs + excluded.outputs, \
           size = rollups.size + excluded.size, done = rollups.done + excluded.done, \
           busy_ms = rollups.busy_ms + excluded.busy_ms, reward = rollups.reward + excluded.reward, \
           delivered = rollups.delivered + excluded.delivered, failed = rollups.failed + excluded.failed, \
           firsts = rollups.firsts + excluded.firsts, first_ms = rollups.first_ms + excluded.first_ms, \
           total_ms = rollups.total_ms + excluded.total_ms",
};
/// The counted columns, between `$head` and `$tail`.
macro_rules! counts {
    ($head:literal, $tail:literal) => {
        concat!(
            $head,
            " outputs, size, done, busy_ms, reward, delivered, failed, firsts, first_ms, total_ms ",
            $tail
        )
    };
}

const SINCE: &str = concat!(
    "SELECT kind, model, CAST(SUM(outputs) AS BIGINT) AS outputs, CAST(SUM(size) AS BIGINT) AS size, \
     CAST(SUM(done) AS BIGINT) AS done, CAST(SUM(busy_ms) AS BIGINT) AS busy_ms, \
     CAST(SUM(reward) AS BIGINT) AS reward, CAST(SUM(delivered) AS BIGINT) AS delivered, \
     CAST(SUM(failed) AS BIGINT) AS failed, CAST(SUM(firsts) AS BIGINT) AS firsts, \
     CAST(SUM(first_ms) AS BIGINT) AS first_ms, CAST(SUM(total_ms) AS BIGINT) AS total_ms FROM (",
    counts!(
        "SELECT kind, model,",
        "FROM rollups WHERE at >= $1 UNION ALL "
    ),
    counts!("SELECT kind, model,", "FROM made WHERE at >= $2"),
    ") AS both_tables GROUP BY kind, model"
);
const LINES: &str = counts!(
    "DELETE FROM made WHERE id IN (SELECT id FROM made ORDER BY id LIMIT $1) RETURNING kind, model, at,",
    ""
);
const OLD: &str = counts!(
    "DELETE FROM rollups WHERE span = $1 AND at < $2 RETURNING kind, model, at,",
    ""
);

impl Store {
    /// Totals since this moment, to the precision of the shortest span kept of that time.
    pub async fn made_since(&self, since: UnixMillis) -> Result<Vec<MadeBy>, StorageError> {
        let rows = sqlx::query(SINCE).bind(since.0).bind(since.0);
        let lines: Vec<Line> = all(rows, &self.readers).await?;
        // Kinds of newer versions are skipped.
        let known = lines.into_iter().filter_map(|line| {
            Some(MadeBy {
                kind: Kind::listed(&line.kind)?,
                model: line.model,
                made: line.made,
            })
        });
        Ok(known.collect())
    }

    /// Folds some new lines and old spans. True if there may be more.
    pub async fn fold_stats(&self, now: UnixMillis) -> Result<bool, StorageError> {
        self.change(Folding(now)).await
    }
}

/// A line of one of the tables; `at` is 0 for sums.
#[derive(Debug)]
struct Line {
    kind: String,
    model: String,
    at: i64,
    made: Made,
}

type Key = (String, String, i64, i64);

/// Counts one batch of settlements.
pub fn note(settlements: &[&Settlement], script: &mut Script) {
    let mut sums = BTreeMap::new();
    for settlement in settlements {
        let Some(made) = made_of(settlement) else {
            continue;
        };
        let timing = settlement.timing;
        let at = floor(timing.accepted_at.after(timing.total).0, SECOND);
        let key = (settlement.kind.word(), &*settlement.model, at);
        let sum: &mut Made = sums.entry(key).or_default();
        sum.add(made);
    }
    let lines: Vec<_> = sums.into_iter().collect();
    script.add(&MADE, &lines, made_row);
}

/// `None` if no worker had the job. A failed text is no output; an image counts as one even if its worker failed or was
/// told to stop.
fn made_of(settlement: &Settlement) -> Option<Made> {
    let was_out = settlement.worker.is_some() || settlement.attempts > 0;
    if !was_out {
        return None;
    }
    let ending = endings(settlement);
    if settlement.kind == Kind::Text && settlement.paid_tokens == 0 {
        return (ending != Made::default()).then_some(ending);
    }
    let timing = settlement.timing;
    let busy = timing
        .total
        .saturating_sub(timing.queued.unwrap_or_default());
    let earned: i64 = settlement.earned().values().map(|kudos| kudos.0).sum();
    Some(Made {
        outputs: 1,
        size: settlement.size,
        done: match settlement.kind {
            Kind::Text => settlement.paid_tokens.into(),
            _ if settlement.reward.0 == 0 => 0,
            _ => settlement.size,
        },
        busy_millis: millis(busy),
        reward: u64::try_from(earned).unwrap_or(0),
        ..ending
    })
}

/// Counts the outcome, and the time if the job was delivered.
fn endings(settlement: &Settlement) -> Made {
    let timing = settlement.timing;
    match settlement.state {
        State::Delivered => Made {
            delivered: 1,
            firsts: timing.first_output.is_some().into(),
            first_millis: timing.first_output.map_or(0, millis),
            total_millis: millis(timing.total),
            ..Made::default()
        },
        State::Failed => Made {
            failed: is_by_worker(settlement.reason).into(),
            ..Made::default()
        },
        State::Cancelled | State::Expired => Made::default(),
    }
}

/// Whether failures with this code are the worker's fault.
fn is_by_worker(code: &str) -> bool {
    let mut kinds = FailureKind::ALL.iter().map(|kind| kind.row());
    kinds.any(|row| row.code == code && row.blame == Blame::Worker)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn floor(at: i64, span: i64) -> i64 {
    match span {
        EVER => 0,
        span => at - at.rem_euclid(span),
    }
}

impl Made {
    pub fn add(&mut self, more: Self) {
        for (sum, more) in self.counts_mut().into_iter().zip(more.counts()) {
            *sum = sum.saturating_add(more);
        }
    }

    fn bind(self, values: &mut Values) {
        for number in self.counts() {
            values.number(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }

    /// In the order of the columns.
    fn counts(mut self) -> [u64; COUNTS.len()] {
        self.counts_mut().map(|count| *count)
    }

    fn counts_mut(&mut self) -> [&mut u64; COUNTS.len()] {
        [
            &mut self.outputs,
            &mut self.size,
            &mut self.done,
            &mut self.busy_millis,
            &mut self.reward,
            &mut self.delivered,
            &mut self.failed,
            &mut self.firsts,
            &mut self.first_millis,
            &mut self.total_millis,
        ]
    }
}

fn made_row(((kind, model, at), made): &((&str, &str, i64), Made), values: &mut Values) {
    values.text(kind);
    values.text(model);
    values.number(*at);
    made.bind(values);
}

fn rollup_row(((kind, model, span, at), made): &(Key, Made), values: &mut Values) {
    values.text(kind);
    values.text(model);
    values.number(*span);
    values.number(*at);
    made.bind(values);
}

#[derive(Debug)]
struct Folding(UnixMillis);

impl Change for Folding {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let mut sums: BTreeMap<Key, Made> = BTreeMap::new();
            let lines: Vec<Line> = all(sqlx::query(LINES).bind(STEP), &mut *connection).await?;
            let more = lines.len() as i64 >= STEP;
            lines
                .into_iter()
                .for_each(|line| line.fold(SECOND, &mut sums));
            for (span, kept, into) in SPANS {
                let before = floor(self.0.0.saturating_sub(kept), into.max(span));
                let old = sqlx::query(OLD).bind(span).bind(before);
                let old: Vec<Line> = all(old, &mut *connection).await?;
                old.into_iter().for_each(|line| line.fold(into, &mut sums));
            }
            let sums: Vec<_> = sums.into_iter().collect();
            insert(&ROLLUPS, &sums, rollup_row, connection).await?;
            Ok(more)
        })
    }
}

impl Line {
    fn fold(self, span: i64, sums: &mut BTreeMap<Key, Made>) {
        let key = (self.kind, storable(&self.model), span, floor(self.at, span));
        sums.entry(key).or_default().add(self.made);
    }
}

impl Stored for Line {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let mut made = Made::default();
        for (count, name) in made.counts_mut().into_iter().zip(COUNTS) {
            let number: i64 = row.try_get(name)?;
            *count = u64::try_from(number).unwrap_or(0);
        }
        Ok(Self {
            kind: row.try_get("kind")?,
            model: row.try_get("model")?,
            at: row.try_get("at").unwrap_or(0),
            made,
        })
    }
}
