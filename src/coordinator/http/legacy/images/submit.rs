//! `POST /api/v2/generate/submit`: a worker submits an image or a fault.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tracing::warn;

use super::super::body::read;
use super::super::submit::not_taken;
use super::{give_back, key_of};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::pictures::{Results, Unfit};
use crate::pollers::{Attempt, Made, Pollers};
use crate::state::DoorSettings;
use muster_protocol::job::{self, JobId, Kind, Product, Remark};
use muster_protocol::legacy::image::metadata::{GenerationMetadataImage, hidden};
use muster_protocol::legacy::submit::{
    GenerationSubmitted, MOST_REMARKS, SubmitInputImage, UPLOADED,
};
use muster_protocol::legacy::words::{SubmitState, Word};
use muster_protocol::legacy::{Code, Refusal};

/// The most bytes of an image that comes as base64.
const MOST_BYTES: usize = 64 << 20;

pub async fn submit(
    State(pollers): State<Pollers>,
    State(results): State<Results>,
    State(settings): State<Arc<DoorSettings>>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let (brought, _room) = read::<SubmitInputImage>(whole)?;
    let remarks = brought.gen_metadata.as_ref().map_or(0, Vec::len);
    if remarks > MOST_REMARKS {
        let message =
            format!("gen_metadata must contain at most {MOST_REMARKS} entries, found {remarks}");
        return Err(Refusal::new(Code::BadRequest, message).into());
    }
    let job = brought.id.parse().map(JobId);
    let job = job.map_err(|_| Refusal::unknown_job(&brought.id))?;
    let attempt = pollers.attempt(caller.account, job, Kind::Image).await;
    let attempt = attempt.map_err(|not| not_taken(not, job))?;
    let made = match brought.state {
        SubmitState::Faulted => Made::Fault,
        _ => match made(&brought, &attempt, &results, &settings).await {
            Ok(made) => made,
            Err(unfit) => {
                let refusal = give_back(&pollers, caller.account, attempt, unfit).await;
                return Err(refusal.into());
            }
        },
    };
    let reward = pollers.bring_alone(caller.account, attempt, made).await;
    let reward = reward.map_err(|not| not_taken(not, job))?;
    let answer = GenerationSubmitted {
        reward: reward.0 as f64 / 1000.0,
    };
    Ok(reply::json(StatusCode::OK, &answer))
}

/// The key of the output is unique to this attempt, so a late submit never replaces another attempt's image.
async fn made(
    brought: &SubmitInputImage,
    attempt: &Attempt,
    results: &Results,
    settings: &DoorSettings,
) -> Result<Made, Unfit> {
    let key = key_of(attempt.id);
    let remarks = brought.gen_metadata.as_deref().unwrap_or_default();
    let hidden = hidden(remarks);
    let drawn = match hidden {
        Some(_) => attempt.drawn.of_any_size(),
        None => attempt.drawn,
    };
    let development = settings.development.as_ref();
    let is_filled_in = development.is_some_and(|development| development.fills_in_images);
    let remarked: Vec<Remark> = remarks.iter().map(remark).collect();
    match &*brought.generation {
        UPLOADED => match results.take_in(key, drawn).await {
            Err(Unfit::Missing) if is_filled_in => {
                results.fill_in(key, drawn).await?;
                warn!("no image was uploaded for job {key}: a gray one stands in");
            }
            taken => taken?,
        },
        image => results.take_text(image, MOST_BYTES, key, drawn).await?,
    }
    let output = job::Media {
        seed: u64::try_from(brought.seed).ok(),
        key: key.to_string(),
        content_type: key.kind().content_type().to_owned(),
        remarks: remarked,
        size: attempt.drawn.asked_size(),
        ..job::Media::default()
    };
    Ok(Made::Brought {
        product: Product::Media(output),
        hidden,
    })
}

fn remark(remark: &GenerationMetadataImage) -> Remark {
    Remark {
        r#type: remark.r#type.word().to_owned(),
        value: remark.value.word().to_owned(),
        r#ref: remark.r#ref.clone(),
    }
}
