//! The models that `worker up` serves: the requested ones, else the best downloaded one that is fast on this machine.

use tracing::warn;

use super::offer::Offer;
use crate::catalog::Kind;
use crate::cli::Failure;
use crate::cli::init::choose::{Candidate, quick};
use crate::cli::init::search::{candidates, ready};
use crate::cli::place::Place;
use crate::config::Config;
use crate::daemon::Device;
use crate::daemon::locate::Located;

/// Embedded text models: the second is served beside the first, which reads no images. Not beside a better model, since
/// `auto` prefers a fast small model over a slow large one.
const OWN: &str = "demo-text";
const OWN_FOR_IMAGES: &str = "demo-vision";
/// Kinds of models served beside text models, with the embedded model of each.
const BESIDE: [(Kind, Option<&str>); 5] = [
    (Kind::Image, Some("demo-image")),
    (Kind::Speech, Some("demo-speech")),
    (Kind::Transcription, Some("demo-hearing")),
    (Kind::Video, Some("demo-video")),
    (Kind::Music, Some("demo-music")),
];

/// The models to serve, and a better model to offer.
pub struct Choice {
    pub models: Vec<Located>,
    /// If none was requested, the models of each other kind, best first: the first that loads beside the others is
    /// served.
    pub beside: Vec<Vec<Located>>,
    pub better: Option<Offer>,
}

impl Choice {
    /// Replaces the embedded text models by a better one; other kinds stay.
    pub fn replace_text(&mut self, better: Located) {
        self.models = vec![better];
        let is_own = |located: &Located| located.name == OWN_FOR_IMAGES;
        self.beside.retain(|models| !models.iter().any(is_own));
    }
}

pub fn choose(
    asked: &[String],
    config: &Config,
    place: &Place,
    device: &Device,
) -> Result<Choice, Failure> {
    let wanted = match asked {
        [] => config.models.serve.0.as_slice(),
        named => named,
    };
    if !wanted.is_empty() {
        let models: Result<Vec<_>, _> = wanted.iter().map(|name| place.locate(name)).collect();
        return Ok(Choice {
            models: models?,
            beside: Vec::new(),
            better: None,
        });
    }
    let text = best(Kind::Text, &[OWN, OWN_FOR_IMAGES], config, place, device);
    let better = match text {
        None if !config.hub.offline => offer(config, place, device),
        _ => None,
    };
    let mut beside = Vec::new();
    if text.is_none() {
        beside.push(place.locate(OWN_FOR_IMAGES).into_iter().collect());
    }
    beside.extend(BESIDE.map(|(kind, own)| {
        let best = best(kind, own.as_slice(), config, place, device);
        let own = own.and_then(|own| place.locate(own).ok());
        best.into_iter().chain(own).collect()
    }));
    Ok(Choice {
        models: vec![text.map_or_else(|| place.locate(OWN), Ok)?],
        beside,
        better,
    })
}

/// The best downloaded model of a kind that fits, other than the embedded ones.
fn best(
    kind: Kind,
    own: &[&str],
    config: &Config,
    place: &Place,
    device: &Device,
) -> Option<Located> {
    let ready = ready(place, config, device.room(), kind);
    let mut others = ready
        .iter()
        .filter(|candidate| !own.contains(&&*candidate.name));
    others.find_map(|candidate| usable(candidate, place, device))
}

/// A model whose files on disk are complete and fit into memory.
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
