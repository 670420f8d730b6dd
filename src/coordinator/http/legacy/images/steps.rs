//! `POST /api/v2/generate/progress`: progress reports of workers, which clients read.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::super::submit::not_taken;
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::pollers::{NotTaken, Pollers};
use muster_protocol::job::{JobId, Progress};
use muster_protocol::legacy::submit::ProgressInput;
use muster_protocol::legacy::{Body, Refusal};

pub async fn progress(
    State(pollers): State<Pollers>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let said = ProgressInput::parse(&whole?.bytes)?;
    let job = said.id.parse().map(JobId);
    let job = job.map_err(|_| Refusal::unknown_job(&said.id))?;
    let progress = Progress::at(
        steps("current_step", said.current_step)?,
        steps("total_steps", said.total_steps)?,
    );
    let told = pollers.progress(caller.account, job, progress).await;
    told.map_err(|not| refusal(not, job))?;
    Ok(StatusCode::OK.into_response())
}

fn steps(name: &str, number: i64) -> Result<u32, Refusal> {
    let wanted = || format!("must be a number of steps, found {number}");
    u32::try_from(number).map_err(|_| Refusal::invalid(name, wanted()))
}

/// A progress report for a job that has ended gets 400.
fn refusal(not: NotTaken, job: JobId) -> Refusal {
    match not {
        NotTaken::Already | NotTaken::TakenAway => {
            Refusal::plain(400, format!("Processing Job with ID {job} has ended"))
        }
        other => not_taken(other, job),
    }
}
