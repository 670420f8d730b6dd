//! The handler of every text API: a body to jobs, and their events to a reply in the same dialect.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::accounts::Caller;
use crate::dispatch::{Missing, Refusal, Standing, Submission};
use crate::error::ApiError;
use crate::http::admission::{Admission, AdmittedAsker};
use crate::http::auto::{Auto, Candidate};
use crate::http::body::Whole;
use crate::http::headers::JOB_ID;
use crate::http::journal::JournaledRequest;
use crate::http::open::Open;
use crate::http::reply;
use crate::http::room::{Memory, Room};
use crate::pictures::Sources;
use crate::storage::Store;
use crate::switchboard::JobStream;
use muster_protocol::job::{Failure, FailureKind, Formats, Job, Original, RequestId};
use muster_protocol::openai::chat::{
    ChatRequest, Dialect, Grid, Head, Lenient, Reading, ReplyBuilder, Routing, for_strangers,
};
use muster_protocol::openai::{IgnoredFields, Problem};

use super::choices::{Choices, Next, shutting_down};
use super::continued::handed_over;
use super::ignored::with_ignored;
use super::incoming::Incoming;
use super::moderated::moderate;
use super::order::{Order, clamp, formats};
use super::refused;

/// Larger bodies are parsed on a blocking thread, not on those that relay tokens.
const LARGE: usize = 128 << 10;
/// Memory of a body during moderation, as a multiple of its bytes: one copy per normalised form.
pub(super) const LOOKED_AT: usize = 12;
/// Copies of a stored conversation that exist at the same time: as stored, as JSON, and as parts of the request.
const STORED_COPIES: usize = 5;

/// With `auto`, the time in which the chosen model must start while another has a free worker. Shorter than the time
/// after which a stream is answered, so that the next model can still set the status.
const START_WITHIN: Duration = Duration::from_millis(1500);

/// A text route with the admission of its request.
#[derive(Debug, Clone)]
pub struct TextEndpoint {
    pub(super) admission: Admission,
    pub(super) sources: Sources,
    /// Set if a node forwarded the request, which may continue its reply elsewhere.
    pub(super) journaled: Option<JournaledRequest>,
    /// Has the settlements of an earlier coordinator that was lost with the request.
    pub(super) repeated_from: Option<Store>,
}

/// A request that was read, and the memory all of it takes until its jobs have ended.
struct AcceptedRequest {
    request: ChatRequest,
    dialect: Box<dyn Dialect>,
    /// The body for workers of the public network.
    original: Original,
    order: Order,
    standing: Standing,
    size: usize,
    kept: Arc<Room>,
    /// Ignored fields.
    ignored: Vec<String>,
}

/// An attempt at a request with one model.
struct Try {
    ids: Option<HeaderValue>,
    answer: Result<Response, ApiError>,
}

impl Try {
    fn refused(error: ApiError) -> Self {
        Self {
            ids: None,
            answer: Err(error),
        }
    }
}

impl FromRequestParts<Open> for TextEndpoint {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, open: &Open) -> Result<Self, ApiError> {
        let journaled = parts.extensions.get::<JournaledRequest>().cloned();
        let is_repeated = journaled.as_ref().is_some_and(|it| it.is_repeated);
        Ok(Self {
            admission: Admission::from_request_parts(parts, open).await?,
            sources: Sources::from_ref(open),
            journaled,
            repeated_from: is_repeated.then(|| Store::from_ref(open)),
        })
    }
}

impl TextEndpoint {
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    pub fn caller(&self) -> &Arc<Caller> {
        &self.admission.caller
    }

    /// For a request accepted by an earlier process, with the same id.
    pub fn resumed(open: &Open, caller: Caller, request: RequestId) -> Self {
        Self {
            admission: Admission::resumed(open, caller, request),
            sources: Sources::from_ref(open),
            journaled: None,
            repeated_from: None,
        }
    }

    /// Interval of keep-alives in a silent stream.
    pub fn heartbeat(&self) -> Duration {
        self.admission.settings.heartbeat
    }

    pub fn request(&self) -> RequestId {
        self.admission.request
    }

    /// A body from the database instead of this request.
    pub fn parsed(&self, body: Value, size: usize) -> Result<Incoming<Value>, ApiError> {
        let AdmittedAsker { asker, is_hidden } = self.admission.asker()?;
        let mut room = self.admission.memory.room();
        room.cover(size)?;
        Ok(Incoming {
            body,
            size,
            room,
            is_patient: false,
            is_hidden,
            who: asker,
        })
    }

    /// Takes the memory permit for stored bytes that are parsed with the body. The whole amount is taken at once, so
    /// that requests cannot deadlock.
    pub async fn find_room(
        &self,
        incoming: &mut Incoming<Value>,
        bytes: usize,
    ) -> Result<(), ApiError> {
        if bytes == 0 {
            return Ok(());
        }
        let size = incoming.size.saturating_add(bytes);
        let room = match self.admission.moderation.may_object(incoming.who.roles) {
            true => size.saturating_mul(LOOKED_AT),
            false => bytes
                .saturating_mul(STORED_COPIES)
                .saturating_add(incoming.size),
        };
        incoming.room.cover_in_time(room).await?;
        incoming.size = size;
        incoming.is_patient = true;
        Ok(())
    }

    /// The same body again. The memory for a stored conversation is enough for both.
    pub fn again(&self, incoming: &Incoming<Value>) -> Result<Incoming<Value>, ApiError> {
        let counted = if incoming.is_patient {
            0
        } else {
            incoming.size
        };
        Ok(Incoming {
            size: incoming.size,
            is_patient: incoming.is_patient,
            ..self.parsed(incoming.body.clone(), counted)?
        })
    }

    /// Refuses clients that may not send requests now.
    pub fn incoming(&self, whole: Whole) -> Result<Incoming<Bytes>, ApiError> {
        let AdmittedAsker { asker, is_hidden } = self.admission.admit()?;
        let Whole { bytes, room } = whole;
        Ok(Incoming {
            size: bytes.len(),
            body: bytes,
            room,
            is_patient: false,
            is_hidden,
            who: asker,
        })
    }

    /// From the body to the reply, in the dialect that `read` speaks.
    pub async fn serve(
        &self,
        incoming: Incoming<Value>,
        read: impl FnOnce(Value, &IgnoredFields) -> Result<Reading, Problem> + Send + 'static,
    ) -> Result<Response, ApiError> {
        self.refuse_settled().await?;
        let accepted = self.accept(incoming, read).await?;
        let ignored = accepted.ignored.clone();
        let answer = self.answer(accepted).await;
        let mut response = answer.unwrap_or_else(ApiError::into_response);
        with_ignored(&mut response, &ignored);
        Ok(response)
    }

    /// Parses a request without serving it.
    pub async fn read(
        &self,
        incoming: Incoming<Value>,
        read: impl FnOnce(Value, &IgnoredFields) -> Result<Reading, Problem> + Send + 'static,
    ) -> Result<ChatRequest, ApiError> {
        Ok(self.accept(incoming, read).await?.request)
    }

    async fn accept(
        &self,
        incoming: Incoming<Value>,
        read: impl FnOnce(Value, &IgnoredFields) -> Result<Reading, Problem> + Send + 'static,
    ) -> Result<AcceptedRequest, ApiError> {
        let Incoming {
            body,
            size,
            mut room,
            is_patient,
            is_hidden,
            who,
        } = incoming;
        let settings = self.admission.settings.clone();
        let reading = beside(size, move || Ok(read(body, &settings.ignored_fields)?)).await?;
        let Reading {
            mut chat,
            dialect,
            mut ignored,
            mut native,
        } = reading;
        refused::check_message_count(&chat, self.admission.settings.chat_messages)
            .map_err(|problem| named_for_client(problem, &*dialect))?;
        if self.admission.moderation.may_object(who.roles) {
            if let Some(name) = dialect.unexamined() {
                let message =
                    format!("{name} cannot be examined by this service's filters: send text");
                return Err(Problem::unsupported(name, message).into());
            }
            let copies = size.saturating_mul(LOOKED_AT);
            match is_patient {
                true => room.cover_in_time(copies).await?,
                false => room.cover(copies)?,
            }
            if moderate(&mut chat, &self.admission.moderation, &who).await? {
                // Moderation rewrote the chat body only.
                native = None;
            }
        }
        let grown = self.take_images(&mut chat, &who, &mut room).await;
        let grown = grown.map_err(|error| named_for_client(error, &*dialect))?;
        let mut size = size.saturating_add(grown);
        if grown > 0 {
            // Images were loaded into the chat body only.
            native = None;
        }
        let files = self.take_files(&mut chat, &who, (&mut room, size)).await;
        let files = files.map_err(|error| named_for_client(error, &*dialect))?;
        let dialect = match files {
            None => dialect,
            Some(files) => {
                size = size.saturating_add(files.grown);
                native = None;
                files.dialect(dialect)
            }
        };
        let order = Order::new(
            self.admission.request,
            self.admission.caller.account,
            self.admission.settings.clone(),
        );
        let mut order = order.hidden(is_hidden);
        let (mut standing, settings) = (
            self.admission.caller.standing(),
            self.admission.settings.clone(),
        );
        if let Some(journal) = self.begun() {
            order = order.continuing(&journal.head);
            standing.since = Some(journal.head.created);
        }
        let read = beside(size, move || {
            let of_client = |problem: Problem| named_for_client(problem.into(), &*dialect);
            let lenient = ChatRequest::read_leniently(chat, &settings.ignored_fields);
            let Lenient {
                mut request,
                body,
                ignored: more,
            } = lenient.map_err(of_client)?;
            dialect.complete(&mut request).map_err(of_client)?;
            ignored.extend(more);
            // Copies: the client's own body, the body for public workers, and one for each choice.
            let copies = 2 + usize::from(native.is_some()) + request.choices as usize;
            let original = order.original(for_strangers(body), native);
            Ok((original, request, (dialect, order, ignored), copies))
        });
        let (original, request, (dialect, order, ignored), copies) = read.await?;
        let copies = size.saturating_mul(copies);
        let kept = match is_patient {
            true => room.keep_in_time(copies).await?,
            false => room.keep(copies)?,
        };
        drop(room);
        Ok(AcceptedRequest {
            original,
            request,
            dialect,
            order,
            standing,
            size,
            kept: Arc::new(kept),
            ignored,
        })
    }

    /// Runs the request. With `auto`, tries models in order until one can start; only failures before the first output
    /// are retried.
    async fn answer(&self, mut accepted: AcceptedRequest) -> Result<Response, ApiError> {
        let requested = accepted.request.model.clone();
        let formats = formats(&accepted.request, accepted.original.native.as_ref());
        let mut candidates = self
            .candidates(&accepted.request, formats)
            .await
            .into_iter()
            .peekable();
        loop {
            let Some(candidate) = candidates.next() else {
                let message = "no text model is online; retry later";
                return Err(ApiError::new(FailureKind::NoWorker, message));
            };
            let is_last = candidates.peek().is_none();
            let routing = Auto::called(&requested).map(|_| Routing {
                requested: requested.clone(),
                resolved: candidate.model.clone(),
            });
            accepted.request.model = candidate.model;
            let start_within = candidate.is_hurried.then_some(START_WITHIN);
            let (back, tried) = self.try_one(accepted, routing, start_within).await?;
            match tried.answer {
                Err(error) if !is_last && is_of_the_model(&error) => accepted = back,
                answer => {
                    let mut response = answer.unwrap_or_else(ApiError::into_response);
                    if let Some(ids) = tried.ids {
                        response.headers_mut().insert(JOB_ID, ids);
                    }
                    return Ok(response);
                }
            }
        }
    }

    async fn candidates(&self, request: &ChatRequest, formats: Formats) -> Vec<Candidate> {
        if let Some(journal) = self.begun() {
            return vec![Candidate::only(journal.head.model.clone())];
        }
        let candidates = match Auto::called(&request.model) {
            Some(auto) => {
                let overview = self.admission.board.current().await;
                auto.candidates(
                    request,
                    formats,
                    &overview.models,
                    &self.admission.settings.sizes,
                )
            }
            None => Vec::new(),
        };
        match candidates.is_empty() {
            true => vec![Candidate::only(self.admission.models.id(&request.model))],
            false => candidates,
        }
    }

    async fn try_one(
        &self,
        accepted: AcceptedRequest,
        routing: Option<Routing>,
        start_within: Option<Duration>,
    ) -> Result<(AcceptedRequest, Try), ApiError> {
        let (accepted, mut jobs) = beside(accepted.size, move || {
            let mut jobs = accepted.order.jobs(&accepted.request, &accepted.original);
            for job in &mut jobs {
                Arc::make_mut(job).limits.start_within = start_within;
            }
            Ok((accepted, jobs))
        })
        .await?;
        let request = &accepted.request;
        let ids = job_ids(&jobs);
        let head = self.journal_head(&accepted.order, request, &jobs);
        self.keep_open(&mut jobs);
        let held = match self.admission.cashier.hold(&mut jobs).await {
            Ok(held) => held,
            Err(error) => return Ok((accepted, Try::refused(error))),
        };
        let streams = match self.submit(jobs, accepted.standing).await {
            Ok(streams) => match held.queued() {
                Ok(()) => streams,
                Err(error) => return Ok((accepted, Try::refused(error))),
            },
            Err(Refusal::ShuttingDown) if self.journaled.is_some() => {
                held.release().await;
                let answer = Ok(handed_over());
                return Ok((accepted, Try { ids: None, answer }));
            }
            Err(refusal) => {
                held.release().await;
                let overview = self.admission.board.overview();
                let error = refused::explain(refusal, request, &self.admission.models, &overview);
                let error = named_for_client(error, &*accepted.dialect);
                return Ok((accepted, Try::refused(error)));
            }
        };
        self.admission.models.learn(&request.model);
        let mut streams = streams.into_iter();
        let streams = (0..request.choices).map(|choice| {
            let has_ended = self.begun().is_some_and(|it| it.has_ended(choice));
            if has_ended { None } else { streams.next() }
        });
        let streams = streams.collect();
        let dialect = &*accepted.dialect;
        let created = accepted.order.created();
        let reply_head = Head::new(
            dialect.id_prefix(),
            self.admission.request,
            created,
            request.model.clone(),
        );
        let seed = accepted.order.seed_of(request);
        let choices = Choices::new(
            streams,
            seed,
            routing,
            dialect.native_format(),
            accepted.kept.clone(),
        );
        let answer = match request.stream {
            Some(_) => {
                let writer = (dialect.stream(request, &reply_head), dialect.content_type());
                self.relay(writer, request.choices, choices, head.as_ref())
                    .open()
                    .await
            }
            None => {
                gather(
                    dialect.reply(request, &reply_head),
                    choices,
                    &self.admission.memory,
                )
                .await
            }
        };
        let answer = answer.map_err(|error| {
            named_for_client(refused::with_grammar_field(error, request), dialect)
        });
        Ok((accepted, Try { ids, answer }))
    }

    /// Queues the jobs. If every worker of the model is limited to fewer tokens than requested, the limit is lowered,
    /// as in other services.
    async fn submit(
        &self,
        jobs: Vec<Arc<Job>>,
        standing: Standing,
    ) -> Result<Vec<JobStream>, Refusal> {
        if let Some(journal) = self.begun() {
            return self.submit_begun(jobs, standing, journal).await;
        }
        let may_poll = jobs.first().is_some_and(|job| may_be_polled(job));
        let mut again = if may_poll { jobs.clone() } else { Vec::new() };
        let submitted = self
            .admission
            .board
            .submit(Submission { jobs, standing })
            .await;
        match submitted {
            Err(Refusal::Unserved {
                missing: Missing::Reach { .. },
                ..
            }) if may_poll => {
                for job in &mut again {
                    clamp(Arc::make_mut(job));
                }
                let submission = Submission {
                    jobs: again,
                    standing,
                };
                self.admission.board.submit(submission).await
            }
            submitted => submitted,
        }
    }
}

fn may_be_polled(job: &Job) -> bool {
    job.limits.formats.meets(Formats::LEGACY)
}

/// Whether another model may succeed after this error.
fn is_of_the_model(error: &ApiError) -> bool {
    matches!(
        error.failure.kind,
        FailureKind::UnsupportedValue
            // Another model may cost less.
            | FailureKind::InsufficientCredits
            | FailureKind::ContextLengthExceeded
            | FailureKind::ModelNotFound
            | FailureKind::ModelOffline
            | FailureKind::NoWorker
            | FailureKind::WorkerFailed
            | FailureKind::WorkerLost
            | FailureKind::EmptyResult
            | FailureKind::Stalled
    )
}

/// Translates field names in an error to the client's.
fn named_for_client(error: ApiError, dialect: &dyn Dialect) -> ApiError {
    let Some(param) = error.param.as_deref() else {
        return error;
    };
    let name = dialect.param(param).into_owned();
    if name == param {
        return error;
    }
    let message = error.failure.message.replace(param, &name);
    ApiError {
        failure: Failure {
            message: message.into(),
            ..error.failure
        },
        param: Some(name.into()),
        ..error
    }
}

/// Runs work on a large body on a blocking thread, not on those that relay tokens.
pub(super) async fn beside<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if size <= LARGE {
        return work();
    }
    spawn_blocking(work).await.unwrap_or_else(|_| {
        let message = "internal error; give the operator the x-request-id of this response";
        Err(ApiError::new(FailureKind::Internal, message))
    })
}

/// The complete reply. Dropped with its connection, which cancels all jobs. A finished reply is paid for, so it waits
/// for memory.
async fn gather(
    mut reply: Box<dyn ReplyBuilder>,
    mut choices: Choices,
    memory: &Memory,
) -> Result<Response, ApiError> {
    let (mut grid, mut is_settled_in_part) = (Grid::default(), false);
    while let Some(next) = poll_fn(|context| choices.poll_next(context)).await {
        match next {
            Next::Event(choice, event) => reply.event(choice, event),
            Next::End(choice, ending, of_choice) => {
                reply.end(choice, ending);
                grid = of_choice;
                is_settled_in_part = true;
            }
            Next::Restarted(choice) => reply.restart(choice),
            Next::Failed(failure) => return Err(refused::failed(failure)),
            // To be repeated by the node of the client, unless another choice would be paid twice.
            Next::HandedOver if !is_settled_in_part => return Ok(handed_over()),
            Next::HandedOver => return Err(shutting_down().into()),
        }
    }
    drop(choices);
    let text = reply.render(&grid).to_string();
    let mut room = memory.room_to_tell();
    room.cover_in_time(text.len()).await?;
    Ok(reply::text_in(room, StatusCode::OK, text.into()))
}

fn job_ids(jobs: &[Arc<Job>]) -> Option<HeaderValue> {
    let ids: Vec<_> = jobs.iter().map(|job| job.id.to_string()).collect();
    HeaderValue::try_from(ids.join(", ")).ok()
}
