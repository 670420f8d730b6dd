//! `POST /v1/audio/generations`: one job for a sound, for workers of ours. A client that leaves cancels it.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::images::ImageEndpoint;
use super::tokens::{COPIES, read};
use crate::clock::wall_clock;
use crate::dispatch::{Missing, Outcome, Refusal};
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::entrance::JOB_ID;
use crate::http::models;
use crate::http::reply;
use crate::media::{Holding, Key};
use crate::moderation::Medium;
use crate::switchboard::{Delivery, JobStream};
use muster_protocol::job::{
    Body, Event, FailureKind, Formats, Job, JobId, Kind, Limits, Media, ModelChoice, MusicRequest,
};
use muster_protocol::openai::Problem;
use muster_protocol::openai::audio::AudioRequest;
use muster_protocol::openai::audio::reply::FinishedSound;

/// How long the link is valid.
const LINK: Duration = Duration::from_secs(3600);

pub async fn generate(
    endpoint: Result<ImageEndpoint, ApiError>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let (whole, endpoint) = (whole?, endpoint?);
    let room = whole
        .room
        .keep(whole.bytes.len().saturating_mul(2 * COPIES))?;
    let mut request = read(whole, AudioRequest::read).await?;
    let model = endpoint
        .model_of(request.model.as_deref(), Kind::Audio)
        .await?;
    moderate(&endpoint, &request.music, &model).await?;
    let token = request.progress_token.take();
    let stream = queue(&endpoint, request.music, &model).await?;
    let id = HeaderValue::try_from(stream.job().to_string());
    let made = gather(&endpoint, stream, token, &model).await;
    let mut response = match made {
        Ok(sound) => {
            let text = sound.render().to_string();
            let mut room = room;
            room.cover_in_time(text.len()).await?;
            reply::text_in(room, StatusCode::OK, text.into())
        }
        Err(error) => error.into_response(),
    };
    if let Ok(id) = id {
        response.headers_mut().insert(JOB_ID, id);
    }
    Ok(response)
}

/// Words of the prompt and of the lyrics may be refused; none is rewritten.
async fn moderate(
    endpoint: &ImageEndpoint,
    music: &MusicRequest,
    model: &str,
) -> Result<(), ApiError> {
    let lyrics = music.lyrics.as_deref().unwrap_or_default();
    let text = format!("{}\n{lyrics}", music.prompt);
    endpoint.examine(&text, Medium::Text, model).await?;
    Ok(())
}

async fn queue(
    endpoint: &ImageEndpoint,
    mut music: MusicRequest,
    model: &Arc<str>,
) -> Result<JobStream, ApiError> {
    let drawn = endpoint.settings.prefixes.hash_one(endpoint.arrival.id);
    music.seed.get_or_insert(drawn & u64::from(u32::MAX));
    let job = Arc::new(Job {
        id: JobId::random(),
        request: endpoint.arrival.id,
        account: endpoint.caller.account,
        shared_key: None,
        kind: Kind::Audio,
        model: ModelChoice(vec![model.clone()]),
        limits: Limits {
            formats: Formats::NEUTRAL,
            restartable: true,
            ..Limits::default()
        },
        body: Body::Music(Box::new(music)),
        privacy: endpoint.privacy,
        deadline: wall_clock().after(endpoint.settings.lifetime),
        durable: false,
        prefixes: Vec::new(),
        original: None,
        price: None,
    });
    let streams = endpoint.submit(vec![job], model).await?;
    let streams = match streams {
        Ok((_, streams)) => streams,
        Err(refusal) => return Err(explain(endpoint, refusal, model).await),
    };
    streams.into_iter().next().ok_or_else(lost)
}

async fn explain(endpoint: &ImageEndpoint, refusal: Refusal, model: &str) -> ApiError {
    let Refusal::Unserved { missing, online } = &refusal else {
        return refusal.into();
    };
    match missing {
        Missing::Model(_) if !endpoint.models.contains(model) && !online.is_empty() => {
            let online: Vec<&str> = online.iter().map(|name| &**name).collect();
            models::unknown(model, &online)
        }
        Missing::Kind(_) => {
            let overview = endpoint.board.current().await;
            let id = endpoint.models.id(model);
            let message = models::not_of_kind(&id, "an audio", &overview);
            Problem::unsupported("model", message).into()
        }
        _ => ApiError {
            param: Some("model".into()),
            ..refusal.into()
        },
    }
}

/// Waits for the sound. Dropped before, the job is cancelled and a sound that is there already is deleted.
async fn gather(
    endpoint: &ImageEndpoint,
    mut stream: JobStream,
    token: Option<String>,
    model: &str,
) -> Result<FinishedSound, ApiError> {
    let media = endpoint.store.media();
    let note = |percent| {
        if let Some(token) = &token {
            endpoint.progress.note(token, percent);
        }
    };
    note(0);
    let job = stream.job().to_string();
    let mut sound: Option<(Media, Key, Holding)> = None;
    while let Some(delivery) = stream.next().await {
        match delivery {
            Delivery::Event(Event::Media(made)) => {
                let key: Option<Key> = made.key.parse().ok();
                sound = key.map(|key| (made, key, media.hold(vec![key])));
            }
            Delivery::Event(Event::Restarted) => sound = None,
            Delivery::Event(Event::Progress(progress)) => note(progress.percent),
            // A job for a sound has no text and no previews, and its end is a delivery of its own.
            Delivery::Event(
                Event::Started { .. }
                | Event::Token(_)
                | Event::ToolCall(_)
                | Event::Preview { .. }
                | Event::Note(_)
                | Event::Encoded(_)
                | Event::Usage(_)
                | Event::Done { .. }
                | Event::Failed(_),
            ) => {}
            Delivery::End {
                outcome,
                timing,
                worker,
                ..
            } => {
                note(100);
                if let Some(failure) = Outcome::failure(&outcome) {
                    return Err(failure.into());
                }
                let (made, key, holding) = sound.ok_or_else(lost)?;
                let url = media.download_link(key, LINK).await;
                let url = url.map_err(|_| {
                    let message = "the media store does not answer; retry later";
                    ApiError::new(FailureKind::StoreUnavailable, message)
                })?;
                holding.leave();
                let waited = timing.queued.unwrap_or_default();
                return Ok(FinishedSound {
                    created: wall_clock().0 / 1000,
                    url,
                    seed: made.seed,
                    job,
                    worker: worker.as_deref().map(str::to_owned),
                    model: model.to_owned(),
                    seconds: timing.total.saturating_sub(waited).as_secs_f64(),
                });
            }
        }
    }
    Err(lost())
}

fn lost() -> ApiError {
    ApiError::new(FailureKind::EmptyResult, "the worker delivered no sound")
}
