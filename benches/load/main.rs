//! How much the coordinator carries on this machine, the generator included: requests, time to the first token, relayed
//! tokens, idle workers, whether the cost of a request depends on how many workers are online, and the poll API: whole
//! cycles, heartbeats, and pops while much waits.
//!
//! ```text
//! cargo bench --bench load                      everything, about three minutes
//! cargo bench --bench load -- requests relay    only these
//! cargo bench --bench load -- million           memory over a million requests, some minutes more
//! cargo bench --bench load -- cycles postgres   on PostgreSQL
//! ```
//!
//! The service is the real binary, `worker serve`, with its store on this disk, or in databases of their own on the
//! PostgreSQL that `MUSTER_TEST_POSTGRES` names if there is the word `postgres`. Workers are sockets that reply at
//! once. Two peers are measured in the same run: an *echo*, which answers every request with fixed bytes, and a *bare
//! relay*, which passes frames between a worker socket and its clients and does nothing else. Both are the limits of
//! this machine without the cost of a coordinator.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on says so, and prints what it found"
)]

mod client;
mod measure;
mod peers;
mod polls;
mod rig;
mod service;

use std::time::Duration;

/// How long and how much. Run as a test, everything is done once and briefly.
#[derive(Clone, Copy)]
pub struct Effort {
    pub seconds: Duration,
    pub sockets: usize,
    pub requests: usize,
}

const WHOLE: Effort = Effort {
    seconds: Duration::from_secs(6),
    sockets: 5_000,
    requests: 60_000,
};

const SMOKE: Effort = Effort {
    seconds: Duration::from_millis(150),
    sockets: 20,
    requests: 200,
};

const PARTS: [&str; 8] = [
    "requests",
    "first",
    "relay",
    "idle",
    "memory",
    "cycles",
    "heartbeat",
    "pops",
];
/// Long, so only by its name.
const MILLION: &str = "million";
/// Five times as many are a million.
const A_FIFTH: usize = 200_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("peer-echo") => return peers::echo(),
        Some("peer-relay") => return peers::relay(),
        _ => {}
    }
    let effort = match arguments.iter().any(|argument| argument == "--bench") {
        true => WHOLE,
        false => SMOKE,
    };
    let named: Vec<&str> = PARTS
        .into_iter()
        .chain([MILLION])
        .filter(|part| arguments.iter().any(|argument| argument == part))
        .collect();
    let parts = if named.is_empty() {
        PARTS.to_vec()
    } else {
        named
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    for part in parts {
        runtime.block_on(async {
            match part {
                "requests" => measure::requests(effort).await,
                "first" => measure::first_token(effort).await,
                "relay" => measure::relay(effort).await,
                "idle" => measure::idle(effort).await,
                "cycles" => polls::cycles(effort).await,
                "heartbeat" => polls::heartbeat(effort).await,
                "pops" => polls::pops(effort).await,
                MILLION => {
                    let requests = A_FIFTH;
                    measure::memory(Effort { requests, ..effort }).await;
                }
                _ => measure::memory(effort).await,
            }
        });
    }
}
