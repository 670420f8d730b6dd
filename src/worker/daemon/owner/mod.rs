//! Pauses in favour of the machine's owner.
//!
//! | file | content |
//! | --- | --- |
//! | `pause` | current commands and rules, and their result |
//! | `rules` | the rules of the configuration, and the resulting reasons |
//! | `duty` | the duty cycle of models |
//! | `machine` | the measurements that rules need |

mod duty;
mod machine;
mod pause;
mod rules;

pub use pause::{Availability, OwnerPause, PauseOrder};

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use duty::DutyCycle;
use machine::MachineWatch;
use muster_config::OwnerConfig;
use muster_process::tasks::Tasks;
use rules::Rules;

/// Interval of checks while rules exist.
const LOOK: Duration = Duration::from_secs(1);

/// The rules of the owner, followed by a task.
pub struct OwnerRules {
    config: watch::Sender<OwnerConfig>,
    pub outcome: RuleOutcome,
}

/// The current result of the rules. Clones share the state.
#[derive(Debug, Clone)]
pub struct RuleOutcome {
    /// Why no jobs are to be taken.
    pub reasons: watch::Receiver<Vec<String>>,
    /// The share of time in which models may compute.
    pub duty: watch::Receiver<f64>,
}

impl OwnerRules {
    /// Follows the rules until the tasks stop.
    pub fn follow(config: &OwnerConfig, tasks: &Tasks) -> Self {
        let (config, configured) = watch::channel(config.clone());
        let (told, reasons) = watch::channel(Vec::new());
        let (shared, duty) = watch::channel(1.0);
        let stopping = tasks.stopping();
        tasks.start(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = follow(configured, told, shared) => {}
            }
        });
        Self {
            config,
            outcome: RuleOutcome { reasons, duty },
        }
    }

    /// The configuration was read again.
    pub fn change(&self, config: &OwnerConfig) {
        self.config.send_replace(config.clone());
    }
}

async fn follow(
    mut config: watch::Receiver<OwnerConfig>,
    told: watch::Sender<Vec<String>>,
    shared: watch::Sender<f64>,
) {
    let tell = |now: Vec<String>| {
        told.send_if_modified(|reasons| {
            let is_other = *reasons != now;
            *reasons = now;
            is_other
        });
    };
    loop {
        let has_rules = |config: &OwnerConfig| config.has_rules();
        tell(Vec::new());
        shared.send_replace(1.0);
        if config.wait_for(has_rules).await.is_err() {
            return;
        }
        let (mut rules, mut power) = (Rules::default(), PowerRule::default());
        // Opening NVML and reading `/proc` may take their time.
        let Ok(mut machine) = spawn_blocking(MachineWatch::new).await else {
            return;
        };
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let wanted = config.borrow_and_update().clone();
            if !wanted.has_rules() {
                break;
            }
            let look = move || {
                let seen = machine.look(&wanted);
                (machine, wanted, seen)
            };
            let Ok((watch, wanted, seen)) = spawn_blocking(look).await else {
                return;
            };
            machine = watch;
            tell(rules.reasons(&wanted, Instant::now(), &seen));
            let share = power.share(wanted.most_watts, seen.watts);
            shared.send_if_modified(|before| std::mem::replace(before, share) != share);
        }
    }
}

/// `owner.most_watts`, followed over time.
#[derive(Default)]
struct PowerRule {
    duty: DutyCycle,
    is_reported: bool,
}

impl PowerRule {
    fn share(&mut self, most: Option<usize>, watts: Option<f64>) -> f64 {
        match (most, watts) {
            (Some(most), Some(watts)) => self.duty.next(watts, most as f64),
            (Some(_), None) => {
                if !std::mem::replace(&mut self.is_reported, true) {
                    warn!(
                        "owner.most_watts has no effect: neither GPUs nor processors of this machine tell their power"
                    );
                }
                1.0
            }
            (None, _) => {
                *self = Self::default();
                1.0
            }
        }
    }
}
