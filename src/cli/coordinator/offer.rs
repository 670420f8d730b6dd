//! Offers a better model than the downloaded ones. On a terminal the user is asked whether to download it now;
//! otherwise a log line after startup says how.

use std::path::Path;
use std::{fmt, fs};

use tracing::warn;

use crate::cli::init::choose::Candidate;
use crate::cli::place::Place;
use crate::cli::question::confirm;
use crate::cli::{Failure, output, quantity};
use crate::daemon::locate::Located;

/// A model of the catalog that would fit and is not here.
pub struct Offer {
    /// With its quantization, as `worker models pull` takes it.
    name: String,
    /// Size of its weights in the catalog.
    bytes: u64,
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

    /// Asks, and downloads the model on a yes. A failed download does not prevent the start with the present models. A
    /// declined model is not offered again.
    pub async fn put(&self, place: &Place, data_dir: &Path) -> Result<Option<Located>, Failure> {
        let declined = data_dir.join("declined_models");
        let names = fs::read_to_string(&declined).unwrap_or_default();
        if names.lines().any(|name| name == self.name) {
            return Ok(None);
        }
        if !self.is_accepted(place).await? {
            let names = format!("{names}{}\n", self.name);
            if let Err(error) = fs::write(&declined, names) {
                let file = declined.display();
                warn!("writing {file} failed, the next start asks again: {error}");
            }
            return Ok(None);
        }
        match place.pull(&self.name).await {
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
        confirm(question).await
    }
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
