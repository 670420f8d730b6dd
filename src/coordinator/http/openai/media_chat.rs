//! Chats with models that generate images or videos: each becomes a request of the kind's route.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{images, videos};
use crate::clock::wall_clock;
use crate::error::ApiError;
use crate::http::admission::Admission;
use crate::http::generation::{
    Gathering, MadeMedia, MediaDelivery, MediaEndpoint, MediaEvent, with_job_ids,
};
use crate::http::reply::{EVENTS, streamed};
use crate::http::room::Room;
use crate::http::text::{Incoming, with_ignored};
use crate::media::MediaType;
use crate::sender::Sender;
use crate::switchboard::ModelOnline;
use muster_protocol::job::{Failure, FailureKind, Kind};
use muster_protocol::openai::chat::{Head, MediaChat, MediaChatHead, MediaChatStream};
use muster_protocol::openai::error;
use muster_protocol::openai::images::inputs::{ImageInput, ImageInputs};
use muster_protocol::openai::images::{ImageDoor, ImagesRequest};
use muster_protocol::openai::media::{FinishedMedia, MediaGrid};
use muster_protocol::openai::videos::{VideoDoor, VideosRequest};

const HEARTBEAT: &str = ": heartbeat\n\n";

/// The output kind of the chat's model, `None` if the model writes text.
pub async fn kind_made(admission: &Admission, body: &Value) -> Option<Kind> {
    let id = admission.models.id(body["model"].as_str()?);
    // Most chats are for text models, and need not wait for the newest overview.
    let shown = admission.board.overview();
    if shown.model(&id).is_some_and(ModelOnline::writes_text) {
        return None;
    }
    let overview = admission.board.current().await;
    let model = overview.model(&id)?;
    let kinds = [Kind::Image, Kind::Video].into_iter();
    let mut made = kinds.filter(|kind| model.kinds.contains(*kind));
    made.next().filter(|_| !model.writes_text())
}

pub async fn serve(
    endpoint: &MediaEndpoint,
    made: Kind,
    incoming: Incoming<Value>,
) -> Result<Response, ApiError> {
    let (body, mut room) = incoming.into_parts();
    let asker = endpoint.asker();
    room.count_for(Sender::of(asker.account, asker.address))?;
    let chat = MediaChat::read(body, made, &endpoint.settings().ignored_fields)?;
    let gathering = queue(endpoint, made, &chat).await.map_err(in_chat)?;
    let ids = gathering.job_ids();
    let model = Arc::from(chat.model.as_str());
    let created = wall_clock().0 / 1000;
    let head = MediaChatHead {
        head: Head::new("chatcmpl-", endpoint.request(), created, model),
        made,
    };
    let delivery = MediaDelivery {
        image_type: (made == Kind::Image).then_some(MediaType::Webp),
        ..MediaDelivery::default()
    };
    let answer = match chat.stream {
        Some(wanted) => {
            let stream = MediaStream {
                gathering: Some(gathering),
                finished: None,
                is_open: false,
                head,
                delivery,
                wanted,
                heartbeat: endpoint.settings().heartbeat,
                _kept: room,
            };
            stream.open(endpoint.settings().commit_after).await
        }
        None => {
            let render = |outputs: &[FinishedMedia], grid: &_| match outputs {
                [output, ..] => head.reply(output, grid),
                [] => Value::Null,
            };
            endpoint.reply(gathering, delivery, render).await
        }
    };
    let mut response = with_job_ids(answer, ids);
    with_ignored(&mut response, &chat.ignored);
    let unknown = endpoint.unknown_words(&chat.model, &chat.prompt);
    unknown.list(&mut response);
    Ok(response)
}

/// Queues the media jobs of a chat.
async fn queue(
    endpoint: &MediaEndpoint,
    made: Kind,
    chat: &MediaChat,
) -> Result<Gathering, ApiError> {
    let mut body = json!({"model": chat.model, "prompt": chat.prompt});
    if let Some(seed) = &chat.seed {
        body["seed"] = seed.clone();
    }
    let source = chat.source.iter().cloned().map(ImageInput::Text);
    let inputs = ImageInputs {
        images: source.collect(),
        mask: None,
    };
    if made == Kind::Video {
        let mut request = VideosRequest::read(body, VideoDoor::Generate)?;
        request.inputs = inputs;
        let order = videos::order_of(endpoint, &mut request).await?;
        return endpoint.queue(order, &request).await;
    }
    let mut request = ImagesRequest::read(body, ImageDoor::Generate)?;
    request.inputs = inputs;
    let order = images::order_of(endpoint, &mut request).await?;
    endpoint.queue(order, &request).await
}

/// Maps field names of those routes to those of a chat.
fn in_chat(error: ApiError) -> ApiError {
    let param = match error.param.as_deref() {
        Some("prompt" | "image") => Some("messages".into()),
        _ => error.param,
    };
    ApiError { param, ..error }
}

/// A streamed reply. Dropped with its connection, which cancels the job.
struct MediaStream {
    /// None when the stream has ended.
    gathering: Option<Gathering>,
    /// Received before the response started.
    finished: Option<MadeMedia>,
    /// The first chunk was sent.
    is_open: bool,
    head: MediaChatHead,
    delivery: MediaDelivery,
    wanted: MediaChatStream,
    heartbeat: Duration,
    /// The memory of the request, until the end.
    _kept: Room,
}

impl MediaStream {
    /// Waits a short time for the end, so that an early failure gets its own status.
    async fn open(mut self, patience: Duration) -> Result<Response, ApiError> {
        if let Some(gathering) = &mut self.gathering
            && let Ok(made) = timeout(patience, made(gathering)).await
        {
            self.finished = Some(made?);
        }
        let events = unfold(self, |mut stream| async move {
            let event = stream.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(event)), stream))
        });
        Ok(streamed(Body::from_stream(events), EVENTS))
    }

    /// The next text for the client, `None` at the end.
    async fn next(&mut self) -> Option<String> {
        let gathering = self.gathering.as_mut()?;
        if !self.is_open {
            self.is_open = true;
            return Some(self.head.opening());
        }
        let made = match self.finished.take() {
            Some(finished) => Ok(finished),
            None => match timeout(self.heartbeat, made(gathering)).await {
                Ok(made) => made,
                Err(_) => return Some(HEARTBEAT.to_owned()),
            },
        };
        let closing = match made {
            Ok(made) => self.closing(made).await,
            Err(error) => Err(error),
        };
        self.gathering = None;
        Some(closing.unwrap_or_else(|error| {
            let body = error::body(&error.failure, error.param.as_deref());
            MediaChatHead::failed(&body)
        }))
    }

    async fn closing(&mut self, made: MadeMedia) -> Result<String, ApiError> {
        let gathering = self.gathering.as_ref().ok_or_else(lost)?;
        let grid = MediaGrid {
            worker: made.worker.as_deref().map(str::to_owned),
            seconds: made.seconds,
            ..gathering.grid(made.index)
        };
        let output = gathering.store().deliver(made, self.delivery).await?;
        Ok(self.head.closing(&output, &grid, self.wanted))
    }
}

/// The result of the only job. Cancel-safe.
async fn made(gathering: &mut Gathering) -> Result<MadeMedia, ApiError> {
    loop {
        match gathering.next().await {
            Some(Ok(MediaEvent::Made(made))) => return Ok(made),
            Some(Ok(MediaEvent::Preview { .. })) => {}
            Some(Err(error)) => return Err(error),
            None => return Err(lost()),
        }
    }
}

fn lost() -> ApiError {
    Failure::new(FailureKind::EmptyResult, "the job ended without an output").into()
}
