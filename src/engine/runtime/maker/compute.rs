//! Priority and thread pools of the maker: a lower priority than the text loop's, and separate pools.
//!
//! Kernels share their work through the background pool of `muster_kernels`, candle and gemm through rayon. The pools'
//! threads inherit the priority of the thread that starts them.

use muster_kernels::cpu;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use tracing::warn;

/// Added to the nice value: at 10 the text loop gets nine tenths of a contended processor.
#[cfg(target_os = "linux")]
const NICER: i32 = 10;

/// Moves the calling thread and the pools it will use to the background. The pool ends when the returned value is dropped.
pub fn enter_background() -> Option<ThreadPool> {
    lower_priority();
    cpu::enter_background();
    match rayon_pool() {
        Ok(pool) => Some(pool),
        Err(error) => {
            warn!(
                "starting the maker's thread pool failed, sharing the pool of the process: {error}"
            );
            None
        }
    }
}

/// The calling thread is its first thread, so that every rayon call on this thread uses the pool.
fn rayon_pool() -> Result<ThreadPool, ThreadPoolBuildError> {
    ThreadPoolBuilder::new()
        .num_threads(cpu::threads())
        .use_current_thread()
        .thread_name(|index| format!("maker-{index}"))
        .start_handler(|_| cpu::enter_background())
        .build()
}

/// Linux has a nice value per thread; elsewhere the call would slow the whole process.
#[cfg(target_os = "linux")]
fn lower_priority() {
    use rustix::process::{getpriority_process, setpriority_process};

    let lowered = getpriority_process(None)
        .and_then(|nice| setpriority_process(None, (nice + NICER).min(19)));
    if let Err(error) = lowered {
        warn!("lowering the maker's priority failed, text may slow down: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}
