//! The process of an engine, as its coordinator sees it: started, heard when it works, ended with its owner.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use super::engine::{self, EngineChoices, Working};
use crate::child::THIS_PROGRAM;
use crate::cli::{Exit, Failure, Root};

/// How engines are started, each time in the same way.
pub struct EngineProgram {
    pub root: Root,
    pub door: SocketAddr,
    pub models: Vec<String>,
    /// The choices in the engine before.
    pub choices: LastChoices,
}

/// The owner's choices, as the last engine reported them.
#[derive(Debug, Clone, Default)]
pub struct LastChoices(Arc<Mutex<EngineChoices>>);

/// A running engine; killed when it is dropped.
pub struct EngineProcess {
    id: Pid,
    /// A thread waits for its end.
    waiting: JoinHandle<ExitStatus>,
    end: Option<EngineEnd>,
}

/// How it ended.
#[derive(Debug, Clone, Copy)]
pub struct EngineEnd(ExitStatus);

impl EngineProgram {
    /// Returns once it works. An engine that cannot start says why on standard error, as this program would.
    pub async fn start(&self, asks: bool) -> Result<(EngineProcess, Working), Failure> {
        let (mut process, line) = self.spawn(asks)?;
        let line = line.await.unwrap_or_default();
        match serde_json::from_str(&line) {
            Ok(working) => Ok((process, working)),
            Err(_) => Err(process.ended().await.into_failure()),
        }
    }

    /// The first line of the process comes when it works.
    fn spawn(&self, asks: bool) -> Result<(EngineProcess, oneshot::Receiver<String>), Failure> {
        let mut command = Command::new(THIS_PROGRAM);
        command.arg(engine::COMMAND).args(self.root.arguments());
        command.args(["--door", &self.door.to_string()]);
        command.args(["--coordinator-process", &std::process::id().to_string()]);
        for model in &self.models {
            command.args(["--model", model]);
        }
        let EngineChoices {
            loaded,
            unloaded,
            paused,
        } = self.choices.get();
        for model in &loaded {
            command.args(["--loaded", model]);
        }
        for model in &unloaded {
            command.args(["--unloaded", model]);
        }
        if let Some(seconds) = paused {
            command.args(["--paused", &seconds.to_string()]);
        }
        if asks {
            command.arg("--asks");
        }
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned
            .map_err(|error| anyhow::Error::from(error).context("starting the engine failed"))?;
        let id = Pid::from_child(&child);
        let (told, line) = oneshot::channel();
        let choices = self.choices.clone();
        let waiting = spawn_blocking(move || {
            let mut lines = child.stdout.take().map(BufReader::new);
            let mut next = || {
                let mut line = String::new();
                if let Some(lines) = &mut lines {
                    // Without a line there is an end, which says more.
                    let _ = lines.read_line(&mut line);
                }
                line
            };
            let _ = told.send(next());
            loop {
                let line = next();
                if line.is_empty() {
                    break;
                }
                if let Ok(reported) = serde_json::from_str(&line) {
                    choices.set(reported);
                }
            }
            // Waiting for a child fails only where it was waited for before.
            child.wait().unwrap_or_default()
        });
        let process = EngineProcess {
            id,
            waiting,
            end: None,
        };
        Ok((process, line))
    }
}

impl LastChoices {
    fn get(&self) -> EngineChoices {
        let choices = self.0.lock();
        choices.clone()
    }

    fn set(&self, choices: EngineChoices) {
        *self.0.lock() = choices;
    }

    /// Drops models loaded after the start; false if there are none.
    pub fn leave_out_loaded(&self) -> bool {
        let mut choices = self.0.lock();
        !std::mem::take(&mut choices.loaded).is_empty()
    }
}

impl EngineProcess {
    pub async fn ended(&mut self) -> EngineEnd {
        match self.end {
            Some(end) => end,
            None => {
                let end = EngineEnd((&mut self.waiting).await.unwrap_or_default());
                *self.end.insert(end)
            }
        }
    }

    /// Has it read its configuration again; the next engine reads the configuration anyway.
    pub fn reload(&self) {
        self.tell(Signal::HUP);
    }

    /// Forwards the owner's pause or resume.
    pub fn pause(&self, is_paused: bool) {
        self.tell(match is_paused {
            true => Signal::USR1,
            false => Signal::USR2,
        });
    }

    fn tell(&self, signal: Signal) {
        if !self.waiting.is_finished() {
            let _ = kill_process(self.id, signal);
        }
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        self.tell(Signal::KILL);
    }
}

impl EngineEnd {
    /// Why a start has come to nothing.
    fn into_failure(self) -> Failure {
        match self.0.code() {
            Some(code) => Failure::told(Exit::of_code(code)),
            None => Failure::new(
                Exit::Failed,
                format!("the engine ended while loading models: {self}"),
            )
            .hint("a smaller model or quantization needs less memory: `worker up --model MODEL`"),
        }
    }
}

impl fmt::Display for EngineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (_, Some(9)) => f.write_str(
                "its process was killed (signal 9), as the system does when memory runs out",
            ),
            (_, Some(signal)) => write!(f, "its process ended with signal {signal}"),
            (Some(code), None) => write!(f, "its process ended with exit code {code}"),
            (None, None) => f.write_str("its process ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_says_what_ended_the_process() {
        let said = |status| EngineEnd(ExitStatus::from_raw(status)).to_string();
        assert!(said(9).contains("memory"), "{}", said(9));
        assert_eq!(said(6), "its process ended with signal 6");
        assert_eq!(said(1 << 8), "its process ended with exit code 1");
    }
}
