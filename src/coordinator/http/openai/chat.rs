//! `POST /v1/chat/completions`

use std::future::poll_fn;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::coordinator::dispatch::Submission;
use crate::coordinator::error::ApiError;
use crate::coordinator::http::address::LetIn;
use crate::coordinator::http::auth::Admitted;
use crate::coordinator::http::body::Whole;
use crate::coordinator::http::entrance::{Arrival, JOB_ID};
use crate::coordinator::http::open::KnownModels;
use crate::coordinator::http::reply;
use crate::coordinator::http::room::{Memory, Room};
use crate::coordinator::moderation::{Asker, Moderation};
use crate::coordinator::modes::{ModeSet, Modes};
use crate::coordinator::state::DoorSettings;
use crate::coordinator::switchboard::{JobStream, Switchboard};
use crate::protocol::job::{FailureKind, Job};
use crate::protocol::openai::chat::{ChatRequest, Grid, Head, Reply, Routing, for_strangers};
use crate::protocol::openai::{Strictness, json};

use super::auto::Auto;
use super::choices::{Choices, Next};
use super::moderated::moderate;
use super::order::Order;
use super::refused;
use super::stream::Relay;

/// A body of more bytes is read beside the tasks that relay tokens.
const LARGE: usize = 128 << 10;
/// How many times its bytes a body takes while it is looked at: in each form that a filter may find something in.
const LOOKED_AT: usize = 12;

/// By what a name becomes a model.
struct Known {
    models: Arc<KnownModels>,
    board: Switchboard,
    settings: Arc<DoorSettings>,
}

/// Whoever looks at what is asked, and who asks.
struct Watch {
    moderation: Moderation,
    who: Asker,
}

/// A body that is JSON, and the memory it takes.
struct Read {
    body: Value,
    size: usize,
    room: Room,
}

/// A request that was read, what was made of it, and the memory all of it takes until its jobs have ended.
struct Taken {
    request: ChatRequest,
    routing: Option<Routing>,
    seed: u64,
    jobs: Vec<Arc<Job>>,
    kept: Room,
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
    let created = order.created();
    let known = Known {
        models: models.clone(),
        board: board.clone(),
        settings: settings.clone(),
    };
    let watch = Watch {
        moderation,
        who: Asker {
            account: caller.account,
            roles: caller.roles,
            address,
        },
    };
    let taken = take(whole, order, known, &watch).await?;
    let Taken { request, seed, .. } = taken;
    let submission = Submission {
        jobs: taken.jobs,
        standing: caller.standing(),
    };
    let streams = board.submit(submission).await;
    let streams = streams.map_err(|refusal| refused::explain(refusal, &request, &models))?;
    models.learn(&request.model);
    let ids = job_ids(&streams);
    let head = Head::new(arrival.id, created, request.model.clone());
    let choices = Choices::new(streams, seed, taken.routing, taken.kept);
    let answer = match request.stream {
        Some(_) => Relay::new(&request, &head, choices, &settings).open().await,
        None => gather(&request, &head, choices, &memory).await,
    };
    let mut response = answer.unwrap_or_else(ApiError::into_response);
    if let Some(ids) = ids {
        response.headers_mut().insert(JOB_ID, ids);
    }
    Ok(response)
}

/// In a raid those who hide ask for nothing.
fn refuse_raider(is_hidden: bool, modes: &Modes) -> Result<(), ApiError> {
    match is_hidden && modes.are_on(ModeSet::RAID) {
        true => Err(ApiError::new(
            FailureKind::AccessDenied,
            "untrusted users are not served now from addresses that hide who uses them",
        )),
        false => Ok(()),
    }
}

async fn take(whole: Whole, order: Order, known: Known, watch: &Watch) -> Result<Taken, ApiError> {
    let Whole { bytes, mut room } = whole;
    let size = bytes.len();
    let mut body = beside(size, move || Ok(json::parse(&bytes)?)).await?;
    if watch.moderation.may_object(watch.who.roles) {
        room.cover(size.saturating_mul(LOOKED_AT))?;
        moderate(&mut body, &watch.moderation, &watch.who).await?;
    }
    let read = Read { body, size, room };
    beside(size, move || Taken::of(read, &order, &known)).await
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
        let message = "something went wrong inside";
        Err(ApiError::new(FailureKind::Internal, message))
    })
}

impl Known {
    /// The id of the model that is meant.
    fn model(&self, request: &ChatRequest) -> Arc<str> {
        let sizes = &self.settings.sizes;
        let auto = Auto::called(&request.model);
        let chosen =
            auto.and_then(|auto| auto.choose(request, &self.board.overview().models, sizes));
        chosen.unwrap_or_else(|| self.models.id(&request.model))
    }
}

impl Taken {
    fn of(read: Read, order: &Order, known: &Known) -> Result<Self, ApiError> {
        let Read { body, size, room } = read;
        let mut request = ChatRequest::read(body.clone(), Strictness::Refuse)?;
        // As the client wrote it, for strangers' workers, and for each choice.
        let kept = room.keep(size.saturating_mul(2 + request.choices as usize))?;
        let requested = request.model.clone();
        request.model = known.model(&request);
        let routing = Auto::called(&requested).map(|_| Routing {
            requested,
            resolved: request.model.clone(),
        });
        Ok(Self {
            routing,
            seed: order.seed_of(&request),
            jobs: order.jobs(&request, for_strangers(body)),
            request,
            kept,
        })
    }
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
            Next::Failed(failure) => return Err(failure.into()),
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
