//! How many threads compute. Their pool reads its size from the environment when it is first used, so a process that
//! needs another size starts itself again with it, before it has done anything.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::available_parallelism;

use super::{Exit, Failure};
use crate::config::Config;
use crate::kernels::cpu::{Level, THREAD_VARIABLES};

/// Returns when the pool will have the size that the configuration asks for, and the CPU's instructions are chosen.
pub fn settle(config: &Config) -> Result<(), Failure> {
    Level::stated().map_err(|problem| Failure::new(Exit::Usage, problem))?;
    let is_settled =
        |wanted: &str| std::env::var(THREAD_VARIABLES[0]).is_ok_and(|found| found == wanted);
    match wanted(config.engine.threads).map(|threads| threads.to_string()) {
        Some(wanted) if !is_settled(&wanted) => Err(start_again(&wanted)),
        _ => Ok(()),
    }
}

/// `None` uses the pool's default, a thread per core, which ignores CPU affinity.
fn wanted(configured: Option<usize>) -> Option<usize> {
    let is_set = THREAD_VARIABLES
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
                format!(
                    "setting the thread count failed: the path of this program is unknown: {error}"
                ),
            );
        }
    };
    let variables = THREAD_VARIABLES.map(|name| (name, threads));
    let error = Command::new(program)
        .args(std::env::args_os().skip(1))
        .envs(variables)
        .exec();
    Failure::new(
        Exit::Failed,
        format!("setting the thread count failed: cannot restart this program: {error}"),
    )
}
