//! `POST /v1/videos/generations`, which waits for its video, and OpenAI's asynchronous `/v1/videos`.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};

use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::MediaWhole;
use crate::http::form::read_json_or_form;
use crate::http::generation::{
    MediaDelivery, MediaEndpoint, MediaOrder, RefusedFields, read_body, with_job_ids,
};
use crate::http::media::{stored_object, video_still};
use crate::http::reply::Reply;
use crate::http::statistics::parameter;
use crate::media::{Key, Media};
use crate::moderation::Medium;
use crate::pictures::VideoStill;
use crate::requests::orders::MediaWork;
use crate::requests::{Ended, MediaName, Request, Requests};
use muster_protocol::job::{AccountId, FailureKind, JobId, Kind, SourceImage};
use muster_protocol::openai::nearest::shortened;
use muster_protocol::openai::videos::reply::{self, VideoObject, VideoStatus};
use muster_protocol::openai::videos::{VideoDoor, VideosRequest};
use muster_protocol::openai::{Problem, media};

const PREFIX: &str = "video_";
const USUAL_PAGE: usize = 20;
const LARGEST_PAGE: usize = 100;

impl RefusedFields for VideosRequest {
    const KIND: Kind = Kind::Video;
    const OUTPUT: &'static str = "a video";

    fn special(&self) -> Option<&'static str> {
        self.video.beyond_public()
    }
}

pub async fn generate(
    endpoint: Result<MediaEndpoint, ApiError>,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let read = |body| VideosRequest::read(body, VideoDoor::Generate);
    let (mut request, room) = read_body(whole, read).await?;
    let order = order_of(&endpoint, &mut request).await?;
    let unknown = endpoint.unknown_words(order.work.model(), &request.video.prompt);
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
    let render = |videos: &[_], grid: &_| media::reply(created, videos, grid);
    let answer = endpoint.reply(gathering, delivery, render).await;
    drop(room);
    let mut response = with_job_ids(answer, ids);
    unknown.list(&mut response);
    Ok(response)
}

/// `POST /v1/videos`
pub async fn create(
    endpoint: Result<MediaEndpoint, ApiError>,
    headers: HeaderMap,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let of_json = |body| VideosRequest::read(body, VideoDoor::Create);
    let of_form = |form| VideosRequest::read_form(form, VideoDoor::Create);
    let (mut request, room) = read_json_or_form(&headers, whole, of_json, of_form).await?;
    let order = order_of(&endpoint, &mut request).await?;
    let unknown = endpoint.unknown_words(order.work.model(), &request.video.prompt);
    let accepted = endpoint.store(order, &request, room).await?;
    let mut response = Reply(object(&accepted).render()).into_response();
    unknown.list(&mut response);
    Ok(response)
}

/// Loads source images. Settings that the client leaves out get the defaults of the worker's model.
pub async fn order_of(
    endpoint: &MediaEndpoint,
    request: &mut VideosRequest,
) -> Result<MediaOrder, ApiError> {
    let model = endpoint
        .model_of(request.model.as_deref(), Kind::Video)
        .await?;
    let excluded = request.video.negative_prompt.as_deref().unwrap_or_default();
    let text = format!("{}\n{excluded}", request.video.prompt);
    endpoint.examine(&text, Medium::Text, &model).await?;
    let inputs = std::mem::take(&mut request.inputs);
    if inputs.images.len() > 1 {
        return Err(Problem::invalid("image", "image must be one image here").into());
    }
    let sources = endpoint.take_sources(inputs).await?;
    let sources = sources.map(|taken| {
        request.video.source = Some(SourceImage {
            size: None,
            ..taken.source
        });
        taken.holding
    });
    Ok(MediaOrder {
        work: MediaWork::new(request.video.clone(), &model, 1),
        tracking: std::mem::take(&mut request.tracking),
        sources,
    })
}

/// `GET /v1/videos/{id}`
pub async fn show(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let request = find(&requests, &id, caller.account).await?;
    Ok(Reply(object(&request).render()))
}

/// `GET /v1/videos?after=&limit=&order=`
pub async fn list(
    State(requests): State<Requests>,
    Admitted(caller): Admitted,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let parameter = |name| parameter(query.as_deref(), name);
    let mut videos = requests.media_of_kind(caller.account, Kind::Video);
    match parameter("order").as_deref() {
        None | Some("desc") => videos.reverse(),
        Some("asc") => {}
        Some(_) => return Err(Problem::invalid("order", "order must be asc or desc").into()),
    }
    let limit = match parameter("limit") {
        None => USUAL_PAGE,
        Some(text) => text
            .parse()
            .ok()
            .filter(|number| (1..=LARGEST_PAGE).contains(number))
            .ok_or_else(|| {
                let message = format!("limit must be an integer from 1 to {LARGEST_PAGE}");
                Problem::invalid("limit", message)
            })?,
    };
    let mut videos: Vec<VideoObject> = videos.iter().map(|request| object(request)).collect();
    if let Some(after) = parameter("after") {
        let place = videos.iter().position(|video| video.id == after);
        let place = place.ok_or_else(|| {
            Problem::invalid("after", "after must be the id of a video of your account")
        })?;
        videos.drain(..=place);
    }
    let has_more = videos.len() > limit;
    videos.truncate(limit);
    Ok(Reply(reply::list(&videos, has_more)))
}

/// `GET /v1/videos/{id}/content`
pub async fn content(
    State(requests): State<Requests>,
    State(media): State<Media>,
    Admitted(caller): Admitted,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let still = match parameter(query.as_deref(), "variant").as_deref() {
        None | Some("video") => None,
        Some("thumbnail") => Some(VideoStill::Poster),
        Some("spritesheet") => Some(VideoStill::Sheet),
        Some(_) => {
            let message = "variant must be video, thumbnail or spritesheet";
            return Err(Problem::unsupported("variant", message).into());
        }
    };
    let request = find(&requests, &id, caller.account).await?;
    let key = made(&request).ok_or_else(|| {
        let message = format!(
            "the video is {}: it has no content",
            status(&request).word()
        );
        ApiError::new(FailureKind::InvalidRequest, message).with_status(409)
    })?;
    match still {
        Some(still) => video_still(&media, key, still).await?.ok_or_else(|| {
            let message = "the video has no such image: its worker has put none in the file";
            ApiError::new(FailureKind::InvalidRequest, message).with_status(404)
        }),
        None => stored_object(&media, key, &headers).await,
    }
}

/// `DELETE /v1/videos/{id}`: an open request is cancelled.
pub async fn delete(
    State(requests): State<Requests>,
    State(media): State<Media>,
    Admitted(caller): Admitted,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let request = find(&requests, &id, caller.account).await?;
    let deleted = requests.delete(&request).await;
    deleted.map_err(|_| no_store())?;
    // Deletes the outputs on drop.
    drop(media.hold(made(&request).into_iter().collect()));
    Ok(Reply(reply::deleted(&name(&request))))
}

async fn find(requests: &Requests, id: &str, account: AccountId) -> Result<Arc<Request>, ApiError> {
    let job = id.strip_prefix(PREFIX).and_then(|id| id.parse().ok());
    let job = job.map(JobId).ok_or_else(|| unknown(id))?;
    let found = requests.media(account, &MediaName::Job(job));
    let mut found = found.into_iter();
    let request = found.find(|request| request.kind == Kind::Video);
    let request = request.ok_or_else(|| unknown(id))?;
    request.catch_up().await;
    Ok(request)
}

fn name(request: &Request) -> String {
    let job = request.outputs.first().map(|output| output.job.0);
    format!("{PREFIX}{}", job.unwrap_or_default().simple())
}

fn object(request: &Request) -> VideoObject {
    let notes = request.wishes.media.as_deref();
    let facts = notes.and_then(|notes| notes.video.clone());
    let ended = request.outputs.first().and_then(|output| output.ended());
    let video = VideoObject {
        id: name(request),
        status: status(request),
        progress: request.percent(),
        created: request.accepted_at.0 / 1000,
        completed: request.completed_at().map(|at| at.0 / 1000),
        expires: request.expires_at().0 / 1000,
        error: match ended {
            Some(Ended::Failed(code)) => Some(code.to_string()),
            Some(Ended::Expired) => Some(FailureKind::Expired.row().code.to_owned()),
            Some(Ended::Cancelled) => Some(FailureKind::Cancelled.row().code.to_owned()),
            Some(Ended::Made(made)) if made.hidden.is_some() => {
                Some(FailureKind::ContentRefused.row().code.to_owned())
            }
            Some(Ended::Made(_)) | None => None,
        },
        ..VideoObject::default()
    };
    let made = match &ended {
        Some(Ended::Made(made)) => made.product.media(),
        _ => None,
    };
    match facts {
        Some(facts) => VideoObject {
            model: facts.model.to_string(),
            prompt: facts.prompt.to_string(),
            size: facts.size.or_else(|| made?.size),
            seconds: facts
                .millis
                .or_else(|| made?.millis)
                .map(|millis| millis as f64 / 1000.0),
            ..video
        },
        None => video,
    }
}

fn status(request: &Request) -> VideoStatus {
    let Some(output) = request.outputs.first() else {
        return VideoStatus::Failed;
    };
    match output.ended() {
        Some(Ended::Made(made)) if made.hidden.is_none() => VideoStatus::Completed,
        Some(_) => VideoStatus::Failed,
        None if request.counts().processing > 0 => VideoStatus::InProgress,
        None => VideoStatus::Queued,
    }
}

/// The object of a finished video.
fn made(request: &Request) -> Option<Key> {
    let ended = request.outputs.first()?.ended()?;
    match ended {
        Ended::Made(made) if made.hidden.is_none() => made.product.media()?.key.parse().ok(),
        _ => None,
    }
}

/// The same for a video of another account, whose existence is a secret.
fn unknown(id: &str) -> ApiError {
    let message = format!("no video of your account has the id {:?}", shortened(id));
    ApiError::new(FailureKind::InvalidRequest, message).with_status(404)
}

fn no_store() -> ApiError {
    let message = "deleting the video failed: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}
