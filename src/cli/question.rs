//! Questions to the owner at a terminal.

use std::io::{self, IsTerminal, Write};

use tokio::task::spawn_blocking;

use super::Failure;

/// Whether there is a terminal to ask on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    Allowed,
    /// A script, a service, a pipe: no answer would come.
    Pointless,
}

impl Asking {
    /// Questions are written to standard error and answered on standard input.
    pub fn of_terminal(wanted: bool) -> Self {
        match wanted && io::stdin().is_terminal() && io::stderr().is_terminal() {
            true => Self::Allowed,
            false => Self::Pointless,
        }
    }
}

/// Waits for the answer to a question; false for any but yes.
pub async fn confirm(question: String) -> Result<bool, Failure> {
    // Reading waits for a person, on a thread that is left alone after Ctrl-C.
    let answer = spawn_blocking(move || ask(&question)).await;
    let answer = answer.map_err(anyhow::Error::from)?;
    let answer = answer.map_err(|error| Failure::showing(&error))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// The line that was typed; empty where the input has ended.
fn ask(question: &str) -> io::Result<String> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()?;
    drop(stderr);
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer)
}
