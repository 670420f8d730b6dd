//! Kudos transfers between users, and awards by administrators.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;

use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::people::{Gift, Giving, NotGiven};
use muster_protocol::job::Kudos;
use muster_protocol::legacy::kudos::{
    KudosAwardInput, KudosAwarded, KudosTransferInput, KudosTransferred,
};
use muster_protocol::legacy::{Body, Refusal};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LONGEST_KEY: usize = 255;

/// `POST /api/v2/kudos/transfer`
pub async fn transfer(
    State(giving): State<Giving>,
    Admitted(caller): Admitted,
    headers: HeaderMap,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = KudosTransferInput::parse(&whole?.bytes)?;
    let gift = Gift {
        to: &asked.username,
        amount: asked.amount,
        once: idempotency_key(&headers)?,
    };
    let given = giving.transfer(&caller, gift).await?;
    let answer = KudosTransferred {
        transferred: whole_kudos(given),
    };
    Ok(reply::json(StatusCode::OK, &answer))
}

/// `POST /api/v2/kudos/award`
pub async fn award(
    State(giving): State<Giving>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = KudosAwardInput::parse(&whole?.bytes)?;
    let gift = Gift {
        to: &asked.username,
        amount: asked.amount,
        once: None,
    };
    let given = giving.award(&caller, gift).await?;
    let answer = KudosAwarded {
        awarded: whole_kudos(given),
    };
    Ok(reply::json(StatusCode::OK, &answer))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    match key.to_str() {
        Ok(key) if key.len() <= LONGEST_KEY => Ok(Some(key).filter(|key| !key.is_empty())),
        _ => Err(Refusal::invalid(
            "Idempotency-Key",
            format!("must have at most {LONGEST_KEY} visible ASCII characters"),
        )),
    }
}

fn whole_kudos(kudos: Kudos) -> f64 {
    kudos.0 as f64 / 1000.0
}

impl From<NotGiven> for Refused {
    fn from(not: NotGiven) -> Self {
        match not {
            NotGiven::Refused(refusal) => refusal.into(),
            NotGiven::Storage(error) => error.into(),
        }
    }
}
