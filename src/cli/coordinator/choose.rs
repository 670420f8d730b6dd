//! Which models `worker up` serves: those asked for, else the best that is here and quick on this machine.

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

/// The text models that are part of the program: the second is served beside the first, which reads no images. Beside a
/// better one it is not, for `auto` takes small models that are quick for large ones that are slow.
const OWN: &str = "demo-text";
const OWN_FOR_IMAGES: &str = "demo-vision";
/// Kinds of models that are served beside those that write, with the one that is part of the program.
const BESIDE: [(Kind, Option<&str>); 5] = [
    (Kind::Image, Some("demo-image")),
    (Kind::Speech, Some("demo-speech")),
    (Kind::Transcription, Some("demo-hearing")),
    (Kind::Video, Some("demo-video")),
    (Kind::Music, Some("demo-music")),
];

/// What will be served, and a better model that could be.
pub struct Choice {
    pub models: Vec<Located>,
    /// Of each other kind the models, the best first, where none was asked for: the first that loads beside the others is
    /// served.
    pub beside: Vec<Vec<Located>>,
    pub better: Option<Offer>,
}

impl Choice {
    /// A better text model than those that are part of the program; the other kinds stay.
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

/// The best model of a kind that is here and fits, other than our own.
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
