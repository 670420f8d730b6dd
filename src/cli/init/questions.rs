//! Questions on the terminal, each with an answer proposed.

use std::io::{self, Write};

use crate::cli::{Exit, Failure};

pub struct Questions {
    takes_every_proposal: bool,
}

impl Questions {
    pub fn new(takes_every_proposal: bool) -> Self {
        Self {
            takes_every_proposal,
        }
    }

    /// Something to know before the next question.
    pub fn show(&self, text: &str) -> Result<(), Failure> {
        match self.takes_every_proposal {
            true => Ok(()),
            false => say(text),
        }
    }

    /// Asks until the answer is valid. An empty answer accepts the proposal.
    pub fn ask<T>(
        &mut self,
        question: &str,
        proposal: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        if self.takes_every_proposal {
            return parse(proposal).map_err(|reason| Failure::new(Exit::Failed, reason));
        }
        loop {
            say(&format!("{question} [{proposal}] "))?;
            let typed = answer()?;
            let answer = if typed.is_empty() { proposal } else { &typed };
            match parse(answer) {
                Ok(value) => return Ok(value),
                Err(reason) => say(&format!("{reason}\n"))?,
            }
        }
    }
}

/// Questions go where errors go, so that standard output stays the command's result.
fn say(text: &str) -> Result<(), Failure> {
    let mut stderr = io::stderr().lock();
    stderr
        .write_all(text.as_bytes())
        .and_then(|()| stderr.flush())
        .map_err(|error| Failure::showing(&error))
}

fn answer() -> Result<String, Failure> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    match read.map_err(|error| {
        Failure::new(Exit::Failed, format!("reading the answer failed: {error}"))
    })? {
        0 => Err(Failure::new(
            Exit::Failed,
            "standard input ended before the last answer; nothing written",
        )),
        _ => Ok(line.trim().to_owned()),
    }
}
