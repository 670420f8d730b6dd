//! Rate limits of the AI Horde API, in fixed windows, as its clients know them. Each limit is declared beside its
//! route; a route of that API without one has [`USUAL`]. The limits of keys for generation are separate
//! ([`super::limits`]).
//!
//! | file | contents |
//! | --- | --- |
//! | `windows` | counters within bounded memory |
//!
//! A request is counted before any other check. Every reply of a limited route reports the limit with the fewest
//! requests left. Each process counts for itself.

mod windows;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::{Mutex, MutexGuard};

use super::address::{Address, Proxied};
use super::{admitted, body};
use crate::accounts::{ANONYMOUS_KEY, Caller};
use crate::address::Network;
use crate::clock::wall_clock;
use crate::http::admitted::Admitted;
use crate::http::horde_refusal::Refused;
use crate::state::LiveSettings;
use crate::values::Roles;
use muster_protocol::legacy::Refusal;

use windows::{Asked, Standing, Windows};

/// A number of requests per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    times: u32,
    period: Period,
    each: Each,
    /// The limit of trusted addresses, and of shared keys.
    trusted: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Period {
    Second,
    Minute,
    Hour,
}

/// The scope of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Each {
    /// All requests of an address to a route.
    Route,
    /// All requests of an address to a path, ids included, by one method.
    Path,
    /// All requests for one object, by whatever method.
    Thing,
    /// All requests with a key to a path, from any address.
    Key,
}

/// For routes of the AI Horde API without a limit of their own.
pub const USUAL: &[Rate] = &[Rate::per_minute(90)];
pub const UNLIMITED: &[Rate] = &[];

impl Rate {
    pub const fn per_second(times: u32) -> Self {
        Self::new(times, Period::Second)
    }

    pub const fn per_minute(times: u32) -> Self {
        Self::new(times, Period::Minute)
    }

    pub const fn per_hour(times: u32) -> Self {
        Self::new(times, Period::Hour)
    }

    const fn new(times: u32, period: Period) -> Self {
        Self {
            times,
            period,
            each: Each::Route,
            trusted: None,
        }
    }

    pub const fn each_path(mut self) -> Self {
        self.each = Each::Path;
        self
    }

    pub const fn each_thing(mut self) -> Self {
        self.each = Each::Thing;
        self
    }

    pub const fn each_key(mut self) -> Self {
        self.each = Each::Key;
        self
    }

    pub const fn trusted(mut self, times: u32) -> Self {
        self.trusted = Some(times);
        self
    }

    pub fn knows_friends(&self) -> bool {
        self.trusted.is_some()
    }

    /// `2 per 1 second`
    fn spelled(&self, times: u32) -> String {
        let period = match self.period {
            Period::Second => "second",
            Period::Minute => "minute",
            Period::Hour => "hour",
        };
        format!("{times} per 1 {period}")
    }
}

/// `90 per minute for each address`
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period {
            Period::Second => "second",
            Period::Minute => "minute",
            Period::Hour => "hour",
        };
        let each = match self.each {
            Each::Route => "address",
            Each::Path | Each::Thing => "address and path",
            Each::Key => "key",
        };
        write!(f, "{} per {period} for each {each}", self.times)
    }
}

impl Period {
    fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        })
    }
}

/// The counters of all clients, and known addresses.
#[derive(Debug)]
pub struct Rates {
    windows: Mutex<Windows>,
    friends: Mutex<HashMap<Network, Instant>>,
    /// Keyed, so that no client can construct a collision with another.
    hasher: RandomState,
    settings: LiveSettings,
}

/// How long an address stays trusted after a request of a trusted account.
const FRIENDSHIP: Duration = Duration::from_secs(24 * 3600);
const MOST_FRIENDS: usize = 100_000;

/// The limits of a route.
#[derive(Debug)]
pub struct Counted {
    pub rates: Arc<Rates>,
    pub method: &'static str,
    pub path: &'static str,
    pub limits: &'static [Rate],
}

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Middleware of a limited route.
pub async fn count(
    State(counted): State<Arc<Counted>>,
    address: Address,
    request: Request,
    next: Next,
) -> Response {
    if !counted.rates.settings.current().rate_limits {
        return next.run(request).await;
    }
    let asked = counted.asked(address.0, &request);
    let standing = counted.rates.windows().ask(&asked, Instant::now());
    let Some(standing) = standing else {
        return next.run(request).await;
    };
    let mut response = match standing.exceeded {
        None => next.run(request).await,
        Some(limit) => {
            // The body is read first, since a client that is still sending may miss an early reply.
            body::discard(request.into_body()).await;
            let message = counted.limits[limit].spelled(standing.most);
            let mut refused = Refused::Here(Refusal::plain(429, message)).into_response();
            // Replaced by the end of the window below.
            refused.headers_mut().remove(RETRY_AFTER);
            refused
        }
    };
    tell(&standing, response.headers_mut());
    response
}

/// Middleware of routes on which trusted accounts make their addresses known.
pub async fn befriend(
    State(rates): State<Arc<Rates>>,
    Admitted(caller): Admitted,
    address: Address,
    request: Request,
    next: Next,
) -> Response {
    let is_its_own = request.extensions().get::<Proxied>().is_none();
    let response = next.run(request).await;
    if response.status().is_success() && is_its_own && is_trusted(&caller) {
        rates.befriend(address.0, Instant::now());
    }
    response
}

fn is_trusted(caller: &Caller) -> bool {
    let roles = [Roles::TRUSTED, Roles::EDUCATION, Roles::SERVICE];
    roles.iter().any(|role| caller.roles.contains(*role))
}

impl Counted {
    fn asked(&self, address: IpAddr, request: &Request) -> Vec<Asked> {
        let household = Network::around(address);
        let key = admitted::key_in(request.headers()).ok().flatten();
        let is_known = self.rates.knows(household, Instant::now());
        let is_service = request.extensions().get::<Proxied>().is_some();
        let path = request.uri().path();
        let asked = self.limits.iter().zip(0_u8..).filter_map(|(limit, index)| {
            let what = (index, limit.period.length());
            let hasher = &self.rates.hasher;
            let id = match limit.each {
                Each::Route => hasher.hash_one((what, household, self.method, self.path)),
                Each::Path => hasher.hash_one((what, household, self.method, path)),
                Each::Thing => hasher.hash_one((what, household, path)),
                Each::Key => hasher.hash_one((what, key?, path)),
            };
            let of_many = limit.each == Each::Key && (key == Some(ANONYMOUS_KEY) || is_service);
            let trusted = limit.trusted.filter(|_| is_known || of_many);
            Some(Asked {
                id,
                limit: usize::from(index),
                most: trusted.unwrap_or(limit.times),
                period: limit.period.length(),
            })
        });
        asked.collect()
    }
}

impl Rates {
    pub fn new(settings: LiveSettings) -> Self {
        Self {
            windows: Mutex::default(),
            friends: Mutex::default(),
            hasher: RandomState::new(),
            settings,
        }
    }

    fn befriend(&self, address: IpAddr, now: Instant) {
        let mut friends = self.friends();
        if friends.len() >= MOST_FRIENDS {
            friends.retain(|_, until| *until > now);
        }
        if friends.len() < MOST_FRIENDS {
            friends.insert(Network::around(address), now + FRIENDSHIP);
        }
    }

    fn knows(&self, household: Network, now: Instant) -> bool {
        let friends = self.friends();
        friends.get(&household).is_some_and(|until| *until > now)
    }

    fn friends(&self) -> MutexGuard<'_, HashMap<Network, Instant>> {
        self.friends.lock()
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock()
    }
}

fn tell(standing: &Standing, headers: &mut HeaderMap) {
    let seconds = standing.left_of_window.as_millis().div_ceil(1000).max(1);
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let now = wall_clock().0.div_euclid(1000);
    headers.insert(LIMIT, standing.most.into());
    headers.insert(REMAINING, standing.left.into());
    headers.insert(RESET, HeaderValue::from(now.saturating_add(seconds)));
    headers.entry(RETRY_AFTER).or_insert(seconds.into());
}

#[cfg(test)]
mod tests {
    use super::{Rate, Rates};
    use crate::address::Network;
    use crate::state::DoorSettings;
    use std::time::{Duration, Instant};

    #[test]
    fn limits_are_spelled_as_clients_know_them() {
        assert_eq!(Rate::per_second(2).spelled(2), "2 per 1 second");
        assert_eq!(
            Rate::per_minute(90).trusted(300).spelled(300),
            "300 per 1 minute"
        );
    }

    #[test]
    fn an_address_is_known_for_a_day_after_a_trusted_account_asked_from_it() {
        let (rates, now) = (Rates::new(DoorSettings::default().into()), Instant::now());
        let here = "192.0.2.1".parse().unwrap();
        let knows = |after| {
            let later = now + Duration::from_secs(after);
            rates.knows(Network::around(here), later)
        };
        assert!(!knows(0));
        rates.befriend(here, now);
        assert!(knows(0) && knows(24 * 3600 - 1) && !knows(24 * 3600));
    }
}
