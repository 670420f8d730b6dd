//! `worker up`: everything in one process. The worker speaks to the coordinator over a pipe, as it would over a socket.
//! After a panic of the engine another one is started, and the coordinator stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{DuplexStream, duplex};
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::announce::{ExampleModels, Ready};
use super::choose::{Choice, choose};
use super::offer::{Asking, Offer};
use super::stay::Stay;
use super::{interfaces, key, settings};
use crate::cli::place::Place;
use crate::cli::reload::Reload;
use crate::cli::serve::DoorArgs;
use crate::cli::{Exit, Failure, Root, output, up};
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::daemon::locate::Located;
use crate::daemon::{Device, DeviceModel, Engines, Post, Served, Way, Worker, limits};
use crate::hardware;
use crate::link::Dial;
use crate::runtime::Purpose;
use crate::runtime::maker::MediaKind;
use crate::tasks::Tasks;

/// Bytes that may wait in the pipe in each direction.
const PIPE: usize = 256 << 10;
/// Between a panic of the engine and the next one; longer after each.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What tasks of a worker may take to notice that it has ended.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// Everything, answering.
struct Started {
    coordinator: Coordinator,
    staff: Staff,
    ready: Ready,
    /// A better model that nobody was asked about.
    better: Option<Offer>,
}

/// The worker, and what it takes to start another in its place.
struct Staff {
    worker: Worker,
    tasks: Tasks,
    all_tasks: Tasks,
    post: Post,
    models: Vec<Located>,
}

/// A new engine with its models.
struct Loaded {
    engines: Engines,
    models: Vec<DeviceModel>,
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
    let mut staff = started.staff;
    let config = reload.config().clone();
    let again = async || {
        let change = async |settings| coordinator.reload(settings).await;
        reload.apply(settings::of, change).await;
    };
    tokio::select! {
        () = stay.until_told(again) => {}
        () = staff.stay(&config) => {}
    }
    // The worker stays until the last job that waits has had its turn; the tasks that end then are its own, too.
    let grace = reload.config().worker.drain;
    stay.draining(grace, coordinator.drain(grace)).await;
    staff.tasks.stop(LAST_TASKS).await;
    Ok(())
}

/// A coordinator with a worker, for as long as one command of this process takes.
pub struct Beside(Started);

impl Beside {
    /// Serves this model, or the best one that is here.
    pub async fn start(model: Option<&str>, config: &Config) -> Result<Self, Failure> {
        let args = up::Args {
            door: DoorArgs::default(),
            model: model.into_iter().map(str::to_owned).collect(),
        };
        let tasks = Tasks::default();
        Ok(Self(start(&args, config, Asking::Pointless, &tasks).await?))
    }

    pub fn url(&self) -> String {
        self.0.coordinator.url()
    }

    pub fn key(&self) -> &str {
        self.0.ready.api_key.as_deref().unwrap_or_default()
    }

    pub async fn end(self) {
        self.0.coordinator.drain(LAST_TASKS).await;
        self.0.staff.tasks.stop(LAST_TASKS).await;
    }
}

async fn start(
    args: &up::Args,
    config: &Config,
    asking: Asking,
    tasks: &Tasks,
) -> Result<Started, Failure> {
    let coordinator = Coordinator::start(settings::of(config)?, tasks).await?;
    let key = key::of_this_machine(&config.worker.data_dir, &coordinator).await?;
    coordinator.accounts().serve_own_user(&key);
    let (mut device, choice) = choice(args, config, asking).await?;
    let Choice {
        mut models,
        beside,
        better,
    } = choice;
    let mut loaded = load(&mut device, &models).await?;
    for located in beside {
        for one in located {
            match load(&mut device, std::slice::from_ref(&one)).await {
                Ok(more) => {
                    loaded.extend(more);
                    models.push(one);
                    break;
                }
                Err(failure) => warn!("not serving {}: {failure}", one.name),
            }
        }
    }
    let ready = Ready {
        url: coordinator.url(),
        addresses: interfaces::others_reach(coordinator.listens_on(), config),
        models: loaded.iter().map(|model| model.name().to_owned()).collect(),
        examples: examples(&loaded),
        api_key: Some(key.clone()),
        certificate_sha256: super::note_serving(&coordinator, config)?,
    };
    let post = post(config, &key, &coordinator, tasks);
    let loaded = Loaded {
        engines: device.into_engines(),
        models: loaded,
    };
    let (worker, own_tasks) = work(loaded, config, &post, tasks);
    match worker.connected().await {
        true => {
            coordinator.is_ready();
            Ok(Started {
                coordinator,
                staff: Staff {
                    worker,
                    tasks: own_tasks,
                    all_tasks: tasks.clone(),
                    post,
                    models,
                },
                ready,
                better,
            })
        }
        false => Err(Failure::new(
            Exit::Failed,
            "starting the worker failed: the coordinator refused it; see the log for the reason",
        )),
    }
}

impl Staff {
    /// Starts another engine and worker after each panic of the engine.
    async fn stay(&mut self, config: &Config) {
        let mut pause = PAUSE;
        loop {
            self.worker.engine_ended().await;
            error!("the engine ended with the panic above: loading its models again");
            // Closes the line, so that the coordinator takes the jobs back.
            self.tasks.stop(LAST_TASKS).await;
            loop {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                match again(config, &self.models).await {
                    Ok(loaded) => {
                        (self.worker, self.tasks) =
                            work(loaded, config, &self.post, &self.all_tasks);
                        break;
                    }
                    Err(failure) => error!("loading the models again failed: {failure}"),
                }
            }
        }
    }
}

/// A new engine with these models.
async fn again(config: &Config, models: &[Located]) -> Result<Loaded, Failure> {
    let mut device = Device::start(config, &hardware::probe())?;
    let models = load(&mut device, models).await?;
    Ok(Loaded {
        engines: device.into_engines(),
        models,
    })
}

/// A worker with its own tasks, which end with it.
fn work(loaded: Loaded, config: &Config, post: &Post, all_tasks: &Tasks) -> (Worker, Tasks) {
    let tasks = all_tasks.part();
    let slots = limits(config).max_running;
    let served = Served::new(loaded.models, slots, BTreeMap::new());
    let worker = Worker::start(loaded.engines, served, vec![post.clone()], &tasks);
    (worker, tasks)
}

/// The models, chosen and on disk; a better one first if that is wanted.
async fn choice(
    args: &up::Args,
    config: &Config,
    asking: Asking,
) -> Result<(Device, Choice), Failure> {
    let machine = hardware::probe();
    let place = Place::open(config)?;
    let device = Device::start(config, &machine)?;
    let mut choice = choose(args, config, &place, &device)?;
    if let Some(offer) = choice.better.take_if(|_| asking == Asking::Allowed)
        && let Some(pulled) = offer.put(&place).await?
    {
        // The model that writes; those that draw stay.
        choice.models = vec![pulled];
    }
    Ok((device, choice))
}

/// The first model of each kind.
fn examples(models: &[DeviceModel]) -> ExampleModels {
    let mut examples = ExampleModels::default();
    for model in models {
        let place = match model {
            DeviceModel::Text(info) if info.purpose == Purpose::Generate => &mut examples.chat,
            DeviceModel::Media(media) if media.kind == MediaKind::Image => &mut examples.image,
            DeviceModel::Media(media) if media.speaks() => &mut examples.speech,
            DeviceModel::Media(_) | DeviceModel::Text(_) => continue,
        };
        place.get_or_insert_with(|| model.name().to_owned());
    }
    examples
}

async fn load(device: &mut Device, models: &[Located]) -> Result<Vec<DeviceModel>, Failure> {
    let mut loaded = Vec::new();
    for located in models {
        let model = device.load(located.clone(), |_, _| {}).await?;
        info!(model.name = %model.name(), "{} is loaded", model.name());
        loaded.push(model);
    }
    Ok(loaded)
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
