//! The URLs of the owner's page, one handler each.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Query, Request, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::Utc;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::guard::guard;
use super::history::{PlotReport, PlotSpan, plot};
use super::models::CatalogReport;
use super::{FileSettings, OwnerTools, PageError, PageSources};
use crate::daemon::control::{CommandCause, CommandReply, OwnerCommand};
use crate::daemon::report::WorkerReport;
use muster_config::{Origin, OwnerConfig, SettingChange};
use muster_process::telemetry;

const HTML: &str = include_str!("page.html");
const LONGEST_BODY: usize = 64 << 10;
/// Until a change of the settings is in force. A worker that loads models takes it over later.
const RELOAD_TIME: Duration = Duration::from_secs(10);

type PageState = State<Arc<PageSources>>;

pub fn router(sources: Arc<PageSources>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/api/status", get(status))
        .route("/api/history", get(history))
        .route("/api/log", get(log))
        .route("/api/settings", get(settings).put(change))
        .route("/api/doctor", post(doctor))
        .route("/api/pause", post(pause))
        .route("/api/resume", post(resume))
        .route("/api/models", get(models))
        .route("/api/models/pull", post(pull))
        .route("/api/models/stop", post(stop))
        .route("/api/models/load", post(load))
        .route("/api/models/unload", post(unload))
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(from_fn_with_state(Arc::clone(&sources), guard))
        .with_state(sources)
}

/// A body of JSON, or an error as the page shows it.
struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = PageError;

    async fn from_request(request: Request, state: &S) -> Result<Self, PageError> {
        let Json(body) = Json::from_request(request, state).await?;
        Ok(Self(body))
    }
}

impl From<JsonRejection> for PageError {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

async fn nothing() -> PageError {
    PageError::new(StatusCode::NOT_FOUND, "there is nothing at this URL")
}

/// `GET /`
async fn page() -> Response {
    static POLICY: LazyLock<Option<HeaderValue>> =
        LazyLock::new(|| HeaderValue::try_from(muster_pages::policy(HTML)).ok());
    let nothing = HeaderValue::from_static("default-src 'none'");
    let policy = POLICY.clone().unwrap_or(nothing);
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let headers = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, policy)];
    (headers, HTML).into_response()
}

/// `GET /api/status`
async fn status(State(sources): PageState) -> Json<WorkerReport> {
    Json(sources.state.report())
}

#[derive(Deserialize)]
struct HistoryQuery {
    span: String,
}

/// `GET /api/history?span=day`
async fn history(
    State(sources): PageState,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<PlotReport>, PageError> {
    let span = PlotSpan::named(&query.span);
    let span =
        span.ok_or_else(|| PageError::new(StatusCode::BAD_REQUEST, "span must be day or week"))?;
    let now = Utc::now().timestamp();
    let samples = sources.state.history().samples_after(now - span.seconds());
    Ok(Json(plot(&samples, span, now, sources.state.prices())))
}

#[derive(Deserialize)]
struct LogQuery {
    #[serde(default)]
    after: u64,
}

/// `GET /api/log?after=NUMBER`
async fn log(Query(query): Query<LogQuery>) -> Json<Value> {
    let lines = telemetry::lines_after(query.after).into_iter();
    let lines: Vec<Value> = lines
        .map(|(number, text)| json!({"number": number, "text": text}))
        .collect();
    Json(json!({"lines": lines}))
}

/// `GET /api/settings`
async fn settings(State(sources): PageState) -> Result<Json<Value>, PageError> {
    let tools = Arc::clone(&sources.tools);
    let read = spawn_blocking(move || tools.settings());
    let read = read.await.unwrap_or_else(|error| Err(error.to_string()));
    let read = read.map_err(|error| PageError::new(StatusCode::CONFLICT, error))?;
    Ok(Json(shown(&read, &*sources.tools)))
}

fn shown(settings: &FileSettings, tools: &dyn OwnerTools) -> Value {
    let described = OwnerConfig::SETTINGS.iter().filter_map(|setting| {
        let mut all = settings.found.iter();
        let found = all.find(|found| found.name == setting.name())?;
        // A variable or a flag counts more than the file.
        let set_by = match &found.origin {
            Origin::Variable(_) | Origin::Flag(_) => Some(found.origin.to_string()),
            Origin::Default | Origin::File(_) => None,
        };
        Some(json!({
            "name": found.name,
            "about": setting.doc.trim(),
            "value": found.is_set.then_some(&found.value),
            "default": setting.default,
            "unset": setting.unset,
            "is_in_file": matches!(found.origin, Origin::File(_)),
            "set_by": set_by,
            "needs_restart": !tools.is_live(&found.name),
        }))
    });
    let described: Vec<Value> = described.collect();
    json!({"file": settings.file, "settings": described})
}

/// `PUT /api/settings`, with `{"owner.hours": "22:00-07:00"}`; null takes a setting out of the file.
async fn change(
    State(sources): PageState,
    Body(body): Body<Map<String, Value>>,
) -> Result<Json<Value>, PageError> {
    let changes: Result<Vec<SettingChange>, PageError> = body
        .into_iter()
        .map(|(name, value)| change_of(name, &value))
        .collect();
    let changes = changes?;
    let _one = sources.changing.lock().await;
    let mut taken_over = sources.state.settings();
    taken_over.mark_unchanged();
    let tools = Arc::clone(&sources.tools);
    let changed = spawn_blocking(move || tools.change(&changes));
    let changed = changed.await.unwrap_or_else(|error| Err(error.to_string()));
    changed.map_err(|error| PageError::new(StatusCode::BAD_REQUEST, error))?;
    sources.tools.reload();
    let is_in_force = timeout(RELOAD_TIME, taken_over.changed()).await.is_ok();
    Ok(Json(json!({"is_in_force": is_in_force})))
}

/// The page changes the rules of the owner and no other settings.
fn change_of(name: String, value: &Value) -> Result<SettingChange, PageError> {
    if !name.starts_with("owner.") {
        let text = format!("{name} is no setting of [owner]: edit the file");
        return Err(PageError::new(StatusCode::BAD_REQUEST, text));
    }
    let value = match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    Ok(SettingChange { name, value })
}

/// `POST /api/doctor`
async fn doctor(State(sources): PageState) -> Json<Value> {
    let findings = sources.tools.doctor().await.into_iter();
    let checks: Vec<Value> = findings
        .map(|finding| {
            json!({
                "check": finding.check,
                "verdict": finding.verdict,
                "finding": finding.finding,
                "advice": finding.advice,
            })
        })
        .collect();
    Json(json!({"checks": checks}))
}

#[derive(Deserialize)]
struct PauseBody {
    seconds: Option<u64>,
    #[serde(default)]
    after_jobs: bool,
}

/// `POST /api/pause`
async fn pause(
    State(sources): PageState,
    Body(body): Body<PauseBody>,
) -> Result<Json<Value>, PageError> {
    let command = OwnerCommand::Pause {
        duration: body.seconds.map(Duration::from_secs),
        after_jobs: body.after_jobs,
    };
    reply(sources.commands.carry_out(command).await)
}

/// `POST /api/resume`
async fn resume(State(sources): PageState) -> Result<Json<Value>, PageError> {
    reply(sources.commands.carry_out(OwnerCommand::Resume).await)
}

/// `GET /api/models`
async fn models(State(sources): PageState) -> Json<CatalogReport> {
    Json(sources.models.report().await)
}

#[derive(Deserialize)]
struct ModelBody {
    name: String,
}

/// `POST /api/models/pull`
async fn pull(
    State(sources): PageState,
    Body(body): Body<ModelBody>,
) -> Result<(StatusCode, Json<Value>), PageError> {
    let started = sources.models.pull(&body.name);
    started.map_err(|error| PageError::new(StatusCode::NOT_FOUND, error.to_string()))?;
    Ok((StatusCode::ACCEPTED, Json(json!({"model": body.name}))))
}

/// `POST /api/models/stop`
async fn stop(
    State(sources): PageState,
    Body(body): Body<ModelBody>,
) -> Result<Json<Value>, PageError> {
    match sources.models.stop(&body.name) {
        true => Ok(Json(json!({"model": body.name}))),
        false => {
            let text = format!("no download of {} runs", body.name);
            Err(PageError::new(StatusCode::NOT_FOUND, text))
        }
    }
}

/// `POST /api/models/load`
async fn load(
    State(sources): PageState,
    Body(body): Body<ModelBody>,
) -> Result<Json<Value>, PageError> {
    reply(
        sources
            .commands
            .carry_out(OwnerCommand::Load(body.name))
            .await,
    )
}

/// `POST /api/models/unload`
async fn unload(
    State(sources): PageState,
    Body(body): Body<ModelBody>,
) -> Result<Json<Value>, PageError> {
    reply(
        sources
            .commands
            .carry_out(OwnerCommand::Unload(body.name))
            .await,
    )
}

fn reply(reply: CommandReply) -> Result<Json<Value>, PageError> {
    match reply {
        Ok(outcome) => Ok(Json(json!({
            "model": outcome.model,
            "state": outcome.state,
            "text": outcome.text,
        }))),
        Err(failure) => {
            let status = match failure.cause {
                CommandCause::Unknown | CommandCause::NotHere => StatusCode::NOT_FOUND,
                CommandCause::DoesNotFit | CommandCause::Configured => StatusCode::CONFLICT,
                CommandCause::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            };
            Err(PageError::new(status, failure.text))
        }
    }
}
