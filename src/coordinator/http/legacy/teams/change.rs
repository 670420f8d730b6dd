//! Teams: created by trusted users, changed and deleted by their creator or a moderator.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::teams::Teams;
use muster_protocol::legacy::Body;
use muster_protocol::legacy::team::{CreateTeamInput, DeletedTeam, ModifyTeam, ModifyTeamInput};

/// `POST /api/v2/teams`
pub async fn create(
    State(teams): State<Teams>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = CreateTeamInput::parse(&whole?.bytes)?;
    let made = teams.create(&caller, asked).await?;
    let made = ModifyTeam {
        id: Some(made.public_id),
        name: Some(made.name),
        info: Some(made.info).filter(|info| !info.is_empty()),
    };
    Ok(reply::json(StatusCode::OK, &made))
}

/// `PATCH /api/v2/teams/{id}`: missing fields stay unchanged.
pub async fn change(
    State(teams): State<Teams>,
    Admitted(caller): Admitted,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = ModifyTeamInput::parse(&whole?.bytes)?;
    let changed = teams.change(&caller, path.text("id"), asked).await?;
    let changed = ModifyTeam {
        id: None,
        name: changed.name,
        info: changed.info,
    };
    Ok(reply::json(StatusCode::OK, &changed))
}

/// `DELETE /api/v2/teams/{id}`
pub async fn delete(
    State(teams): State<Teams>,
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    let gone = teams.delete(&caller, path.text("id")).await?;
    let gone = DeletedTeam {
        deleted_id: gone.team.public_id,
        deleted_name: gone.team.name,
    };
    Ok(reply::json(StatusCode::OK, &gone))
}
