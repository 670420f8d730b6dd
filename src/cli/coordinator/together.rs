//! `worker up`: everything in one process. The worker speaks to the coordinator over a pipe, as it would over a socket.

use std::sync::Arc;

use tokio::io::{DuplexStream, duplex};
use tracing::info;

use super::announce::Ready;
use super::choose::choose;
use super::stay::Stay;
use super::{key, settings};
use crate::cli::place::Place;
use crate::cli::{Exit, Failure, output, up};
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::daemon::{Device, Post, Served, Worker, limits};
use crate::hardware;
use crate::link::Dial;
use crate::runtime::{ModelInfo, Runtime};
use crate::tasks::Tasks;

/// Bytes that may wait in the pipe in each direction.
const PIPE: usize = 256 << 10;

/// What was loaded, and a better model that could be.
struct Loaded {
    runtime: Runtime,
    models: Vec<Arc<ModelInfo>>,
    better: Option<String>,
}

pub async fn run(args: &up::Args, config: &Config) -> Result<(), Failure> {
    let mut stay = Stay::begin()?;
    let tasks = Tasks::default();
    let coordinator = Coordinator::start(settings::of(config)?, &tasks).await?;
    let key = key::of_this_machine(&config.worker.data_dir, &coordinator).await?;
    let Loaded {
        runtime,
        models,
        better,
    } = load(args, config).await?;
    let names = models.iter().map(|model| model.name.clone()).collect();
    let slots = limits(config).max_running;
    let post = post(config, &key, &coordinator, &tasks);
    let worker = Worker::start(runtime, Served { models, slots }, vec![post], &tasks);
    tokio::select! {
        is_connected = worker.connected() => refused_unless(is_connected)?,
        () = stay.until_told() => return Ok(()),
    }
    let ready = Ready {
        url: coordinator.url(),
        api_key: Some(key),
        models: names,
    };
    ready.tell_newcomer(args.door.json)?;
    if let (Some(better), false) = (better, args.door.json) {
        output::aside(better);
    }
    stay.until_told().await;
    // The worker stays until the last job that waits has had its turn; the tasks that end then are its own, too.
    let grace = config.worker.drain;
    stay.draining(grace, coordinator.drain(grace)).await;
    drop(worker);
    Ok(())
}

/// The models, loaded; and a better one that could be.
async fn load(args: &up::Args, config: &Config) -> Result<Loaded, Failure> {
    let machine = hardware::probe();
    let place = Place::open(config)?;
    let mut device = Device::start(config, &machine)?;
    let choice = choose(args, config, &place, &device)?;
    let mut models = Vec::new();
    for located in choice.models {
        let info = device.load(located, |_, _| {}).await?;
        info!(model.name = %info.name, "{} is loaded", info.name);
        models.push(info);
    }
    Ok(Loaded {
        runtime: device.into_runtime(),
        models,
        better: choice.better,
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
        dial: Dial::Pipe(Arc::new(dial)),
        key: key.to_owned(),
        name: config.worker.name(),
        sockets: 1,
    }
}

fn refused_unless(is_connected: bool) -> Result<(), Failure> {
    match is_connected {
        true => Ok(()),
        false => Err(Failure::new(
            Exit::Failed,
            "the coordinator of this process refused its own worker; the log says why",
        )),
    }
}
