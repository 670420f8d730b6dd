//! Users by a key, by their number, or all of them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::super::asked::{Named, Query};
use super::view::{View, Viewer};
use super::{person, unreadable};
use crate::accounts::{ANONYMOUS, ANONYMOUS_KEY, Accounts, Denied};
use crate::error::ApiError;
use crate::http::admitted::Sent;
use crate::http::auth::Visitor;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::people::People;
use crate::requests::Requests;
use crate::sharing::Sharing;
use crate::state::DoorSettings;
use crate::storage::Order;
use muster_protocol::job::AccountId;
use muster_protocol::legacy::{Code, Refusal};

/// Later pages are always empty.
const LAST_PAGE: u32 = 10_000;

/// `GET /api/v2/find_user`: the user of a key. An unknown key gets 404, not 401: clients call this route to test a key.
/// A shared key, or a key without permission to read the account, gets the public view.
pub async fn find_user(
    State(people): State<People>,
    State(requests): State<Requests>,
    State(accounts): State<Accounts>,
    State(sharing): State<Sharing>,
    State(settings): State<Arc<DoorSettings>>,
    sent: Result<Sent, ApiError>,
) -> Result<Response, Refused> {
    let Sent(Some(key)) = sent? else {
        return Err(Refusal::MissingKey.into());
    };
    let shared = sharing.find(&key).await?;
    let (account, view) = match &shared {
        Some(key) => (key.owner, View::Stranger),
        None => holder(&accounts, &settings, &key).await?,
    };
    let found = people.find(account).await.map_err(unreadable)?;
    let found = found.ok_or(Code::UserNotFound)?;
    let viewer = viewer(&people, &requests, &settings);
    let mut details = viewer.look(found, view).await.map_err(unreadable)?;
    if let Some(key) = shared {
        let name = key.name.unwrap_or_default();
        details.username = format!("{} (Shared Key: {name})", details.username);
    }
    Ok(reply::json(StatusCode::OK, &details))
}

async fn holder(
    accounts: &Accounts,
    settings: &DoorSettings,
    key: &str,
) -> Result<(AccountId, View), Refusal> {
    if key == ANONYMOUS_KEY && settings.anonymous {
        return Ok((ANONYMOUS, View::Stranger));
    }
    match accounts.authenticate(key).await {
        Ok(caller) if caller.sees_own() => Ok((caller.account, View::Own)),
        Ok(caller) => Ok((caller.account, View::Stranger)),
        Err(Denied::UnknownKey) => Err(Code::UserNotFound.into()),
        Err(Denied::Unavailable) => Err(Refusal::plain(503, "API key lookup failed; retry later")),
    }
}

/// `GET /api/v2/users`
pub async fn list(
    State(people): State<People>,
    State(requests): State<Requests>,
    State(settings): State<Arc<DoorSettings>>,
    query: Query,
) -> Result<Response, Refused> {
    let (order, page) = (order(&query)?, query.page()?);
    let viewer = viewer(&people, &requests, &settings);
    let mut listed = Vec::new();
    if page < LAST_PAGE {
        for person in people.page(order, page).await.map_err(unreadable)? {
            let details = viewer.look(person, View::Stranger).await;
            let details = details.map_err(unreadable)?.listed();
            listed.extend(details.ok());
        }
    }
    Ok(reply::json(StatusCode::OK, &listed))
}

/// `GET /api/v2/users/{id}`
pub async fn show(
    State(people): State<People>,
    State(requests): State<Requests>,
    State(settings): State<Arc<DoorSettings>>,
    visitor: Result<Visitor, ApiError>,
    path: Named,
) -> Result<Response, Refused> {
    let Visitor(visitor) = visitor?;
    let found = person(&people, path.text("id")).await?;
    let view = match visitor {
        Some(caller) if caller.sees_all() => View::Moderator,
        Some(caller) if caller.sees_own() && caller.account == found.account => View::Own,
        _ => View::Stranger,
    };
    let viewer = viewer(&people, &requests, &settings);
    let details = viewer.look(found, view).await.map_err(unreadable)?;
    Ok(reply::json(StatusCode::OK, &details))
}

fn viewer<'a>(people: &'a People, requests: &'a Requests, settings: &DoorSettings) -> Viewer<'a> {
    Viewer {
        people,
        requests,
        usual_concurrency: settings.usual_concurrency(),
    }
}

fn order(query: &Query) -> Result<Order, Refusal> {
    match query.text("sort") {
        None | Some("kudos") => Ok(Order::Kudos),
        Some("age") => Ok(Order::Age),
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            let complaint = format!("must be kudos or age, found {other:?}");
            Err(Refusal::invalid("sort", complaint))
        }
    }
}
