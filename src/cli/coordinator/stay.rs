//! Signals of a long-running program: the first one drains, the second exits at once.

use std::future::Future;
use std::time::Duration;

use tracing::{info, warn};

use crate::cli::Failure;
use crate::config::show_duration;
use crate::coordinator::switchboard::Drained;
use crate::daemon::{Signal, Signals};
use crate::tasks::Tasks;

pub struct Stay {
    signals: Signals,
}

impl Stay {
    /// Listens from here on.
    pub fn begin() -> Result<Self, Failure> {
        let signals = Signals::listen().map_err(anyhow::Error::from)?;
        Ok(Self { signals })
    }

    /// Runs until the stop signal, and reloads on the reload signal.
    pub async fn until_told(&mut self, mut reload: impl AsyncFnMut()) {
        loop {
            match self.told().await {
                Signal::Stop => return,
                Signal::Reload => reload().await,
                // A worker alone is paused.
                Signal::Pause | Signal::Resume => {}
            }
        }
    }

    /// Waits for a signal.
    pub async fn told(&mut self) -> Signal {
        self.signals.next().await
    }

    /// The result of the work, or `None` when the signal comes first.
    pub async fn unless_told<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.signals.stop() => {
                info!("stopped during startup");
                None
            }
        }
    }

    /// Ends the tasks of a coordinator without jobs, unless a second signal comes.
    pub async fn ending(&mut self, grace: Duration, tasks: &Tasks) {
        tokio::select! {
            has_ended = tasks.stop(grace) => if !has_ended {
                let grace = show_duration(grace);
                warn!("stopped after {grace} with unfinished responses of the leading coordinator");
            },
            () = self.signals.stop() => warn!("stopped at once on a second signal"),
        }
    }

    /// Drains, unless a second signal comes.
    pub async fn draining(&mut self, grace: Duration, drain: impl Future<Output = Drained>) {
        info!(
            "stopping: waiting up to {} for running jobs; a second signal exits at once",
            show_duration(grace)
        );
        tokio::select! {
            Drained { cut_off } = drain => match cut_off {
                0 => info!("stopped"),
                jobs => {
                    let grace = show_duration(grace);
                    warn!("stopped after {grace} with unfinished jobs: {jobs} cancelled");
                }
            },
            () = self.signals.stop() => warn!("stopped at once on a second signal, running jobs cancelled"),
        }
    }
}
