//! Example images of image styles.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use url::Url;
use uuid::Uuid;

use super::kinds::OfImages;
use super::read::find;
use super::{done, may_manage, not_stored};
use crate::accounts::Caller;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::storage::Store;
use crate::values::styles::{Example, ExampleChange, NotChanged};
use muster_protocol::legacy::service::SimpleResponse;
use muster_protocol::legacy::style::StyleModify;
use muster_protocol::legacy::style::image::{InputStyleExamplePatch, InputStyleExamplePost};
use muster_protocol::legacy::{Body, Code, Refusal};

const LONGEST_URL: usize = 2048;

/// `POST /api/v2/styles/image/{id}/example`
pub async fn add_example(
    State(store): State<Store>,
    Admitted(caller): Admitted,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let new = InputStyleExamplePost::parse(&whole?.bytes)?;
    let style = own(&store, &caller, &path).await?;
    check_url(&new.url)?;
    let example = Example {
        id: Uuid::new_v4(),
        url: new.url,
        primary: new.primary,
    };
    let id = example.id;
    write(&store, style, ExampleChange::Add(example)).await?;
    Ok(done(&StyleModify::done(id, Vec::new())))
}

/// `PATCH /api/v2/styles/image/{id}/example/{example}`: missing fields stay unchanged.
pub async fn change_example(
    State(store): State<Store>,
    Admitted(caller): Admitted,
    path: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let InputStyleExamplePatch { url, primary } = InputStyleExamplePatch::parse(&whole?.bytes)?;
    let style = own(&store, &caller, &path).await?;
    let id = path.id("example").ok_or(Code::StyleExampleNotFound)?;
    url.as_deref().map_or(Ok(()), check_url)?;
    let is_nothing = url.is_none() && primary.is_none();
    write(&store, style, ExampleChange::Change { id, url, primary }).await?;
    Ok(done(&match is_nothing {
        true => StyleModify::unchanged(id),
        false => StyleModify::done(id, Vec::new()),
    }))
}

/// `DELETE /api/v2/styles/image/{id}/example/{example}`
pub async fn remove_example(
    State(store): State<Store>,
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    let style = own(&store, &caller, &path).await?;
    let id = path.id("example").ok_or(Code::StyleExampleNotFound)?;
    write(&store, style, ExampleChange::Remove(id)).await?;
    Ok(reply::json(StatusCode::OK, &SimpleResponse::ok()))
}

/// The style, if the caller may change its examples.
async fn own(store: &Store, caller: &Caller, path: &Named) -> Result<Uuid, Refusal> {
    let style = find::<OfImages>(store, path).await?;
    may_manage(caller, style.owner, store).await?;
    Ok(style.id)
}

async fn write(store: &Store, style: Uuid, change: ExampleChange) -> Result<(), Refusal> {
    let written = store.change_examples(style, change).await;
    written.map_err(not_stored)?.map_err(|not| match not {
        NotChanged::NoStyle => Code::StyleNotFound.into(),
        NotChanged::NoExample => Code::StyleExampleNotFound.into(),
        NotChanged::TooMany => Code::TooManyStyleExamples.into(),
        NotChanged::SameUrl => Code::ExampleUrlAlreadyInUse.into(),
    })
}

fn check_url(url: &str) -> Result<(), Refusal> {
    let parsed = Url::parse(url).ok();
    let is_good = parsed.is_some_and(|url| url.scheme() == "https" && url.has_host());
    if is_good && url.len() <= LONGEST_URL {
        return Ok(());
    }
    let message = format!("url must be an https:// URL of at most {LONGEST_URL} bytes");
    Err(Refusal::new(Code::BadRequest, message))
}
