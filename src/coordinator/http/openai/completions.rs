//! `POST /v1/completions`

use axum::response::Response;

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::text::TextEndpoint;
use muster_protocol::openai::completions;

pub async fn complete(
    endpoint: TextEndpoint,
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let incoming = endpoint.incoming(body?)?.parse().await?;
    endpoint.serve(incoming, completions::read).await
}
