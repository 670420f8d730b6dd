//! `POST /v1/chat/completions`

use axum::extract::State;
use axum::response::Response;

use super::{dictation, media_chat};
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::{MediaEndpoint, MediaParts};
use crate::http::text::TextEndpoint;
use crate::pictures::Sources;
use muster_protocol::openai::chat::ChatDialect;

pub async fn complete(
    endpoint: TextEndpoint,
    (State(media), State(sources)): (State<MediaParts>, State<Sources>),
    body: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let incoming = endpoint.incoming(body?)?;
    let mut incoming = incoming.parse().await?;
    if let Some(made) = media_chat::kind_made(endpoint.admission(), incoming.body()).await {
        let media = MediaEndpoint::of(endpoint.admission().clone(), media)?;
        return media_chat::serve(&media, made, incoming).await;
    }
    if let Some(model) = endpoint.audio_model()
        && dictation::has_audio(incoming.body())
    {
        let encoder = endpoint.encoder()?;
        dictation::write_down(incoming.body_mut(), &model, &encoder, &sources).await?;
    }
    endpoint
        .serve(incoming, |body, _| Ok(ChatDialect::read(body)))
        .await
}
