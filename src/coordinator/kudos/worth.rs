//! The reward and the cost of an output by its kind: an image by its settings and model, a video by its pixels, music
//! by its length, values by the tokens read, a speech by its characters. Texts are divided among their parts, see
//! [`super::settlement`].

use crate::dispatch::{Facts, Outcome};
use muster_protocol::job::{Body, Capabilities, FormRequest, Hidden, Kudos, MediaFile};
use muster_protocol::legacy::agent::BridgeAgent;
use muster_protocol::legacy::annotation;
use muster_protocol::legacy::image::reference;
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::words::named;

use super::image::{Drawing, Terms, agent_factor};
use super::interrogation::{form_charge, form_reward};
use super::price::{FEE, read, rounded};
use super::sizes::Prices;

/// Reward and cost of one output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Worth {
    /// As reported to workers, whatever their software.
    pub reward: Kudos,
    /// The part of the reward that is paid.
    pub paid: Kudos,
    pub charge: Kudos,
}

/// For a file. Durable speech earns as much as streamed speech.
pub fn of_file(facts: &Facts, file: MediaFile, prices: &Prices) -> Worth {
    let body: &Body = &facts.job.body;
    match (file, body.spoken_characters()) {
        (MediaFile::Image, _) => of_image(facts),
        (MediaFile::Sound { .. }, Some(characters)) => {
            let characters = u32::try_from(characters).unwrap_or(u32::MAX);
            let last = facts.parts.last();
            let size = last.map_or(1.0, |part| prices.size(&part.model, part.trusted));
            of_values(characters, size)
        }
        (MediaFile::Sound { .. }, None) => of_music(body.paid_millis()),
        (MediaFile::Video { .. }, _) => of_video(body.size(), body.steps()),
    }
}

/// For values, by the tokens of their texts or the characters of a speech.
pub fn of_values(tokens: u32, billions: f64) -> Worth {
    with_fee(rounded(read(tokens, billions)))
}

/// For a censored image the client pays the fee alone.
fn of_image(facts: &Facts) -> Worth {
    let last = facts.parts.last();
    let model = last.map_or("", |part| &part.model);
    let Some((drawing, terms)) = drawing(facts, model) else {
        return Worth::default();
    };
    let reward = drawing.reward(reference::family(model));
    let agent = last.and_then(|part| part.agent.as_deref());
    let factor = agent.map_or(1.0, |agent| agent_factor(&BridgeAgent::parse(agent)));
    Worth {
        reward,
        paid: rounded(reward.0 as f64 * factor),
        charge: match is_hidden(&facts.outcome) {
            true => FEE,
            false => drawing.charge(reward, terms),
        },
    }
}

/// Whether the worker censored the output.
pub fn is_hidden(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Delivered { finish, .. } => Hidden::of(finish).is_some(),
        _ => false,
    }
}

fn of_music(millis: u64) -> Worth {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    with_fee(Kudos(millis.saturating_mul(MILLIKUDOS_A_SECOND) / 1000))
}

fn of_video(pixels: u64, steps: Option<u32>) -> Worth {
    let steps = f64::from(steps.unwrap_or(VIDEO_STEPS));
    with_fee(rounded(pixels as f64 * steps * MILLIKUDOS_A_PIXELSTEP))
}

/// The whole reward is paid, and the client pays the fee on top.
fn with_fee(reward: Kudos) -> Worth {
    Worth {
        reward,
        paid: reward,
        charge: Kudos(reward.0.saturating_add(FEE.0)),
    }
}

/// Steps of most models.
const VIDEO_STEPS: u32 = 30;
/// A frame earns a twentieth of an image of its size.
const MILLIKUDOS_A_PIXELSTEP: f64 = 10_000.0 / (512.0 * 512.0 * 30.0) / 20.0;

/// Half a minute of music earns as much as an ordinary image.
const MILLIKUDOS_A_SECOND: i64 = 333;

/// For a form.
pub fn of_form(form: &FormRequest) -> Worth {
    let Some(kind) = named(&form.form) else {
        return Worth::default();
    };
    let map = annotation::kind_in(form.payload.as_ref());
    let reward = form_reward(kind, map, form.width, form.height);
    Worth {
        reward,
        paid: reward,
        charge: form_charge(reward, form.slow_workers),
    }
}

/// Converts the request to the AI Horde API, whose prices apply.
fn drawing(facts: &Facts, model: &str) -> Option<(Drawing, Terms)> {
    let image = facts.job.body.image()?;
    let asked = GenerationInputImage::of_neutral(image, model);
    let limits = &facts.job.limits;
    let terms = Terms {
        slow_workers: !limits.requires.contains(Capabilities::FAST),
        worker_blacklist: limits.targets.are_denied(),
    };
    let drawing = Drawing::of(&asked.params, image.source.is_some());
    Some((drawing, terms))
}
