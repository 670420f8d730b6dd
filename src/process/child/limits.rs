//! Limits of the process that runs inside.

use std::fs;
use std::io;
use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};

use super::process::TIMED_OUT;

/// A core file would be as large as the memory that the process may take.
pub fn write_no_core() -> io::Result<()> {
    limit(Resource::Core, 0)
}

/// Ends the process when a request takes too long, even without its parent.
pub struct Watch(Sender<Option<Duration>>);

impl Watch {
    /// Returns once the thread runs, because starting it allocates stacks that later limits might not allow.
    pub fn start() -> io::Result<Self> {
        let (sender, receiver) = channel();
        let (runs, started) = channel();
        let watch = move || {
            let _ = runs.send(());
            // Later than the parent, which reports the request that took too long.
            let mut wait = None;
            loop {
                let heard = match wait {
                    Some(wait) => receiver.recv_timeout(wait),
                    None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                match heard {
                    Ok(next) => wait = next,
                    Err(RecvTimeoutError::Timeout) => time_out(),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        thread::Builder::new()
            .name("watch".to_owned())
            .stack_size(256 << 10)
            .spawn(watch)?;
        started.recv().map_err(io::Error::other)?;
        Ok(Self(sender))
    }

    pub fn begin(&self, limit: Duration) {
        let _ = self.0.send(Some(limit + Duration::from_secs(1)));
    }

    pub fn end(&self) {
        let _ = self.0.send(None);
    }
}

/// Ends the process by a signal, so that no code runs afterwards: `exit` runs cleanup next to a thread that still
/// computes, which may abort. The exit is a fallback if the parent ignored the signal.
fn time_out() -> ! {
    let _ = kill_process(getpid(), Signal::ALARM);
    exit(TIMED_OUT)
}

/// Limits the address space to its current size plus this many bytes.
pub fn limit_memory(more_bytes: u64) -> io::Result<()> {
    let in_use = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
        .map_or(1 << 30, |pages| pages.saturating_mul(4096));
    limit(Resource::As, in_use.saturating_add(more_bytes))
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let hard = getrlimit(resource).maximum;
    let most = hard.map_or(most, |hard| most.min(hard));
    let limits = Rlimit {
        current: Some(most),
        maximum: hard,
    };
    Ok(setrlimit(resource, limits)?)
}
