//! When the machine is its owner's alone.
//!
//! | file | what it is |
//! | --- | --- |
//! | `pause` | commands and rules in force, and what they come to |
//! | `rules` | the rules of the configuration, and the reasons that come of them |
//! | `machine` | the state of the machine that rules ask for |

mod machine;
mod pause;
mod rules;

pub use pause::{Availability, OwnerPause, PauseOrder};

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use machine::MachineWatch;
use muster_config::OwnerConfig;
use muster_process::tasks::Tasks;
use rules::Rules;

/// Between looks at the machine while there are rules.
const LOOK: Duration = Duration::from_secs(1);

/// The rules of the owner, followed by a task.
pub struct OwnerRules {
    config: watch::Sender<OwnerConfig>,
    /// Why no jobs are to be taken.
    pub reasons: watch::Receiver<Vec<String>>,
}

impl OwnerRules {
    /// Follows the rules until the tasks stop.
    pub fn follow(config: &OwnerConfig, tasks: &Tasks) -> Self {
        let (config, configured) = watch::channel(config.clone());
        let (told, reasons) = watch::channel(Vec::new());
        let stopping = tasks.stopping();
        tasks.start(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = follow(configured, told) => {}
            }
        });
        Self { config, reasons }
    }

    /// The configuration was read again.
    pub fn change(&self, config: &OwnerConfig) {
        self.config.send_replace(config.clone());
    }
}

async fn follow(mut config: watch::Receiver<OwnerConfig>, told: watch::Sender<Vec<String>>) {
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
        if config.wait_for(has_rules).await.is_err() {
            return;
        }
        let mut rules = Rules::default();
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
        }
    }
}
