//! How much work an image is: the steps that are counted, how long a worker may take, how many fit into one pop.

use super::image::baseline::Baseline;
use super::image::params::ModelGenerationInputImage;
use super::words::{PostProcessor, Sampler};

/// Seconds a worker has for a text, and has at least for an image.
pub const SHORTEST_TTL: u64 = 150;

/// Steps as they cost: some samplers compute each one several times, and one takes as many as it likes.
pub fn counted_steps(sampler: Sampler, steps: u32) -> u32 {
    match sampler {
        Sampler::Heun
        | Sampler::Dpm2
        | Sampler::Dpm2Ancestral
        | Sampler::Dpmpp2sAncestral
        | Sampler::DpmppSde
        | Sampler::Dpmpp2sAncestralCfgPp
        | Sampler::ExpHeun2X0
        | Sampler::ExpHeun2X0Sde
        | Sampler::SaSolverPece
        | Sampler::Seeds2 => steps.saturating_mul(2),
        Sampler::Heunpp2 | Sampler::Seeds3 => steps.saturating_mul(3),
        Sampler::DpmAdaptive => 40,
        _ => steps,
    }
}

/// The most steps whose count stays within `most`; at least one.
pub fn steps_within(sampler: Sampler, most: u32) -> u32 {
    let each = counted_steps(sampler, 1);
    (most / each).max(1)
}

/// Seconds before an image job is taken away again.
pub fn image_ttl(
    params: &ModelGenerationInputImage,
    models: impl IntoIterator<Item = Baseline>,
    extra_slow_worker: bool,
) -> u64 {
    const TILE: u64 = 512 * 512;
    let steps = u64::from(counted_steps(params.sampler_name, params.steps()));
    let pixels = u64::from(params.width) * u64::from(params.height);
    let mut ttl = 30 + 2 * steps * pixels / TILE;
    if params.control_type.is_some() {
        ttl *= 2;
    }
    if models.into_iter().any(Baseline::is_large) {
        ttl *= 3;
    }
    let ttl = ttl.max(SHORTEST_TTL);
    if extra_slow_worker { ttl * 3 } else { ttl }
}

/// How much of a worker's room one image takes, in hundredths of a pixel.
pub fn bulk(params: &ModelGenerationInputImage) -> u64 {
    let post_processing = params.post_processing();
    let mut weight = 100 + 40 * post_processing.len() as u64;
    if params.transparent || post_processing.iter().copied().any(PostProcessor::is_heavy) {
        weight = weight * 18 / 10;
    }
    u64::from(params.width) * u64::from(params.height) * weight
}

/// Memory of a worker for `amount` images of up to `max_pixels`, in pixels.
pub fn room(max_pixels: i64, amount: u32) -> f64 {
    max_pixels as f64 / 3.5 * f64::from(amount)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{bulk, counted_steps, image_ttl, room, steps_within};
    use crate::legacy::Body;
    use crate::legacy::image::baseline::Baseline;
    use crate::legacy::image::params::ModelGenerationInputImage;
    use crate::legacy::words::Sampler;

    fn params(body: Value) -> ModelGenerationInputImage {
        ModelGenerationInputImage::read(body).unwrap()
    }

    #[test]
    fn some_samplers_step_twice_or_more() {
        let check = |sampler, expected| assert_eq!(counted_steps(sampler, 30), expected);
        check(Sampler::EulerAncestral, 30);
        check(Sampler::Heun, 60);
        check(Sampler::DpmppSde, 60);
        check(Sampler::UniPc, 30);
        check(Sampler::SaSolverPece, 60);
        check(Sampler::Seeds3, 90);
        check(Sampler::DpmAdaptive, 40);
    }

    #[test]
    fn fewer_steps_count_less() {
        let check = |sampler, expected| assert_eq!(steps_within(sampler, 21), expected);
        check(Sampler::EulerAncestral, 21);
        check(Sampler::Heun, 10);
        check(Sampler::DpmAdaptive, 1);
    }

    #[test]
    fn a_larger_job_may_take_longer() {
        let check = |body, models: &[Baseline], extra_slow, expected| {
            assert_eq!(
                image_ttl(&params(body), models.iter().copied(), extra_slow),
                expected
            );
        };
        check(json!({}), &[], false, 150);
        check(json!({}), &[], true, 450);
        check(
            json!({"width": 1024, "height": 1024}),
            &[Baseline::Sdxl],
            false,
            270,
        );
        check(
            json!({"width": 1024, "height": 1024}),
            &[Baseline::Sdxl, Baseline::Flux],
            false,
            810,
        );
        check(
            json!({"width": 1024, "height": 1024, "control_type": "canny"}),
            &[],
            false,
            380,
        );
        check(
            json!({"steps": 50, "sampler_name": "k_heun"}),
            &[],
            false,
            230,
        );
    }

    #[test]
    fn a_batch_fits_the_worker() {
        let plain = || json!({});
        let check = |body, amount, pixels, expected| {
            let fitting = room(pixels, amount) * 100.0 / bulk(&params(body)) as f64;
            assert_eq!(fitting.round_ties_even() as u32, expected);
        };
        check(plain(), 1, 262_144, 0);
        check(plain(), 20, 4 * 262_144, 23);
        check(plain(), 4, 2 * 262_144, 2);
        check(json!({"post_processing": ["GFPGAN"]}), 4, 4 * 262_144, 3);
        check(json!({"transparent": true}), 4, 4 * 262_144, 3);
        check(plain(), 4, -1, 0);
        check(plain(), 20, i64::MAX, u32::MAX);
    }
}
