//! How many threads compute. Their pool reads its size from the environment when it is first used, so a process that
//! needs another size starts itself again with it, before it has done anything.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::available_parallelism;

use super::{Exit, Failure};
use crate::config::Config;

/// Read by the pool of the products. The other is read by whatever else shares work.
const VARIABLES: [&str; 2] = ["CANDLE_NUM_THREADS", "RAYON_NUM_THREADS"];

/// Returns when the pool will have the size that the configuration asks for.
pub fn settle(config: &Config) -> Result<(), Failure> {
    let is_settled = |wanted: &str| std::env::var(VARIABLES[0]).is_ok_and(|found| found == wanted);
    match wanted(config.engine.threads).map(|threads| threads.to_string()) {
        Some(wanted) if !is_settled(&wanted) => Err(start_again(&wanted)),
        _ => Ok(()),
    }
}

/// `None` leaves it to the pool, which takes a thread for each core. It does not know that some may not be used.
fn wanted(configured: Option<usize>) -> Option<usize> {
    let is_set = VARIABLES
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let usable = available_parallelism().map_or(1, usize::from);
    configured.or_else(|| (!is_set && usable < processors()).then_some(usable))
}

fn processors() -> usize {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count()
}

/// The same program in the same process. Returns only when that cannot be done.
fn start_again(threads: &str) -> Failure {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            return Failure::new(
                Exit::Failed,
                format!("the program cannot find itself: {error}"),
            );
        }
    };
    let variables = VARIABLES.map(|name| (name, threads));
    let error = Command::new(program)
        .args(std::env::args_os().skip(1))
        .envs(variables)
        .exec();
    Failure::new(
        Exit::Failed,
        format!("the program cannot start itself again: {error}"),
    )
}
