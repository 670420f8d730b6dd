//! A network in a box: clients, workers, a store and two clocks, all driven by one seed. Workers crash, blink, stall,
//! refuse, lie and repeat themselves; clients leave or read slowly; the store goes down or forgets to answer;
//! the wall clock jumps. After every step the promises of the module are checked from outside (`clients`,
//! `rigs`, `store`) and its books from inside (`books`).
//!
//! `MUSTER_SIM_SEED` repeats one run, `MUSTER_SIM_RUNS` asks for more of them than the usual few hundred.

mod books;
mod clients;
mod random;
mod rigs;
mod store;
mod world;

use std::env;

use world::{Scale, World};

const RUNS: u64 = 240;
/// One run in so many is a large one: hundreds of workers, thousands of jobs.
const LARGE_EVERY: u64 = 60;

#[test]
fn the_promises_hold_whatever_happens() {
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("MUSTER_SIM_SEED") {
        return run(seed);
    }
    for seed in 1..=number("MUSTER_SIM_RUNS").unwrap_or(RUNS) {
        run(seed);
    }
}

fn run(seed: u64) {
    let shout = Shout(seed);
    let scale = match seed.is_multiple_of(LARGE_EVERY) {
        true => Scale {
            rigs: 300,
            requests: 2500,
        },
        false => Scale {
            rigs: 2 + seed % 12,
            requests: 80,
        },
    };
    World::new(seed, scale).run();
    drop(shout);
}

/// Names the seed of a run that fails.
struct Shout(u64);

impl Drop for Shout {
    #[expect(
        clippy::print_stdout,
        reason = "the seed is how the failure is repeated"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("repeat this with MUSTER_SIM_SEED={}", self.0);
        }
    }
}
