//! Lists and lookups of teams.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::auth::Visitor;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::legacy::rigs::view::{count, kudos};
use crate::http::reply;
use crate::rigs::Rig;
use crate::teams::{Squad, Teams};
use crate::values::Alias;
use muster_protocol::legacy::Code;
use muster_protocol::legacy::team::{ActiveModelLite, TeamDetails};
use muster_protocol::legacy::worker::WorkerDetailsLite;

/// `GET /api/v2/teams`
pub async fn list(State(teams): State<Teams>) -> Result<Response, Refused> {
    let teams = teams.list().await?.into_iter();
    let teams: Vec<TeamDetails> = teams.map(details).collect();
    Ok(reply::json(StatusCode::OK, &teams))
}

/// `GET /api/v2/teams/{id}`: public without a key; a key must belong to a moderator.
pub async fn show(
    State(teams): State<Teams>,
    visitor: Result<Visitor, ApiError>,
    path: Named,
) -> Result<Response, Refused> {
    let squad = teams.look(path.text("id")).await?;
    let Visitor(visitor) = visitor?;
    Code::NotModerator.when(visitor.is_some_and(|caller| !caller.sees_all()))?;
    Ok(reply::json(StatusCode::OK, &details(squad)))
}

fn details(squad: Squad) -> TeamDetails {
    let Squad { row, workers } = squad;
    TeamDetails {
        requests_fulfilled: count(row.done.fulfilled),
        kudos: kudos(row.done.earned),
        uptime: count(row.done.uptime),
        creator: Alias {
            name: &row.creator_name,
            account: row.creator,
        }
        .to_string(),
        worker_count: workers.len() as u64,
        models: models(&workers),
        workers: workers.into_iter().map(lite).collect(),
        name: row.team.name,
        id: row.team.public_id,
        info: Some(row.info).filter(|info| !info.is_empty()),
    }
}

fn lite(rig: Rig) -> WorkerDetailsLite {
    WorkerDetailsLite {
        trade: rig.trade,
        name: rig.row.name,
        id: rig.row.public_id,
        online: rig.online,
    }
}

/// Models of the team's online workers, each with its number of workers.
fn models(workers: &[Rig]) -> Vec<ActiveModelLite> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for rig in workers.iter().filter(|rig| rig.online) {
        for model in &rig.row.said.models {
            *counts.entry(model).or_default() += 1;
        }
    }
    let models = counts.into_iter().map(|(name, count)| ActiveModelLite {
        name: name.to_owned(),
        count,
    });
    models.collect()
}
