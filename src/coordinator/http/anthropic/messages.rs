//! `POST /v1/messages`

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use crate::accounts::Accounts;
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::text::TextEndpoint;
use muster_protocol::anthropic::{self, Purpose, Signer};

use super::signatures::Signatures;

pub async fn create(
    State(accounts): State<Accounts>,
    endpoint: TextEndpoint,
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let signatures = Signatures::new(&accounts, endpoint.caller().account);
    let signer: Arc<dyn Signer> = Arc::new(signatures);
    let incoming = endpoint.incoming(body?)?.parse().await?;
    let read = move |body, wanted: &_| anthropic::read(body, Purpose::Message, wanted, &signer);
    endpoint.serve(incoming, read).await
}
