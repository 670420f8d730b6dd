//! Teams of workers: permissions, changes and totals. Work done in a team stays with the team; [`super::rigs`] records
//! and saves it.

use std::collections::HashMap;

use uuid::Uuid;

use super::accounts::{ANONYMOUS, Caller};
use super::clock::wall_clock;
use super::display_name::{FORBIDDEN, is_readable};
use super::profanity::is_profane;
use super::rigs::{Rig, Rigs};
use super::storage::{NewTeam, StorageError, Store, TeamChange, TeamChanged, TeamRow};
use crate::values::Roles;
use muster_protocol::legacy::team::{CreateTeamInput, ModifyTeamInput};
use muster_protocol::legacy::worker::kept_name;
use muster_protocol::legacy::{Code, Refusal};

/// All of them. Clones are the same.
#[derive(Debug, Clone)]
pub struct Teams {
    store: Store,
    rigs: Rigs,
}

/// A team's current state: its row with unsaved changes, and its workers by name.
#[derive(Debug, Clone)]
pub struct Squad {
    pub row: TeamRow,
    pub workers: Vec<Rig>,
}

/// Why nothing was done about a team.
#[derive(Debug, thiserror::Error)]
pub enum NotTeamed {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<Code> for NotTeamed {
    fn from(code: Code) -> Self {
        Self::Refused(code.into())
    }
}

/// In characters, once markup and spaces around it are gone.
const SHORTEST_NAME: usize = 3;

impl Teams {
    pub fn new(store: Store, rigs: Rigs) -> Self {
        Self { store, rigs }
    }

    /// All of them, the oldest first.
    pub async fn list(&self) -> Result<Vec<Squad>, StorageError> {
        let mut members: HashMap<i64, Vec<Rig>> = HashMap::new();
        for rig in self.rigs.of_teams().await? {
            if let Some(team) = &rig.row.decided.team {
                members.entry(team.id).or_default().push(rig);
            }
        }
        let rows = self.store.teams().await?.into_iter();
        let squads = rows.map(|row| Squad {
            workers: members.remove(&row.team.id).unwrap_or_default(),
            row,
        });
        Ok(self.current(squads.collect()))
    }

    pub async fn look(&self, id: &str) -> Result<Squad, NotTeamed> {
        let row = self.find(id).await?;
        let workers = self.rigs.of_team(row.team.id).await?;
        let squads = self.current(vec![Squad { row, workers }]);
        squads
            .into_iter()
            .next()
            .ok_or_else(|| Code::TeamNotFound.into())
    }

    /// A malformed id counts as an unknown team.
    pub async fn find(&self, id: &str) -> Result<TeamRow, NotTeamed> {
        let found = match Uuid::parse_str(id) {
            Ok(id) => self.store.team(id).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| Code::TeamNotFound.into())
    }

    /// Creates a team and returns it.
    pub async fn create(
        &self,
        creator: &Caller,
        asked: CreateTeamInput,
    ) -> Result<NewTeam, NotTeamed> {
        Code::AnonForbidden.when(creator.account == ANONYMOUS)?;
        let may = creator.roles.contains(Roles::TRUSTED) || creator.roles.moderates();
        Code::UntrustedTeamCreation.when(!may)?;
        let new = NewTeam {
            public_id: Uuid::new_v4(),
            name: checked_name(&asked.name)?,
            info: asked
                .info
                .map(checked_info)
                .transpose()?
                .unwrap_or_default(),
            creator: creator.account,
            created_at: wall_clock(),
        };
        let made = self.store.create_team(new.clone()).await?;
        Code::TeamNameAlreadyExists.when(!made)?;
        Ok(new)
    }

    /// Changes a team and returns the changes.
    pub async fn change(
        &self,
        caller: &Caller,
        id: &str,
        asked: ModifyTeamInput,
    ) -> Result<TeamChange, NotTeamed> {
        let row = self.find(id).await?;
        Code::NotOwner.when(!caller.may_manage(row.creator, &self.store).await?)?;
        let change = TeamChange {
            name: asked.name.as_deref().map(checked_name).transpose()?,
            info: asked.info.map(checked_info).transpose()?,
        };
        Code::NoTeamModSelected.when(change == TeamChange::default())?;
        match self.store.change_team(row.team.id, change.clone()).await? {
            TeamChanged::Done => Ok(change),
            TeamChanged::NameTaken => Err(Code::TeamNameAlreadyExists.into()),
            TeamChanged::Gone => Err(Code::TeamNotFound.into()),
        }
    }

    /// Deletes a team and returns it. The team's workers stay, without a team.
    pub async fn delete(&self, caller: &Caller, id: &str) -> Result<TeamRow, NotTeamed> {
        let row = self.find(id).await?;
        Code::NotModerator.when(!caller.may_manage(row.creator, &self.store).await?)?;
        let gone = self.store.disband(row.team.id).await?;
        self.rigs.disband(row.team.id);
        Code::TeamNotFound.when(!gone)?;
        Ok(row)
    }

    /// Adds unsaved shares.
    fn current(&self, mut squads: Vec<Squad>) -> Vec<Squad> {
        let fresh = self.rigs.team_shares();
        for squad in &mut squads {
            if let Some(share) = fresh.get(&squad.row.team.id) {
                squad.row.done.add(share);
            }
        }
        squads
    }
}

fn checked_name(name: &str) -> Result<String, Refusal> {
    let name = kept_name(name);
    if name.chars().count() < SHORTEST_NAME || !is_readable(&name) {
        let wanted = format!("must have at least 3 characters besides markup, and no {FORBIDDEN}");
        return Err(Refusal::invalid("name", wanted));
    }
    Code::ProfaneTeamName.when(is_profane(&name))?;
    Ok(name)
}

fn checked_info(info: String) -> Result<String, Refusal> {
    Code::ProfaneTeamInfo.when(is_profane(&info))?;
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::{checked_info, checked_name};
    use muster_protocol::legacy::Code;

    #[test]
    fn a_name_is_kept_without_markup_and_has_something_left() {
        assert_eq!(checked_name(" <b>the rigs</b> ").unwrap(), "the rigs");
        for name in ["<b>x</b>", "a\nbc", "   "] {
            assert_eq!(checked_name(name).unwrap_err().status(), 400, "{name:?}");
        }
    }

    #[test]
    fn neither_name_nor_note_is_profane() {
        let refused = checked_name("sh1t happens").unwrap_err();
        assert_eq!(refused.code(), Some(Code::ProfaneTeamName));
        let refused = checked_info("fuck this".to_owned()).unwrap_err();
        assert_eq!(refused.code(), Some(Code::ProfaneTeamInfo));
    }
}
