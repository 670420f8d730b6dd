//! Workers' data besides their names: last report, settings, totals.
//!
//! | file | contents |
//! | --- | --- |
//! | `decide` | changes by owners and moderators, written at once |
//! | `save` | reports and totals of workers, written in batches as sums |

mod decide;
mod save;

pub use decide::{Decision, RigChange, resume_all_of};
pub use save::{RigNews, Tally, TeamShare, save};

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use crate::values::Roles;
use muster_protocol::job::{AccountId, Kudos, UnixMillis, WorkerId};

use super::rows::{Stored, all, first};
use super::values::without_zeros;
use super::{StorageError, Store, WorkerRow};

/// A worker with its owner and its team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RigRow {
    pub id: WorkerId,
    pub public_id: Uuid,
    pub name: String,
    /// The operator trusts the worker itself.
    pub vouched: bool,
    pub owner: Owner,
    /// Empty for a worker that never polled.
    pub trade: String,
    pub said: Said,
    pub seen_at: UnixMillis,
    pub decided: Decided,
    pub done: Tally,
    /// Thousandths of pixelsteps, tokens or forms per second; 0 if unmeasured.
    pub speed: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub account: AccountId,
    pub name: String,
    pub roles: Roles,
    pub contact: Option<String>,
    /// The owner's name is public on their workers.
    pub shows_workers: bool,
}

/// A worker's report of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    pub agent: String,
    pub address: String,
    pub threads: u32,
    pub nsfw: bool,
    pub models: Vec<String>,
    /// Further accepted features, as names.
    pub takes: Vec<String>,
    pub max_pixels: i64,
    pub max_length: i64,
    pub max_context: i64,
}

/// Settings of a worker by owners and moderators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    pub info: String,
    /// The maintenance note, which may be empty; `None` outside maintenance.
    pub maintenance: Option<String>,
    pub paused: bool,
    pub team: Option<Team>,
}

/// Number of workers of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crew {
    pub all: usize,
    /// The part at one address.
    pub here: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    pub id: i64,
    pub public_id: Uuid,
    pub name: String,
}

const RIGS: &str = "SELECT workers.id, workers.public_id, workers.name, workers.owner, workers.trusted, \
     accounts.name AS owner_name, accounts.roles AS owner_roles, people.contact, people.public_workers, rigs.trade, rigs.agent, rigs.address, \
     rigs.threads, rigs.nsfw, rigs.models, rigs.takes, rigs.max_pixels, rigs.max_length, rigs.max_context, \
     rigs.seen_at, rigs.info, rigs.maintenance, rigs.maintenance_note, rigs.paused, rigs.team, rigs.uptime, \
     rigs.fulfilled, rigs.uncompleted, rigs.earned, rigs.rewarded, rigs.work, rigs.speed, \
     teams.public_id AS team_id, teams.name AS team_name \
     FROM workers JOIN rigs ON rigs.worker = workers.id JOIN accounts ON accounts.id = workers.owner \
     LEFT JOIN people ON people.account = workers.owner LEFT JOIN teams ON teams.id = rigs.team ";

fn rigs(rest: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("{RIGS}{rest}"))
}

impl RigRow {
    /// The row that sessions of the worker use.
    pub fn worker(&self) -> WorkerRow {
        WorkerRow {
            id: self.id,
            public_id: self.public_id,
            name: self.name.clone(),
            owner: self.owner.account,
            trusted: self.vouched,
        }
    }
}

impl Store {
    pub async fn rig(&self, public_id: Uuid) -> Result<Option<RigRow>, StorageError> {
        let row = sqlx::query(rigs("WHERE workers.public_id = $1"));
        first(row.bind(public_id.to_string()), &self.readers).await
    }

    pub async fn rig_of_row(&self, id: WorkerId) -> Result<Option<RigRow>, StorageError> {
        let row = sqlx::query(rigs("WHERE workers.id = $1"));
        first(row.bind(id.0), &self.readers).await
    }

    /// Names are case-sensitive.
    pub async fn rig_named(&self, name: &str) -> Result<Option<RigRow>, StorageError> {
        let row = sqlx::query(rigs("WHERE workers.name = $1"));
        first(row.bind(without_zeros(name)), &self.readers).await
    }

    /// Workers seen since then, by name.
    pub async fn rigs_seen_since(&self, since: UnixMillis) -> Result<Vec<RigRow>, StorageError> {
        let rows = sqlx::query(rigs("WHERE rigs.seen_at >= $1 ORDER BY workers.name"));
        all(rows.bind(since.0), &self.readers).await
    }

    /// Workers of an account, by name.
    pub async fn rigs_of(&self, owner: AccountId) -> Result<Vec<RigRow>, StorageError> {
        let rows = sqlx::query(rigs("WHERE workers.owner = $1 ORDER BY workers.name"));
        all(rows.bind(owner.0), &self.readers).await
    }

    /// Workers of a team, by name.
    pub async fn rigs_in(&self, team: i64) -> Result<Vec<RigRow>, StorageError> {
        let rows = sqlx::query(rigs("WHERE rigs.team = $1 ORDER BY workers.name"));
        all(rows.bind(team), &self.readers).await
    }

    /// Workers of any team, by name.
    pub async fn rigs_in_teams(&self) -> Result<Vec<RigRow>, StorageError> {
        let rows = sqlx::query(rigs("WHERE rigs.team IS NOT NULL ORDER BY workers.name"));
        all(rows, &self.readers).await
    }

    /// Number of an account's workers, and of those last seen at an address.
    pub async fn crew(&self, owner: AccountId, address: &str) -> Result<Crew, StorageError> {
        let row = sqlx::query(
            "SELECT COUNT(*), COALESCE(SUM(CASE WHEN rigs.address = $2 THEN 1 ELSE 0 END), 0) \
             FROM workers JOIN rigs ON rigs.worker = workers.id WHERE workers.owner = $1",
        );
        let row = row.bind(owner.0).bind(address);
        let row = row.fetch_one(&self.readers).await?;
        let count = |column| -> Result<usize, StorageError> {
            Ok(usize::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
        };
        Ok(Crew {
            all: count(0)?,
            here: count(1)?,
        })
    }

    /// The number of workers an account may run by invitation.
    pub async fn workers_invited(&self, owner: AccountId) -> Result<usize, StorageError> {
        let row = sqlx::query("SELECT worker_invited FROM people WHERE account = $1").bind(owner.0);
        let row = row.fetch_optional(&self.readers).await?;
        let invited: i64 = row.map_or(Ok(0), |row| row.try_get(0))?;
        Ok(usize::try_from(invited).unwrap_or(0))
    }

    /// Whether a stored result, which a client may still read, came from this worker.
    pub async fn has_results(&self, worker: WorkerId) -> Result<bool, StorageError> {
        let row = sqlx::query("SELECT 1 FROM results WHERE worker = $1 LIMIT 1").bind(worker.0);
        Ok(row.fetch_optional(&self.readers).await?.is_some())
    }
}

impl Stored for RigRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let flag = |column| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(column)? != 0);
        let note = row.try_get("maintenance_note")?;
        Ok(Self {
            id: WorkerId(row.try_get("id")?),
            public_id: uuid(&row.try_get::<String, _>("public_id")?)?,
            name: row.try_get("name")?,
            vouched: flag("trusted")?,
            owner: Owner {
                account: AccountId(row.try_get("owner")?),
                name: row.try_get("owner_name")?,
                roles: Roles::parse(row.try_get("owner_roles")?),
                contact: row.try_get("contact")?,
                shows_workers: row.try_get::<Option<i64>, _>("public_workers")? == Some(1),
            },
            trade: row.try_get("trade")?,
            said: Said::load(row)?,
            seen_at: UnixMillis(row.try_get("seen_at")?),
            decided: Decided {
                info: row.try_get("info")?,
                maintenance: flag("maintenance")?.then_some(note),
                paused: flag("paused")?,
                team: team(row)?,
            },
            done: Tally::load(row)?,
            speed: row.try_get("speed")?,
        })
    }
}

impl Stored for Said {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let models: String = row.try_get("models")?;
        let takes: String = row.try_get("takes")?;
        Ok(Self {
            agent: row.try_get("agent")?,
            address: row.try_get("address")?,
            threads: u32::try_from(row.try_get::<i64, _>("threads")?).unwrap_or(1),
            nsfw: row.try_get::<i64, _>("nsfw")? != 0,
            models: serde_json::from_str(&models).map_err(|_| {
                StorageError::Broken("the models of a worker are not a list of names".to_owned())
            })?,
            takes: takes.split_whitespace().map(str::to_owned).collect(),
            max_pixels: row.try_get("max_pixels")?,
            max_length: row.try_get("max_length")?,
            max_context: row.try_get("max_context")?,
        })
    }
}

impl Stored for Tally {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            uptime: row.try_get("uptime")?,
            fulfilled: row.try_get("fulfilled")?,
            uncompleted: row.try_get("uncompleted")?,
            earned: Kudos(row.try_get("earned")?),
            rewarded: Kudos(row.try_get("rewarded")?),
            work: row.try_get("work")?,
        })
    }
}

fn team(row: &AnyRow) -> Result<Option<Team>, StorageError> {
    let Some(public_id) = row.try_get::<Option<String>, _>("team_id")? else {
        return Ok(None);
    };
    Ok(Some(Team {
        id: row.try_get("team")?,
        public_id: uuid(&public_id)?,
        name: row.try_get("team_name")?,
    }))
}

pub(super) fn uuid(text: &str) -> Result<Uuid, StorageError> {
    text.parse()
        .map_err(|_| StorageError::Broken(format!("an id is not a UUID: {text:?}")))
}
