//! `/api/v2/status/modes`: the service modes. Readable without a key; raid mode is hidden then.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::auth::Visitor;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::modes::Modes;
use crate::values::Roles;
use crate::values::modes::{ModeSet, Switch};
use muster_protocol::legacy::service::{ModeStatus, ModesInput};
use muster_protocol::legacy::{Body, Code, Refusal};

/// `GET /api/v2/status/modes`
pub async fn show(
    State(modes): State<Modes>,
    visitor: Result<Visitor, ApiError>,
) -> Result<Response, Refused> {
    let Visitor(visitor) = visitor?;
    let is_moderator = match &visitor {
        None => false,
        Some(caller) if caller.sees_all() => true,
        Some(_) => return Err(Code::NotModerator.into()),
    };
    let now = modes.now();
    let status = ModeStatus {
        maintenance_mode: Some(now.contains(ModeSet::MAINTENANCE)),
        invite_only_mode: Some(now.contains(ModeSet::INVITE_ONLY)),
        raid_mode: is_moderator.then(|| now.contains(ModeSet::RAID)),
    };
    Ok(reply::json(StatusCode::OK, &status))
}

/// `PUT /api/v2/status/modes`, for moderators: replies with the modes that were switched.
pub async fn switch(
    State(modes): State<Modes>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let wanted = ModesInput::parse(&whole?.bytes)?;
    Code::NotAdmin.when(wanted.maintenance_mode.is_some() && !caller.has(Roles::ADMIN))?;
    let switches: Vec<Switch> = [
        (ModeSet::MAINTENANCE, wanted.maintenance_mode),
        (ModeSet::INVITE_ONLY, wanted.invite_only_mode),
        (ModeSet::RAID, wanted.raid_mode),
    ]
    .into_iter()
    .filter_map(|(mode, wanted)| Some((mode, wanted?)))
    .collect();
    Code::NoHordeModSelected.when(switches.is_empty())?;
    let switched = modes.switch(&switches).await;
    switched.map_err(|_| Refusal::plain(503, "saving the modes failed; retry later"))?;
    let status = ModeStatus {
        maintenance_mode: wanted.maintenance_mode,
        invite_only_mode: wanted.invite_only_mode,
        raid_mode: wanted.raid_mode,
    };
    Ok(reply::json(StatusCode::OK, &status))
}

/// Refuses new requests of this API in maintenance mode.
pub fn takes_requests(modes: &Modes) -> Result<(), Refusal> {
    Code::MaintenanceMode.when(modes.are_on(ModeSet::MAINTENANCE))
}
