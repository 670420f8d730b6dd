//! `POST /api/v2/generate/submit`: a worker brings an image, or says that it could not draw it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::super::body::read;
use super::super::refused::Refused;
use super::super::submit::not_taken;
use super::{key_of, sources};
use crate::coordinator::error::ApiError;
use crate::coordinator::http::auth::Admitted;
use crate::coordinator::http::body::Whole;
use crate::coordinator::http::reply;
use crate::coordinator::media::Media;
use crate::coordinator::pictures::Pictures;
use crate::coordinator::pollers::{Attempt, Made, Pollers};
use crate::protocol::job::{self, JobId, Kind, Product, Remark};
use crate::protocol::legacy::image::metadata::{GenerationMetadataImage, hidden};
use crate::protocol::legacy::submit::{
    GenerationSubmitted, MOST_REMARKS, SubmitInputImage, UPLOADED,
};
use crate::protocol::legacy::words::{SubmitState, Word};
use crate::protocol::legacy::{Code, Refusal};

pub async fn submit(
    State(pollers): State<Pollers>,
    State(media): State<Media>,
    State(pictures): State<Pictures>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let (brought, _room) = read::<SubmitInputImage>(whole)?;
    let remarks = brought.gen_metadata.as_ref().map_or(0, Vec::len);
    if remarks > MOST_REMARKS {
        let message = format!("{remarks} entries of gen_metadata came, and {MOST_REMARKS} may");
        return Err(Refusal::new(Code::BadRequest, message).into());
    }
    let job = brought.id.parse().map(JobId);
    let job = job.map_err(|_| Refusal::unknown_job(&brought.id))?;
    let attempt = pollers.attempt(caller.account, job, Kind::Image).await;
    let attempt = attempt.map_err(|not| not_taken(not, job))?;
    let made = match brought.state {
        SubmitState::Faulted => Made::Fault,
        _ => made(&brought, &attempt, &media, &pictures).await?,
    };
    let reward = pollers.bring_alone(caller.account, attempt, made).await;
    let reward = reward.map_err(|not| not_taken(not, job))?;
    let answer = GenerationSubmitted {
        reward: reward.0 as f64 / 1000.0,
    };
    Ok(reply::json(StatusCode::OK, &answer))
}

/// Under a name that only this attempt has: whoever comes too late takes nobody's place.
async fn made(
    brought: &SubmitInputImage,
    attempt: &Attempt,
    media: &Media,
    pictures: &Pictures,
) -> Result<Made, Refusal> {
    let key = key_of(attempt.id);
    match &*brought.generation {
        UPLOADED => sources::uploaded(media, key, attempt.pixels).await?,
        image => {
            let image = sources::decoded(pictures, image, attempt.pixels).await?;
            let stored = media.put(key, image).await;
            stored.map_err(|_| sources::no_store())?;
        }
    }
    let remarks = brought.gen_metadata.as_deref().unwrap_or_default();
    let output = job::Media {
        seed: u64::try_from(brought.seed).ok(),
        key: key.to_string(),
        content_type: key.kind().content_type().to_owned(),
        remarks: remarks.iter().map(remark).collect(),
        ..job::Media::default()
    };
    Ok(Made::Brought {
        product: Product::Media(output),
        hidden: hidden(remarks),
    })
}

fn remark(remark: &GenerationMetadataImage) -> Remark {
    Remark {
        r#type: remark.r#type.word().to_owned(),
        value: remark.value.word().to_owned(),
        r#ref: remark.r#ref.clone(),
    }
}
