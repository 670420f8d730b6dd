//! `POST /api/v2/dev/test-user`: mounted in development mode, and nowhere else.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::display_name::{FORBIDDEN, is_readable};
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::kudos::MOST;
use crate::people::{People, Trial, TrialUser};
use crate::state::DoorSettings;
use crate::values::{Alias, Roles};
use muster_protocol::job::Kudos;
use muster_protocol::legacy::development::{TestUser, TestUserInput};
use muster_protocol::legacy::{Body, Code, Refusal};

pub async fn try_out(
    State(people): State<People>,
    State(settings): State<Arc<DoorSettings>>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    // The route is mounted only with this setting; checked again for safety.
    let Some(development) = &settings.development else {
        return Err(Refusal::plain(404, "not found: no such path").into());
    };
    let trial = trial(TestUserInput::parse(&whole?.bytes)?)?;
    let user = people.try_out(trial, development).await;
    let user = user.map_err(|_| Refusal::plain(503, "the database is unavailable; retry later"))?;
    Ok(reply::json(StatusCode::OK, &shown(&user)))
}

fn trial(asked: TestUserInput) -> Result<Trial, Refusal> {
    if !is_readable(&asked.username) {
        let message = format!("a user name must not contain {FORBIDDEN}");
        return Err(Refusal::new(Code::BadRequest, message));
    }
    Ok(Trial {
        name: asked.username,
        login: asked.oauth_id,
        is_moderator: asked.moderator,
        is_trusted: asked.trusted,
        kudos: asked.kudos.map(in_thousandths).transpose()?,
    })
}

fn in_thousandths(kudos: i64) -> Result<Kudos, Refusal> {
    let thousandths = kudos.checked_mul(1000);
    let sensible = thousandths.filter(|kudos| kudos.unsigned_abs() <= MOST.0.unsigned_abs() / 2);
    sensible.map(Kudos).ok_or_else(|| {
        let most = MOST.0 / 2000;
        let message = format!("kudos must be from -{most} to {most}, found {kudos}");
        Refusal::new(Code::BadRequest, message)
    })
}

fn shown(user: &TrialUser) -> TestUser {
    let alias = Alias {
        name: &user.name,
        account: user.account,
    };
    TestUser {
        api_key: user.key.expose().to_owned(),
        user_id: user.account.0,
        username: user.name.clone(),
        alias: alias.to_string(),
        kudos: user.kudos.0 as f64 / 1000.0,
        trusted: user.roles.contains(Roles::TRUSTED),
        moderator: user.roles.contains(Roles::MODERATOR),
        created: user.is_new,
    }
}
