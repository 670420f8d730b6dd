//! `GET /v1/media/results`: state and outputs of an asynchronous request.

use std::sync::Arc;

use axum::extract::{FromRef, RawQuery, State};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::delivery::{ResultStore, unreadable};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::open::Open;
use crate::http::reply::Reply;
use crate::http::statistics::parameter;
use crate::media::{Key, Media, MediaType};
use crate::pictures::Results;
use crate::requests::{Ended, Made, MediaName, Output, Request, Requests};
use crate::storage::Store;
use muster_protocol::job::{FailureKind, JobId};
use muster_protocol::openai::hearing::reply::TranscriptForm;
use muster_protocol::openai::media::{MediaResults, MediaState, StoredMedia};

/// Requests with the same client_ref that an error names.
const MOST_NAMED: usize = 10;

pub async fn show(
    State(open): State<Open>,
    Admitted(caller): Admitted,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let name = named(query.as_deref())?;
    let found = Requests::from_ref(&open).media(caller.account, &name);
    let request = match &found[..] {
        [] => return Err(unknown()),
        [only] => only.clone(),
        several => return Err(ambiguous(several)),
    };
    request.catch_up().await;
    let store = ResultStore::new(Media::from_ref(&open), Results::from_ref(&open));
    let results = results(&request, &store).await?;
    // Read last: a job is paid before its output is seen to have ended.
    let figures = Store::from_ref(&open).media_figures(request.id).await;
    let (cost, millis) = figures.map_err(|_| no_store())?;
    let results = MediaResults {
        cost: cost.0,
        seconds: millis as f64 / 1000.0,
        ..results
    };
    Ok(Reply(results.render()))
}

/// The name in the query: a job id, or the client's own name.
fn named(query: Option<&str>) -> Result<MediaName, ApiError> {
    let job = parameter(query, "job_id");
    let client_ref = parameter(query, "client_ref");
    match (job, client_ref) {
        (Some(job), None) => {
            let id = job.parse().map(JobId).map_err(|_| unknown())?;
            Ok(MediaName::Job(id))
        }
        (None, Some(client_ref)) => Ok(MediaName::ClientRef(Arc::from(client_ref))),
        _ => {
            let message = "send exactly one of job_id and client_ref";
            Err(ApiError::new(FailureKind::InvalidRequest, message))
        }
    }
}

async fn results(request: &Request, store: &ResultStore) -> Result<MediaResults, ApiError> {
    let first = request.outputs.first();
    let mut results = MediaResults {
        job: first
            .map(|output| output.job.to_string())
            .unwrap_or_default(),
        state: MediaState::Completed,
        progress: request.percent(),
        ..MediaResults::default()
    };
    for output in &request.outputs {
        let why = match output.ended() {
            Some(Ended::Made(made)) if made.hidden.is_none() => {
                let media = link(request, output, made, store).await?;
                results.model = made.model.to_string();
                results.worker = made.worker.to_string();
                match media {
                    Some(media) => {
                        results.media.push(media);
                        continue;
                    }
                    None => FailureKind::EmptyResult.row().code,
                }
            }
            Some(Ended::Made(_)) => FailureKind::ContentRefused.row().code,
            Some(Ended::Failed(code)) => code,
            Some(Ended::Expired) => FailureKind::Expired.row().code,
            Some(Ended::Cancelled) => FailureKind::Cancelled.row().code,
            None => {
                results.state = MediaState::Pending;
                continue;
            }
        };
        results.error.get_or_insert_with(|| why.to_owned());
    }
    // A failed output ends the waiting ones.
    if results.error.is_some() && results.state == MediaState::Completed {
        results.state = MediaState::Closed;
    }
    Ok(results)
}

async fn link(
    request: &Request,
    output: &Output,
    made: &Made,
    store: &ResultStore,
) -> Result<Option<StoredMedia>, ApiError> {
    let notes = request.wishes.media.as_deref();
    let document = notes.and_then(|notes| notes.document.as_ref());
    if let (Some(document), Some(transcript)) = (document, made.product.transcript()) {
        let text = document.render(transcript.clone());
        return document_link(output, document.form, text, store)
            .await
            .map(Some);
    }
    let Some(media) = made.product.media() else {
        return Ok(None);
    };
    let Ok(key) = media.key.parse::<Key>() else {
        return Ok(None);
    };
    let wanted = notes.and_then(|notes| notes.image_type);
    let kind = wanted.unwrap_or(key.kind());
    let url = store.kept_link(key, output.drawn(), kind).await;
    Ok(Some(StoredMedia {
        url: url.map_err(|unfit| unreadable(&unfit))?,
        key: media.key.clone(),
        sha256: media.sha256.clone(),
        seed: media.seed.or(output.seed),
    }))
}

async fn document_link(
    output: &Output,
    form: TranscriptForm,
    text: String,
    store: &ResultStore,
) -> Result<StoredMedia, ApiError> {
    let kind = match form {
        TranscriptForm::Json | TranscriptForm::VerboseJson => MediaType::Json,
        TranscriptForm::Text => MediaType::PlainText,
        TranscriptForm::Srt => MediaType::Srt,
        TranscriptForm::Vtt => MediaType::Vtt,
    };
    let digest = Sha256::digest(text.as_bytes());
    let linked = store.document_link(output.job, kind, text).await;
    let (key, url) = linked.map_err(|unfit| unreadable(&unfit))?;
    Ok(StoredMedia {
        url,
        key: key.to_string(),
        sha256: Some(HEXLOWER.encode(&digest)),
        seed: None,
    })
}

/// The same for a request of another account, whose existence is a secret.
fn unknown() -> ApiError {
    let message =
        "your account has no such request: send the job_id or client_ref of a request with async";
    ApiError::new(FailureKind::InvalidRequest, message).with_status(404)
}

/// Names the requests by their jobs, the newest first.
fn ambiguous(requests: &[Arc<Request>]) -> ApiError {
    let jobs = requests.iter().rev().filter_map(|one| one.outputs.first());
    let jobs: Vec<String> = jobs
        .take(MOST_NAMED)
        .map(|output| output.job.to_string())
        .collect();
    let message = format!(
        "{} requests have this client_ref: send the job_id of one, the newest first: {}",
        requests.len(),
        jobs.join(", ")
    );
    ApiError::new(FailureKind::InvalidRequest, message).with_status(409)
}

fn no_store() -> ApiError {
    let message = "looking up the request failed: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}
