//! Status and results of an interrogation request.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::super::requested::{find, made, room_to_tell, unavailable};
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::reply;
use crate::http::room::Memory;
use crate::media::Media;
use crate::requests::results::found;
use crate::requests::{Ended, Output, Request, Requests};
use crate::switchboard::Stage;
use muster_protocol::job::Kind;
use muster_protocol::legacy::interrogation::{
    FormState, InterrogationFormStatus, InterrogationState, InterrogationStatus,
};
use muster_protocol::legacy::words::named;

/// `GET /api/v2/interrogate/status/{id}`
pub async fn status(
    State(requests): State<Requests>,
    (State(media), State(memory)): (State<Media>, State<Memory>),
    path: Named,
) -> Result<Response, Refused> {
    let request = find(&requests, &path, Kind::Form).await?;
    let room = room_to_tell(&made(&request), &memory)?;
    let status = look(&request, &media).await;
    Ok(reply::json_in(room, StatusCode::OK, &status))
}

/// `DELETE /api/v2/interrogate/status/{id}`: cancels, and returns the status afterwards. A worker that runs a form is
/// paid when it submits the result, as for texts and images, and never twice.
pub async fn cancel(
    State(requests): State<Requests>,
    (State(media), State(memory)): (State<Media>, State<Memory>),
    path: Named,
) -> Result<Response, Refused> {
    let request = find(&requests, &path, Kind::Form).await?;
    let cancelled = requests.cancel(&request).await;
    cancelled.map_err(|_| unavailable())?;
    let room = room_to_tell(&made(&request), &memory)?;
    let status = look(&request, &media).await;
    Ok(reply::json_in(room, StatusCode::OK, &status))
}

async fn look(request: &Request, media: &Media) -> InterrogationStatus {
    let mut forms = Vec::with_capacity(request.outputs.len());
    for output in &request.outputs {
        // All accepted forms are in the list.
        let Some(form) = output.form().and_then(named) else {
            continue;
        };
        forms.push(InterrogationFormStatus {
            form,
            state: state(request, output),
            result: result(output, media).await,
        });
    }
    let states: Vec<FormState> = forms.iter().map(|form| form.state).collect();
    InterrogationStatus {
        state: InterrogationState::of(&states),
        forms,
    }
}

fn state(request: &Request, output: &Output) -> FormState {
    match output.ended() {
        Some(Ended::Made(_)) => FormState::Done,
        Some(Ended::Cancelled | Ended::Expired) => FormState::Cancelled,
        Some(Ended::Failed(_)) => FormState::Faulted,
        None if request.is_cancelled() => FormState::Cancelled,
        None if output.stage() != Stage::Waiting => FormState::Processing,
        None => FormState::Waiting,
    }
}

async fn result(output: &Output, media: &Media) -> Option<Value> {
    match output.ended() {
        Some(Ended::Made(made)) => found(made, media).await,
        _ => None,
    }
}
