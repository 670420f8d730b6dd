//! Prices of images before they run.

use super::super::paying::{Till, kudos};
use crate::kudos::{Drawing, Terms, Weighty};
use crate::requests::Kept;
use muster_protocol::legacy::image::baseline::Baseline;
use muster_protocol::legacy::image::params::ModelGenerationInputImage;
use muster_protocol::legacy::image::reference;
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::words::Sampler;
use muster_protocol::legacy::work::steps_within;
use muster_protocol::legacy::{Code, Refusal};

const STILL_WEIGHTY: &str = "not enough kudos: a request of this size must be paid upfront, and allow_downgrade cannot \
                             reduce it with this sampler; choose another sampler";

/// LoRAs for few steps, by their ids at CivitAI.
const QUICK: [&str; 2] = ["195519", "216190"];

pub fn drawing(asked: &GenerationInputImage) -> Drawing {
    Drawing::of(&asked.params, asked.source_image.is_some())
}

/// Estimated price of all images, in whole kudos.
pub fn estimate(asked: &GenerationInputImage) -> f64 {
    let first = asked.models.first();
    let family = first.map(|model| reference::family(model));
    drawing(asked).estimate(family, terms(asked), asked.params.n)
}

/// Holds the price of a large request; `None` if the request needs no hold. If the balance is too low and the request
/// sets `allow_downgrade`, its images are made small enough to need none.
pub async fn upfront(
    asked: &mut GenerationInputImage,
    till: &Till<'_>,
) -> Result<Option<Kept>, Refusal> {
    if !is_weighty(asked, till) {
        return Ok(None);
    }
    let kept = till.keep(kudos(estimate(asked))).await?;
    if kept.is_none() {
        Code::KudosUpfront.when(!asked.allow_downgrade)?;
        lighten(asked, till);
        // The adaptive sampler takes its own number of steps.
        if is_weighty(asked, till) {
            return Err(Refusal::new(Code::KudosUpfront, STILL_WEIGHTY));
        }
    }
    Ok(kept)
}

fn is_weighty(asked: &GenerationInputImage, till: &Till<'_>) -> bool {
    let (drawing, families) = (drawing(asked), families(asked));
    weighty(asked, &drawing, &families).needs_it(till.crowd)
}

fn lighten(asked: &mut GenerationInputImage, till: &Till<'_>) {
    let (drawing, families) = (drawing(asked), families(asked));
    let weighty = weighty(asked, &drawing, &families);
    let ((width, height), most) = (weighty.free_size(till.crowd), weighty.free_steps());
    let steps = asked
        .params
        .steps()
        .min(steps_within(asked.params.sampler_name, most));
    asked.slow_workers = true;
    asked.params = ModelGenerationInputImage {
        width,
        height,
        steps: Some(steps),
        ..asked.params.clone()
    };
}

fn weighty<'a>(
    asked: &GenerationInputImage,
    drawing: &'a Drawing,
    families: &'a [Baseline],
) -> Weighty<'a> {
    let params = &asked.params;
    let is_quick = |name: &str| QUICK.contains(&name) || name.to_lowercase().contains("lcm");
    let mut loras = params.loras().iter();
    Weighty {
        drawing,
        slow_workers: asked.slow_workers,
        lcm: params.sampler_name == Sampler::Lcm || loras.any(|lora| is_quick(&lora.name)),
        families,
        max_steps: asked
            .models
            .iter()
            .map(|model| reference::most_steps(model))
            .min(),
    }
}

fn families(asked: &GenerationInputImage) -> Vec<Baseline> {
    let models = asked.models.iter();
    models.map(|model| reference::family(model)).collect()
}

fn terms(asked: &GenerationInputImage) -> Terms {
    Terms {
        slow_workers: asked.slow_workers,
        worker_blacklist: asked.worker_blacklist,
    }
}
