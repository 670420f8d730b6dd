//! `/api/v2/operations`: blocked addresses, for moderators.
//!
//! A worker's address is blocked for 24 hours; `days` in the body, from 1 to 30, makes it longer, as in public
//! coordinators. For an IPv6 address the whole /64 is blocked, since its user can choose any other in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use crate::accounts::Caller;
use crate::address::{Network, Prefix};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::Named;
use crate::http::{Address, reply};
use crate::moderation::{KeptOut, Moderation};
use crate::storage::{Store, WorkerAddress};
use crate::values::Roles;
use muster_protocol::legacy::operations::{
    AddTimeoutIPInput, AddWorkerTimeout, DeleteTimeoutIPInput, IPTimeout,
};
use muster_protocol::legacy::service::SimpleResponse;
use muster_protocol::legacy::{Body, Code, Refusal};

/// The shortest prefixes that may be blocked.
#[derive(Debug, Clone, Copy)]
struct Widest {
    v4: u8,
    v6: u8,
}

const WIDEST_OF_MODERATOR: Widest = Widest { v4: 16, v6: 32 };
const WIDEST_OF_ADMIN: Widest = Widest { v4: 8, v6: 16 };
const LOOPBACK: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
];

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// `POST /api/v2/operations/ipaddr`
pub async fn block(
    State(moderation): State<Moderation>,
    Address(address): Address,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = AddTimeoutIPInput::parse(&whole?.bytes)?;
    let network = network(&asked.ipaddr)?;
    check_block(network, address, caller.roles)?;
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

/// `GET /api/v2/operations/ipaddr`: blocked networks and single addresses. The public service lists networks only,
/// which hides its blocks of single addresses.
pub async fn blocked(State(moderation): State<Moderation>) -> Response {
    listed(&moderation.all_kept_out())
}

/// `GET /api/v2/operations/ipaddr/{address}`: blocks that cover this address, or all of this network.
pub async fn around(
    State(moderation): State<Moderation>,
    named: Named,
) -> Result<Response, Refused> {
    let network = network(named.text("address"))?;
    Ok(listed(&moderation.kept_out_around(network)))
}

/// `PUT /api/v2/operations/block_worker_ipaddr/{id}`
pub async fn block_worker(
    (State(moderation), State(store)): (State<Moderation>, State<Store>),
    Address(address): Address,
    Admitted(caller): Admitted,
    named: Named,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    may_decide(&caller, &named, &store).await?;
    let time = days(&whole?.bytes)?;
    let network = network_of(&moderation, &named).await?;
    let network = network.ok_or_else(|| {
        Refusal::new(
            Code::BadRequest,
            "the worker's IP address is unknown: it has not been online yet",
        )
    })?;
    check_block(network, address, caller.roles)?;
    let kept_out = moderation.keep_out(network, time).await;
    kept_out.map_err(|_| unavailable())?;
    Ok(done())
}

/// `DELETE /api/v2/operations/block_worker_ipaddr/{id}`
pub async fn unblock_worker(
    (State(moderation), State(store)): (State<Moderation>, State<Store>),
    Admitted(caller): Admitted,
    named: Named,
) -> Result<Response, Refused> {
    may_decide(&caller, &named, &store).await?;
    if let Some(network) = network_of(&moderation, &named).await? {
        moderation
            .let_in(network)
            .await
            .map_err(|_| unavailable())?;
    }
    Ok(done())
}

/// A moderator must not block half the internet, the machine itself (where proxies and `worker up` come from) or, by
/// mistake, themselves.
fn check_block(network: Network, caller: IpAddr, roles: Roles) -> Result<(), Refusal> {
    let refuse = |message: String| Err(Refusal::new(Code::BadRequest, message));
    let (most, who) = match roles.contains(Roles::ADMIN) {
        true => (WIDEST_OF_ADMIN, "administrators"),
        false => (WIDEST_OF_MODERATOR, "moderators"),
    };
    let is_too_wide = match network.prefix() {
        Prefix::V4(bits) => bits < most.v4,
        Prefix::V6(bits) => bits < most.v6,
    };
    if is_too_wide {
        let Widest { v4, v6 } = most;
        return refuse(format!(
            "ipaddr is too wide: {who} may block networks up to IPv4 /{v4} and IPv6 /{v6}"
        ));
    }
    if LOOPBACK.iter().any(|(first, bits)| {
        Network::new(*first, *bits).is_some_and(|loopback| loopback.overlaps(network))
    }) {
        return refuse("ipaddr contains loopback addresses, which cannot be blocked".to_owned());
    }
    if network.contains(caller) {
        return refuse("ipaddr contains your own address, which you cannot block".to_owned());
    }
    Ok(())
}

/// A moderator may not block the workers of an account of equal or higher rank.
async fn may_decide(caller: &Caller, named: &Named, store: &Store) -> Result<(), Refusal> {
    let worker = named.id("id").ok_or(Code::WorkerNotFound)?;
    let owner = store.worker_owner(worker).await;
    let owner = owner.map_err(|_| unavailable())?;
    let owner = owner.ok_or(Code::WorkerNotFound)?;
    let may = caller.may_manage(owner, store).await;
    Code::NotAdmin.when(!may.map_err(|_| unavailable())?)
}

/// One day by default.
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

/// The error does not echo the value, which may be anything.
fn network(text: &str) -> Result<Network, Refusal> {
    Network::parse(text).ok_or_else(|| {
        Refusal::new(
            Code::BadRequest,
            "ipaddr must be an address or a network such as 192.0.2.7 or 10.0.0.0/8",
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
    Refusal::plain(503, "the database is unavailable; retry later")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Roles, check_block, days, network};

    #[test]
    fn moderators_block_from_16_bits_and_admins_from_8_and_nobody_loopback_or_themselves() {
        let check = |text: &str, moderator: bool, admin: bool| {
            let network = network(text).unwrap();
            let caller = "198.51.100.7".parse().unwrap();
            let may = |roles| check_block(network, caller, roles).is_ok();
            assert_eq!(may(Roles::MODERATOR), moderator, "{text} by a moderator");
            assert_eq!(may(Roles::ADMIN), admin, "{text} by an administrator");
        };
        check("192.0.2.7", true, true);
        check("10.1.0.0/16", true, true);
        check("10.0.0.0/15", false, true);
        check("10.0.0.0/8", false, true);
        check("2001:db8::/32", true, true);
        check("2001:d00::/24", false, true);
        check("2a00::", true, true);
        for never in [
            "0.0.0.0/0",
            "128.0.0.0/1",
            "::/0",
            "::ffff:0.0.0.0/96",
            "2000::/3",
            "127.0.0.1",
            "127.0.0.0/8",
            "::1",
            "::/64",
            "::/80",
            "::ffff:127.0.0.0/104",
            "198.51.100.7",
            "198.51.0.0/16",
        ] {
            check(never, false, false);
        }
    }

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
