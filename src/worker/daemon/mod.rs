//! The worker process: probe, fit, pull, load, serve, drain.
//!
//! The daemon places models on devices and translates between the other crates and folders; it has no computation or
//! network protocol of its own.
//!
//! | file | content |
//! | --- | --- |
//! | `fit`, `locate`, `fetch` | models that fit this machine, and their files |
//! | `device`, `devices` | the memory of a device and its models; the placement of models on devices |
//! | `adapters` | adapters of text models in their folder |
//! | `downloads` | models that are downloaded while others are served |
//! | `media/` | models that make media or transcribe, by kind: their files and their jobs |
//! | `crew` | the loaded models and the worker that serves them |
//! | `owner/` | pauses in favour of the machine's owner |
//! | `residency` | models in memory |
//! | `safety` | the configured safety checker |
//! | `control` | commands of the owner to the running worker |
//! | `page/` | the owner's page in a browser |
//! | `state`, `report` | the worker's state for its owner |
//! | `causes` | reasons why no jobs arrive |
//! | `inquiries` | demand for models, and reasons of missing connections |
//! | `history/` | samples of the last week |
//! | `engines` | the threads of a device, for text and for media |
//! | `posts` | the configured coordinators, checked |
//! | `worker` | the engine and its lines to coordinators |
//! | `served` | the models of a worker, and those offered to a coordinator |
//! | `registration` | the registration of capabilities and models at coordinators |
//! | `jobs/` | one job, from its offer to its final report |
//! | `uses` | times of models' last use |
//! | `upstreams` | upstream models |
//! | `blame` | errors of a job, and their blame |
//! | `throttle` | pauses between steps to limit power |
//! | `summary` | a summary in the owner's log every minute |
//! | `look`, `pace` | reports of load and speed to coordinators |

mod adapters;
mod blame;
mod causes;
pub mod control;
mod crew;
mod device;
mod devices;
mod downloads;
mod engines;
mod error;
mod fetch;
mod first_models;
pub mod fit;
mod history;
mod inquiries;
mod jobs;
pub mod locate;
mod look;
pub mod media;
mod owner;
mod pace;
pub mod page;
mod posts;
mod registration;
pub mod report;
mod residency;
pub mod safety;
mod served;
pub mod shares;
mod signals;
pub mod state;
mod summary;
mod throttle;
mod upstreams;
mod uses;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use crate::catalog::Catalog;
use crate::hardware::{self, Machine};
use crate::hub::{Hub, Source};
use muster_config::{Config, Quantization, show_duration};
use muster_process::tasks::Tasks;

pub use adapters::AdapterSource;
use control::ControlSocket;
pub use crew::{Crew, OwnerChoices};
pub use device::{Device, Leaving, TEXT_PROCESS, kv_dtype, limits, needs, shared};
pub use devices::{Devices, WantedModel};
use downloads::Downloads;
pub use engines::{AdapterFolders, DeviceModel, Engines, Fleet, MediaModel};
pub use error::DaemonError;
use fetch::Transfer;
use first_models::{FirstModels, first_models};
use fit::Wishes;
use locate::{LocateError, Located, Shelves};
pub use media::{FilmType, VideoFile, infotext, transcript};
pub use owner::{OwnerPause, OwnerRules, PauseOrder};
use page::OwnerTools;
use posts::posts;
pub use posts::{inquiry, tls};
pub use served::{OfferTerms, Served};
pub use signals::{Signal, Signals};
use state::WorkerState;
pub use summary::Activity;
pub use upstreams::{upstream_states, watch_upstreams};
pub use uses::{keep_uses, use_model};
pub use worker::{Post, Stock, Way, Worker};

/// Runs until a stop signal, or until every coordinator has refused the worker for good. On reload, returns the new
/// configuration if it is valid.
pub async fn run(
    config: &Config,
    catalog: &Catalog,
    hub: &Hub,
    tools: Arc<dyn OwnerTools>,
    mut reload: impl FnMut() -> Option<Config>,
) -> Result<(), DaemonError> {
    let mut signals = Signals::listen()?;
    let posts = posts(config)?;
    let tasks = Tasks::default();
    let state = WorkerState::new(&config.worker.name());
    let mut control = ControlSocket::open(&config.worker.data_dir, state.clone(), &tasks).await;
    state.follows(&config.owner);
    state.works_for(&posts);
    let of_worker = (&state, control.commands());
    page::open(config, (catalog, hub), of_worker, tools, &tasks).await;
    state
        .history()
        .keep(&config.worker.data_dir, &state, &tasks);
    keep_uses(hub, &state, &tasks);
    state.inquiries().follow(config, &state, &tasks);
    let starting = start(config, catalog, hub, &state);
    let Some(started) = unless_stopped(&mut signals, starting).await else {
        return stopped(&tasks).await;
    };
    let (devices, models) = started?;
    if posts.is_empty() {
        warn!(
            "no coordinator is configured, so no jobs will arrive; add one with `worker join TOKEN`"
        );
    }
    let mut downloads = Downloads::new(&tasks);
    state.downloads(downloads.states());
    for wanted in &models.missing {
        let room = devices.most_room().await;
        downloads.start(wanted, &room, config, catalog, hub);
    }
    let rules = OwnerRules::follow(&config.owner, &tasks);
    let context = (state.clone(), catalog);
    let upstreams = watch_upstreams(config, &tasks).await;
    let owner = (&rules, upstreams);
    let mut crew = Crew::start(devices, models.loaded, posts, owner, context, &tasks).await;
    let mut config = config.clone();
    match models.missing.as_slice() {
        [] => {}
        missing => warn!(
            "not serving {} yet, downloading; the worker goes on without",
            missing.join(", ")
        ),
    }
    info!(
        "ready; SIGTERM or Ctrl-C stops, SIGHUP reloads the configuration, SIGUSR1 pauses, SIGUSR2 resumes"
    );
    loop {
        let grace = config.worker.drain;
        tokio::select! {
            request = control.next() => {
                let command = request.command.clone();
                let carried_out = crew.carry_out(command, (&config, catalog, hub), grace);
                let Some((changed, reply)) = unless_stopped(&mut signals, carried_out).await else {
                    return stopped(&tasks).await;
                };
                crew = changed;
                request.reply(reply);
            }
            () = crew.owner_due() => crew.follow_owner().await,
            () = crew.upstreams_changed() => {
                let change = crew.follow_upstreams((&config, catalog), config.worker.drain);
                let Some(changed) = unless_stopped(&mut signals, change).await else {
                    return stopped(&tasks).await;
                };
                crew = changed;
            }
            (wanted, located) = downloads.next() => {
                let change = crew.change(vec![(wanted, located)], (&config, catalog), grace);
                let Some(changed) = unless_stopped(&mut signals, change).await else {
                    return stopped(&tasks).await;
                };
                crew = changed;
                info!("ready again with {}", crew.loaded_of(&config).join(", "));
            }
            signal = signals.next() => match signal {
                Signal::Stop => break,
                Signal::Pause => crew.pause(PauseOrder::default()).await,
                Signal::Resume => crew.resume().await,
                Signal::Reload => {
                    let Some(reloaded) = reload() else { continue };
                    config = reloaded;
                    rules.change(&config.owner);
                    crew.change_upstreams(&config);
                    crew.settings_changed(&config.owner);
                    let grace = config.worker.drain;
                    let recruits = crew.recruits(&config, catalog, hub, &mut downloads).await;
                    let is_same = !crew.has_left_overs(&config) && !crew.has_new_adapters().await;
                    if recruits.is_empty() && is_same {
                        continue;
                    }
                    let change = crew.change(recruits, (&config, catalog), grace);
                    let Some(changed) = unless_stopped(&mut signals, change).await else {
                        return stopped(&tasks).await;
                    };
                    crew = changed;
                    info!("ready again with {}", crew.loaded_of(&config).join(", "));
                }
            },
            at = crew.worker.engine_ended(), if crew.devices() > 1 => {
                let change = crew.lose(at, (&config, catalog), config.worker.drain);
                let Some(changed) = unless_stopped(&mut signals, change).await else {
                    return stopped(&tasks).await;
                };
                crew = changed;
            }
            _ = crew.worker.engine_ended(), if crew.devices() == 1 => {
                // Coordinators take back the jobs of a lost socket, and a new process has a clean device.
                tasks.stop(LAST_TASKS).await;
                return Err(DaemonError::EngineEnded);
            }
            refusals = crew.worker.refused() => {
                tasks.stop(LAST_TASKS).await;
                return Err(DaemonError::Refused(refusals.join("; ")));
            }
        }
    }
    let (worker, of_worker) = crew.into_worker();
    drain(worker, config.worker.drain, &mut signals, &of_worker).await;
    tasks.stop(LAST_TASKS).await;
    Ok(())
}

/// `None` if a stop signal arrives before the work is done.
async fn unless_stopped<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = signals.stop() => None,
    }
}

async fn stopped(tasks: &Tasks) -> Result<(), DaemonError> {
    tasks.stop(LAST_TASKS).await;
    info!("stopped while loading");
    Ok(())
}

async fn start(
    config: &Config,
    catalog: &Catalog,
    hub: &Hub,
    state: &WorkerState,
) -> Result<(Devices, FirstModels), DaemonError> {
    let machine = hardware::probe();
    describe(config, &machine);
    let devices = Devices::start(config, &machine)?;
    state.runs_on(&devices);
    if config.models.serve.0.is_empty() && config.upstreams.is_empty() {
        warn!("no models are configured; add some to models.serve");
    }
    let models = first_models(&devices, config, (catalog, hub), state).await?;
    Ok((devices, models))
}

/// The files of a model, downloaded first if necessary.
async fn here(
    wanted: &str,
    config: &Config,
    room: &fit::Room,
    (catalog, hub): (&Catalog, &Hub),
    transfer: &Transfer,
) -> Result<Located, DaemonError> {
    let preferred = config.models.quantization.map(Quantization::word);
    let locate = || here_already(wanted, config, catalog, hub);
    match locate() {
        Err(LocateError::NotHere { .. } | LocateError::Damaged { .. })
            if !config.hub.offline && catalog.find_with_quantization(wanted).is_ok() =>
        {
            let wishes = Wishes::of(&config.engine, room.device);
            fetch::fetch(wanted, preferred, wishes, room, (catalog, hub), transfer).await?;
            Ok(locate()?)
        }
        located => Ok(located?),
    }
}

/// The files of a model that is on this machine, to be loaded.
fn here_already(
    wanted: &str,
    config: &Config,
    catalog: &Catalog,
    hub: &Hub,
) -> Result<Located, LocateError> {
    let unpacked = config.worker.data_dir.join("models");
    let located = locate::locate(wanted, shelves(config, catalog, hub, &unpacked))?;
    use_model(hub, wanted, &located);
    Ok(located)
}

/// The files of the hub that a model is or will be loaded from.
fn wanted_sources(wanted: &str, config: &Config, catalog: &Catalog, hub: &Hub) -> Vec<Source> {
    let unpacked = config.worker.data_dir.join("models");
    locate::sources_of(wanted, shelves(config, catalog, hub, &unpacked))
}

fn shelves<'a>(
    config: &Config,
    catalog: &'a Catalog,
    hub: &'a Hub,
    unpacked: &'a Path,
) -> Shelves<'a> {
    Shelves {
        catalog,
        hub,
        unpacked,
        preferred: config.models.quantization.map(Quantization::word),
    }
}

fn describe(config: &Config, machine: &Machine) {
    let name = config.worker.name();
    info!(worker.name = %name, "worker {name}, version {}", env!("CARGO_PKG_VERSION"));
    info!(
        "CPU {}, {} threads usable",
        machine.cpu.model, machine.cpu.threads
    );
    for gpu in &machine.gpus {
        info!("GPU {}: {}", gpu.index, gpu.name);
    }
    for note in &machine.notes {
        warn!("{note}");
    }
}

/// Running jobs finish within the grace period; a second signal ends it.
async fn drain(worker: Worker, grace: Duration, signals: &mut Signals, tasks: &Tasks) {
    info!(
        "stopping: running jobs have {} to finish; a second signal stops at once",
        show_duration(grace)
    );
    tokio::select! {
        drained = worker.drain(grace) => match drained {
            true => info!("stopped"),
            false => warn!("stopped after {} with unfinished jobs", show_duration(grace)),
        },
        () = signals.stop() => return warn!("stopped at once by a second signal, running jobs dropped"),
    }
    tasks.stop(LAST_TASKS).await;
}

/// Time for tasks to end after the stop.
const LAST_TASKS: Duration = Duration::from_secs(2);
