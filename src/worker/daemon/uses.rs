//! When models were used: where disk space is short, the files of the longest unused ones leave.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::locate::Located;
use super::state::WorkerState;
use crate::hub::{Hub, Source};
use crate::link::Tally;
use muster_process::tasks::Tasks;

/// Interval of checks for jobs.
const LOOK: Duration = Duration::from_secs(60);

/// Marks a model's files as used before loading: they stay on disk while the configuration or the owner wants the
/// model.
pub fn use_model(hub: &Hub, wanted: &str, located: &Located) {
    let in_use = &hub.settings().in_use;
    in_use.insert(wanted, &located.name, located.sources.clone());
    note(hub, &located.sources);
}

/// Records the models whose jobs have ended since the last check, until the tasks stop.
pub fn keep_uses(hub: &Hub, state: &WorkerState, tasks: &Tasks) {
    let (hub, state) = (Hub::new(hub.settings().clone()), state.clone());
    let stopping = tasks.stopping();
    tasks.start(async move {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known = BTreeMap::new();
        loop {
            let is_over = tokio::select! {
                () = stopping.cancelled() => true,
                _ = looks.tick() => false,
            };
            let models = state.totals().models;
            let in_use = &hub.settings().in_use;
            let used = used_since(&known, &models).map(|name| in_use.sources(name));
            let used: Vec<Vec<Source>> = used.collect();
            known = models;
            let noting = Hub::new(hub.settings().clone());
            let noted = spawn_blocking(move || {
                // Separate times per model, so that the disk budget removes a model's files together.
                used.iter().for_each(|sources| note(&noting, sources));
            });
            let noted = noted.await;
            if is_over || noted.is_err() {
                return;
            }
        }
    });
}

/// The models with more jobs than before.
fn used_since<'a>(
    before: &BTreeMap<String, Tally>,
    now: &'a BTreeMap<String, Tally>,
) -> impl Iterator<Item = &'a str> {
    let used = now
        .iter()
        .filter(|(name, tally)| before.get(*name) != Some(tally));
    used.map(|(name, _)| name.as_str())
}

fn note(hub: &Hub, sources: &[Source]) {
    if let Err(error) = hub.note_use(sources) {
        let folder = hub.settings().records_dir.display();
        warn!("noting the use of a model in {folder} failed: {error}");
    }
}
