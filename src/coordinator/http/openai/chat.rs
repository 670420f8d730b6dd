//! `POST /v1/chat/completions`

use axum::response::Response;

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::text::TextEndpoint;
use muster_protocol::openai::chat::ChatDialect;

pub async fn complete(
    endpoint: TextEndpoint,
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let incoming = endpoint.incoming(body?)?;
    let incoming = incoming.parse().await?;
    endpoint
        .serve(incoming, |body, _| Ok(ChatDialect::read(body)))
        .await
}
