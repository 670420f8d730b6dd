//! The commands that run a coordinator: from the configuration to its settings, from its start to its end.

mod announce;
mod certificate;
mod choose;
mod documents;
mod engine;
mod engine_process;
mod interfaces;
mod key;
mod local_models;
mod offer;
pub mod open;
mod owner_file;
pub mod serving;
mod settings;
mod stay;
mod together;

use std::path::Path;

use super::{Exit, Failure, Root, serve, up};
use crate::cli::load::block_on;
use crate::cli::question::Asking;
use crate::cli::reload::{OF_COORDINATORS, Reload};
use crate::config::{Config, Flag, Loaded};
use crate::coordinator::accounts::{NoAdministrator, OpenError, SecretError};
use crate::coordinator::media::MediaError;
use crate::coordinator::storage::StorageError;
use crate::coordinator::{Coordinator, StartError};
use crate::tasks::Tasks;
use announce::Ready;
pub use engine::{COMMAND as ENGINE_COMMAND, EngineArgs, run as engine};
use owner_file::with_owner_file;
use serving::Serving;
use stay::Stay;
pub use together::Beside;

/// Runs the coordinator alone, until shutdown.
pub fn serve(args: &serve::Args, flags: Vec<Flag>, root: &Root) -> Result<(), Failure> {
    let mut reload = configuration(root, flags)?;
    let make = match args.dev {
        true => settings::for_development,
        false => settings::of,
    };
    block_on(async {
        let mut stay = Stay::begin()?;
        let tasks = Tasks::default();
        let settings = make(reload.config())?;
        let starting = Coordinator::start(settings, &tasks);
        let Some(started) = stay.unless_told(starting).await else {
            // Requests that a follower has forwarded to the leader.
            stay.ending(reload.config().worker.drain, &tasks).await;
            return Ok(());
        };
        let coordinator = started?;
        coordinator.is_ready();
        let addresses = interfaces::others_reach(coordinator.listens_on(), reload.config());
        let ready = Ready {
            url: coordinator.url(),
            addresses,
            api_key: coordinator.first_key().map(str::to_owned),
            models: Vec::new(),
            certificate_sha256: note_serving(&coordinator, reload.config())?,
        };
        ready.tell_operator(args.door.json)?;
        let again = async || {
            let change = async |settings| coordinator.reload(settings).await;
            reload.apply(make, change).await;
        };
        tokio::select! {
            () = stay.until_told(again) => {}
            () = coordinator.fenced() => return Err(StorageError::Fenced.into()),
        }
        let grace = reload.config().worker.drain;
        stay.draining(grace, coordinator.drain(grace)).await;
        Ok(())
    })
}

/// Records the address for commands beside it. Returns the fingerprint of a self-signed certificate.
fn note_serving(coordinator: &Coordinator, config: &Config) -> Result<Option<String>, Failure> {
    let fingerprint = match config.serve.self_signed {
        true => {
            let files = certificate::of_this_machine(config)?;
            Some(certificate::fingerprint(&files.certificate)?.to_string())
        }
        false => None,
    };
    let serving = Serving {
        address: coordinator.listens_on(),
        has_tls: config.serve.self_signed || config.serve.tls().is_some(),
        certificate_sha256: fingerprint.clone(),
    };
    serving.note(&config.worker.data_dir);
    Ok(fingerprint)
}

/// How the coordinator of this data folder was last started; it may have ended since.
pub fn place_of_running(data_dir: &Path) -> Option<Serving> {
    Serving::read(data_dir)
}

/// Runs a coordinator with an engine process.
pub fn up(args: &up::Args, flags: Vec<Flag>, root: &Root) -> Result<(), Failure> {
    let loaded = root.load_with(flags.clone())?;
    root.start_log_quietly(&loaded)?;
    let root = &with_owner_file(root, &loaded.config.worker.data_dir);
    let loaded = root.load_with(flags.clone())?;
    let reload = remarked(root, flags, loaded);
    let asks = !args.door.json && !root.quiet;
    block_on(together::run(args, reload, Asking::of_terminal(asks), root))
}

/// The configuration, and how it is read again.
fn configuration(root: &Root, flags: Vec<Flag>) -> Result<Reload, Failure> {
    let loaded = root.load_with(flags.clone())?;
    root.start_log_of(&loaded.config)?;
    Ok(remarked(root, flags, loaded))
}

fn remarked(root: &Root, flags: Vec<Flag>, loaded: Loaded) -> Reload {
    if std::env::var_os("HOME").is_none_or(|home| home.is_empty()) {
        let folder = loaded.config.worker.data_dir.display();
        tracing::info!("HOME is not set, the data folder is {folder}");
    }
    for remark in loaded.remarks() {
        tracing::warn!("{remark}");
    }
    Reload::new(root, flags, loaded, OF_COORDINATORS)
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Storage(error) => error.into(),
            StartError::Secret(error) => OpenError::Secret(error).into(),
            StartError::NoAdministrator(error) => error.into(),
            StartError::Listen { .. } => Self::new(Exit::Unavailable, error)
                .hint("choose another address with `--listen ADDR:PORT`; port 0 picks a free port"),
            StartError::InUse(_) => Self::new(Exit::Unavailable, error)
                .hint("to run a second coordinator, use another `--data-dir FOLDER`, or another serve.database if set"),
            StartError::Unwritable { .. } => Self::new(Exit::CannotWrite, error),
            StartError::Unguarded(_) => {
                Self::new(Exit::BadConfiguration, error).hint("`worker key create` creates a key")
            }
            StartError::Clock { .. } => Self::new(Exit::Unavailable, error),
            StartError::Exposed(_) => Self::new(Exit::BadConfiguration, error)
                .hint("use `--dev` with a loopback address such as 127.0.0.1:7010"),
            StartError::Media(MediaError::Folder(_)) => Self::new(Exit::CannotWrite, error),
            StartError::Media(MediaError::Bucket(_)) => Self::new(Exit::Unavailable, error),
            StartError::Tls(_) => Self::new(Exit::BadConfiguration, error)
                .of_setting("serve.tls_certificate and serve.tls_key"),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let error = match error {
            OpenError::Storage(error) => return error.into(),
            OpenError::Secret(error) => error,
        };
        let exit = match error {
            SecretError::Unwritable { .. } => Exit::CannotWrite,
            SecretError::Unreadable { .. } | SecretError::Missing(_) => Exit::NotFound,
            SecretError::TooShort(_) | SecretError::Other(_) | SecretError::StillInDatabase(_) => {
                Exit::BadConfiguration
            }
        };
        Self::new(exit, error)
    }
}

impl From<NoAdministrator> for Failure {
    fn from(error: NoAdministrator) -> Self {
        match error {
            NoAdministrator::Storage(error) => error.into(),
            other => Self::new(Exit::Failed, other).hint(
                "name the account with `worker key create --full --account NAME#ID`, or remove the role with `worker account roles NAME#ID user`",
            ),
        }
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        let exit = match error {
            StorageError::Misnamed(_) => Exit::BadConfiguration,
            StorageError::Newer { .. } | StorageError::Broken(_) | StorageError::Rescued(_) => {
                Exit::BadData
            }
            StorageError::ReadOnly | StorageError::Full | StorageError::FileGone => {
                Exit::CannotWrite
            }
            StorageError::Locked(_)
            | StorageError::Unreachable(_)
            | StorageError::Paused
            | StorageError::Fenced => Exit::Unavailable,
            StorageError::Refused(_) | StorageError::Closed => Exit::Failed,
        };
        Self::new(exit, error)
    }
}
