//! `POST /v1/audio/generations`: one music job, for socket workers.

use axum::response::Response;

use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::body::MediaWhole;
use crate::http::generation::{
    MediaDelivery, MediaEndpoint, MediaOrder, RefusedFields, read_body, with_job_ids,
};
use crate::moderation::Medium;
use crate::requests::orders::MediaWork;
use muster_protocol::job::{Kind, MusicRequest};
use muster_protocol::openai::audio::AudioRequest;
use muster_protocol::openai::media;

impl RefusedFields for AudioRequest {
    const KIND: Kind = Kind::Music;
    const OUTPUT: &'static str = "an audio";

    fn special(&self) -> Option<&'static str> {
        self.music.beyond_public()
    }
}

pub async fn generate(
    endpoint: Result<MediaEndpoint, ApiError>,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let (mut request, room) = read_body(whole, AudioRequest::read).await?;
    let model = endpoint
        .model_of(request.model.as_deref(), Kind::Music)
        .await?;
    moderate(&endpoint, &request.music, &model).await?;
    let overview = endpoint.overview().await;
    match overview.model(&model) {
        Some(online) => request.music.is_speech = !online.voices.is_empty(),
        None => request.music.may_be_speech = true,
    }
    let order = MediaOrder {
        work: MediaWork::new(request.music.clone(), &model, 1),
        tracking: std::mem::take(&mut request.tracking),
        sources: None,
    };
    let unknown = endpoint.unknown_words(&model, &request.music.prompt);
    if order.tracking.is_async {
        let mut accepted = endpoint.accept(order, &request, room).await?;
        unknown.list(&mut accepted);
        return Ok(accepted);
    }
    let gathering = endpoint.queue(order, &request).await?;
    let ids = gathering.job_ids();
    let created = wall_clock().0 / 1000;
    let delivery = MediaDelivery {
        encoding: request.encoding,
        image_type: None,
    };
    let render = |sounds: &[_], grid: &_| media::reply(created, sounds, grid);
    let answer = endpoint.reply(gathering, delivery, render).await;
    drop(room);
    let mut response = with_job_ids(answer, ids);
    unknown.list(&mut response);
    Ok(response)
}

/// Moderates prompt and lyrics; refuses them rather than rewriting.
async fn moderate(
    endpoint: &MediaEndpoint,
    music: &MusicRequest,
    model: &str,
) -> Result<(), ApiError> {
    let lyrics = music.lyrics.as_deref().unwrap_or_default();
    let text = format!("{}\n{lyrics}", music.prompt);
    endpoint.examine(&text, Medium::Text, model).await?;
    Ok(())
}
