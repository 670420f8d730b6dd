//! `/api/v2/operations`: addresses that are kept out for a while. For moderators.
//!
//! A worker's address is kept out for 24 hours; `days` in the body, from 1 to 30, makes it longer, as public
//! coordinators do. Of an IPv6 address the whole /64 is kept out: its user can choose any other in it.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use crate::coordinator::address::Network;
use crate::coordinator::error::ApiError;
use crate::coordinator::http::body::Whole;
use crate::coordinator::http::legacy::asked::Named;
use crate::coordinator::http::legacy::refused::Refused;
use crate::coordinator::http::reply;
use crate::coordinator::moderation::{KeptOut, Moderation};
use crate::coordinator::storage::WorkerAddress;
use crate::protocol::legacy::operations::{
    AddTimeoutIPInput, AddWorkerTimeout, DeleteTimeoutIPInput, IPTimeout,
};
use crate::protocol::legacy::service::SimpleResponse;
use crate::protocol::legacy::{Body, Code, Refusal};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// `POST /api/v2/operations/ipaddr`
pub async fn block(
    State(moderation): State<Moderation>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = AddTimeoutIPInput::parse(&whole?.bytes)?;
    let network = network(&asked.ipaddr)?;
    let kept_out = moderation.keep_out(network, HOUR * asked.hours).await;
    kept_out.map_err(|_| unavailable())?;
    Ok(done())
}

/// `DELETE /api/v2/operations/ipaddr`
pub async fn unblock(
    State(moderation): State<Moderation>,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = DeleteTimeoutIPInput::parse(&whole?.bytes)?;
    let network = network(&asked.ipaddr)?;
    moderation
        .let_in(network)
        .await
        .map_err(|_| unavailable())?;
    Ok(done())
}

/// `GET /api/v2/operations/ipaddr`: networks only, no single addresses.
pub async fn blocked(State(moderation): State<Moderation>) -> Response {
    let mut kept_out = moderation.all_kept_out();
    kept_out.retain(|kept_out| !kept_out.network.is_single());
    listed(&kept_out)
}

/// `GET /api/v2/operations/ipaddr/{address}`: what keeps this address out, or all of this network.
pub async fn around(
    State(moderation): State<Moderation>,
    named: Named,
) -> Result<Response, Refused> {
    let network = network(named.text("address"))?;
    Ok(listed(&moderation.kept_out_around(network)))
}

/// `PUT /api/v2/operations/block_worker_ipaddr/{id}`
pub async fn block_worker(
    State(moderation): State<Moderation>,
    named: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let time = days(&whole?.bytes)?;
    let network = network_of(&moderation, &named).await?;
    let network = network.ok_or_else(|| {
        Refusal::new(
            Code::BadRequest,
            "it is not known where this worker comes from: it was not here yet",
        )
    })?;
    let kept_out = moderation.keep_out(network, time).await;
    kept_out.map_err(|_| unavailable())?;
    Ok(done())
}

/// `DELETE /api/v2/operations/block_worker_ipaddr/{id}`
pub async fn unblock_worker(
    State(moderation): State<Moderation>,
    named: Named,
) -> Result<Response, Refused> {
    if let Some(network) = network_of(&moderation, &named).await? {
        moderation
            .let_in(network)
            .await
            .map_err(|_| unavailable())?;
    }
    Ok(done())
}

/// A day, unless the body asks for others.
fn days(body: &[u8]) -> Result<Duration, Refusal> {
    let asks = |body: &Value| body.as_object().is_some_and(|body| body.is_empty());
    let is_silent = body.is_empty() || serde_json::from_slice(body).is_ok_and(|body| asks(&body));
    match is_silent {
        true => Ok(DAY),
        false => Ok(DAY * AddWorkerTimeout::parse(body)?.days),
    }
}

async fn network_of(moderation: &Moderation, named: &Named) -> Result<Option<Network>, Refusal> {
    let worker = named.id("id").ok_or(Code::WorkerNotFound)?;
    let found = moderation.whereabouts().of(worker).await;
    match found.map_err(|_| unavailable())? {
        WorkerAddress::NoWorker => Err(Code::WorkerNotFound.into()),
        WorkerAddress::Unknown => Ok(None),
        WorkerAddress::Known(address) => {
            let address = address.parse::<IpAddr>().ok();
            Ok(address.map(Network::around))
        }
    }
}

/// What was found may be anything, and is not repeated.
fn network(text: &str) -> Result<Network, Refusal> {
    Network::parse(text).ok_or_else(|| {
        Refusal::new(
            Code::BadRequest,
            "ipaddr is neither an address nor a network, wanted one such as 192.0.2.7 or 10.0.0.0/8",
        )
    })
}

fn listed(kept_out: &[KeptOut]) -> Response {
    let timeouts = kept_out.iter().map(|kept_out| IPTimeout {
        ipaddr: kept_out.network.to_string(),
        seconds: kept_out.left.as_secs(),
    });
    reply::json(StatusCode::OK, &timeouts.collect::<Vec<_>>())
}

fn done() -> Response {
    reply::json(StatusCode::OK, &SimpleResponse::ok())
}

fn unavailable() -> Refusal {
    Refusal::plain(503, "the store does not answer now, try again later")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::days;

    #[test]
    fn a_worker_is_kept_out_for_a_day_unless_days_are_named() {
        let hours = |body: &str| days(body.as_bytes()).map(|time| time.as_secs() / 3600);
        assert_eq!(hours(""), Ok(24));
        assert_eq!(hours("{}"), Ok(24));
        assert_eq!(hours(r#"{"days": 30}"#), Ok(720));
        assert_eq!(days(br#"{"days": 1}"#), Ok(Duration::from_secs(86_400)));
        for wrong in [
            r#"{"days": 0}"#,
            r#"{"days": 31}"#,
            r#"{"days": "2"}"#,
            "[]",
            "{",
            r#"{"day": 2}"#,
        ] {
            assert!(hours(wrong).is_err(), "{wrong}");
        }
    }
}
