//! Models of this machine's worker. `POST /api/pull`: a model of the catalog is downloaded and served. `DELETE /api/delete`:
//! a model is served no more and its files are removed. A copy only loses its name.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{LINES, copy};
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::bodies;
use crate::http::open::KnownModels;
use crate::http::reply::Reply;
use crate::http::text::with_ignored;
use crate::local_models::{DeleteError, LocalModelsSlot, PullError, PullProgress};
use crate::storage::Store;
use muster_protocol::job::FailureKind;
use muster_protocol::ollama::{DeleteRequest, PullRequest};

/// Interval of lines about bytes.
const LINE_INTERVAL: Duration = Duration::from_millis(200);

pub async fn pull(
    State(models): State<LocalModelsSlot>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let request = bodies::read(whole?, PullRequest::read).await?;
    let models = models.get().ok_or_else(|| {
        without_worker(
            "this coordinator has no worker of its own to download models for; \
             `worker models pull` downloads them on the machine of a worker",
        )
    })?;
    let ignored = request.ignored.clone();
    let (told, progress) = watch::channel(PullProgress::default());
    let work = models.pull(request.model.clone(), told);
    let mut response = match request.streams {
        true => {
            let pulling = WatchedPull {
                request,
                work,
                progress,
                stage: PullStage::New,
            };
            let lines = unfold(pulling, |mut pulling| async {
                let line = pulling.next().await?;
                Some((Ok::<_, Infallible>(format!("{line}\n")), pulling))
            });
            ([(CONTENT_TYPE, LINES)], Body::from_stream(lines)).into_response()
        }
        false => {
            work.await?;
            Reply(PullRequest::succeeded()).into_response()
        }
    };
    with_ignored(&mut response, &ignored);
    Ok(response)
}

pub async fn delete(
    State(models): State<LocalModelsSlot>,
    (State(known), State(store)): (State<Arc<KnownModels>>, State<Store>),
    whole: Result<Whole, ApiError>,
) -> Result<Response, ApiError> {
    let request = bodies::read(whole?, DeleteRequest::read).await?;
    if !copy::remove(&request.model, &known, &store).await? {
        let models = models.get().ok_or_else(|| {
            without_worker(
                "this coordinator has no worker of its own; \
                 `worker models rm` removes the files of a model on the machine of a worker",
            )
        })?;
        models.delete(request.model).await?;
    }
    let mut response = StatusCode::OK.into_response();
    with_ignored(&mut response, &request.ignored);
    Ok(response)
}

fn without_worker(message: &'static str) -> ApiError {
    ApiError::new(FailureKind::NotBuilt, message)
}

/// A download that a client follows line by line.
struct WatchedPull {
    request: PullRequest,
    work: BoxFuture<'static, Result<(), PullError>>,
    progress: watch::Receiver<PullProgress>,
    stage: PullStage,
}

enum PullStage {
    New,
    Running,
    Ended,
}

impl WatchedPull {
    async fn next(&mut self) -> Option<Value> {
        match self.stage {
            PullStage::New => {
                self.stage = PullStage::Running;
                Some(PullRequest::begun())
            }
            PullStage::Running => Some(self.running().await),
            PullStage::Ended => None,
        }
    }

    async fn running(&mut self) -> Value {
        let (progress, work) = (&mut self.progress, &mut self.work);
        let told = async {
            sleep(LINE_INTERVAL).await;
            // A closed channel means that the work has ended, which the other branch reports.
            let _ = progress.changed().await;
            *progress.borrow_and_update()
        };
        tokio::select! {
            biased;
            ended = work => {
                self.stage = PullStage::Ended;
                match ended {
                    Ok(()) => PullRequest::succeeded(),
                    Err(error) => PullRequest::failed(&error.to_string()),
                }
            }
            now = told => match now.is_loading {
                true => PullRequest::loading(),
                false => self.request.moved(now.completed, now.total),
            },
        }
    }
}

impl From<PullError> for ApiError {
    fn from(error: PullError) -> Self {
        let kind = match error {
            PullError::Unknown(_) => FailureKind::ModelNotFound,
            PullError::Failed(_) => FailureKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<DeleteError> for ApiError {
    fn from(error: DeleteError) -> Self {
        let kind = match error {
            DeleteError::Unknown(_) => FailureKind::ModelNotFound,
            DeleteError::Kept(_) => FailureKind::InvalidRequest,
            DeleteError::Failed(_) => FailureKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}
