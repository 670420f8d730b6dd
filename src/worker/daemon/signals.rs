//! Signals to a running process. SIGTERM, SIGINT and SIGQUIT end it; SIGHUP reloads its configuration, or ends it if
//! its terminal was closed. SIGUSR1 pauses a worker, SIGUSR2 resumes it.

use std::fs::{self, File};
use std::io;

use tokio::signal::unix::{self, SignalKind, signal};

/// Listens from its creation; each signal is delivered once.
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    quit: unix::Signal,
    hangup: unix::Signal,
    first: unix::Signal,
    second: unix::Signal,
    /// Started from a terminal, and not by `nohup`: a hangup may mean that the terminal was closed.
    ends_with_terminal: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Stop,
    Reload,
    Pause,
    Resume,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        // Checked first, because listening installs our own handler.
        let is_kept = is_hangup_ignored();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            first: signal(SignalKind::user_defined1())?,
            second: signal(SignalKind::user_defined2())?,
            ends_with_terminal: !is_kept && has_terminal(),
        })
    }

    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.quit.recv() => Signal::Stop,
            _ = self.first.recv() => Signal::Pause,
            _ = self.second.recv() => Signal::Resume,
            _ = self.hangup.recv() => match self.ends_with_terminal && !has_terminal() {
                true => Signal::Stop,
                false => Signal::Reload,
            },
        }
    }

    /// Waits for a stop signal. Other signals are ignored, because they have no meaning during start and shutdown.
    pub async fn stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }
}

fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// `nohup` ignores SIGHUP in its child.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit is that of signal 1.
    mask.is_some_and(|mask| mask & 1 == 1)
}
