//! Images as a body of server-sent events, as OpenAI streams them: previews, and each image when it is finished.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::unfold;
use tokio::time::timeout;

use super::delivery;
use crate::error::ApiError;
use crate::http::generation::{Gathering, MadeMedia, MediaEndpoint, MediaEvent, ResultStore};
use crate::http::reply::{EVENTS, streamed};
use crate::http::room::{Memory, Room};
use crate::media::MediaType;
use muster_protocol::openai::error;
use muster_protocol::openai::images::ImageFormat;
use muster_protocol::openai::images::reply::{self, ImagesHead};

const HEARTBEAT: &str = ": heartbeat\n\n";

/// A streamed reply. Dropped with its connection, which cancels all jobs.
pub struct ImageRelay {
    /// None when the stream has ended.
    gathering: Option<Gathering>,
    /// Received before the response started.
    first: Option<MediaEvent>,
    head: ImagesHead,
    /// Unsent previews of each image, and sent ones.
    previews: Vec<(u32, u32)>,
}

/// State of a stream.
struct ImageStream {
    relay: ImageRelay,
    store: ResultStore,
    memory: Memory,
    heartbeat: Duration,
    /// The memory of the request, until the end.
    _kept: Room,
    /// The memory of the last event.
    sent: Option<Room>,
}

impl ImageRelay {
    pub fn new(gathering: Gathering, head: ImagesHead, previews: u32) -> Self {
        Self {
            previews: vec![(previews, 0); gathering.len()],
            gathering: Some(gathering),
            first: None,
            head,
        }
    }

    /// Waits a short time for the first event, so that an early failure gets its own status.
    pub async fn open(
        mut self,
        endpoint: &MediaEndpoint,
        kept: Room,
    ) -> Result<Response, ApiError> {
        let Some(gathering) = &mut self.gathering else {
            return Ok(Response::default());
        };
        let (store, settings) = (gathering.store().clone(), endpoint.settings());
        if let Ok(Some(first)) = timeout(settings.commit_after, gathering.next()).await {
            self.first = Some(first?);
        }
        let stream = ImageStream {
            relay: self,
            store,
            memory: endpoint.memory().clone(),
            heartbeat: settings.heartbeat,
            _kept: kept,
            sent: None,
        };
        let events = unfold(stream, |mut stream| async move {
            let event = stream.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(event)), stream))
        });
        Ok(streamed(Body::from_stream(events), EVENTS))
    }
}

impl ImageStream {
    /// The next text for the client, `None` at the end.
    async fn next(&mut self) -> Option<String> {
        self.sent = None;
        loop {
            let event = match self.relay.first.take() {
                Some(first) => Ok(first),
                None => {
                    let gathering = self.relay.gathering.as_mut()?;
                    match timeout(self.heartbeat, gathering.next()).await {
                        Ok(event) => event?,
                        Err(_) => return Some(HEARTBEAT.to_owned()),
                    }
                }
            };
            let text = match event {
                Ok(MediaEvent::Preview { index, bytes }) => self.preview(index, &bytes),
                Ok(MediaEvent::Made(made)) => self.completed(made).await.map(Some),
                Err(error) => Err(error),
            };
            match text {
                Ok(None) => {}
                Ok(Some(text)) => return Some(text),
                Err(error) => {
                    self.relay.gathering = None;
                    let body = error::body(&error.failure, error.param.as_deref());
                    return Some(reply::failed(&body));
                }
            }
        }
    }

    /// `None` if the client wants no more previews.
    fn preview(&mut self, index: u32, bytes: &[u8]) -> Result<Option<String>, ApiError> {
        let Some((left, sent)) = self.relay.previews.get_mut(index as usize) else {
            return Ok(None);
        };
        if *left == 0 {
            return Ok(None);
        }
        let format = match MediaType::sniff(bytes) {
            Some(MediaType::Webp) => ImageFormat::Webp,
            Some(MediaType::Png) => ImageFormat::Png,
            Some(MediaType::Jpeg) => ImageFormat::Jpeg,
            _ => return Ok(None),
        };
        let number = *sent;
        (*left, *sent) = (*left - 1, *sent + 1);
        let base64 = STANDARD.encode(bytes);
        Ok(Some(
            self.relay.head.partial(index, number, format, &base64),
        ))
    }

    async fn completed(&mut self, made: MadeMedia) -> Result<String, ApiError> {
        let gathering = self.relay.gathering.as_ref();
        let grid = gathering.map(|all| all.grid(made.index));
        let mut grid = grid.unwrap_or_default();
        grid.worker = made.worker.as_deref().map(str::to_owned);
        grid.seconds = made.seconds;
        let delivery = delivery(self.relay.head.delivery);
        let image = self.store.deliver(made, delivery).await?;
        let mut room = self.memory.room_to_tell();
        // Once as the image and once as the event.
        room.cover_in_time(2 * image.bytes()).await?;
        let text = self.relay.head.completed(&image, &grid);
        self.sent = Some(room);
        Ok(text)
    }
}
