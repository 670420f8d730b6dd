//! The client address of a request. Behind trusted proxies the client is the last address in `X-Forwarded-For` that is
//! no trusted proxy, since each proxy appends its peer. On routes that queue a request, a service that sends its
//! passkey names its own user's address in `Proxied-For`. Both headers are ignored from any other sender.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{FromRef, FromRequestParts};
use axum::http::header::PROXY_AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName};

use crate::address::Network;
use crate::error::ApiError;
use crate::moderation::Moderation;
use crate::passkeys::Passkeys;
use muster_protocol::anthropic::MESSAGES;
use muster_protocol::job::FailureKind;
use muster_protocol::openai::responses::RESPONSES;

use super::paths;
use super::serve::PeerAddress;

/// The client's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub IpAddr);

/// The client's address, if it is not blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LetIn(pub IpAddr);

/// The address of the user for whom a service sends the request (`Proxied-For`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proxied(pub IpAddr);

const PROXIED_FOR: HeaderName = HeaderName::from_static("proxied-for");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Routes of `/v1` on which a service may name its own users.
const PROXIED: [&str; 4] = [paths::CHAT, paths::COMPLETIONS, MESSAGES, RESPONSES];

impl Address {
    pub fn of(extensions: &Extensions, headers: &HeaderMap, proxies: &[Network]) -> Self {
        let peer = extensions.get::<PeerAddress>();
        let peer = peer.map_or(HERE, |peer| peer.0.to_canonical());
        let is_proxy = |address: &IpAddr| proxies.iter().any(|proxy| proxy.contains(*address));
        if !is_proxy(&peer) {
            return Self(peer);
        }
        let values = headers.get_all(FORWARDED_FOR).into_iter();
        let hops = values.flat_map(|value| value.to_str().unwrap_or("?").split(','));
        let hops: Vec<&str> = hops.collect();
        let mut client = peer;
        for hop in hops.into_iter().rev() {
            // An invalid address was not written by a trusted proxy, so the rest of the header is ignored.
            let Some(address) = parse(hop.trim()) else {
                break;
            };
            client = address;
            if !is_proxy(&client) {
                break;
            }
        }
        Self(client)
    }
}

impl Proxied {
    /// `None` for an unknown passkey: the request then counts as the service's own.
    pub fn of(path: &str, headers: &HeaderMap, passkeys: &Passkeys) -> Option<Self> {
        let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
        let is_polled_for = path.starts_with(paths::HORDE) && path.ends_with("/async");
        if !is_polled_for && !PROXIED.contains(&path) {
            return None;
        }
        let client = text(PROXIED_FOR)?;
        let is_known = passkeys.contains(text(PROXY_AUTHORIZATION)?);
        is_known.then(|| parse(client).map(Self)).flatten()
    }
}

/// Some proxies add the port.
fn parse(hop: &str) -> Option<IpAddr> {
    let address: Option<IpAddr> = hop.parse().ok();
    let address = address.or_else(|| Some(hop.parse::<std::net::SocketAddr>().ok()?.ip()));
    address.map(|address| address.to_canonical())
}

impl<S: Sync> FromRequestParts<S> for Address {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let known = parts.extensions.get::<Self>().copied();
        Ok(known.unwrap_or_else(|| Self::of(&parts.extensions, &parts.headers, &[])))
    }
}

impl<S: Sync> FromRequestParts<S> for LetIn
where
    Moderation: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Address(address) = Address::from_request_parts(parts, state).await?;
        if Moderation::from_ref(state).kept_out(address).is_some() {
            let message = "your IP address is temporarily blocked; retry later";
            return Err(ApiError::new(FailureKind::AccessDenied, message));
        }
        Ok(Self(address))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Extensions, HeaderMap, HeaderValue};

    use super::{Address, FORWARDED_FOR};
    use crate::address::Network;
    use crate::http::serve::PeerAddress;

    fn check(peer: &str, forwarded: &[&'static str], expected: &str) {
        let proxies = [
            Network::new("10.0.0.0".parse().unwrap(), 8).unwrap(),
            Network::new("::1".parse().unwrap(), 128).unwrap(),
        ];
        let mut extensions = Extensions::new();
        extensions.insert(PeerAddress(peer.parse().unwrap()));
        let headers: HeaderMap = forwarded
            .iter()
            .map(|value| (FORWARDED_FOR, HeaderValue::from_static(value)))
            .collect();
        let address = Address::of(&extensions, &headers, &proxies);
        assert_eq!(address.0.to_string(), expected, "{peer} {forwarded:?}");
    }

    #[test]
    fn only_trusted_proxies_say_who_the_client_is() {
        check("192.0.2.1", &[], "192.0.2.1");
        check("192.0.2.1", &["198.51.100.7"], "192.0.2.1");
        check("10.0.0.1", &["198.51.100.7"], "198.51.100.7");
        check("::ffff:10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7");
        check("::1", &["[2001:db8::7]:4711"], "2001:db8::7");
        check("10.0.0.1", &[], "10.0.0.1");
    }

    #[test]
    fn what_a_client_claims_before_the_proxies_is_not_believed() {
        check(
            "10.0.0.1",
            &["1.2.3.4, 198.51.100.7, 10.0.0.2"],
            "198.51.100.7",
        );
        check("10.0.0.1", &["1.2.3.4", "198.51.100.7"], "198.51.100.7");
        check("10.0.0.1", &["1.2.3.4, nonsense, 10.0.0.2"], "10.0.0.2");
        check("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3");
    }
}
