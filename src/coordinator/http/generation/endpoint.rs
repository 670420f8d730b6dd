//! The caller of a route for media, and the parts of the service that answer it.

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::header::LOCATION;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::delivery::{MediaDelivery, ResultStore};
use super::gathering::{Gathering, MediaEvent};
use super::refused::{self, RefusedFields};
use crate::clock::wall_clock;
use crate::dispatch::{Missing, Refusal, Submission};
use crate::error::ApiError;
use crate::http::admission::{Admission, AdmittedAsker};
use crate::http::auto::Auto;
use crate::http::body::Whole;
use crate::http::generation::bodies::{COPIES, read};
use crate::http::generation::encode::Encoder;
use crate::http::headers::JOB_ID;
use crate::http::open::Open;
use crate::http::reply;
use crate::http::room::{Memory, Room};
use crate::media::{Holding, Media};
use crate::moderation::{Asker, Medium, Prompt};
use crate::pictures::{Results, Sources};
use crate::progress::ProgressBoard;
use crate::requests::orders::{MediaNotes, MediaWork};
use crate::requests::{NewRequest, NotAccepted, Order, Request, Requests};
use crate::state::DoorSettings;
use crate::switchboard::Overview;
use muster_protocol::job::{FailureKind, Job, JobId, Kind, ModelChoice, Privacy, RequestId};
use muster_protocol::openai::Problem;
use muster_protocol::openai::media::{self, FinishedMedia, MediaGrid, MediaTracking};

/// The admission of a request for media, and the parts of the service that make and keep them.
#[derive(Debug, Clone)]
pub struct MediaEndpoint {
    admission: Admission,
    admitted: AdmittedAsker,
    parts: MediaParts,
}

/// The parts of the service that make and keep media.
#[derive(Debug, Clone)]
pub struct MediaParts {
    progress: ProgressBoard,
    store: ResultStore,
    sources: Sources,
    requests: Requests,
}

/// A request that its route has read.
pub struct MediaOrder {
    pub work: MediaWork,
    pub tracking: MediaTracking,
    /// The request's source images.
    pub sources: Option<Holding>,
}

impl FromRequestParts<Open> for MediaEndpoint {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, open: &Open) -> Result<Self, ApiError> {
        let admission = Admission::from_request_parts(parts, open).await?;
        Self::of(admission, FromRef::from_ref(open))
    }
}

impl FromRef<Open> for MediaParts {
    fn from_ref(open: &Open) -> Self {
        Self {
            progress: FromRef::from_ref(open),
            store: ResultStore::new(Media::from_ref(open), Results::from_ref(open)),
            sources: FromRef::from_ref(open),
            requests: FromRef::from_ref(open),
        }
    }
}

/// Parses a body by its route's reader, with the memory permit of the request until its reply.
pub async fn read_body<T: Send + 'static>(
    whole: Whole,
    reading: fn(Value) -> Result<T, Problem>,
) -> Result<(T, Room), ApiError> {
    let copies = whole.bytes.len().saturating_mul(2 * COPIES);
    let room = whole.room.keep(copies)?;
    Ok((read(whole, reading).await?, room))
}

/// Adds the ids of the jobs to any response.
pub fn with_job_ids(answer: Result<Response, ApiError>, ids: Option<HeaderValue>) -> Response {
    let mut response = answer.unwrap_or_else(ApiError::into_response);
    if let Some(ids) = ids {
        response.headers_mut().insert(JOB_ID, ids);
    }
    response
}

impl MediaEndpoint {
    pub fn of(admission: Admission, parts: MediaParts) -> Result<Self, ApiError> {
        Ok(Self {
            admitted: admission.admit()?,
            admission,
            parts,
        })
    }

    pub fn settings(&self) -> &DoorSettings {
        &self.admission.settings
    }

    pub fn memory(&self) -> &Memory {
        &self.admission.memory
    }

    pub fn sources(&self) -> &Sources {
        &self.parts.sources
    }

    pub fn asker(&self) -> Asker {
        self.admitted.asker
    }

    pub fn request(&self) -> RequestId {
        self.admission.request
    }

    /// For jobs of the same request that read.
    pub fn encoder(&self) -> Encoder {
        Encoder::of(self.admission.clone(), self.admitted)
    }

    pub async fn overview(&self) -> Arc<Overview> {
        self.admission.board.current().await
    }

    /// The id of the model, chosen here if the client names none.
    pub async fn model_of(&self, named: Option<&str>, kind: Kind) -> Result<Arc<str>, ApiError> {
        if let Some(name) = named {
            return match Auto::called(name) {
                None => Ok(self.admission.models.id(name)),
                Some(_) => {
                    let message = format!(
                        "model must name one model here, found {name}: use a name listed by /v1/models?type=all"
                    );
                    Err(Problem::unsupported("model", message).into())
                }
            };
        }
        let overview = self.overview().await;
        let models = overview.models.iter();
        let models = models.filter(|model| model.kinds.contains(kind));
        let most = models.max_by_key(|model| (model.workers, model.free));
        most.map(|model| model.name.clone()).ok_or_else(|| {
            let message = format!("no {} model is online; retry later", kind.word());
            ApiError::new(FailureKind::NoWorker, message)
        })
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
        let examined = self
            .admission
            .moderation
            .examine(prompt, &self.admitted.asker)
            .await;
        examined.map_err(refused::blocked)
    }

    /// Holds the price and queues the jobs, which end with their client's connection.
    pub async fn queue(
        &self,
        order: MediaOrder,
        fields: &impl RefusedFields,
    ) -> Result<Gathering, ApiError> {
        let MediaOrder {
            work,
            tracking,
            sources,
        } = order;
        let mut jobs = self.jobs(&work);
        let held = self.admission.cashier.hold(&mut jobs).await?;
        let submission = Submission {
            jobs: jobs.clone(),
            standing: self.admission.caller.standing(),
        };
        let streams = match self.admission.board.submit(submission).await {
            Ok(streams) => streams,
            Err(refusal) => {
                held.release().await;
                return Err(self.explain(refusal, &work, fields).await);
            }
        };
        held.queued()?;
        self.learn(&work);
        let token = tracking.progress_token;
        let board = token.map(|token| (self.parts.progress.clone(), token));
        let gathering = Gathering::new(streams, &jobs, self.parts.store.clone(), board);
        Ok(gathering.keeping(sources))
    }

    fn jobs(&self, work: &MediaWork) -> Vec<Arc<Job>> {
        let seed = self.admission.seed();
        let job = |index| {
            let (body, limits) = work.output(index, seed);
            Arc::new(Job {
                id: JobId::random(),
                request: self.admission.request,
                account: self.admission.caller.account,
                shared_key: None,
                kind: work.kind(),
                model: ModelChoice(vec![work.model().into()]),
                limits,
                body,
                privacy: self.admitted.privacy(),
                deadline: wall_clock().after(self.admission.settings.lifetime),
                durable: false,
                prefixes: Vec::new(),
                original: None,
                price: None,
            })
        };
        (0..work.count).map(job).collect()
    }

    /// Queues jobs that outlive their client's connection and this process.
    pub async fn accept(
        &self,
        order: MediaOrder,
        fields: &impl RefusedFields,
        room: Room,
    ) -> Result<Response, ApiError> {
        let client_ref = order.tracking.client_ref.clone();
        let request = self.store(order, fields, room).await?;
        let outlook = match request.next() {
            Some(job) => self.admission.board.outlook(job).await.ok().flatten(),
            None => None,
        };
        let is_possible = outlook.is_none_or(|outlook| outlook.is_possible);
        Ok(accepted(&request, client_ref.as_deref(), is_possible))
    }

    /// The same, without a reply.
    pub async fn store(
        &self,
        order: MediaOrder,
        fields: &impl RefusedFields,
        room: Room,
    ) -> Result<Arc<Request>, ApiError> {
        let MediaOrder {
            work,
            tracking,
            sources,
        } = order;
        self.check_known(&work, fields).await?;
        let notes = MediaNotes {
            client_ref: tracking.client_ref.as_deref().map(Arc::from),
            progress_token: tracking.progress_token.as_deref().map(Arc::from),
            ..work.notes().clone()
        };
        let work = work
            .for_trusted(self.admitted.privacy() == Privacy::Trusted)
            .noted(notes);
        // Differs from the request id in replies and logs.
        let id = RequestId::random();
        let standing = self.admission.caller.standing();
        let order = Order::of_media(id, self.admission.caller.account, standing, work.clone());
        let names = &self.admission.settings.names;
        let mut jobs = order.jobs(names);
        let held = self.admission.cashier.hold(&mut jobs).await?;
        let order = order.priced(jobs.first().and_then(|job| job.price));
        let request = order.request(standing, None, names);
        // Source images are in the media store; each job holds the rest, and so does the request.
        let copies = 1 + request.jobs.len();
        let room = room.keep(request.body.len().saturating_mul(copies))?;
        let request = NewRequest {
            memory: Some(Box::new(room)),
            sources,
            ..request
        };
        let request = match self.parts.requests.accept(request).await {
            Ok(request) => request,
            Err(NotAccepted::Refused(refusal)) => {
                held.release().await;
                return Err(self.explain(refusal, &work, fields).await);
            }
            Err(NotAccepted::Storage(_)) => {
                held.release().await;
                return Err(no_store());
            }
        };
        if let Err(refusal) = held.queued() {
            self.parts
                .requests
                .cancel(&request)
                .await
                .map_err(|_| no_store())?;
            return Err(refusal);
        }
        self.learn(&work);
        Ok(request)
    }

    /// Durable jobs wait for a worker, so an unknown model is refused here.
    async fn check_known(
        &self,
        work: &MediaWork,
        fields: &impl RefusedFields,
    ) -> Result<(), ApiError> {
        let overview = self.overview().await;
        let missing = match overview.model(work.model()) {
            Some(model) if model.kinds.contains(work.kind()) => return Ok(()),
            Some(_) => Missing::Kind(work.kind()),
            None if self.admission.models.contains(work.model()) => return Ok(()),
            None => Missing::Model(vec![work.model().into()]),
        };
        let online = overview.models.iter().map(|model| model.name.clone());
        let refusal = Refusal::Unserved {
            missing,
            online: online.collect(),
        };
        Err(self.explain(refusal, work, fields).await)
    }

    async fn explain(
        &self,
        refusal: Refusal,
        work: &MediaWork,
        fields: &impl RefusedFields,
    ) -> ApiError {
        let overview = self.overview().await;
        refused::explain(
            refusal,
            fields,
            work.model(),
            &self.admission.models,
            &overview,
        )
    }

    fn learn(&self, work: &MediaWork) {
        self.admission.models.learn(&Arc::from(work.model()));
    }

    /// All outputs in one reply, in the order of the jobs. A finished output is paid for, so the reply waits for memory
    /// rather than being lost.
    pub async fn reply(
        &self,
        mut gathering: Gathering,
        delivery: MediaDelivery,
        render: impl FnOnce(&[FinishedMedia], &MediaGrid) -> Value,
    ) -> Result<Response, ApiError> {
        let mut room = self.admission.memory.room_to_tell();
        let mut outputs: Vec<FinishedMedia> = Vec::new();
        let mut grid = gathering.grid(0);
        let mut bytes = 0;
        while let Some(event) = gathering.next().await {
            let MediaEvent::Made(made) = event? else {
                continue;
            };
            if made.index == 0 {
                grid.worker = made.worker.as_deref().map(str::to_owned);
            }
            grid.seconds = grid.seconds.max(made.seconds);
            let output = self.parts.store.deliver(made, delivery).await?;
            // Once as text and once in the reply.
            bytes += 2 * output.bytes();
            room.cover_in_time(bytes).await?;
            outputs.push(output);
        }
        outputs.sort_by_key(|output| output.index);
        let text = render(&outputs, &grid).to_string();
        drop(outputs);
        room.cover_in_time(text.len()).await?;
        Ok(reply::text_in(room, StatusCode::OK, text.into()))
    }
}

fn accepted(request: &Request, client_ref: Option<&str>, is_possible: bool) -> Response {
    let jobs = request.outputs.iter().map(|output| output.job.to_string());
    let jobs: Vec<String> = jobs.collect();
    let body = media::accepted(&jobs, client_ref, is_possible);
    let mut response = reply::json(StatusCode::ACCEPTED, &body);
    let link = jobs.first().map(|job| media::results_link(job));
    let link = link.and_then(|link| HeaderValue::try_from(link).ok());
    response
        .headers_mut()
        .extend(link.map(|link| (LOCATION, link)));
    with_job_ids(Ok(response), HeaderValue::try_from(jobs.join(", ")).ok())
}

fn no_store() -> ApiError {
    let message = "storing the request failed: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}
