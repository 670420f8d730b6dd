//! `POST /v1/images/describe`

use axum::http::HeaderMap;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::text::TextEndpoint;
use muster_protocol::openai::describe::{DescribeDialect, of_form, of_json};

pub async fn describe(
    endpoint: TextEndpoint,
    headers: HeaderMap,
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let incoming = endpoint.incoming(body?)?;
    let incoming = incoming.read(&headers, of_json, of_form).await?;
    endpoint
        .serve(incoming, |chat, _| Ok(DescribeDialect::read(chat)))
        .await
}
