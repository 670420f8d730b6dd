//! `POST /v1/messages` and `POST /v1/messages/count_tokens`

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use crate::accounts::{Accounts, Caller, Thoughts};
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::bodies::answer;
use crate::http::generation::encode::Encoder;
use crate::http::room::Memory;
use crate::http::text::TextEndpoint;
use muster_protocol::anthropic::{self, Purpose, Signer};
use muster_protocol::openai::encode::TokenizeRequest;

pub async fn create(
    State(accounts): State<Accounts>,
    endpoint: TextEndpoint,
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let signer = signer(&accounts, endpoint.caller());
    let incoming = endpoint.incoming(body?)?.parse().await?;
    let read = move |body, wanted: &_| anthropic::read(body, Purpose::Message, wanted, &signer);
    endpoint.serve(incoming, read).await
}

/// Counts the prompt's tokens on a worker of the model: exactly those that a message with the same body is billed for.
pub async fn count_tokens(
    (State(accounts), State(memory)): (State<Accounts>, State<Memory>),
    endpoint: TextEndpoint,
    encoder: Result<Encoder, ApiError>,
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let signer = signer(&accounts, endpoint.caller());
    let incoming = endpoint.incoming(body?)?.parse().await?;
    let read = move |body, wanted: &_| anthropic::read(body, Purpose::Count, wanted, &signer);
    let request = endpoint.read(incoming, read).await?;
    let requires = request.requires();
    let request = TokenizeRequest::of(request.model, request.text.input, requires);
    let (tokens, job) = encoder?.tokenize(request).await?;
    let reply = json!({"input_tokens": tokens.ids.len()});
    answer(memory.room_to_tell(), Some(job), reply.to_string()).await
}

fn signer(accounts: &Accounts, caller: &Caller) -> Arc<dyn Signer> {
    Arc::new(Thoughts::new(accounts, caller.account))
}
