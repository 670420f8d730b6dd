//! Facts about models for replies and errors: kinds, routes, limits, names.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::switchboard::{ModelOnline, Overview};
use muster_protocol::job::{FailureKind, Kind, MOST_FRAMES};
use muster_protocol::openai::nearest::nearest;

use super::open::KnownModels;
use super::openapi::largest;

/// The error for a model that is neither online nor known: suggests the nearest name and lists online models.
pub fn unknown(name: &str, online: &[&str], known: &KnownModels) -> ApiError {
    const MOST_NAMES: usize = 100;
    let name: String = name.chars().take(200).collect();
    let others = online.iter().flat_map(|id| known.other_names(id));
    let others: Vec<Arc<str>> = others.collect();
    let names = online.iter().copied();
    let names = names.chain(others.iter().map(|other| &**other));
    let meant = match nearest(&name, names) {
        Some(meant) => format!("; did you mean {meant}?"),
        None => String::new(),
    };
    let message = match online {
        [] => format!("the model {name} does not exist here, and no model is online"),
        online => {
            let listed = &online[..online.len().min(MOST_NAMES)];
            format!(
                "the model {name} does not exist here{meant}; online: {}",
                listed.join(", ")
            )
        }
    };
    ApiError {
        param: Some("model".into()),
        ..ApiError::new(FailureKind::ModelNotFound, message)
    }
}

/// The error for a model of another kind, with the route that serves it.
pub fn not_of_kind(name: &str, wanted: &str, overview: &Overview) -> String {
    match overview.model(name).and_then(route_of) {
        Some((kind, route)) => {
            let kind = kind.name();
            format!("{name} is not {wanted} model; send {kind} requests for it to POST {route}")
        }
        None => format!("{name} is not {wanted} model"),
    }
}

/// The first kind of a model, and the route for requests to it. None for forms of the AI Horde API, which have no
/// route on `/v1`.
pub fn route_of(model: &ModelOnline) -> Option<(Kind, &'static str)> {
    let mut kinds = model.kinds.of_output();
    kinds.find_map(|kind| Some((kind, kind.facts().route?)))
}

/// The kinds that its jobs are counted under.
pub fn listed_kinds(model: &ModelOnline) -> Vec<Kind> {
    model.kinds.listed().collect()
}

/// Limits of media requests, if workers of the model state them: the lower of theirs and the route's.
pub fn limits(model: &ModelOnline) -> Map<String, Value> {
    let Some(reach) = model.reach else {
        return Map::new();
    };
    let said = model.kinds.of_output().flat_map(|kind| {
        let limits = reach.limits(kind);
        limits.map(move |(name, most)| (kind, name, most))
    });
    let limited = said.filter(|(_, _, most)| *most != u32::MAX);
    limited
        .map(|(kind, name, most)| (name.to_owned(), most.min(of_route(kind, name)).into()))
        .collect()
}

fn of_route(kind: Kind, limit: &str) -> u32 {
    if limit == "frames" {
        return MOST_FRAMES;
    }
    let field = match (kind, limit) {
        (Kind::Speech, "characters") => "input",
        (_, limit) => limit,
    };
    let route = kind.facts().route;
    let most = route.and_then(|route| largest(route, field));
    most.unwrap_or(u32::MAX)
}
