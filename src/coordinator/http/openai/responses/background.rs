//! Background responses: they run without a connected client, and start again after a restart of the coordinator.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use crate::accounts::{Accounts, Caller};
use crate::error::ApiError;
use crate::http::auth::SUSPENDED;
use crate::http::auto::Auto;
use crate::http::open::{KnownModels, Open};
use crate::http::reply::Reply;
use crate::http::text::{Incoming, TextEndpoint};
use crate::responses::{Recording, Responses};
use crate::state::DoorSettings;
use crate::storage::{OpenResponse, ResponseRow, Store};
use crate::switchboard::{Overview, Switchboard};
use crate::values::Roles;
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, FailureKind, RequestId};
use muster_protocol::openai::responses::{Context, Intent, request_of};

use super::create::{context, foreground, no_store, sources};
use super::events;

/// Retry interval of a refused start, besides changes of workers and ends of other responses.
const RETRIED: Duration = Duration::from_secs(15);
/// Most starts of a response: one that crashed the coordinator twice is not started again.
const MOST_BEGINNINGS: i64 = 2;

/// A response to generate.
pub struct Run {
    pub endpoint: TextEndpoint,
    pub incoming: Incoming<Value>,
    pub context: Context,
    pub truncates: bool,
    pub recording: Recording,
}

/// Returns when the jobs are queued and the response is stored, or with the error of either.
pub async fn start(
    run: Run,
    responses: &Responses,
    tasks: &Tasks,
    is_streamed: bool,
) -> Result<Response, ApiError> {
    let live = run.recording.live().clone();
    let heartbeat = run.endpoint.heartbeat();
    let beginning = run.recording.beginning();
    let stopping = tasks.stopping();
    // A response cut off by shutdown stays unfinished in the database, and starts again after it.
    let running = async move { stopping.run_until_cancelled(run.finish()).await.flatten() };
    let running = tasks.start(running);
    // A client that leaves before it knows the id gets no response.
    let unknown = live.cancelled().drop_guard();
    let Ok(response) = beginning.await else {
        let refused = running.await.ok().flatten();
        unknown.disarm();
        return Ok(refused.unwrap_or_else(|| internal().into_response()));
    };
    if responses.save(&live).await.is_err() {
        live.delete();
        return Err(no_store());
    }
    unknown.disarm();
    match is_streamed {
        true => events::follow(live, 0, (heartbeat, tasks.stopping())),
        false => Ok(Reply(response).into_response()),
    }
}

impl Run {
    /// `None` if it had started; else the error of a request that cannot be served.
    async fn finish(self) -> Option<Response> {
        let Self {
            endpoint,
            incoming,
            context,
            truncates,
            recording,
        } = self;
        let cancelled = recording.live().cancelled();
        let work = async {
            let answer = foreground(&endpoint, incoming, context, truncates).await;
            let response = answer.unwrap_or_else(ApiError::into_response);
            if !recording.has_begun() {
                recording.refuse();
                return Some(response);
            }
            if let Some(error) = response.extensions().get::<ApiError>() {
                recording.failed(error);
            }
            // Reading the body records the events as they are written.
            let mut body = response.into_body();
            while let Some(Ok(_)) = body.frame().await {}
            None
        };
        match cancelled.run_until_cancelled(work).await {
            Some(refused) => refused,
            None => {
                recording.cancelled();
                None
            }
        }
    }
}

/// Restarts the background responses of an earlier process, each once a worker of its model is online. Reads them one
/// by one.
pub async fn resume(open: Open) {
    let (responses, tasks) = (Responses::from_ref(&open), Tasks::from_ref(&open));
    let left = match responses.unfinished().await {
        Ok(left) => left,
        Err(error) => return warn!("reading unfinished background responses failed: {error}"),
    };
    if !left.is_empty() {
        info!("{} background responses wait to begin again", left.len());
    }
    let turn = Arc::new(Semaphore::new(1));
    let mut accounts: HashMap<AccountId, Arc<Semaphore>> = HashMap::new();
    for response in left {
        let account = accounts.entry(response.account);
        let again = Resumption {
            recording: responses.resume(&response),
            open: open.clone(),
            board: Switchboard::from_ref(&open),
            models: FromRef::from_ref(&open),
            responses: responses.clone(),
            turn_of_account: account
                .or_insert_with(|| Arc::new(Semaphore::new(1)))
                .clone(),
            response,
            turn: turn.clone(),
        };
        let stopping = tasks.stopping();
        tasks.start(async move { stopping.run_until_cancelled(again.run()).await });
    }
}

/// A restarted response.
struct Resumption {
    open: Open,
    board: Switchboard,
    models: Arc<KnownModels>,
    responses: Responses,
    response: OpenResponse,
    recording: Recording,
    /// Restarted responses are read one at a time.
    turn: Arc<Semaphore>,
    /// Starts of one account take turns: while one is refused, the others are not read.
    turn_of_account: Arc<Semaphore>,
}

/// Outcome of a restart.
enum BeginningTry {
    /// Started, and has ended or was cut off.
    Began,
    /// Ended, or deleted.
    Gone,
    Refused(ApiError),
}

impl Resumption {
    async fn run(self) {
        let settings: Arc<DoorSettings> = FromRef::from_ref(&self.open);
        let until = Instant::now() + settings.lifetime;
        let cancelled = self.recording.live().cancelled();
        let ended = match cancelled.run_until_cancelled(self.until_begun(until)).await {
            Some(None) => return,
            Some(Some(error)) => Some(error),
            None => None,
        };
        if self.recording.live().is_deleted() || self.recording.live().is_ended() {
            return;
        }
        self.end(ended).await;
    }

    /// The error it ends with, if it did not start.
    async fn until_begun(&self, until: Instant) -> Option<ApiError> {
        // A response that can never start fails at once, even without a worker online.
        match self.check().await {
            BeginningTry::Began => {}
            BeginningTry::Gone => {
                self.responses.forget(self.recording.live());
                return None;
            }
            BeginningTry::Refused(error) => return Some(error),
        }
        loop {
            if timeout_at(until, self.served()).await.is_err() {
                return Some(no_worker());
            }
            let mut account = self.turn_of_account.acquire().await.ok();
            let (mut members, mut ends) = (self.board.members(), self.responses.ends());
            let error = match self.begin(&mut account).await {
                BeginningTry::Began => return None,
                BeginningTry::Gone => {
                    self.responses.forget(self.recording.live());
                    return None;
                }
                BeginningTry::Refused(error) => error,
            };
            if !is_worth_waiting(&error) || Instant::now() >= until {
                return Some(error);
            }
            tokio::select! {
                _ = members.changed() => {}
                _ = ends.changed() => {}
                () = sleep(RETRIED) => {}
            }
            drop(account);
        }
    }

    /// Parses all of it, and keeps nothing.
    async fn check(&self) -> BeginningTry {
        let _turn = self.turn.acquire().await;
        match self.read().await {
            Ok(None) => BeginningTry::Gone,
            Err(error) if !is_worth_waiting(&error) => BeginningTry::Refused(error),
            Ok(Some(_)) | Err(_) => BeginningTry::Began,
        }
    }

    /// Returns when a worker of the response's model is online.
    async fn served(&self) {
        let mut members = self.board.members();
        loop {
            members.mark_unchanged();
            let overview = self.board.current().await;
            if self.is_served(&overview) {
                return;
            }
            if members.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    fn is_served(&self, overview: &Overview) -> bool {
        let mut texts = overview.models.iter().filter(|model| model.writes_text());
        match self.response.model.as_deref() {
            Some(name) if Auto::called(name).is_none() => {
                overview.model(&self.models.id(name)).is_some()
            }
            _ => texts.next().is_some(),
        }
    }

    /// Starts the response. Others wait until its jobs are queued or refused.
    async fn begin(&self, account: &mut Option<SemaphorePermit<'_>>) -> BeginningTry {
        let Ok(turn) = self.turn.acquire().await else {
            return BeginningTry::Refused(internal());
        };
        let run = match self.read().await {
            Ok(Some(run)) => run,
            Ok(None) => return BeginningTry::Gone,
            Err(error) => return BeginningTry::Refused(error),
        };
        let id = &self.response.id;
        if self.responses.note_beginning(id).await.is_err() {
            return BeginningTry::Refused(no_store());
        }
        let beginning = self.recording.beginning();
        let running = run.finish();
        tokio::pin!(running);
        let refused = tokio::select! {
            refused = &mut running => refused,
            _ = beginning => {
                drop((turn, account.take()));
                running.await
            }
        };
        let Some(refused) = refused else {
            return BeginningTry::Began;
        };
        if let Err(error) = self.responses.take_back_beginning(id).await {
            warn!("noting that the background response {id} has not begun failed: {error}");
        }
        let error = refused.extensions().get::<ApiError>().cloned();
        BeginningTry::Refused(error.unwrap_or_else(internal))
    }

    /// None if it has ended, or was deleted.
    async fn read(&self) -> Result<Option<Run>, ApiError> {
        let begun = self.responses.beginnings(&self.response).await;
        let Some(begun) = begun.map_err(|_| no_store())? else {
            return Ok(None);
        };
        if begun >= MOST_BEGINNINGS {
            return Err(begun_too_often(begun));
        }
        let store = Store::from_ref(&self.open);
        let owner = store.account(self.response.account);
        let owner = owner.await.map_err(|_| no_store())?.ok_or_else(no_owner)?;
        if owner.roles.contains(Roles::SUSPENDED) {
            return Err(ApiError::new(FailureKind::AccountSuspended, SUSPENDED));
        }
        let row = self.responses.stored(&self.response).await;
        let Some(row) = row.map_err(|_| no_store())? else {
            return Ok(None);
        };
        let request = request_of(&row.id).and_then(|id| id.parse().ok());
        let request = request.map(RequestId).ok_or_else(unreadable)?;
        let delivered = self.responses.is_delivered(request, &row).await;
        if delivered.map_err(|_| no_store())? {
            return Err(already_charged());
        }
        let endpoint = TextEndpoint::resumed(&self.open, Caller::returning(owner), request);
        self.run_of(endpoint, row).await.map(Some)
    }

    async fn run_of(&self, endpoint: TextEndpoint, row: ResponseRow) -> Result<Run, ApiError> {
        let body = row.body.unwrap_or_default();
        let size = body.len();
        // A body may be large, and other requests are served meanwhile.
        let parsed = spawn_blocking(move || serde_json::from_str::<Value>(&body).ok());
        let parsed = parsed.await.ok().flatten().ok_or_else(unreadable)?;
        let intent = Intent::of(&parsed);
        let mut incoming = endpoint.parsed(parsed, size)?;
        let sources = sources(&self.responses, &endpoint, &intent, &mut incoming).await?;
        let mut context = context(&Accounts::from_ref(&self.open), &endpoint, &sources);
        context.recorder = Some(Arc::new(self.recording.clone()));
        Ok(Run {
            endpoint,
            incoming,
            context,
            truncates: intent.truncates,
            recording: self.recording.clone(),
        })
    }

    /// Cancelled if there is no error. The stored text becomes final.
    async fn end(&self, error: Option<ApiError>) {
        if !self.recording.is_on_disk() {
            return match error {
                Some(error) => self.recording.failed(&error),
                None => self.recording.cancelled(),
            };
        }
        let row = loop {
            match self.responses.stored(&self.response).await {
                Ok(row) => break row,
                Err(_) => sleep(RETRIED).await,
            }
        };
        let Some(row) = row else {
            return self.responses.forget(self.recording.live());
        };
        let id = &self.response.id;
        let stored = serde_json::from_str(&row.response).ok();
        let stored = stored.filter(Value::is_object);
        let stored = stored.unwrap_or_else(|| self.bare());
        if let Some(error) = &error {
            warn!("the background response {id} does not begin again: {error}");
        }
        let status = if error.is_some() {
            "failed"
        } else {
            "cancelled"
        };
        self.recording.end_stored(stored, status, error.as_ref());
    }

    /// The known fields of a response whose text cannot be parsed.
    fn bare(&self) -> Value {
        json!({
            "id": self.response.id,
            "object": "response",
            "created_at": 0,
            "background": true,
            "model": self.response.model,
            "error": null,
            "incomplete_details": null,
            "output": [],
            "usage": null,
        })
    }
}

fn is_worth_waiting(error: &ApiError) -> bool {
    matches!(
        error.failure.kind,
        FailureKind::ModelNotFound
            | FailureKind::ModelOffline
            | FailureKind::NoWorker
            | FailureKind::QueueFull
            | FailureKind::StoreUnavailable
            | FailureKind::InFlightLimit
            | FailureKind::RateLimited
    )
}

fn no_worker() -> ApiError {
    let message = "no worker of this model came in time after a restart of the coordinator";
    ApiError::new(FailureKind::NoWorker, message)
}

fn begun_too_often(times: i64) -> ApiError {
    let message = format!(
        "the coordinator stopped {times} times while this response ran: it is not begun again; create a new one"
    );
    ApiError::new(FailureKind::BadJob, message)
}

fn no_owner() -> ApiError {
    let message = "the account of this response does not exist any more";
    ApiError::new(FailureKind::AccountDeleted, message)
}

fn unreadable() -> ApiError {
    let message = "reading the stored request failed: it cannot begin again; create a new response";
    ApiError::new(FailureKind::Internal, message)
}

fn already_charged() -> ApiError {
    let message = "the coordinator stopped between charging this response and storing it: its output is lost, and it is \
                   not charged again; create a new one";
    ApiError::new(FailureKind::Internal, message)
}

fn internal() -> ApiError {
    let message = "internal error; give the operator the x-request-id of this response";
    ApiError::new(FailureKind::Internal, message)
}
