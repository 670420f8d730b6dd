//! The owner's pause: jobs handed back, memory freed, and both undone.

use std::future::pending;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::Crew;
use super::commands::outcome;
use crate::daemon::control::CommandOutcome;
use crate::daemon::owner::{Availability, PauseOrder};
use crate::daemon::residency::UnloadOutcome;
use muster_config::OwnerConfig;
use muster_engine::runtime::Failure;

/// Interval of checks whether the last job has ended before a pause.
const LOOK: Duration = Duration::from_millis(200);

impl Crew {
    /// Takes no jobs from now on; a later command takes the place of an earlier one.
    pub async fn pause(&mut self, order: PauseOrder) {
        self.choices.pause.order = Some(order);
        self.settle().await;
    }

    /// Takes jobs again, where no rule forbids it.
    pub async fn resume(&mut self) {
        self.choices.pause.order = None;
        self.settle().await;
    }

    /// The settings of the owner were read again.
    pub fn settings_changed(&self, owner: &OwnerConfig) {
        self.state.follows(owner);
    }

    /// Waits until the owner's pause requires an action.
    pub async fn owner_due(&self) {
        let ends = async {
            match self.choices.pause.remaining(SystemTime::now()) {
                Some(left) => sleep(left).await,
                None => pending().await,
            }
        };
        let last_job = async {
            match self.availability {
                Availability::Closing => {
                    while !self.worker.is_idle() {
                        sleep(LOOK).await;
                    }
                }
                _ => pending().await,
            }
        };
        let mut rules = self.rules.reasons.clone();
        let changed = async {
            if rules.changed().await.is_err() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            () = ends => {}
            () = last_job => {}
            () = changed => {}
        }
    }

    pub async fn follow_owner(&mut self) {
        self.choices.pause.expire(SystemTime::now());
        self.choices.pause.rules = self.rules.reasons.borrow_and_update().clone();
        self.settle().await;
    }

    /// Follows the owner's commands and rules as they are now.
    pub(super) async fn settle(&mut self) {
        let wanted = self.choices.pause.availability(self.worker.is_idle());
        let until = self.choices.pause.until();
        let before = std::mem::replace(&mut self.availability, wanted);
        let done = match (before, wanted) {
            (Availability::Paused, Availability::Closing) => {
                self.availability = Availability::Paused;
                Ok(())
            }
            (Availability::Paused, Availability::Paused) => self.worker.pause(until).await,
            (before, wanted) if before == wanted => Ok(()),
            (_, Availability::Open) => self.open().await,
            (_, Availability::Closing) => {
                info!("paused after running jobs: no new ones until the owner resumes");
                self.worker.close(until);
                Ok(())
            }
            (_, Availability::Paused) => self.give_back().await,
        };
        if let Err(failure) = done {
            error!("pausing or resuming failed: {failure}");
        }
        self.state
            .is_available(self.availability, &self.choices.pause);
    }

    /// Hands running jobs back and frees the memory of all models.
    async fn give_back(&mut self) -> Result<(), Failure> {
        self.coming_back = None;
        let reasons = self.choices.pause.reasons(SystemTime::now()).join("; ");
        info!("paused {reasons}: running jobs are handed back, models leave memory");
        let paused = self.worker.pause(self.choices.pause.until()).await;
        for (_, model) in &self.models {
            let name = model.name();
            match self.devices.unload(name).await {
                UnloadOutcome::Unloaded | UnloadOutcome::AfterJobs(_) => {
                    if !self.put_away.iter().any(|known| known == name) {
                        self.put_away.push(name.to_owned());
                    }
                }
                UnloadOutcome::NotOffered | UnloadOutcome::NotLoaded => {}
            }
        }
        paused
    }

    /// Accepts jobs again. Models are loaded one after the other, those with waiting jobs first.
    async fn open(&mut self) -> Result<(), Failure> {
        info!("resumed: jobs are taken again");
        self.worker.resume().await?;
        let names = std::mem::take(&mut self.put_away);
        let (devices, state) = (self.devices.clone(), self.state.clone());
        let stop = CancellationToken::new();
        self.coming_back = Some(stop.clone().drop_guard());
        self.tasks.start(async move {
            for name in names {
                tokio::select! {
                    () = stop.cancelled() => return,
                    loaded = devices.load(&name) => match loaded {
                        Ok(_) => state.is_not_refused(&name),
                        Err(failure) => {
                            error!("loading {name} again failed: {failure}");
                            let failure = format!("loading it again failed, its next job tries it: {failure}");
                            state.is_refused(&name, failure);
                        }
                    }
                }
            }
        });
        Ok(())
    }

    /// Formatted as the reply to a command.
    pub(super) fn standing(&self) -> CommandOutcome {
        let reasons = self.choices.pause.reasons(SystemTime::now()).join("; ");
        let (state, text) = match self.availability {
            Availability::Open => ("open", "this worker takes jobs".to_owned()),
            Availability::Closing => {
                let text =
                    format!("no new jobs; paused once the running ones have ended: {reasons}");
                ("closing", text)
            }
            Availability::Paused => ("paused", format!("paused {reasons}")),
        };
        outcome(String::new(), state, text)
    }
}
