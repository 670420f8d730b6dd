//! Connections: accepted with TCP_NODELAY, counted, closed when idle or slow to begin, drained at shutdown.
//!
//! | file | contents |
//! | --- | --- |
//! | `accept` | the accept loop |
//! | `connection` | a connection, HTTP/1.1 or HTTP/2 |
//! | `activity` | the time of its last activity |
//! | `place` | limits of connections, in total and per household |
//! | `peer` | its TCP stream, and detection of a closed peer |
//! | `tls`, `certificates`, `expiry` | certificate files: reload on change, expiry |

mod accept;
mod activity;
mod certificates;
mod connection;
mod expiry;
mod peer;
mod place;
mod tls;

#[cfg(test)]
mod tests;

pub use certificates::Certificates;
pub use place::HouseholdLimit;
pub use tls::{Tls, TlsError, TlsFiles};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;

use crate::address::Network;
use muster_process::tasks::Tasks;

/// The peer of a connection, attached to its requests. A request without it came from this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Largest piece of a reply body, since a large frame reports no progress before its end.
pub const PIECE: usize = 64 << 10;

/// Limits of connections.
#[derive(Debug, Clone)]
pub struct Connections {
    /// Limit of connections; beyond it, a connection gets a 503.
    pub most: usize,
    /// Limit per household: an address, or a customer's network. `None` is unlimited.
    pub most_of_household: Option<usize>,
    /// Networks exempt from the per-household limit: loopback, and proxies, which carry many clients.
    pub of_many: Vec<Network>,
    /// Timeout for a request's headers.
    pub header_patience: Duration,
    /// Idle timeout.
    pub idle: Duration,
    /// Another listener of the same socket goes on, so that a stop leaves waiting connections to that.
    pub is_succeeded: bool,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            most: 16_384,
            most_of_household: Some(2048),
            of_many: vec![
                // 127.0.0.0/8
                Network::of(Ipv4Addr::LOCALHOST.into(), 96 + 8),
                Network::of(Ipv6Addr::LOCALHOST.into(), 128),
            ],
            header_patience: Duration::from_secs(15),
            idle: Duration::from_secs(120),
            is_succeeded: false,
        }
    }
}

impl Connections {
    /// Behind these proxies.
    pub fn behind(proxies: &[Network]) -> Self {
        let mut connections = Self::default();
        connections.of_many.extend(proxies);
        connections
    }
}

/// Serves until shutdown; then running requests are answered, and the tasks end. Returns the per-household limit, which
/// can be changed meanwhile.
pub fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    connections: Connections,
    tasks: &Tasks,
) -> HouseholdLimit {
    let door = accept::Door::new(router, tls, connections, tasks.clone());
    let limit = door.household_limit();
    tasks.start(door.accept_from(listener));
    limit
}
