//! Shared keys.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::sharing::{NotShared, Sharing};
use crate::storage::StorageError;
use crate::values::{Alias, SharedKey};
use muster_protocol::legacy::Body;
use muster_protocol::legacy::date::Date;
use muster_protocol::legacy::service::SimpleResponse;
use muster_protocol::legacy::shared_key::{SharedKeyDetails, SharedKeyInput, UNLIMITED};

/// `PUT /api/v2/sharedkeys`
pub async fn create(
    State(sharing): State<Sharing>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = SharedKeyInput::parse(&whole?.bytes)?;
    let key = sharing.create(&caller, asked).await?;
    Ok(reply::json(StatusCode::OK, &details(key, &sharing)?))
}

/// `GET /api/v2/sharedkeys/{id}`: readable by every caller who knows the id.
pub async fn show(State(sharing): State<Sharing>, path: Named) -> Result<Response, Refused> {
    let key = sharing.look(path.text("id")).await?;
    Ok(reply::json(StatusCode::OK, &details(key, &sharing)?))
}

/// `PATCH /api/v2/sharedkeys/{id}`: missing fields stay unchanged.
pub async fn change(
    State(sharing): State<Sharing>,
    Admitted(caller): Admitted,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = SharedKeyInput::parse(&whole?.bytes)?;
    let key = sharing.change(&caller, path.text("id"), asked).await?;
    Ok(reply::json(StatusCode::OK, &details(key, &sharing)?))
}

/// `DELETE /api/v2/sharedkeys/{id}`
pub async fn delete(
    State(sharing): State<Sharing>,
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    sharing.delete(&caller, path.text("id")).await?;
    Ok(reply::json(StatusCode::OK, &SimpleResponse::ok()))
}

pub fn details(key: SharedKey, sharing: &Sharing) -> Result<SharedKeyDetails, StorageError> {
    Ok(SharedKeyDetails {
        id: sharing.text_of(&key)?.expose(),
        username: Alias {
            name: &key.owner_name,
            account: key.owner,
        }
        .to_string(),
        kudos: key.budget.map_or(UNLIMITED, |left| left.0.div_euclid(1000)),
        utilized: key.utilized.0.div_euclid(1000),
        max_image_pixels: key.limits.image_pixels,
        max_image_steps: key.limits.image_steps,
        max_text_tokens: key.limits.text_tokens,
        name: key.name,
        expiry: key.expires_at.map(Date),
    })
}

impl From<NotShared> for Refused {
    fn from(not: NotShared) -> Self {
        match not {
            NotShared::Refused(refusal) => refusal.into(),
            NotShared::Storage(error) => error.into(),
        }
    }
}
