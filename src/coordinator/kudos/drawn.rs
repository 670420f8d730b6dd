//! What a worker is paid for an image, or for looking at one, and what whoever asked pays: by what was asked for and
//! the model that drew it.

use crate::coordinator::dispatch::{Facts, Outcome};
use crate::protocol::job::{
    Body as JobBody, FinishReason, FormRequest, Formats, ImageRequest, Kudos,
};
use crate::protocol::legacy::Body;
use crate::protocol::legacy::image::reference;
use crate::protocol::legacy::image::request::GenerationInputImage;
use crate::protocol::legacy::words::named;

use super::image::{Control, Drawing, Terms};
use super::interrogation::{form_charge, form_reward};
use super::price::FEE;

/// The reward and the charge. Of an image that may not be shown its client pays the fee alone.
pub fn worth(facts: &Facts) -> (Kudos, Kudos) {
    let Some((drawing, terms)) = drawing(facts) else {
        return Default::default();
    };
    let model = facts.parts.last().map(|part| &*part.model);
    let reward = drawing.reward(reference::family(model.unwrap_or_default()));
    let charge = match &facts.outcome {
        Outcome::Delivered {
            finish: FinishReason::ContentFilter,
            ..
        } => FEE,
        _ => drawing.charge(reward, terms),
    };
    (reward, charge)
}

/// The reward and the charge for a form.
pub fn looked(form: &FormRequest) -> (Kudos, Kudos) {
    let Some(kind) = named(&form.form) else {
        return Default::default();
    };
    let reward = form_reward(kind, form.width, form.height);
    (reward, form_charge(reward, form.slow_workers))
}

/// In the client's own words, where they say more.
fn drawing(facts: &Facts) -> Option<(Drawing, Terms)> {
    let JobBody::Image(image) = &facts.job.body else {
        return None;
    };
    let original = facts.job.original.as_ref();
    let legacy = original.filter(|original| original.format.meets(Formats::LEGACY));
    let asked = legacy.and_then(|it| GenerationInputImage::read((*it.body).clone()).ok());
    Some(match asked {
        Some(asked) => (
            Drawing::of(&asked.params, asked.source_image.is_some()),
            Terms {
                slow_workers: asked.slow_workers,
                worker_blacklist: asked.worker_blacklist,
            },
        ),
        None => (plain(image), PLAIN),
    })
}

/// Any worker may serve it.
const PLAIN: Terms = Terms {
    slow_workers: true,
    worker_blacklist: false,
};

/// Steps of an image whose client has named none.
const STEPS: u32 = 30;

fn plain(image: &ImageRequest) -> Drawing {
    Drawing {
        width: image.width,
        height: image.height,
        steps: image.steps.unwrap_or(STEPS),
        source: image.source.is_some(),
        control: Control::Free,
        loras: u32::try_from(image.loras.len()).unwrap_or(u32::MAX),
        ..Drawing::default()
    }
}
