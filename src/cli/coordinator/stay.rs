//! A program that stays until it is told to go: the first signal lets what runs finish, the second leaves at once.

use std::future::Future;
use std::time::Duration;

use tracing::{info, warn};

use crate::cli::Failure;
use crate::config::show_duration;
use crate::daemon::Signals;

pub struct Stay {
    signals: Signals,
}

impl Stay {
    /// Listens from here on.
    pub fn begin() -> Result<Self, Failure> {
        let signals = Signals::listen().map_err(anyhow::Error::from)?;
        Ok(Self { signals })
    }

    pub async fn until_told(&mut self) {
        self.signals.next().await;
    }

    /// What the work comes to, or nothing when the signal comes first.
    pub async fn unless_told<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.signals.next() => {
                info!("told to stop while starting");
                None
            }
        }
    }

    /// What is to be done before the end, unless a second signal comes.
    pub async fn draining(&mut self, grace: Duration, drain: impl Future<Output = bool>) {
        info!(
            "stopping: running jobs may finish within {}; a second signal leaves now",
            show_duration(grace)
        );
        tokio::select! {
            finished = drain => match finished {
                true => info!("stopped"),
                false => warn!("stopped with jobs unfinished after {}", show_duration(grace)),
            },
            () = self.signals.next() => warn!("left at once"),
        }
    }
}
