//! The engine of `worker up`, in a separate process: chooses models, loads them and works for the coordinator that
//! started it. A crash of a network, a driver or the memory does not affect the coordinator.

use std::net::SocketAddr;
use std::os::unix::process::parent_id;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};
use url::Url;

use super::choose::{Choice, choose};
use super::key;
use super::serving::Serving;
use crate::cli::load::block_on;
use crate::cli::page::PageTools;
use crate::cli::place::Place;
use crate::cli::{Exit, Failure, Root, output, threads};
use crate::config::Config;
use crate::daemon::control::ControlSocket;
use crate::daemon::locate::Located;
use crate::daemon::state::WorkerState;
use crate::daemon::{
    Crew, Device, DeviceModel, Devices, OfferTerms, OwnerChoices, OwnerPause, OwnerRules,
    PauseOrder, Post, Signal, Signals, WantedModel, Way, keep_uses, page, use_model,
    watch_upstreams,
};
use crate::hardware;
use crate::link::Dial;
use crate::link::inquiry::Inquiry;
use crate::tasks::Tasks;
use crate::upstream::UpstreamWatch;

/// The hidden command that runs it.
pub const COMMAND: &str = "up-engine";
/// The name of the coordinator in states and logs.
const OWN_LABEL: &str = "this machine";
/// Interval of checks that the coordinator's process runs.
const LOOK: Duration = Duration::from_secs(1);

const EXAMPLE: &str = "\
Example:
  worker up-engine --door ADDRESS --coordinator-process ID     (started by `worker up` itself)";

/// Load models and work for the `worker up` that starts this process.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct EngineArgs {
    /// Where the coordinator listens for this process.
    #[arg(long)]
    pub door: SocketAddr,
    /// The process that started this one; without it this one ends.
    #[arg(long)]
    pub coordinator_process: u32,
    /// As `worker up --model`.
    #[arg(long, value_name = "MODEL")]
    pub model: Vec<String>,
    /// Model that the owner loaded into an earlier engine; repeat for several.
    #[arg(long, value_name = "MODEL")]
    pub loaded: Vec<String>,
    /// Model that the owner unloaded from an earlier engine; repeat for several.
    #[arg(long, value_name = "MODEL")]
    pub unloaded: Vec<String>,
    /// The owner's pause in an earlier engine: seconds since the epoch at which it ends, 0 for none.
    #[arg(long, value_name = "SECONDS")]
    pub paused: Option<u64>,
    /// Ask on the terminal whether to download a better model.
    #[arg(long)]
    pub asks: bool,
}

/// The report to the coordinator's process once the engine works: a line on standard output.
#[derive(Debug, Serialize, Deserialize)]
pub struct Working {
    pub models: Vec<String>,
    /// The device, and why not a better one.
    pub placement: String,
    /// About a better model for this machine.
    pub advice: Option<String>,
}

/// The report after each command of the owner, for the engine that may replace this one: a further line.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EngineChoices {
    pub loaded: Vec<String>,
    pub unloaded: Vec<String>,
    /// As `--paused`.
    #[serde(default)]
    pub paused: Option<u64>,
}

impl EngineChoices {
    fn of(choices: &OwnerChoices) -> Self {
        let since = |until: SystemTime| until.duration_since(UNIX_EPOCH).unwrap_or_default();
        let order = choices.pause.order;
        Self {
            loaded: choices.loaded.clone(),
            unloaded: choices.unloaded.clone(),
            paused: order.map(|order| order.until.map_or(0, |until| since(until).as_secs())),
        }
    }
}

/// The pause that an earlier engine reported.
fn pause_of(paused: Option<u64>) -> OwnerPause {
    let until = |seconds: u64| UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    OwnerPause {
        order: paused.map(|seconds| PauseOrder {
            until: (seconds > 0).then(|| until(seconds)).flatten(),
            after_jobs: false,
        }),
        ..OwnerPause::default()
    }
}

pub fn run(args: &EngineArgs, root: &Root) -> Result<(), Failure> {
    let loaded = root.load()?;
    threads::settle(&loaded.config)?;
    root.start_log_quietly(&loaded)?;
    let config = &loaded.config;
    block_on(async {
        // The coordinator's process hears them, too: this one stays until it is no longer needed.
        let mut signals = Signals::listen().map_err(anyhow::Error::from)?;
        let tasks = Tasks::default();
        let rules = OwnerRules::follow(&config.owner, &tasks);
        let upstreams = watch_upstreams(config, &tasks).await;
        let started = tokio::select! {
            started = start((args, root), config, (&rules, upstreams), &tasks) => started?,
            () = orphaned(args) => return Ok(()),
        };
        let (mut crew, place, mut control) = started;
        root.raise_log(config);
        let grace = config.worker.drain;
        loop {
            tokio::select! {
                request = control.next() => {
                    let command = request.command.clone();
                    let context = (config, &place.catalog, &place.hub);
                    let carried_out = tokio::select! {
                        carried_out = crew.carry_out(command, context, grace) => carried_out,
                        () = orphaned(args) => return Ok(()),
                    };
                    let (changed, reply) = carried_out;
                    crew = changed;
                    output::json_line(&EngineChoices::of(crew.choices()))?;
                    request.reply(reply);
                }
                () = crew.owner_due() => {
                    crew.follow_owner().await;
                    output::json_line(&EngineChoices::of(crew.choices()))?;
                }
                () = crew.upstreams_changed() => {
                    crew = crew.follow_upstreams((config, &place.catalog), grace).await;
                }
                at = crew.worker.engine_ended(), if crew.devices() > 1 => {
                    crew = crew.lose(at, (config, &place.catalog), grace).await;
                }
                _ = crew.worker.engine_ended(), if crew.devices() == 1 => {
                    let why = "a thread of the engine ended with the panic above";
                    return Err(Failure::new(Exit::Failed, why));
                }
                () = orphaned(args) => return Ok(()),
                signal = signals.next() => match signal {
                    Signal::Stop => {}
                    Signal::Pause => {
                        crew.pause(PauseOrder::default()).await;
                        output::json_line(&EngineChoices::of(crew.choices()))?;
                    }
                    Signal::Resume => {
                        crew.resume().await;
                        output::json_line(&EngineChoices::of(crew.choices()))?;
                    }
                    // The coordinator's process reports errors, and settings that need a restart.
                    Signal::Reload => if let Ok(loaded) = root.load() {
                        rules.change(&loaded.config.owner);
                        crew.change_upstreams(&loaded.config);
                        crew.settings_changed(&loaded.config.owner);
                        root.raise_log(&loaded.config);
                    }
                },
            }
        }
    })
}

async fn start(
    (args, root): (&EngineArgs, &Root),
    config: &Config,
    (rules, upstreams): (&OwnerRules, UpstreamWatch),
    tasks: &Tasks,
) -> Result<(Crew, Place, ControlSocket), Failure> {
    let post = post(args, config)?;
    let place = Place::open(config)?;
    let machine = hardware::probe();
    let devices = Devices::start(config, &machine)?;
    let choice = choice(args, config, &place, &*devices.first().await).await?;
    let state = WorkerState::new(&config.worker.name());
    state.follows(&config.owner);
    state.is_starting("loading models");
    let control = ControlSocket::open(&config.worker.data_dir, state.clone(), tasks).await;
    let tools = Arc::new(PageTools::of_engine(root, args.coordinator_process));
    let (places, of_worker) = ((&place.catalog, &place.hub), (&state, control.commands()));
    page::open(config, places, of_worker, tools, tasks).await;
    state.history().keep(&config.worker.data_dir, &state, tasks);
    keep_uses(&place.hub, &state, tasks);
    state.runs_on(&devices);
    let Choice {
        models,
        beside,
        better,
    } = choice;
    let mut serving = Vec::new();
    let others = || {
        models
            .iter()
            .chain(beside.iter().filter_map(|located| located.first()))
    };
    for (at, located) in models.iter().enumerate() {
        let following = others().skip(at + 1).map(|one| (one.name.as_str(), one));
        let following: Vec<WantedModel<'_>> = following.collect();
        use_model(&place.hub, &located.name, located);
        serving.push(load(&devices, located.clone(), &following).await?);
    }
    for located in beside {
        for one in located {
            let name = one.name.clone();
            use_model(&place.hub, &name, &one);
            match load(&devices, one, &[]).await {
                Ok(more) => {
                    serving.push(more);
                    break;
                }
                Err(failure) => warn!("not serving {name}: {failure}"),
            }
        }
    }
    let working = Working {
        placement: devices.placement().to_owned(),
        models: serving.iter().map(|(name, _)| name.clone()).collect(),
        advice: better.map(|better| better.to_string()),
    };
    let choices = OwnerChoices {
        loaded: args.loaded.clone(),
        unloaded: args.unloaded.clone(),
        pause: pause_of(args.paused),
    };
    let context = (state.clone(), config, &place.catalog, &place.hub);
    let owner = (choices, rules, upstreams);
    let crew = Crew::start_again(owner, devices, serving, vec![post], context, tasks).await;
    if !crew.worker.connected().await {
        return Err(Failure::new(
            Exit::Failed,
            "starting the worker failed: the coordinator refused it; see the log for the reason",
        ));
    }
    output::json_line(&working)?;
    let of_config = config.clone();
    let inquiry = move || own_inquiry(&of_config);
    let inquiries = state.inquiries();
    inquiries.follow_one(OWN_LABEL.to_owned(), inquiry, &state, tasks);
    Ok((crew, place, control))
}

/// The models, chosen and on disk; a better one first if that is wanted.
async fn choice(
    args: &EngineArgs,
    config: &Config,
    place: &Place,
    device: &Device,
) -> Result<Choice, Failure> {
    let mut choice = choose(&args.model, config, place, device)?;
    if let Some(offer) = choice.better.take_if(|_| args.asks)
        && let Some(pulled) = offer.put(place, &config.worker.data_dir).await?
    {
        choice.replace_text(pulled);
    }
    Ok(choice)
}

/// The model under its name.
async fn load(
    devices: &Devices,
    located: Located,
    following: &[WantedModel<'_>],
) -> Result<(String, DeviceModel), Failure> {
    let wanted = located.name.clone();
    let model = devices.load_before(&wanted, located, following).await?;
    let name = model.name().to_owned();
    info!(model.name = %name, "{name} is loaded");
    Ok((name, model))
}

fn post(args: &EngineArgs, config: &Config) -> Result<Post, Failure> {
    let data_dir = &config.worker.data_dir;
    let key = key::kept(data_dir)?;
    Ok(Post {
        label: OWN_LABEL.to_owned(),
        way: Way::Socket {
            dial: Dial::Local(args.door),
            sockets: 1,
        },
        key: key.ok_or_else(|| Failure::new(Exit::NotFound, "`worker up` has made no key"))?,
        name: config.worker.name(),
        media_hosts: Vec::new(),
        terms: OfferTerms::default(),
    })
}

/// The inquiry to the coordinator, once it has recorded its address.
fn own_inquiry(config: &Config) -> Option<Inquiry> {
    let data_dir = &config.worker.data_dir;
    let place = Serving::read(data_dir)?;
    Some(Inquiry {
        url: Url::parse(&place.url()).ok()?,
        // The address is on this machine.
        insecure: true,
        tls: place.tls().ok()?,
        is_pinned: place.certificate_sha256.is_some(),
        polls: false,
        key: key::kept(data_dir).ok()??,
        name: config.worker.name(),
    })
}

/// Returns once the process that started this one is gone.
async fn orphaned(args: &EngineArgs) {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while parent_id() == args.coordinator_process {
        looks.tick().await;
    }
}
