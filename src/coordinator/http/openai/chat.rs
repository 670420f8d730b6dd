//! `POST /v1/chat/completions`

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::accounts::Caller;
use crate::dispatch::{Missing, Refusal, Standing, Submission};
use crate::error::ApiError;
use crate::http::address::LetIn;
use crate::http::auth::Admitted;
use crate::http::body::Whole;
use crate::http::entrance::{Arrival, JOB_ID};
use crate::http::open::KnownModels;
use crate::http::reply;
use crate::http::room::{Memory, Room};
use crate::moderation::{Asker, Moderation};
use crate::modes::{ModeSet, Modes};
use crate::state::DoorSettings;
use crate::switchboard::{JobStream, Switchboard};
use muster_protocol::job::{FailureKind, Formats, Job, RequestId};
use muster_protocol::openai::chat::{
    ChatRequest, Grid, Head, Lenient, Reply, Routing, for_strangers,
};
use muster_protocol::openai::json;
use muster_protocol::openai::nearest::shortened;

use super::auto::{Auto, Candidate};
use super::choices::{Choices, Next};
use super::moderated::moderate;
use super::order::{Order, clamp};
use super::refused;
use super::stream::Relay;

/// A body of more bytes is read beside the tasks that relay tokens.
const LARGE: usize = 128 << 10;
/// How many times its bytes a body takes while it is looked at: in each form that a filter may find something in.
const LOOKED_AT: usize = 12;

/// With `auto`, the chosen model has to start so soon while another one has a free worker. Less than the time after which
/// a stream is answered, so that the status can still be that of the next model.
const START_WITHIN: Duration = Duration::from_millis(1500);

/// Names the fields that were left aside, where the operator wants that.
pub const IGNORED_FIELDS: HeaderName = HeaderName::from_static("x-ignored-fields");

/// What answers a request that was read.
struct Door {
    models: Arc<KnownModels>,
    board: Switchboard,
    settings: Arc<DoorSettings>,
    memory: Memory,
}

/// Whoever looks at what is asked, and who asks.
struct Watch {
    moderation: Moderation,
    who: Asker,
}

/// A request that was read, and the memory all of it takes until its jobs have ended.
struct Taken {
    request: ChatRequest,
    /// As workers of the public network may see it.
    original: Arc<Value>,
    order: Order,
    standing: Standing,
    size: usize,
    kept: Arc<Room>,
    /// Fields that are left aside.
    ignored: Vec<String>,
}

/// One try at a request with one model.
struct Try {
    ids: Option<HeaderValue>,
    answer: Result<Response, ApiError>,
}

pub async fn complete(
    (State(board), State(models)): (State<Switchboard>, State<Arc<KnownModels>>),
    (State(settings), State(memory)): (State<Arc<DoorSettings>>, State<Memory>),
    (State(moderation), State(modes)): (State<Moderation>, State<Modes>),
    Admitted(caller): Admitted,
    let_in: Result<LetIn, ApiError>,
    arrival: Arrival,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let whole = whole?;
    let LetIn(address) = let_in?;
    let is_hidden = moderation.is_hidden(address, caller.roles);
    refuse_raider(is_hidden, &modes)?;
    let order = Order::new(arrival.id, caller.account, settings.clone()).hidden(is_hidden);
    let watch = Watch {
        moderation,
        who: Asker {
            account: caller.account,
            roles: caller.roles,
            address,
        },
    };
    let taken = take(whole, order, &caller, &watch, &settings).await?;
    let ignored = ignored_header(&taken.ignored);
    let door = Door {
        models,
        board,
        settings,
        memory,
    };
    let answer = door.answer(taken, arrival.id).await;
    let mut response = answer.unwrap_or_else(ApiError::into_response);
    if let Some(names) = ignored {
        response.headers_mut().insert(IGNORED_FIELDS, names);
    }
    Ok(response)
}

impl Door {
    /// With `auto`, by the first model that can start; only what fails before the client hears anything is tried again.
    async fn answer(&self, mut taken: Taken, id: RequestId) -> Result<Response, ApiError> {
        let requested = taken.request.model.clone();
        let mut candidates = self.candidates(&taken.request).await.into_iter().peekable();
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
            taken.request.model = candidate.model;
            let start_within = candidate.is_hurried.then_some(START_WITHIN);
            let (back, tried) = self.try_one(taken, id, routing, start_within).await?;
            match tried.answer {
                Err(error) if !is_last && is_of_the_model(&error) => taken = back,
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

    async fn candidates(&self, request: &ChatRequest) -> Vec<Candidate> {
        let candidates = match Auto::called(&request.model) {
            Some(auto) => {
                let overview = self.board.current().await;
                auto.candidates(request, &overview.models, &self.settings.sizes)
            }
            None => Vec::new(),
        };
        match candidates.is_empty() {
            true => vec![Candidate::only(self.models.id(&request.model))],
            false => candidates,
        }
    }

    async fn try_one(
        &self,
        taken: Taken,
        id: RequestId,
        routing: Option<Routing>,
        start_within: Option<Duration>,
    ) -> Result<(Taken, Try), ApiError> {
        let (taken, jobs) = beside(taken.size, move || {
            let mut jobs = taken.order.jobs(&taken.request, &taken.original);
            for job in &mut jobs {
                Arc::make_mut(job).limits.start_within = start_within;
            }
            Ok((taken, jobs))
        })
        .await?;
        let request = &taken.request;
        let streams = match self.submit(jobs, taken.standing).await {
            Ok(streams) => streams,
            Err(refusal) => {
                let answer = Err(refused::explain(refusal, request, &self.models));
                return Ok((taken, Try { ids: None, answer }));
            }
        };
        self.models.learn(&request.model);
        let ids = job_ids(&streams);
        let head = Head::new(id, taken.order.created(), request.model.clone());
        let seed = taken.order.seed_of(request);
        let choices = Choices::new(streams, seed, routing, taken.kept.clone());
        let answer = match request.stream {
            Some(_) => {
                Relay::new(request, &head, choices, &self.settings)
                    .open()
                    .await
            }
            None => gather(request, &head, choices, &self.memory).await,
        };
        Ok((taken, Try { ids, answer }))
    }

    /// Where every worker of the model writes less than was asked for, it writes as much as it can, as others do.
    async fn submit(
        &self,
        jobs: Vec<Arc<Job>>,
        standing: Standing,
    ) -> Result<Vec<JobStream>, Refusal> {
        let may_poll = jobs.first().is_some_and(|job| may_be_polled(job));
        let mut again = if may_poll { jobs.clone() } else { Vec::new() };
        let submitted = self.board.submit(Submission { jobs, standing }).await;
        match submitted {
            Err(Refusal::Unserved {
                missing: Missing::Reach(_),
                ..
            }) if may_poll => {
                for job in &mut again {
                    clamp(Arc::make_mut(job));
                }
                let submission = Submission {
                    jobs: again,
                    standing,
                };
                self.board.submit(submission).await
            }
            submitted => submitted,
        }
    }
}

fn may_be_polled(job: &Job) -> bool {
    job.limits.formats.meets(Formats::LEGACY)
}

/// Whether another model may do what this one could not.
fn is_of_the_model(error: &ApiError) -> bool {
    matches!(
        error.failure.kind,
        FailureKind::UnsupportedValue
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

fn ignored_header(names: &[String]) -> Option<HeaderValue> {
    const MOST: usize = 32;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b',';
    let shown = names.iter().take(MOST).map(|name| {
        let shown = shortened(name).bytes();
        shown.map(|byte| {
            if is_plain(byte) {
                char::from(byte)
            } else {
                '?'
            }
        })
    });
    let names: Vec<String> = shown.map(Iterator::collect).collect();
    (!names.is_empty()).then(|| HeaderValue::try_from(names.join(", ")).ok())?
}

/// In a raid those who hide ask for nothing.
fn refuse_raider(is_hidden: bool, modes: &Modes) -> Result<(), ApiError> {
    match is_hidden && modes.are_on(ModeSet::RAID) {
        true => Err(ApiError::new(
            FailureKind::AccessDenied,
            "requests from VPN or proxy addresses are temporarily refused for untrusted users",
        )),
        false => Ok(()),
    }
}

async fn take(
    whole: Whole,
    order: Order,
    caller: &Caller,
    watch: &Watch,
    settings: &Arc<DoorSettings>,
) -> Result<Taken, ApiError> {
    let Whole { bytes, mut room } = whole;
    let size = bytes.len();
    let mut body = beside(size, move || Ok(json::parse(&bytes)?)).await?;
    if watch.moderation.may_object(watch.who.roles) {
        room.cover(size.saturating_mul(LOOKED_AT))?;
        moderate(&mut body, &watch.moderation, &watch.who).await?;
    }
    let (standing, settings) = (caller.standing(), settings.clone());
    beside(size, move || {
        let Lenient {
            request,
            body,
            ignored,
        } = ChatRequest::read_leniently(body, &settings.ignored_fields)?;
        // As the client wrote it, for strangers' workers, and for each choice.
        let kept = room.keep(size.saturating_mul(2 + request.choices as usize))?;
        Ok(Taken {
            original: order.original(for_strangers(body)),
            request,
            order,
            standing,
            size,
            kept: Arc::new(kept),
            ignored,
        })
    })
    .await
}

/// What reads a large body is done beside the tasks that relay tokens.
async fn beside<T: Send + 'static>(
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

/// The whole reply at the end. Dropped with its connection, and all jobs with it. What is made is paid for: it waits for
/// room rather than being lost.
async fn gather(
    request: &ChatRequest,
    head: &Head,
    mut choices: Choices,
    memory: &Memory,
) -> Result<Response, ApiError> {
    let mut reply = Reply::new(request, head);
    let mut grid = Grid::default();
    while let Some(next) = poll_fn(|context| choices.poll_next(context)).await {
        match next {
            Next::Event(choice, event) => reply.event(choice, event),
            Next::End(choice, ending, of_choice) => {
                reply.end(choice, ending);
                grid = of_choice;
            }
            Next::Restarted(choice) => reply.restart(choice),
            Next::Failed(failure) => return Err(refused::failed(failure)),
        }
    }
    drop(choices);
    let text = reply.render(&grid).to_string();
    let mut room = memory.room_to_tell();
    room.cover_in_time(text.len()).await?;
    Ok(reply::text_in(room, StatusCode::OK, text.into()))
}

fn job_ids(streams: &[JobStream]) -> Option<HeaderValue> {
    let ids: Vec<_> = streams
        .iter()
        .map(|stream| stream.job().to_string())
        .collect();
    HeaderValue::try_from(ids.join(", ")).ok()
}
