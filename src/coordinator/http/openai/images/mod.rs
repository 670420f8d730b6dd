//! `POST /v1/images/generations`: one job for each image, for polling workers and for media workers on sockets.
//!
//! | file | what it is |
//! | --- | --- |
//! | `order` | a request to jobs for the queue |
//! | `gathering` | the events of all jobs, until each has its image |
//! | `delivery` | a stored image as the client wants it |
//! | `relay` | images as a body of server-sent events |
//! | `refused` | a refusal of the queue as an error for the client |
//!
//! A client that leaves cancels its jobs, and so does the failure of one of them.

mod delivery;
mod gathering;
mod order;
mod refused;
mod relay;

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::tokens::{COPIES, read};
use crate::accounts::Caller;
use crate::clock::wall_clock;
use crate::dispatch::{Refusal, Submission};
use crate::error::ApiError;
use crate::http::address::LetIn;
use crate::http::auth::Admitted;
use crate::http::body::Whole;
use crate::http::cashier::Cashier;
use crate::http::entrance::{Arrival, JOB_ID};
use crate::http::open::{KnownModels, Open};
use crate::http::reply;
use crate::http::room::Memory;
use crate::http::text::auto::Auto;
use crate::media::Media;
use crate::moderation::{Asker, Medium, Moderation, Prompt};
use crate::modes::{ModeSet, Modes};
use crate::pictures::Results;
use crate::progress::ProgressBoard;
use crate::state::DoorSettings;
use crate::switchboard::{JobStream, Switchboard};
use muster_protocol::job::{FailureKind, Job, Kind, Privacy};
use muster_protocol::legacy::image::neutral;
use muster_protocol::legacy::image::request::NEGATIVE;
use muster_protocol::openai::Problem;
use muster_protocol::openai::images::reply::{FinishedImage, ImagesHead};
use muster_protocol::openai::images::{ImagesRequest, USUAL_SIZE};

use delivery::ImageStore;
use gathering::{Gathering, ImageEvent};
use order::ImageOrder;
use relay::ImageRelay;

/// The caller of the route, and the parts of the service that answer it.
#[derive(Debug, Clone)]
pub struct ImageEndpoint {
    pub models: Arc<KnownModels>,
    pub board: Switchboard,
    pub settings: Arc<DoorSettings>,
    memory: Memory,
    moderation: Moderation,
    cashier: Cashier,
    pub progress: ProgressBoard,
    pub store: ImageStore,
    pub caller: Arc<Caller>,
    who: Asker,
    pub privacy: Privacy,
    pub arrival: Arrival,
}

/// The jobs of a request, in the queue.
struct QueuedImages {
    jobs: Vec<Arc<Job>>,
    streams: Vec<JobStream>,
}

impl FromRequestParts<Open> for ImageEndpoint {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, open: &Open) -> Result<Self, ApiError> {
        let Admitted(caller) = Admitted::from_request_parts(parts, open).await?;
        let LetIn(address) = LetIn::from_request_parts(parts, open).await?;
        let moderation = Moderation::from_ref(open);
        let is_hidden = moderation.is_hidden(address, caller.roles);
        if is_hidden && Modes::from_ref(open).are_on(ModeSet::RAID) {
            let message =
                "requests from VPN or proxy addresses are temporarily refused for untrusted users";
            return Err(ApiError::new(FailureKind::AccessDenied, message));
        }
        Ok(Self {
            models: FromRef::from_ref(open),
            board: FromRef::from_ref(open),
            settings: FromRef::from_ref(open),
            memory: FromRef::from_ref(open),
            cashier: Cashier::from_request_parts(parts, open).await?,
            progress: FromRef::from_ref(open),
            store: ImageStore::new(Media::from_ref(open), Results::from_ref(open)),
            who: Asker {
                account: caller.account,
                roles: caller.roles,
                address,
            },
            privacy: match is_hidden {
                true => Privacy::Trusted,
                false => Privacy::Anyone,
            },
            arrival: Arrival::from_request_parts(parts, open).await?,
            moderation,
            caller,
        })
    }
}

pub async fn generate(
    endpoint: Result<ImageEndpoint, ApiError>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let (whole, endpoint) = (whole?, endpoint?);
    let room = whole
        .room
        .keep(whole.bytes.len().saturating_mul(2 * COPIES))?;
    let mut request = read(whole, ImagesRequest::read).await?;
    let model = endpoint
        .model_of(request.model.as_deref(), Kind::Image)
        .await?;
    endpoint.size(&mut request, &model).await;
    endpoint.moderate(&mut request, &model).await?;
    let QueuedImages { jobs, streams } = endpoint.queue(&request, &model).await?;
    let ids = job_ids(&streams);
    let board = request.progress_token.take();
    let board = board.map(|token| (endpoint.progress.clone(), token));
    let gathering = Gathering::new(streams, &jobs, endpoint.store.clone(), board);
    let created = wall_clock().0 / 1000;
    let head = ImagesHead::new(created, &request.image, request.delivery);
    let answer = match request.stream {
        true => {
            let memory = endpoint.memory.clone();
            let relay = ImageRelay::new(gathering, head, &model, request.previews);
            relay.open(&endpoint.settings, (memory, room)).await
        }
        false => endpoint.whole_reply(gathering, &head, &model).await,
    };
    let mut response = answer.unwrap_or_else(ApiError::into_response);
    if let Some(ids) = ids {
        response.headers_mut().insert(JOB_ID, ids);
    }
    Ok(response)
}

impl ImageEndpoint {
    /// The id of the model, chosen here if the client names none.
    pub async fn model_of(&self, named: Option<&str>, kind: Kind) -> Result<Arc<str>, ApiError> {
        if let Some(name) = named {
            return match Auto::called(name) {
                None => Ok(self.models.id(name)),
                Some(_) => {
                    let message = format!(
                        "model must name one model here, found {name}: use a name listed by /v1/models?type=all"
                    );
                    Err(Problem::unsupported("model", message).into())
                }
            };
        }
        let overview = self.board.current().await;
        let models = overview.models.iter();
        let models = models.filter(|model| model.kinds.contains(kind));
        let most = models.max_by_key(|model| (model.workers, model.free));
        most.map(|model| model.name.clone()).ok_or_else(|| {
            let message = format!("no {} model is online; retry later", kind.word());
            ApiError::new(FailureKind::NoWorker, message)
        })
    }

    /// The model's own, where the client names none.
    async fn size(&self, request: &mut ImagesRequest, model: &str) {
        if request.image.width == 0 {
            let overview = self.board.current().await;
            let own = overview.model(model).and_then(|model| model.size);
            (request.image.width, request.image.height) = own.unwrap_or(USUAL_SIZE);
        }
    }

    /// Leaves the prompt as it may be served.
    async fn moderate(&self, request: &mut ImagesRequest, model: &str) -> Result<(), ApiError> {
        let text = neutral::prompt(&request.image);
        if let Some(rewritten) = self.examine(&text, Medium::Image, model).await? {
            let (shown, excluded) = match rewritten.split_once(NEGATIVE) {
                Some((shown, excluded)) => (shown, Some(excluded.trim().to_owned())),
                None => (&*rewritten, None),
            };
            request.image.prompt = shown.trim().to_owned();
            request.image.negative_prompt = excluded;
        }
        Ok(())
    }

    /// The prompt as the filters have rewritten it, if they have.
    pub async fn examine(
        &self,
        text: &str,
        medium: Medium,
        model: &str,
    ) -> Result<Option<String>, ApiError> {
        let prompt = Prompt {
            text,
            medium,
            // The API has no word for it.
            may_be_rewritten: false,
            models: &[model.to_owned()],
        };
        let examined = self.moderation.examine(prompt, &self.who).await;
        examined.map_err(refused::blocked)
    }

    /// Holds the price and queues the jobs; or the refusal of the queue.
    pub async fn submit(
        &self,
        mut jobs: Vec<Arc<Job>>,
        model: &Arc<str>,
    ) -> Result<Result<(Vec<Arc<Job>>, Vec<JobStream>), Refusal>, ApiError> {
        let held = self.cashier.hold(&mut jobs).await?;
        let submission = Submission {
            jobs: jobs.clone(),
            standing: self.caller.standing(),
        };
        match self.board.submit(submission).await {
            Ok(streams) => {
                held.queued()?;
                self.models.learn(model);
                Ok(Ok((jobs, streams)))
            }
            Err(refusal) => {
                held.release().await;
                Ok(Err(refusal))
            }
        }
    }

    async fn queue(
        &self,
        request: &ImagesRequest,
        model: &Arc<str>,
    ) -> Result<QueuedImages, ApiError> {
        let order = ImageOrder {
            request: self.arrival.id,
            account: self.caller.account,
            privacy: self.privacy,
            settings: &self.settings,
        };
        match self.submit(order.jobs(request, model)?, model).await? {
            Ok((jobs, streams)) => Ok(QueuedImages { jobs, streams }),
            Err(refusal) => {
                let overview = self.board.current().await;
                Err(refused::explain(
                    refusal,
                    request,
                    model,
                    &self.models,
                    &overview,
                ))
            }
        }
    }

    /// All images in one reply, in the order of the jobs. A finished image is paid for, so it waits for memory rather
    /// than being lost.
    async fn whole_reply(
        &self,
        mut gathering: Gathering,
        head: &ImagesHead,
        model: &str,
    ) -> Result<Response, ApiError> {
        let mut room = self.memory.room_to_tell();
        let mut images: Vec<FinishedImage> = Vec::new();
        let mut grid = gathering.grid(0, model);
        let mut bytes = 0;
        while let Some(event) = gathering.next().await {
            let ImageEvent::Made(made) = event? else {
                continue;
            };
            if made.index == 0 {
                grid.worker = made.worker.as_deref().map(str::to_owned);
            }
            grid.seconds = grid.seconds.max(made.seconds);
            let image = self.store.deliver(made, head.delivery).await?;
            // Once as text and once in the reply.
            bytes += 2 * image.data.len();
            room.cover_in_time(bytes).await?;
            images.push(image);
        }
        images.sort_by_key(|image| image.index);
        let text = head.render(&images, &grid).to_string();
        drop(images);
        room.cover_in_time(text.len()).await?;
        Ok(reply::text_in(room, StatusCode::OK, text.into()))
    }
}

fn job_ids(streams: &[JobStream]) -> Option<HeaderValue> {
    let ids = streams.iter().map(|stream| stream.job().to_string());
    HeaderValue::try_from(ids.collect::<Vec<_>>().join(", ")).ok()
}
