//! A network in a box: clients, workers, a store and two clocks, all driven by one seed. Workers crash, blink, stall,
//! refuse, lie and repeat themselves; clients leave or read slowly; the store goes down or forgets to answer; the wall
//! clock jumps. Polling workers pop several jobs at once, submit them late, twice or never, and submit jobs that an
//! earlier process leased to them. After every step the promises of the module are checked from outside (`clients`,
//! `rigs`, `pollers`, `store`) and its books from inside (`books`).
//!
//! `MUSTER_SIM_SEED` repeats one run, `MUSTER_SIM_RUNS` sets the number of runs.

mod books;
mod clients;
mod poison;
mod pollers;
mod random;
mod rigs;
mod store;
mod world;

use std::collections::BTreeMap;
use std::env;

use world::{Scale, World};

const RUNS: u64 = 300;
/// Interval of large runs: hundreds of workers, thousands of jobs.
const LARGE_EVERY: u64 = 60;

/// Events that must occur within that many runs, or the simulation tests less than promised.
const HAPPENS: [&str; 27] = [
    "bad_job",
    "brought",
    "unwanted submission",
    "repeated submission",
    "cancelled",
    "submission after cancel",
    "claimed",
    "closed: barred",
    "closed: drained",
    "closed: evicted",
    "closed: replaced",
    "closed: silent",
    "continued",
    "delivered",
    "drained",
    "dropped",
    "expired",
    "invalid_request",
    "no_worker",
    "parked",
    "popped",
    "several jobs in one pop",
    "resumed",
    "shutting_down",
    "slow_client",
    "store_unavailable",
    "worker_lost",
];

#[test]
fn the_promises_hold_whatever_happens() {
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("MUSTER_SIM_SEED") {
        run(seed);
        return;
    }
    let runs = number("MUSTER_SIM_RUNS").unwrap_or(RUNS);
    let mut happened = BTreeMap::new();
    for (what, times) in (1..=runs).flat_map(run) {
        *happened.entry(what).or_insert(0) += times;
    }
    let missing = HAPPENS.iter().find(|what| !happened.contains_key(*what));
    assert!(
        runs < RUNS || missing.is_none(),
        "{missing:?} never occurred: {happened:?}"
    );
}

/// A run. Returns the counts of its events.
fn run(seed: u64) -> BTreeMap<&'static str, u64> {
    let shout = Shout(seed);
    let scale = match seed.is_multiple_of(LARGE_EVERY) {
        true => Scale {
            rigs: 300,
            pollers: 60,
            requests: 2500,
        },
        false => Scale {
            rigs: 2 + seed % 12,
            pollers: seed % 6,
            requests: 80,
        },
    };
    let happened = World::new(seed, scale).run();
    drop(shout);
    happened
}

/// Prints the seed of a failing run.
struct Shout(u64);

impl Drop for Shout {
    #[expect(clippy::print_stdout, reason = "the seed reproduces the failure")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("reproduce this with MUSTER_SIM_SEED={}", self.0);
        }
    }
}
