//! Downloads of configured models that are not on disk: one after the other while the worker serves the others. A
//! failed download is retried while the configuration lists the model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::fetch::Transfer;
use super::fit::Room;
use super::locate::{LocateError, Located};
use super::report::DownloadReport;
use super::{DaemonError, here, here_already, wanted_sources};
use crate::catalog::Catalog;
use crate::hub::Hub;
use muster_config::{Config, show_duration};
use muster_process::tasks::Tasks;

/// Between a failed download and the next one; doubles after each.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
const FINISHED: usize = 4;

/// The downloads of a worker, cancelled when dropped.
pub struct Downloads {
    /// By the configured name, until the model is served or no longer wanted.
    running: BTreeMap<String, CancellationToken>,
    states: DownloadStates,
    turn: Arc<Semaphore>,
    sender: mpsc::Sender<(String, Located)>,
    finished: mpsc::Receiver<(String, Located)>,
    tasks: Tasks,
}

/// The state of each download, by the name of the configuration. Clones are the same.
#[derive(Clone, Default)]
pub struct DownloadStates(Arc<Mutex<BTreeMap<String, Arc<Transfer>>>>);

/// A model to download.
struct MissingModel {
    wanted: String,
    config: Config,
    room: Room,
    catalog: Catalog,
    hub: Hub,
    turn: Arc<Semaphore>,
    transfer: Arc<Transfer>,
}

/// Whether a model that cannot be opened can be fetched.
pub fn can_be_fetched(
    wanted: &str,
    failure: &LocateError,
    config: &Config,
    catalog: &Catalog,
) -> bool {
    let is_missing = matches!(
        failure,
        LocateError::NotHere { .. } | LocateError::Damaged { .. }
    );
    is_missing && !config.hub.offline && catalog.find_with_quantization(wanted).is_ok()
}

impl Downloads {
    pub fn new(tasks: &Tasks) -> Self {
        let (sender, finished) = mpsc::channel(FINISHED);
        Self {
            running: BTreeMap::new(),
            states: DownloadStates::default(),
            turn: Arc::new(Semaphore::new(1)),
            sender,
            finished,
            tasks: tasks.clone(),
        }
    }

    /// Fetches a model, unless it is on its way already.
    pub fn start(
        &mut self,
        wanted: &str,
        room: &Room,
        config: &Config,
        catalog: &Catalog,
        hub: &Hub,
    ) {
        if self.running.contains_key(wanted) {
            return;
        }
        // Files of it that are on disk already stay for it.
        let sources = wanted_sources(wanted, config, catalog, hub);
        hub.settings().in_use.insert(wanted, wanted, sources);
        let stop = self.tasks.stopping().child_token();
        self.running.insert(wanted.to_owned(), stop.clone());
        let transfer = Arc::new(Transfer::default());
        self.states.insert(wanted, &transfer);
        let download = MissingModel {
            wanted: wanted.to_owned(),
            config: config.clone(),
            room: room.clone(),
            catalog: catalog.clone(),
            hub: Hub::new(hub.settings().clone()),
            turn: Arc::clone(&self.turn),
            transfer,
        };
        let sender = self.sender.clone();
        self.tasks.start(async move {
            if let Some(located) = stop.run_until_cancelled(download.run()).await {
                let _ = sender.send((download.wanted, located)).await;
            }
        });
    }

    /// Ends the downloads of models that the configuration names no more.
    pub fn retain(&mut self, config: &Config) {
        self.running.retain(|wanted, stop| {
            let is_wanted = config.models.serve.0.contains(wanted);
            if !is_wanted {
                stop.cancel();
                self.states.remove(wanted);
            }
            is_wanted
        });
    }

    pub fn states(&self) -> DownloadStates {
        self.states.clone()
    }

    /// The next model whose download is complete.
    pub async fn next(&mut self) -> (String, Located) {
        loop {
            // The sender is a part of this value.
            if let Some((wanted, located)) = self.finished.recv().await
                && self.running.remove(&wanted).is_some()
            {
                self.states.remove(&wanted);
                return (wanted, located);
            }
        }
    }
}

impl DownloadStates {
    pub fn report(&self) -> Vec<(String, DownloadReport)> {
        let states = self.0.lock();
        let report = |(name, transfer): (&String, &Arc<Transfer>)| (name.clone(), transfer.state());
        states.iter().map(report).collect()
    }

    fn insert(&self, wanted: &str, transfer: &Arc<Transfer>) {
        let mut states = self.0.lock();
        states.insert(wanted.to_owned(), Arc::clone(transfer));
    }

    fn remove(&self, wanted: &str) {
        let mut states = self.0.lock();
        states.remove(wanted);
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        self.running.values().for_each(CancellationToken::cancel);
    }
}

impl MissingModel {
    async fn run(&self) -> Located {
        let wanted = &self.wanted;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.fetch().await {
                Ok(located) => {
                    info!("{wanted} is on disk");
                    return located;
                }
                Err(failure) => {
                    let wait = show_duration(pause);
                    warn!("fetching {wanted} failed, retrying in {wait}: {failure}");
                    self.transfer.fail(&failure);
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn fetch(&self) -> Result<Located, DaemonError> {
        let Self {
            wanted,
            config,
            room,
            catalog,
            hub,
            turn,
            transfer,
        } = self;
        if let Ok(located) = here_already(wanted, config, catalog, hub) {
            return Ok(located);
        }
        // The semaphore is never closed.
        let _turn = turn.acquire().await;
        here(wanted, config, room, (catalog, hub), transfer).await
    }
}
