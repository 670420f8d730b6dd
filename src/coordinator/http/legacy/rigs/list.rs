//! Lists and lookups of workers.

use std::collections::HashMap;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::view::{Eye, details};
use super::{find, unavailable};
use crate::error::ApiError;
use crate::http::auth::Visitor;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::messages::Messages;
use crate::moderation::Moderation;
use crate::rigs::{Rig, Rigs};
use muster_protocol::legacy::words::{Trade, asked};
use muster_protocol::legacy::worker::WorkerDetails;
use muster_protocol::legacy::{Code, Refusal};

/// `GET /api/v2/workers`: online workers. A name takes precedence over a type.
pub async fn list(
    State(rigs): State<Rigs>,
    State(messages): State<Messages>,
    State(moderation): State<Moderation>,
    visitor: Result<Visitor, ApiError>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Refused> {
    // Some clients send every parameter, empty if unused.
    let text = |name: &str| {
        let value = query.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    };
    let trade = match text("type") {
        Some(word) => Some(asked("type", Some(word), Trade::Image)?),
        None => None,
    };
    let name = text("name").map(str::to_lowercase);
    let is_wanted = |rig: &Rig| match (&name, trade) {
        (Some(name), _) => rig.row.name.to_lowercase() == *name,
        (None, Some(trade)) => rig.trade == trade,
        (None, None) => true,
    };
    let online = rigs.online().await.map_err(|_| unavailable())?;
    let online = online.iter().filter(|rig| is_wanted(rig));
    let eye = eye(&visitor, &moderation).await?;
    let online: Vec<WorkerDetails> = online.map(|rig| details(rig, &eye, &messages)).collect();
    Ok(reply::json(StatusCode::OK, &online))
}

/// `GET /api/v2/workers/{id}`: also finds offline workers.
pub async fn show(
    State(rigs): State<Rigs>,
    State(messages): State<Messages>,
    State(moderation): State<Moderation>,
    visitor: Result<Visitor, ApiError>,
    path: Named,
) -> Result<Response, Refused> {
    let rig = find(&rigs, path.text("id")).await?;
    let eye = eye(&visitor, &moderation).await?;
    Ok(reply::json(StatusCode::OK, &details(&rig, &eye, &messages)))
}

/// `GET /api/v2/workers/name/{name}`
pub async fn by_name(
    State(rigs): State<Rigs>,
    State(messages): State<Messages>,
    State(moderation): State<Moderation>,
    visitor: Result<Visitor, ApiError>,
    path: Named,
) -> Result<Response, Refused> {
    let found = rigs
        .named(path.text("name"))
        .await
        .map_err(|_| unavailable())?;
    let rig = found.ok_or_else(|| Refusal::from(Code::WorkerNotFound))?;
    let eye = eye(&visitor, &moderation).await?;
    Ok(reply::json(StatusCode::OK, &details(&rig, &eye, &messages)))
}

/// The key is optional here, and an unknown one is ignored.
async fn eye(visitor: &Result<Visitor, ApiError>, moderation: &Moderation) -> Result<Eye, Refusal> {
    match visitor {
        Ok(Visitor(Some(caller))) if caller.sees_all() => {
            let suspicion = moderation.suspicion_of_workers().await;
            let suspicion = suspicion.map_err(|_| unavailable())?;
            Ok(Eye::Moderator { suspicion })
        }
        _ => Ok(Eye::Anybody),
    }
}
