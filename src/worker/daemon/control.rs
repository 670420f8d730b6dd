//! Commands of the owner to a running worker: a Unix socket in the data folder, accessible only to its owner. A command
//! is one line of JSON, and so is its reply.

use std::fs::{self, Permissions};
use std::future::pending;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::DaemonError;
use super::locate::LocateError;
use super::report::WorkerReport;
use super::state::WorkerState;
use muster_process::tasks::Tasks;

const SOCKET: &str = "worker.sock";
/// Limit of a command and of a reply.
const LONGEST_LINE: u64 = 4 << 20;
/// Requests the worker's state, even while a command is running.
const STATUS: &str = r#"{"status":true}"#;
/// Timeout for a connected program to write its command.
const COMMAND_TIME: Duration = Duration::from_secs(5);
/// Between attempts after a failed accept.
const PAUSE: Duration = Duration::from_secs(1);
const WAITING_COMMANDS: usize = 4;

/// A command about a model, by its name, or about the whole worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerCommand {
    Load(String),
    Unload(String),
    /// Serve it no more.
    Withdraw(String),
    /// Take no jobs, for so long or until the worker is resumed.
    Pause {
        duration: Option<Duration>,
        after_jobs: bool,
    },
    Resume,
}

/// The effect of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutcome {
    /// Empty where the command was about none.
    pub model: String,
    /// `loaded`, `unloaded`, `unloading` or `withdrawn`; of a worker `open`, `closing` or `paused`.
    pub state: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFailure {
    pub cause: CommandCause,
    pub text: String,
}

/// Exit codes of the command line differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandCause {
    /// The worker knows no model of this name.
    Unknown,
    /// The files are not on this machine.
    NotHere,
    DoesNotFit,
    /// The configuration names the model.
    Configured,
    Failed,
}

/// The result that goes back to the owner.
pub type CommandReply = Result<CommandOutcome, CommandFailure>;

/// A command, and the place for its reply.
pub struct ControlRequest {
    pub command: OwnerCommand,
    reply: oneshot::Sender<CommandReply>,
}

/// Hears the owner's commands, from its socket and from [`OwnerCommands`].
pub struct ControlSocket {
    commands: mpsc::Receiver<ControlRequest>,
    sender: OwnerCommands,
    /// `None` if the socket could not be opened.
    path: Option<PathBuf>,
}

/// Sends commands to the worker of this process. Clones are the same.
#[derive(Clone)]
pub struct OwnerCommands(mpsc::Sender<ControlRequest>);

impl OwnerCommands {
    /// Returns once the command is carried out.
    pub async fn carry_out(&self, command: OwnerCommand) -> CommandReply {
        let (reply, told) = oneshot::channel();
        let _ = self.0.send(ControlRequest { command, reply }).await;
        told.await.unwrap_or_else(|_| {
            let text = "the worker ended before the command was carried out";
            Err(CommandFailure::new(CommandCause::Failed, text))
        })
    }
}

impl ControlSocket {
    /// Listens until the tasks stop. A worker runs without this socket, too, so failures are only logged.
    pub async fn open(data_dir: &Path, state: WorkerState, tasks: &Tasks) -> Self {
        let (sender, commands) = mpsc::channel(WAITING_COMMANDS);
        let sender = OwnerCommands(sender);
        let path = data_dir.join(SOCKET);
        let is_listening = if UnixStream::connect(&path).await.is_ok() {
            warn!(
                "another worker uses {}: `worker models load` and `unload` reach that one; give this one its own worker.data_dir",
                data_dir.display()
            );
            false
        } else {
            match listen(data_dir, &path) {
                Ok(listener) => {
                    tasks.start(accept(listener, (sender.clone(), state), tasks.clone()));
                    true
                }
                Err(error) => {
                    warn!(
                        "listening at {} failed, so `worker models load` and `unload` cannot reach this worker: {error}",
                        path.display()
                    );
                    false
                }
            }
        };
        Self {
            commands,
            sender,
            path: is_listening.then_some(path),
        }
    }

    pub fn commands(&self) -> OwnerCommands {
        self.sender.clone()
    }

    pub async fn next(&mut self) -> ControlRequest {
        match self.commands.recv().await {
            Some(request) => request,
            // A sender is a part of this value.
            None => pending().await,
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

impl ControlRequest {
    /// The program that sent the command may have ended.
    pub fn reply(self, reply: CommandReply) {
        let _ = self.reply.send(reply);
    }
}

/// Under its name only once its permissions are set.
fn listen(data_dir: &Path, path: &Path) -> io::Result<UnixListener> {
    fs::create_dir_all(data_dir)?;
    let new = data_dir.join(format!("{SOCKET}.{}", std::process::id()));
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&new, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
    Ok(listener)
}

async fn accept(listener: UnixListener, worker: (OwnerCommands, WorkerState), tasks: Tasks) {
    let stopping = tasks.stopping();
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let (worker, stopping) = (worker.clone(), stopping.clone());
        tasks.start(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                _ = serve(stream, worker) => {}
            }
        });
    }
}

async fn serve(
    mut stream: UnixStream,
    (commands, state): (OwnerCommands, WorkerState),
) -> io::Result<()> {
    let line = match timeout(COMMAND_TIME, read_line(&mut stream)).await {
        Ok(line) => line?,
        Err(_) => return Ok(()),
    };
    if line.trim_end() == STATUS {
        let report = serde_json::to_string(&state.report())?;
        return stream.write_all(format!("{report}\n").as_bytes()).await;
    }
    let reply = match OwnerCommand::read(&line) {
        Some(command) => commands.carry_out(command).await,
        None => {
            let text = "the worker does not know this command: its version is another one";
            Err(CommandFailure::new(CommandCause::Failed, text))
        }
    };
    let line = format!("{}\n", write_reply(&reply));
    stream.write_all(line.as_bytes()).await
}

/// Sends a command to the worker of this data folder. `None` if no worker runs.
pub async fn ask(data_dir: &Path, command: &OwnerCommand) -> io::Result<Option<CommandReply>> {
    let Some(line) = exchange(data_dir, &command.write().to_string()).await? else {
        return Ok(None);
    };
    read_reply(&line).map(Some).ok_or_else(no_reply)
}

/// The state of the worker of this data folder. `None` if no worker runs.
pub async fn status(data_dir: &Path) -> io::Result<Option<WorkerReport>> {
    let Some(line) = exchange(data_dir, STATUS).await? else {
        return Ok(None);
    };
    match (serde_json::from_str(&line), read_reply(&line)) {
        (Ok(report), _) => Ok(Some(report)),
        (Err(_), Some(Err(failure))) => Err(io::Error::other(failure.text)),
        (Err(_), _) => Err(no_reply()),
    }
}

fn no_reply() -> io::Error {
    io::Error::other("the worker ended without a reply")
}

/// A line to the worker of this data folder, and its reply.
async fn exchange(data_dir: &Path, line: &str) -> io::Result<Option<String>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let mut stream = match UnixStream::connect(data_dir.join(SOCKET)).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => return Ok(None),
        Err(error) => return Err(error),
    };
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    read_line(&mut stream).await.map(Some)
}

async fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_LINE))
        .read_line(&mut line)
        .await?;
    Ok(line)
}

impl OwnerCommand {
    fn write(&self) -> Value {
        match self {
            Self::Load(model) => json!({"load": model}),
            Self::Unload(model) => json!({"unload": model}),
            Self::Withdraw(model) => json!({"withdraw": model}),
            Self::Pause {
                duration,
                after_jobs,
            } => {
                let seconds = duration.map(|duration| duration.as_secs());
                json!({"pause": {"seconds": seconds, "after_jobs": after_jobs}})
            }
            Self::Resume => json!({"resume": true}),
        }
    }

    fn read(line: &str) -> Option<Self> {
        let command: Value = serde_json::from_str(line).ok()?;
        let model = |key: &str| command[key].as_str().map(str::to_owned);
        let load = model("load").map(Self::Load);
        load.or_else(|| model("unload").map(Self::Unload))
            .or_else(|| model("withdraw").map(Self::Withdraw))
            .or_else(|| {
                let pause = command.get("pause")?;
                Some(Self::Pause {
                    duration: pause["seconds"].as_u64().map(Duration::from_secs),
                    after_jobs: pause["after_jobs"] == true,
                })
            })
            .or_else(|| (command["resume"] == true).then_some(Self::Resume))
    }
}

fn write_reply(reply: &CommandReply) -> Value {
    match reply {
        Ok(outcome) => {
            json!({"model": outcome.model, "state": outcome.state, "text": outcome.text})
        }
        Err(failure) => json!({"error": failure.cause.name(), "text": failure.text}),
    }
}

fn read_reply(line: &str) -> Option<CommandReply> {
    let reply: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| reply[key].as_str().map(str::to_owned);
    Some(match text("error") {
        Some(cause) => Err(CommandFailure {
            cause: CommandCause::named(&cause),
            text: text("text")?,
        }),
        None => Ok(CommandOutcome {
            model: text("model")?,
            state: text("state")?,
            text: text("text")?,
        }),
    })
}

impl CommandCause {
    const ALL: [Self; 5] = [
        Self::Unknown,
        Self::NotHere,
        Self::DoesNotFit,
        Self::Configured,
        Self::Failed,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotHere => "not_here",
            Self::DoesNotFit => "does_not_fit",
            Self::Configured => "configured",
            Self::Failed => "failed",
        }
    }

    fn named(name: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|cause| cause.name() == name)
            .unwrap_or(Self::Failed)
    }
}

impl CommandFailure {
    pub fn new(cause: CommandCause, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { cause, text }
    }
}

impl From<DaemonError> for CommandFailure {
    fn from(error: DaemonError) -> Self {
        let cause = match &error {
            DaemonError::Locate(LocateError::NotHere { .. }) => CommandCause::NotHere,
            DaemonError::Locate(
                LocateError::Unknown(_)
                | LocateError::UnknownQuantization(_)
                | LocateError::NotPulled { .. }
                | LocateError::NoSuchPath(_),
            ) => CommandCause::Unknown,
            DaemonError::DoesNotFit { .. } => CommandCause::DoesNotFit,
            _ => CommandCause::Failed,
        };
        Self::new(cause, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_survive_the_socket() {
        for command in [
            OwnerCommand::Load("a \"b\"".to_owned()),
            OwnerCommand::Unload("c".to_owned()),
            OwnerCommand::Withdraw("d".to_owned()),
            OwnerCommand::Pause {
                duration: Some(Duration::from_secs(7200)),
                after_jobs: false,
            },
            OwnerCommand::Pause {
                duration: None,
                after_jobs: true,
            },
            OwnerCommand::Resume,
        ] {
            let line = command.write().to_string();
            assert_eq!(OwnerCommand::read(&line), Some(command));
        }
        assert_eq!(OwnerCommand::read("{\"sell\": \"a\"}"), None);
        let outcome = CommandOutcome {
            model: "a".to_owned(),
            state: "loaded".to_owned(),
            text: "loaded a".to_owned(),
        };
        let failures = CommandCause::ALL.map(|cause| Err(CommandFailure::new(cause, "why")));
        for reply in failures.into_iter().chain([Ok(outcome)]) {
            let line = write_reply(&reply).to_string();
            assert_eq!(read_reply(&line), Some(reply));
        }
        assert_eq!(read_reply(""), None);
    }

    #[tokio::test]
    async fn the_socket_answers_its_owner_and_is_gone_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let command = OwnerCommand::Unload("m".to_owned());
        assert_eq!(ask(folder.path(), &command).await.unwrap(), None);
        // A socket left by a killed worker.
        drop(std::os::unix::net::UnixListener::bind(folder.path().join(SOCKET)).unwrap());
        assert_eq!(ask(folder.path(), &command).await.unwrap(), None);
        let tasks = Tasks::default();
        let state = WorkerState::new("mill");
        let mut socket = ControlSocket::open(folder.path(), state.clone(), &tasks).await;
        let metadata = fs::metadata(folder.path().join(SOCKET)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        let second = ControlSocket::open(folder.path(), state.clone(), &tasks).await;
        assert!(second.path.is_none());
        drop(second);
        state.is_starting("loading m");
        let report = status(folder.path()).await.unwrap().unwrap();
        assert_eq!(report, state.report());
        assert_eq!(report.starting.as_deref(), Some("loading m"));
        let failure = CommandFailure::new(CommandCause::Unknown, "no such model");
        let (asked, ()) = tokio::join!(ask(folder.path(), &command), async {
            let request = socket.next().await;
            assert_eq!(request.command, command);
            request.reply(Err(failure.clone()));
        });
        assert_eq!(asked.unwrap(), Some(Err(failure)));
        drop(socket);
        assert_eq!(ask(folder.path(), &command).await.unwrap(), None);
    }
}
