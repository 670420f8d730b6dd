//! Changes of workers by their owners and moderators.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::{find, unavailable};
use crate::accounts::{ANONYMOUS, Caller};
use crate::display_name::{FORBIDDEN, is_readable};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::pollers::Pollers;
use crate::profanity::is_profane;
use crate::rigs::{Rig, Rigs};
use crate::storage::{Decision, RigChange, Store, Team};
use crate::teams::Teams;
use muster_protocol::legacy::worker::{
    DeletedWorker, ModifyWorker, ModifyWorkerInput, NO_TEAM, kept_name,
};
use muster_protocol::legacy::{Body, Code, Refusal};

/// `PUT /api/v2/workers/{id}`
pub async fn change(
    State(rigs): State<Rigs>,
    State(pollers): State<Pollers>,
    (State(teams), State(store)): (State<Teams>, State<Store>),
    Admitted(caller): Admitted,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = ModifyWorkerInput::parse(&whole?.bytes)?;
    let rig = find(&rigs, path.text("id")).await?;
    may_change(&caller, &rig, &store, Code::NotOwner).await?;
    if asked.paused.is_some() {
        Code::NotModerator.when(!caller.roles.moderates())?;
    }
    let team = match asked.team.as_deref() {
        None => None,
        Some("") => Some(None),
        Some(id) => Some(Some(teams.find(id).await?.team)),
    };
    let change = RigChange {
        team: team.as_ref().map(|team| team.as_ref().map(|team| team.id)),
        ..wanted(&asked)?
    };
    Code::NoWorkerModSelected.when(change == RigChange::default())?;
    let done = rigs.change(&rig, change.clone()).await;
    match done.map_err(|_| unavailable())? {
        Decision::Done => {}
        Decision::NameTaken => return Err(Code::WorkerNameAlreadyExists.into()),
        Decision::NoTeam => return Err(Code::TeamNotFound.into()),
        Decision::Gone => return Err(Code::WorkerNotFound.into()),
    }
    if let Some(name) = &change.name {
        pollers.rename(&rig.row.name, name).await;
    }
    Ok(reply::json(StatusCode::OK, &answer(change, team)))
}

/// `DELETE /api/v2/workers/{id}`
pub async fn delete(
    State(rigs): State<Rigs>,
    (State(pollers), State(store)): (State<Pollers>, State<Store>),
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    let rig = find(&rigs, path.text("id")).await?;
    may_change(&caller, &rig, &store, Code::NotModerator).await?;
    let deleted = rigs.delete(&rig).await.map_err(|_| unavailable())?;
    Code::Locked.when(!deleted)?;
    pollers.forget(&rig.row.name);
    let deleted = DeletedWorker {
        deleted_id: rig.row.public_id,
        deleted_name: rig.row.name,
    };
    Ok(reply::json(StatusCode::OK, &deleted))
}

async fn may_change(
    caller: &Caller,
    rig: &Rig,
    store: &Store,
    otherwise: Code,
) -> Result<(), Refusal> {
    Code::AnonForbiddenWorker.when(caller.account == ANONYMOUS)?;
    let may = caller.may_manage(rig.row.owner.account, store).await;
    otherwise.when(!may.map_err(|_| unavailable())?)
}

/// The requested changes, except the team.
fn wanted(asked: &ModifyWorkerInput) -> Result<RigChange, Refusal> {
    let name = asked.name.as_deref().map(kept_name);
    Code::TooLongWorkerName.when(name.as_ref().is_some_and(|name| name.len() > LONGEST_NAME))?;
    if name
        .as_ref()
        .is_some_and(|name| name.is_empty() || !is_readable(name))
    {
        let message = format!("a worker name must not be empty and must not contain {FORBIDDEN}");
        return Err(Refusal::new(Code::BadRequest, message));
    }
    let holds_one = |text: Option<&String>| text.is_some_and(|text| is_profane(text));
    Code::ProfaneWorkerName.when(holds_one(name.as_ref()))?;
    Code::ProfaneWorkerInfo.when(holds_one(asked.info.as_ref()))?;
    Ok(RigChange {
        maintenance: asked.maintenance,
        maintenance_note: asked.maintenance_msg.clone(),
        paused: asked.paused,
        info: asked.info.clone(),
        name,
        team: None,
    })
}

/// In bytes, as the store keeps it.
const LONGEST_NAME: usize = 200;

fn answer(change: RigChange, team: Option<Option<Team>>) -> ModifyWorker {
    let team_name = |team: Option<Team>| team.map_or_else(|| NO_TEAM.to_owned(), |team| team.name);
    ModifyWorker {
        maintenance: change.maintenance,
        paused: change.paused,
        info: change.info,
        name: change.name,
        team: team.map(team_name),
    }
}
