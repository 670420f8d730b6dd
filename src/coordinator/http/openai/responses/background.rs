//! Responses that run without their client. What a restart of the coordinator cuts off begins again after it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::accounts::{Accounts, Caller};
use crate::error::ApiError;
use crate::http::open::Open;
use crate::http::reply::Reply;
use crate::http::text::{Incoming, TextEndpoint};
use crate::responses::{Recording, Responses};
use crate::storage::{ResponseRow, Store};
use muster_process::tasks::Tasks;
use muster_protocol::job::{FailureKind, RequestId};
use muster_protocol::openai::responses::{Context, Intent, request_of};

use super::create::{context, foreground, no_store, sources};
use super::events;

/// Between two looks for workers of a response that begins again.
const RETRIED: Duration = Duration::from_secs(1);

/// A response that is to be written.
pub struct Run {
    pub endpoint: TextEndpoint,
    pub incoming: Incoming<Value>,
    pub context: Context,
    pub truncates: bool,
    pub recording: Recording,
}

/// Answers when workers were asked for it and it is on disk, or with the reason why they cannot be.
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
    // What a stop cuts off stays open on disk.
    let running = async move { stopping.run_until_cancelled(run.finish()).await.flatten() };
    let running = tasks.start(running);
    // A client that leaves before it knows the id has no response.
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
    /// None if it had begun; else the error of a request that cannot be served.
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

/// Begins again what an earlier process has left.
pub async fn resume(open: Open) {
    let responses = Responses::from_ref(&open);
    let rows = match responses.unfinished().await {
        Ok(rows) => rows,
        Err(error) => return warn!("reading unfinished background responses failed: {error}"),
    };
    if !rows.is_empty() {
        info!("beginning {} background responses again", rows.len());
    }
    for row in rows {
        let id = row.id.clone();
        if let Err(error) = begin_again(&open, row).await {
            warn!("beginning the background response {id} again failed: {error}");
        }
    }
}

async fn begin_again(open: &Open, row: ResponseRow) -> Result<(), ApiError> {
    let (responses, tasks) = (Responses::from_ref(open), Tasks::from_ref(open));
    let owner = Store::from_ref(open).account(row.account).await;
    let owner = owner.map_err(|_| no_store())?.ok_or_else(internal)?;
    let request = request_of(&row.id).and_then(|id| id.parse().ok());
    let request = request.map(RequestId).ok_or_else(internal)?;
    let endpoint = TextEndpoint::resumed(open, Caller::returning(owner), request);
    let body = row.body.unwrap_or_default();
    let body: Value = serde_json::from_str(&body).map_err(|_| internal())?;
    let intent = Intent::of(&body);
    let input = serde_json::from_str(&row.input).unwrap_or_default();
    let recording = responses.record(row.account, &intent, input, Some(body.clone()));
    recording.resume(serde_json::from_str(&row.response).unwrap_or_default());
    // The client may have deleted or cancelled it since it was read.
    let is_open = responses.is_open(&row.id, row.account).await;
    if !is_open.map_err(|_| no_store())? {
        recording.live().delete();
        return Ok(());
    }
    let sources = match sources(&responses, &endpoint, &intent).await {
        Ok(sources) => sources,
        Err(error) => {
            recording.failed(&error);
            return Err(error);
        }
    };
    let mut context = context(&Accounts::from_ref(open), &endpoint, &sources);
    context.recorder = Some(Arc::new(recording.clone()));
    let again = Resumption {
        size: row.input.len().saturating_add(sources.bytes),
        endpoint,
        body,
        context,
        truncates: intent.truncates,
        recording,
    };
    let stopping = tasks.stopping();
    tasks.start(async move { stopping.run_until_cancelled(again.until_served()).await });
    Ok(())
}

/// A response that begins again.
struct Resumption {
    endpoint: TextEndpoint,
    body: Value,
    size: usize,
    context: Context,
    truncates: bool,
    recording: Recording,
}

impl Resumption {
    /// Workers of the model may come back later than the coordinator.
    async fn until_served(self) {
        let began = Instant::now();
        while let Err(error) = self.once().await {
            if !is_worth_waiting(&error) || began.elapsed() > self.endpoint.lifetime() {
                return self.recording.failed(&error);
            }
            let cancelled = self.recording.live().cancelled();
            if cancelled
                .run_until_cancelled(sleep(RETRIED))
                .await
                .is_none()
            {
                return self.recording.cancelled();
            }
        }
    }

    async fn once(&self) -> Result<(), ApiError> {
        let run = Run {
            endpoint: self.endpoint.clone(),
            incoming: self.endpoint.parsed(self.body.clone(), self.size)?,
            context: self.context.clone(),
            truncates: self.truncates,
            recording: self.recording.clone(),
        };
        match run.finish().await {
            None => Ok(()),
            Some(refused) => {
                let error = refused.extensions().get::<ApiError>().cloned();
                Err(error.unwrap_or_else(internal))
            }
        }
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

fn internal() -> ApiError {
    let message = "internal error; give the operator the x-request-id of this response";
    ApiError::new(FailureKind::Internal, message)
}
