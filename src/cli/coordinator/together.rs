//! `worker up`: a coordinator, and an engine in a separate process. A crashed engine is restarted, and the coordinator
//! stays.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing::error;

use super::announce::Ready;
use super::engine_process::{EngineProcess, EngineProgram, LastChoices};
use super::local_models::ModelsOfThisMachine;
use super::stay::Stay;
use super::{interfaces, key, settings};
use crate::cli::question::Asking;
use crate::cli::reload::Reload;
use crate::cli::serve::DoorArgs;
use crate::cli::{Exit, Failure, Root, output, up};
use crate::config::{Config, show_duration};
use crate::coordinator::Coordinator;
use crate::coordinator::storage::StorageError;
use crate::daemon::Signal;
use crate::tasks::Tasks;

/// Between the end of an engine and the next one; longer after each.
const PAUSE: Duration = Duration::from_secs(1);
/// An engine that stayed for so long was not at fault from the start.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Time for jobs to end with a command.
const LAST_JOBS: Duration = Duration::from_secs(2);

/// Everything, answering.
struct Started {
    coordinator: Coordinator,
    staff: Staff,
    ready: Ready,
    /// The device, and why not a better one.
    placement: String,
    /// About a better model, unless there was a question.
    advice: Option<String>,
}

/// The engine, with everything needed to restart it.
struct Staff {
    program: EngineProgram,
    engine: EngineProcess,
    began: Instant,
    /// Before the next engine.
    pause: Duration,
}

pub async fn run(
    args: &up::Args,
    mut reload: Reload,
    asking: Asking,
    root: &Root,
) -> Result<(), Failure> {
    let mut stay = Stay::begin()?;
    let tasks = Tasks::default();
    let starting = start(args, reload.config(), asking, root, &tasks);
    let Some(started) = stay.unless_told(starting).await else {
        return Ok(());
    };
    let started = started?;
    output::aside(started.placement);
    if let (Some(advice), false) = (started.advice, args.door.json) {
        output::aside(advice);
    }
    let data_dir = &reload.config().worker.data_dir;
    started.ready.tell_newcomer(args.door.json, data_dir)?;
    root.raise_log(reload.config());
    let coordinator = started.coordinator;
    let mut staff = started.staff;
    loop {
        let mut again = async || {
            let change = async |settings| coordinator.reload(settings).await;
            reload.apply(settings::of, change).await;
        };
        tokio::select! {
            told = stay.told() => match told {
                Signal::Reload => {
                    again().await;
                    staff.engine.reload();
                }
                Signal::Pause => staff.engine.pause(true),
                Signal::Resume => staff.engine.pause(false),
                Signal::Stop => break,
            },
            () = staff.replaced() => {}
            () = coordinator.fenced() => return Err(StorageError::Fenced.into()),
        }
    }
    // The engine stays until the last job that waits has had its turn.
    let grace = reload.config().worker.drain;
    stay.draining(grace, coordinator.drain(grace)).await;
    drop(staff);
    Ok(())
}

/// A coordinator with an engine, for as long as one command of this process takes.
pub struct Beside(Started);

impl Beside {
    /// Serves this model, or the best downloaded one.
    pub async fn start(model: Option<&str>, config: &Config, root: &Root) -> Result<Self, Failure> {
        let args = up::Args {
            door: DoorArgs::default(),
            model: model.into_iter().map(str::to_owned).collect(),
        };
        let tasks = Tasks::default();
        let started = start(&args, config, Asking::Pointless, root, &tasks).await?;
        Ok(Self(started))
    }

    pub fn url(&self) -> String {
        self.0.coordinator.url()
    }

    /// The first model under its served name.
    pub fn model(&self) -> Option<&str> {
        self.0.ready.models.first().map(String::as_str)
    }

    pub fn key(&self) -> &str {
        self.0.ready.api_key.as_deref().unwrap_or_default()
    }

    pub async fn end(self) {
        self.0.coordinator.drain(LAST_JOBS).await;
        drop(self.0.staff);
    }
}

async fn start(
    args: &up::Args,
    config: &Config,
    asking: Asking,
    root: &Root,
    tasks: &Tasks,
) -> Result<Started, Failure> {
    if config.cluster.address.is_some() {
        let error = "`worker up` is for one machine, and cluster.address is set";
        return Err(Failure::new(Exit::BadConfiguration, error)
            .hint("start the coordinators of a cluster with `worker serve`"));
    }
    let coordinator = Coordinator::start(settings::of(config)?, tasks).await?;
    let key = key::of_this_machine(&config.worker.data_dir, &coordinator).await?;
    coordinator.accounts().serve_own_user(&key);
    coordinator.serve_local_models(Arc::new(ModelsOfThisMachine::new(config.clone())));
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let no_door = |error| anyhow::Error::from(error).context("listening for the engine failed");
    let door = door.map_err(no_door)?;
    let program = EngineProgram {
        root: root.clone(),
        door: door.local_addr().map_err(no_door)?,
        models: args.model.clone(),
        choices: LastChoices::default(),
    };
    receive(door, &coordinator, tasks);
    let (engine, working) = program.start(asking == Asking::Allowed).await?;
    let ready = Ready {
        url: coordinator.url(),
        addresses: interfaces::others_reach(coordinator.listens_on(), config),
        models: working.models,
        api_key: Some(key),
        certificate_sha256: super::note_serving(&coordinator, config)?,
    };
    coordinator.is_ready();
    Ok(Started {
        coordinator,
        staff: Staff {
            program,
            engine,
            began: Instant::now(),
            pause: PAUSE,
        },
        ready,
        placement: working.placement,
        advice: working.advice,
    })
}

/// Lets the engine in, as often as it comes. Another program of this machine has no key for it.
fn receive(door: TcpListener, coordinator: &Coordinator, tasks: &Tasks) {
    let (workers, all_tasks) = (coordinator.workers().clone(), tasks.clone());
    let stopping = tasks.stopping();
    tasks.start(async move {
        while let Some(accepted) = stopping.run_until_cancelled(door.accept()).await {
            let Ok((stream, _)) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            // A frame that waits for the acknowledgement of the one before costs 40 ms.
            let _ = stream.set_nodelay(true);
            let workers = workers.clone();
            all_tasks.start(async move { workers.serve(stream, Vec::new()).await });
        }
    });
}

impl Staff {
    /// Returns once the engine has ended and another works in its place.
    async fn replaced(&mut self) {
        let mut end = self.engine.ended().await.to_string();
        if self.began.elapsed() > LONGEST_PAUSE {
            self.pause = PAUSE;
        }
        loop {
            let pause = show_duration(self.pause);
            error!("the engine ended ({end}): the next one starts in {pause}");
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            match self.program.start(false).await {
                Ok((engine, _)) => {
                    self.engine = engine;
                    self.began = Instant::now();
                    return;
                }
                Err(failure) => {
                    end = failure.to_string();
                    // A model loaded later may be the cause, and the original ones must come back.
                    if self.program.choices.leave_out_loaded() {
                        error!("the next engine leaves out models that `worker models load` added");
                    }
                }
            }
        }
    }
}
