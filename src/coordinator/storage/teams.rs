//! Teams of workers, and their sums, which stay when a worker leaves.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use muster_protocol::job::{AccountId, UnixMillis};

use super::rigs::{Team, TeamShare, uuid};
use super::rows::{Stored, all, first};
use super::values::without_zeros;
use super::write::Change;
use super::{StorageError, Store};

/// A team and its creator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamRow {
    pub team: Team,
    pub info: String,
    pub creator: AccountId,
    pub creator_name: String,
    /// Totals of its workers while they were members.
    pub done: TeamShare,
}

#[derive(Debug, Clone)]
pub struct NewTeam {
    pub public_id: Uuid,
    pub name: String,
    pub info: String,
    pub creator: AccountId,
    pub created_at: UnixMillis,
}

/// Changes of a team; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TeamChange {
    pub name: Option<String>,
    pub info: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TeamChanged {
    Done,
    /// Another team has this name; nothing was changed.
    NameTaken,
    Gone,
}

#[derive(Debug)]
struct Changed {
    team: i64,
    change: TeamChange,
}

#[derive(Debug)]
struct Disband(i64);

/// Selects the columns of a [`TeamRow`], followed by `$rest`.
macro_rules! select_teams {
    ($rest:literal) => {
        concat!(
            "SELECT teams.id, teams.public_id, teams.name, teams.info, teams.creator, \
             accounts.name AS creator_name, teams.fulfilled, teams.earned, teams.uptime \
             FROM teams JOIN accounts ON accounts.id = teams.creator ",
            $rest
        )
    };
}

impl Store {
    /// All teams, the oldest first.
    pub async fn teams(&self) -> Result<Vec<TeamRow>, StorageError> {
        let rows = sqlx::query(select_teams!("ORDER BY teams.id"));
        all(rows, &self.readers).await
    }

    pub async fn team(&self, public_id: Uuid) -> Result<Option<TeamRow>, StorageError> {
        let row = sqlx::query(select_teams!("WHERE teams.public_id = $1"));
        first(row.bind(public_id.to_string()), &self.readers).await
    }

    /// False if the name is taken.
    pub async fn create_team(&self, team: NewTeam) -> Result<bool, StorageError> {
        self.change(team).await
    }

    pub async fn change_team(
        &self,
        team: i64,
        change: TeamChange,
    ) -> Result<TeamChanged, StorageError> {
        self.change(Changed { team, change }).await
    }

    /// Deletes a team; its workers are left without one. False if it did not exist.
    pub async fn disband(&self, team: i64) -> Result<bool, StorageError> {
        self.change(Disband(team)).await
    }
}

impl Change for NewTeam {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let row = sqlx::query(
                "INSERT INTO teams (public_id, name, info, creator, created_at) \
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO NOTHING",
            );
            let row = row.bind(self.public_id.to_string());
            let row = row.bind(without_zeros(&self.name));
            let row = row.bind(without_zeros(&self.info));
            let row = row.bind(self.creator.0).bind(self.created_at.0);
            Ok(row.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Change for Changed {
    type Answer = TeamChanged;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<TeamChanged, StorageError>> {
        Box::pin(async move {
            let text = |text: &Option<String>| text.as_deref().map(without_zeros);
            let row = sqlx::query(
                "UPDATE teams SET name = COALESCE($1, name), info = COALESCE($2, info) WHERE id = $3 \
                 AND NOT EXISTS (SELECT 1 FROM teams AS other WHERE other.name = $1 AND other.id <> $3)",
            );
            let row = row.bind(text(&self.change.name));
            let row = row.bind(text(&self.change.info)).bind(self.team);
            if row.execute(&mut *connection).await?.rows_affected() > 0 {
                return Ok(TeamChanged::Done);
            }
            let found = exists(self.team, connection).await?;
            Ok(match found {
                true => TeamChanged::NameTaken,
                false => TeamChanged::Gone,
            })
        })
    }
}

impl Change for Disband {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let left = sqlx::query("UPDATE rigs SET team = NULL WHERE team = $1").bind(self.0);
            left.execute(&mut *connection).await?;
            let gone = sqlx::query("DELETE FROM teams WHERE id = $1").bind(self.0);
            Ok(gone.execute(connection).await?.rows_affected() > 0)
        })
    }
}

/// Whether the team exists, within a transaction.
pub(super) async fn exists(
    team: i64,
    connection: &mut AnyConnection,
) -> Result<bool, StorageError> {
    let found = sqlx::query("SELECT 1 FROM teams WHERE id = $1").bind(team);
    Ok(found.fetch_optional(connection).await?.is_some())
}

impl Stored for TeamRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let id = row.try_get("id")?;
        Ok(Self {
            team: Team {
                id,
                public_id: uuid(&row.try_get::<String, _>("public_id")?)?,
                name: row.try_get("name")?,
            },
            info: row.try_get("info")?,
            creator: AccountId(row.try_get("creator")?),
            creator_name: row.try_get("creator_name")?,
            done: TeamShare::load(row)?,
        })
    }
}
