//! Models of the catalog on the owner's page: whether they fit, and downloads that end with a served model.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::catalog::{Catalog, Entry, FindError, Source};
use crate::daemon::control::{OwnerCommand, OwnerCommands};
use crate::daemon::fetch::{Transfer, fetch};
use crate::daemon::fit::{Needs, Refusal, Room, Wishes, fit, quantization};
use crate::daemon::report::DownloadReport;
use crate::daemon::state::WorkerState;
use crate::hub::Hub;
use muster_config::{Config, Quantization};
use muster_process::tasks::Tasks;

/// Clones are the same.
#[derive(Clone)]
pub struct PageModels(Arc<PageModelsState>);

struct PageModelsState {
    config: Config,
    catalog: Catalog,
    hub: Hub,
    state: WorkerState,
    commands: OwnerCommands,
    tasks: Tasks,
    pulls: Mutex<BTreeMap<String, PagePull>>,
    /// Serializes downloads.
    turn: Semaphore,
}

struct PagePull {
    transfer: Arc<Transfer>,
    stop: CancellationToken,
    stage: PullStage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PullStage {
    Downloading,
    Loading,
    Done(String),
    Failed(String),
}

/// Models that may be downloaded, and downloads of this page.
#[derive(Debug, Serialize)]
pub struct CatalogReport {
    /// `None` while the worker has no devices yet.
    pub room: Option<String>,
    pub models: Vec<CatalogModel>,
    pub pulls: Vec<PullReport>,
}

/// A model of the catalog, in the quantization that a download takes where none is named.
#[derive(Debug, Clone, Serialize)]
pub struct CatalogModel {
    pub name: String,
    pub kind: String,
    pub description: String,
    pub licence: String,
    pub quantization: String,
    pub quantizations: Vec<String>,
    /// Size of the download, if known.
    pub size_bytes: Option<u64>,
    /// Memory of its weights and of a short job.
    pub needs_bytes: Option<u64>,
    /// `now`, `alone` where models without jobs leave memory for it, `no`, or `unknown`.
    pub fits: &'static str,
    /// Why it does not fit, with the arithmetic.
    pub refusal: Option<String>,
    pub is_on_disk: bool,
}

#[derive(Debug, Serialize)]
pub struct PullReport {
    pub name: String,
    /// `downloading`, `loading`, `done` or `failed`.
    pub state: &'static str,
    pub text: Option<String>,
    #[serde(flatten)]
    pub download: DownloadReport,
}

/// Memory available for models: besides the loaded ones, and without any.
#[derive(Debug, Clone)]
pub struct ModelRooms {
    pub left: Room,
    pub whole: Room,
}

impl PageModels {
    pub fn new(
        config: &Config,
        (catalog, hub): (&Catalog, &Hub),
        (state, commands): (WorkerState, OwnerCommands),
        tasks: &Tasks,
    ) -> Self {
        Self(Arc::new(PageModelsState {
            config: config.clone(),
            catalog: catalog.clone(),
            hub: Hub::new(hub.settings().clone()),
            state,
            commands,
            tasks: tasks.clone(),
            pulls: Mutex::default(),
            turn: Semaphore::new(1),
        }))
    }

    async fn rooms(&self) -> Option<ModelRooms> {
        let devices = self.0.state.devices()?;
        Some(ModelRooms {
            left: devices.most_room().await,
            whole: devices.most_whole_room().await,
        })
    }

    pub async fn report(&self) -> CatalogReport {
        let rooms = self.rooms().await;
        let (models, of) = (self.clone(), rooms.clone());
        let listed = tokio::task::spawn_blocking(move || models.list(of.as_ref()));
        CatalogReport {
            room: rooms.map(|rooms| rooms.whole.place),
            // The task reads sizes of files and does not panic.
            models: listed.await.unwrap_or_default(),
            pulls: self.pulls(),
        }
    }

    fn list(&self, rooms: Option<&ModelRooms>) -> Vec<CatalogModel> {
        let entries = self.0.catalog.entries().iter();
        let downloads = entries.filter(|entry| !is_built_in(entry));
        downloads.map(|entry| self.describe(entry, rooms)).collect()
    }

    fn describe(&self, entry: &Entry, rooms: Option<&ModelRooms>) -> CatalogModel {
        let engine = &self.0.config.engine;
        let wishes = |room: &Room| Wishes::of(engine, room.device);
        let preferred = self.0.config.models.quantization.map(Quantization::word);
        let preferred = entry.preferred(preferred).map(|(name, _)| name);
        let chosen = match (preferred, rooms) {
            (Some(preferred), _) => preferred,
            (None, Some(rooms)) => quantization(entry, wishes(&rooms.whole), &rooms.whole)
                .map_or(entry.default_quantization.as_str(), |(name, _)| name),
            (None, None) => &entry.default_quantization,
        };
        let needs = Needs::of_entry(entry, chosen);
        let verdict = rooms.zip(needs).map(|(rooms, needs)| {
            let fits_in = |room: &Room| fit(needs, wishes(room), room);
            match (fits_in(&rooms.left), fits_in(&rooms.whole)) {
                (Ok(_), _) => ("now", None),
                (Err(_), Ok(_)) => ("alone", None),
                (Err(_), Err(refusal)) => ("no", Some(refusal)),
            }
        });
        let (fits, refusal) = verdict.unwrap_or(("unknown", None));
        let sources = entry.sources_of(chosen);
        let sizes = sources.iter().map(|it| match it.source {
            Source::Hub(source) => source.files.iter().map(|file| file.size_bytes).sum(),
            Source::Path(_) | Source::Embedded(_) => Some(0),
        });
        let size_bytes: Option<u64> = sizes.sum();
        let is_on_disk = sources.iter().all(|it| match it.source {
            Source::Hub(source) => self.0.hub.locate(source).is_some(),
            Source::Path(path) => path.exists(),
            Source::Embedded(_) => true,
        });
        CatalogModel {
            name: entry.id.clone(),
            kind: entry.kind().name().to_owned(),
            description: entry.description.clone(),
            licence: entry.licence.clone(),
            quantization: chosen.to_owned(),
            quantizations: entry.sources.keys().cloned().collect(),
            size_bytes: size_bytes.or_else(|| entry.weight_bytes(chosen)),
            needs_bytes: entry.minimum_memory_bytes(chosen),
            fits,
            refusal: refusal.as_ref().map(Refusal::to_string),
            is_on_disk,
        }
    }

    pub fn pulls(&self) -> Vec<PullReport> {
        let pulls = self.0.pulls.lock();
        let report = |(name, pull): (&String, &PagePull)| {
            let (state, text) = match &pull.stage {
                PullStage::Downloading => ("downloading", None),
                PullStage::Loading => ("loading", None),
                PullStage::Done(text) => ("done", Some(text.clone())),
                PullStage::Failed(text) => ("failed", Some(text.clone())),
            };
            PullReport {
                name: name.clone(),
                state,
                text,
                download: pull.transfer.state(),
            }
        };
        pulls.iter().map(report).collect()
    }

    /// Downloads a model of the catalog and serves it. Joins a running download of the same model.
    pub fn pull(&self, name: &str) -> Result<(), FindError> {
        self.0.catalog.find_with_quantization(name)?;
        let mut pulls = self.0.pulls.lock();
        let is_running =
            |pull: &PagePull| matches!(pull.stage, PullStage::Downloading | PullStage::Loading);
        if pulls.get(name).is_some_and(is_running) {
            return Ok(());
        }
        let transfer = Arc::new(Transfer::default());
        let stop = self.0.tasks.stopping().child_token();
        let pull = PagePull {
            transfer: Arc::clone(&transfer),
            stop: stop.clone(),
            stage: PullStage::Downloading,
        };
        pulls.insert(name.to_owned(), pull);
        let (models, name) = (self.clone(), name.to_owned());
        self.0.tasks.start(async move {
            let done = stop
                .run_until_cancelled(models.bring(&name, &transfer))
                .await;
            let stage = match done {
                Some(Ok(text)) => PullStage::Done(text),
                Some(Err(failure)) => {
                    warn!("downloading {name} for the owner's page failed: {failure}");
                    PullStage::Failed(failure)
                }
                None => PullStage::Failed("stopped; the bytes so far stay".to_owned()),
            };
            models.stage(&name, stage);
        });
        Ok(())
    }

    async fn bring(&self, name: &str, transfer: &Transfer) -> Result<String, String> {
        let of = &self.0;
        let _turn = of.turn.acquire().await;
        let rooms = self.rooms().await;
        let rooms = rooms.ok_or("the worker has no device yet: try again once it is ready")?;
        let (wishes, preferred) = (
            Wishes::of(&of.config.engine, rooms.whole.device),
            of.config.models.quantization.map(Quantization::word),
        );
        let places = (&of.catalog, &of.hub);
        let fetched = fetch(name, preferred, wishes, &rooms.whole, places, transfer);
        fetched.await.map_err(|failure| failure.to_string())?;
        info!("{name} is on disk, loading it");
        self.stage(name, PullStage::Loading);
        let loaded = of.commands.carry_out(OwnerCommand::Load(name.to_owned()));
        let loaded = loaded.await;
        loaded
            .map(|outcome| outcome.text)
            .map_err(|failure| failure.text)
    }

    fn stage(&self, name: &str, stage: PullStage) {
        if let Some(pull) = self.0.pulls.lock().get_mut(name) {
            pull.stage = stage;
        }
    }

    /// Stops a download; false where none of this model runs.
    pub fn stop(&self, name: &str) -> bool {
        let pulls = self.0.pulls.lock();
        let running = pulls
            .get(name)
            .filter(|pull| pull.stage == PullStage::Downloading);
        running.is_some_and(|pull| {
            pull.stop.cancel();
            true
        })
    }
}

/// Built-in models need no download.
fn is_built_in(entry: &Entry) -> bool {
    let sources = entry.sources.values();
    sources
        .into_iter()
        .all(|source| matches!(source, Source::Embedded(_)))
}
