//! `worker up`: everything in one process. The worker speaks to the coordinator over a pipe, as it would over a socket.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::io::{DuplexStream, duplex};
use tracing::info;

use super::announce::Ready;
use super::choose::{Choice, choose};
use super::offer::{Asking, Offer};
use super::stay::Stay;
use super::{interfaces, key, settings};
use crate::cli::place::Place;
use crate::cli::reload::Reload;
use crate::cli::{Exit, Failure, Root, output, up};
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::daemon::{Device, Post, Served, Way, Worker, limits};
use crate::hardware;
use crate::link::Dial;
use crate::runtime::{ModelInfo, Runtime};
use crate::tasks::Tasks;

/// Bytes that may wait in the pipe in each direction.
const PIPE: usize = 256 << 10;

/// Everything, answering.
struct Started {
    coordinator: Coordinator,
    worker: Worker,
    ready: Ready,
    /// A better model that nobody was asked about.
    better: Option<Offer>,
}

/// What was loaded.
struct Loaded {
    runtime: Runtime,
    models: Vec<Arc<ModelInfo>>,
    better: Option<Offer>,
}

pub async fn run(
    args: &up::Args,
    mut reload: Reload,
    asking: Asking,
    root: &Root,
) -> Result<(), Failure> {
    let mut stay = Stay::begin()?;
    let tasks = Tasks::default();
    let starting = start(args, reload.config(), asking, &tasks);
    let Some(started) = stay.unless_told(starting).await else {
        return Ok(());
    };
    let started = started?;
    started.ready.tell_newcomer(args.door.json)?;
    root.raise_log(reload.config());
    if let (Some(better), false) = (started.better, args.door.json) {
        output::aside(better);
    }
    let coordinator = started.coordinator;
    let again = async || {
        let change = async |settings| coordinator.reload(settings).await;
        reload.apply(settings::of, change).await;
    };
    stay.until_told(again).await;
    // The worker stays until the last job that waits has had its turn; the tasks that end then are its own, too.
    let grace = reload.config().worker.drain;
    stay.draining(grace, coordinator.drain(grace)).await;
    drop(started.worker);
    Ok(())
}

async fn start(
    args: &up::Args,
    config: &Config,
    asking: Asking,
    tasks: &Tasks,
) -> Result<Started, Failure> {
    let coordinator = Coordinator::start(settings::of(config)?, tasks).await?;
    let key = key::of_this_machine(&config.worker.data_dir, &coordinator).await?;
    let loaded = load(args, config, asking).await?;
    let models = loaded.models;
    let ready = Ready {
        url: coordinator.url(),
        addresses: interfaces::others_reach(coordinator.listens_on(), config),
        models: models.iter().map(|model| model.name.clone()).collect(),
        api_key: Some(key.clone()),
        certificate_sha256: super::note_serving(&coordinator, config)?,
    };
    let slots = limits(config).max_running;
    let post = post(config, &key, &coordinator, tasks);
    let served = Served {
        models,
        slots,
        other_names: BTreeMap::new(),
    };
    let worker = Worker::start(loaded.runtime, served, vec![post], tasks);
    match worker.connected().await {
        true => {
            coordinator.is_ready();
            Ok(Started {
                coordinator,
                worker,
                ready,
                better: loaded.better,
            })
        }
        false => Err(Failure::new(
            Exit::Failed,
            "starting the worker failed: the coordinator refused it; see the log for the reason",
        )),
    }
}

/// The models, loaded; a better one first if that is wanted.
async fn load(args: &up::Args, config: &Config, asking: Asking) -> Result<Loaded, Failure> {
    let machine = hardware::probe();
    let place = Place::open(config)?;
    let mut device = Device::start(config, &machine)?;
    let Choice {
        mut models,
        mut better,
    } = choose(args, config, &place, &device)?;
    if let Some(offer) = better.take_if(|_| asking == Asking::Allowed)
        && let Some(pulled) = offer.put(&place).await?
    {
        models = vec![pulled];
    }
    let mut loaded = Vec::new();
    for located in models {
        let info = device.load(located, |_, _| {}).await?;
        info!(model.name = %info.name, "{} is loaded", info.name);
        loaded.push(info);
    }
    Ok(Loaded {
        runtime: device.into_runtime(),
        models: loaded,
        better,
    })
}

/// The worker's way to the coordinator beside it: a pipe, made anew each time it dials.
fn post(config: &Config, key: &str, coordinator: &Coordinator, tasks: &Tasks) -> Post {
    let (workers, tasks) = (coordinator.workers().clone(), tasks.clone());
    let dial = move || -> DuplexStream {
        let (ours, theirs) = duplex(PIPE);
        let workers = workers.clone();
        tasks.start(async move { workers.serve(theirs, Vec::new()).await });
        ours
    };
    Post {
        label: "this process".to_owned(),
        way: Way::Socket {
            dial: Dial::Pipe(Arc::new(dial)),
            sockets: 1,
        },
        key: key.to_owned(),
        name: config.worker.name(),
    }
}
