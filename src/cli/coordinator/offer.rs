//! A better model than those that are here. Whoever sits at the terminal is asked whether it shall be brought now;
//! everybody else is told how, after everything is ready.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::catalog::Source;
use crate::cli::init::choose::Candidate;
use crate::cli::models::bars;
use crate::cli::place::Place;
use crate::cli::{Failure, output, quantity};
use crate::daemon::locate::Located;

/// Whether there is somebody to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    Allowed,
    /// A script, a service, a pipe: nobody would answer.
    Pointless,
}

/// A model of the catalog that would fit and is not here.
pub struct Offer {
    /// With its quantization, as `worker models pull` takes it.
    name: String,
    /// Of its weights, as the catalog knows it.
    bytes: u64,
}

impl Asking {
    /// Questions are read from one and written to the other.
    pub fn of_terminal(wanted: bool) -> Self {
        match wanted && io::stdin().is_terminal() && io::stderr().is_terminal() {
            true => Self::Allowed,
            false => Self::Pointless,
        }
    }
}

impl Offer {
    pub fn of(candidate: &Candidate, place: &Place) -> Self {
        let entry = place.catalog.find(&candidate.name).ok();
        let weights = entry.and_then(|entry| entry.weight_bytes(&candidate.quantization));
        Self {
            name: format!("{}:{}", candidate.name, candidate.quantization),
            bytes: weights.unwrap_or(candidate.total_bytes),
        }
    }

    /// Asks, and brings it here on a yes. A pull that fails is no reason not to start with what is here.
    pub async fn put(&self, place: &Place) -> Result<Option<Located>, Failure> {
        if !self.is_accepted(place).await? {
            return Ok(None);
        }
        match self.pull(place).await {
            Ok(located) => Ok(Some(located)),
            Err(failure) => {
                output::aside(format!(
                    "{failure}\ncontinuing with the models on disk. {self}"
                ));
                Ok(None)
            }
        }
    }

    async fn is_accepted(&self, place: &Place) -> Result<bool, Failure> {
        let question = format!(
            "{} fits this machine and is better than the models on disk. Download it ({}) to {}? [y/N] ",
            self.name,
            quantity::bytes(self.bytes),
            place.hub.settings().cache_dir.display(),
        );
        // Reading waits for a person, on a thread that nobody waits for after Ctrl-C.
        let answer = spawn_blocking(move || ask(&question)).await;
        let answer = answer.map_err(anyhow::Error::from)?;
        let answer = answer.map_err(|error| Failure::showing(&error))?;
        Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
    }

    async fn pull(&self, place: &Place) -> Result<Located, Failure> {
        let (entry, quantization) = place.catalog.find_with_quantization(&self.name)?;
        let (quantization, _) = entry.source(quantization)?;
        for it in entry.sources_of(quantization) {
            if let Source::Hub(source) = it.source {
                let progress = bars::progress(false);
                // Being dropped stops it, and what came so far stays.
                let never = CancellationToken::new();
                place.hub.pull(source, progress.as_ref(), &never).await?;
            }
        }
        Ok(place.locate(&self.name)?)
    }
}

/// What was typed; nothing where the input has ended.
fn ask(question: &str) -> io::Result<String> {
    let mut stderr = io::stderr().lock();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()?;
    drop(stderr);
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer)
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bytes } = self;
        let bytes = quantity::bytes(*bytes);
        write!(
            f,
            "A better model fits this machine: `worker models pull {name}` ({bytes}), then start again."
        )
    }
}
