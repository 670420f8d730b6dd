//! Which models `worker up` serves: those asked for, else the best that is here and quick on this machine.

use tracing::warn;

use super::offer::Offer;
use crate::catalog::Kind;
use crate::cli::init::choose::{Candidate, quick};
use crate::cli::init::search::{candidates, ready};
use crate::cli::place::Place;
use crate::cli::{Failure, up};
use crate::config::Config;
use crate::daemon::Device;
use crate::daemon::locate::Located;

/// The models that are part of the program.
const OWN: &str = "demo-text";
const OWN_IMAGE: &str = "demo-image";

/// What will be served, and a better model that could be.
pub struct Choice {
    pub models: Vec<Located>,
    /// Models that draw, the best first, where none was asked for: the first that loads beside the others is served.
    pub images: Vec<Located>,
    pub better: Option<Offer>,
}

pub fn choose(
    args: &up::Args,
    config: &Config,
    place: &Place,
    device: &Device,
) -> Result<Choice, Failure> {
    let wanted = match args.model.as_slice() {
        [] => config.models.serve.0.as_slice(),
        named => named,
    };
    if !wanted.is_empty() {
        let models: Result<Vec<_>, _> = wanted.iter().map(|name| place.locate(name)).collect();
        return Ok(Choice {
            models: models?,
            images: Vec::new(),
            better: None,
        });
    }
    let text = best(Kind::Text, OWN, config, place, device);
    let better = match text {
        None if !config.hub.offline => offer(config, place, device),
        _ => None,
    };
    let images = best(Kind::Image, OWN_IMAGE, config, place, device).into_iter();
    Ok(Choice {
        models: vec![text.map_or_else(|| place.locate(OWN), Ok)?],
        images: images.chain(place.locate(OWN_IMAGE).ok()).collect(),
        better,
    })
}

/// The best model of a kind that is here and fits, other than our own.
fn best(kind: Kind, own: &str, config: &Config, place: &Place, device: &Device) -> Option<Located> {
    let ready = ready(place, config, device.room(), kind);
    let mut others = ready.iter().filter(|candidate| candidate.name != own);
    others.find_map(|candidate| usable(candidate, place, device))
}

/// Its files say exactly what it takes, and whether they are whole.
fn usable(candidate: &Candidate, place: &Place, device: &Device) -> Option<Located> {
    let name = format!("{}:{}", candidate.name, candidate.quantization);
    let located = place.locate(&name).ok()?;
    match device.fit(&located) {
        Ok(_) => Some(located),
        Err(error) => {
            warn!("not serving {name}, which is on disk: {error}");
            None
        }
    }
}

/// The largest model that fits and would be quick.
fn offer(config: &Config, place: &Place, device: &Device) -> Option<Offer> {
    let all = candidates(place, config, device.room());
    let first = *quick(&all, device.room().device).first()?;
    (first.name != OWN).then(|| Offer::of(first, place))
}
