//! `POST /api/v2/generate/text/submit`: a text worker submits a result.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::body::read;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::pollers::{Made, NotTaken, Pollers};
use muster_protocol::job::{Hidden, JobId, Kind, Note, Product, Remark, Text};
use muster_protocol::legacy::submit::{GenerationSubmitted, MOST_REMARKS, SubmitInputText};
use muster_protocol::legacy::words::SubmitState;
use muster_protocol::legacy::{Code, Refusal};

pub async fn submit(
    State(pollers): State<Pollers>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let (brought, _room) = read::<SubmitInputText>(whole)?;
    let remarks = brought.gen_metadata.as_ref().map_or(0, Vec::len);
    if remarks > MOST_REMARKS {
        let message =
            format!("gen_metadata must contain at most {MOST_REMARKS} entries, found {remarks}");
        return Err(Refusal::new(Code::BadRequest, message).into());
    }
    let id = brought.id.clone();
    let job: JobId = id
        .parse()
        .map(JobId)
        .map_err(|_| Refusal::unknown_job(&id))?;
    let attempt = pollers.attempt(caller.account, job, Kind::Text).await;
    let attempt = attempt.map_err(|not| not_taken(not, job))?;
    let made = made(brought);
    let reward = pollers.bring_alone(caller.account, attempt, made).await;
    let reward = reward.map_err(|not| not_taken(not, job))?;
    let answer = GenerationSubmitted {
        reward: reward.0 as f64 / 1000.0,
    };
    Ok(reply::json(StatusCode::OK, &answer))
}

/// The result of a submit. A censorship remark in `gen_metadata` counts even if `state` says `ok`.
fn made(brought: SubmitInputText) -> Made {
    let remarks = brought.gen_metadata.unwrap_or_default();
    let hidden = match brought.state {
        SubmitState::Faulted => return Made::Fault,
        SubmitState::Csam => Some(Hidden::Unlawful),
        // The only other remark.
        _ if !remarks.is_empty() => Some(Hidden::Unlawful),
        SubmitState::Censored => Some(Hidden::Censored),
        SubmitState::Ok => None,
    };
    let note = Note {
        seed: brought.seed,
        remarks: remarks.iter().map(Remark::from).collect(),
    };
    let text = brought.generation;
    Made::Brought {
        product: Product::Text(Text { text, note }),
        hidden,
    }
}

pub fn not_taken(not: NotTaken, job: JobId) -> Refusal {
    match not {
        NotTaken::Unknown => Refusal::unknown_job(job),
        NotTaken::NotYours => Code::WrongCredentials.into(),
        NotTaken::Already => Refusal::already_submitted(job),
        NotTaken::TakenAway => Refusal::taken_away(job),
        NotTaken::TooLong { bytes, most } => {
            let message = format!("the result must have at most {most} bytes, found {bytes}");
            Refusal::new(Code::BadRequest, message)
        }
        NotTaken::Unavailable => Refusal::plain(503, "saving the result failed; submit it again"),
    }
}
