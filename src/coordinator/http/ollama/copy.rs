//! Further names of models. `POST /api/copy` gives one, which is kept in the database; `DELETE /api/delete` ends it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tracing::info;

use super::find;
use crate::error::ApiError;
use crate::http::account::unavailable;
use crate::http::body::Whole;
use crate::http::generation::bodies;
use crate::http::open::KnownModels;
use crate::http::text::with_ignored;
use crate::storage::{MOST_MODEL_NAMES, ModelName, Store};
use crate::switchboard::Switchboard;
use muster_protocol::job::FailureKind;
use muster_protocol::ollama::CopyRequest;

pub async fn copy(
    (State(board), State(known), State(store)): (
        State<Switchboard>,
        State<Arc<KnownModels>>,
        State<Store>,
    ),
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let request = bodies::read(whole?, CopyRequest::read).await?;
    let (overview, name) = (board.current().await, &*request.destination);
    let source = find(&request.source, &overview, &known)?.name;
    let names = known.names();
    if overview.model(name).is_some() || names.is_fixed(name) {
        let message = format!("{name} is the name of another model: choose a name that is free");
        return Err(refused(message));
    }
    let kept = store.name_model(ModelName {
        name: name.to_owned(),
        model: source.clone(),
    });
    if !kept.await.map_err(unavailable)? {
        let message = format!(
            "there are {MOST_MODEL_NAMES} further names of models: \
             remove one by DELETE /api/delete first"
        );
        return Err(refused(message));
    }
    names.copy(name, source.as_str().into());
    info!("the model {source} has the further name {name}");
    let mut response = StatusCode::OK.into_response();
    with_ignored(&mut response, &request.ignored);
    Ok(response)
}

/// Whether the name was a copy, which is gone now. A model with copies is not deleted before them.
pub async fn remove(name: &str, known: &KnownModels, store: &Store) -> Result<bool, ApiError> {
    let names = known.names();
    if names.is_copy(name) {
        let removed = store.remove_model_name(name.to_owned());
        removed.await.map_err(unavailable)?;
        return Ok(names.remove_copy(name));
    }
    let copies = names.copies_of(&names.id(name));
    if copies.is_empty() {
        return Ok(false);
    }
    let copies = copies.join(", ");
    Err(ApiError::new(
        FailureKind::InvalidRequest,
        format!("{name} has the further names {copies}: delete them first"),
    ))
}

fn refused(message: String) -> ApiError {
    ApiError {
        param: Some("destination".into()),
        ..ApiError::new(FailureKind::InvalidRequest, message)
    }
}
