//! The price of an image. The public network asks a small trained model how long an image takes; this is a closed
//! formula of our own, within 5 % of that model's four published prices:
//!
//! ```text
//! m     = (width · height / 512²) ^ 0.75                    how much more a larger image takes
//! pass  = 0.2 · steps · m                                   steps as they cost: some samplers take each several times
//! price = 1 + 0.5 · m (source) + 0.5 · m (control map)
//!           + pass · 1.55 (control) · 1.2 (layers)
//!           + 0.2 · steps (first pass of hires_fix, above 512²)
//!           + m · weight of each post-processor
//!           + 3 for each LoRA + 1 for any textual inversion
//! ```
//!
//! | image | published | here |
//! | --- | --- | --- |
//! | 512×512, 50 steps | 11.00 | 11.00 |
//! | 1024×1024, 50 steps | 29.03 | 29.28 |
//! | 512×512, 35 steps, GFPGAN and RealESRGAN_x4plus | 25.46 | 25.50 |
//! | 768×512, 30 steps, canny from a source image | 15.13 | 15.11 |
//!
//! The denoising strength of image-to-image does not count: workers take all the steps. The reward is the price times a
//! factor of the model's family. The requester pays the reward, a surcharge for a source image and for upscaling, and a
//! fee of one kudos; the house gets the difference.

use muster_protocol::job::Kudos;
use muster_protocol::legacy::agent::BridgeAgent;
use muster_protocol::legacy::image::baseline::Baseline;
use muster_protocol::legacy::image::params::ModelGenerationInputImage;
use muster_protocol::legacy::words::{PostProcessor, Workflow};
use muster_protocol::legacy::work::counted_steps;

use super::price::{FEE, rounded};

/// Pixels of the smallest usual image.
const TILE: f64 = 512.0 * 512.0;
const PER_STEP: f64 = 0.2;
/// A GPU computes several pixels at once, so twice the pixels are not twice the work.
const GROWTH: f64 = 0.75;

/// The settings of an image that determine its price.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drawing {
    pub width: u32,
    pub height: u32,
    /// Steps by cost.
    pub steps: u32,
    /// Whether the request has a source image.
    pub source: bool,
    pub control: Control,
    pub hires_fix: bool,
    /// Generated in layers, so that the background is transparent.
    pub transparent: bool,
    pub qr_code: bool,
    pub post_processing: Vec<PostProcessor>,
    pub loras: u32,
    pub inversions: u32,
}

/// The origin of the control map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Control {
    #[default]
    Free,
    /// A control map computed from the source image.
    Drawn,
    /// The source image is the control map.
    Given,
}

/// Options of a request that cost extra.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub slow_workers: bool,
    pub worker_blacklist: bool,
}

impl Drawing {
    /// The image of these parameters, with or without a source image.
    pub fn of(params: &ModelGenerationInputImage, source: bool) -> Self {
        let count = |length| u32::try_from(length).unwrap_or(u32::MAX);
        Self {
            width: params.width,
            height: params.height,
            steps: counted_steps(params.sampler_name, params.steps()),
            source,
            control: match (params.control_type, params.image_is_control) {
                (None, _) => Control::Free,
                (Some(_), false) => Control::Drawn,
                (Some(_), true) => Control::Given,
            },
            hires_fix: params.hires_fix,
            transparent: params.transparent,
            qr_code: params.workflow == Some(Workflow::QrCode),
            post_processing: params.post_processing().to_vec(),
            loras: count(params.loras().len()),
            inversions: count(params.tis().len()),
        }
    }

    /// In kudos, for a model of the oldest family.
    pub fn price(&self) -> f64 {
        let area = self.tiles();
        let size = area.powf(GROWTH);
        let flat = |it: bool, price: f64| if it { price } else { 0.0 };
        let steps = PER_STEP * f64::from(self.steps);
        let lines = if self.control == Control::Free {
            1.0
        } else {
            1.55
        };
        let layers = if self.transparent { 1.2 } else { 1.0 };
        let processing: f64 = self.post_processing.iter().copied().map(weight).sum();
        1.0 + flat(self.source, 0.5 * size)
            + flat(self.control == Control::Drawn, 0.5 * size)
            + steps * size * lines * layers
            + flat(self.hires_fix && area > 1.0, steps)
            + size * processing
            + 3.0 * f64::from(self.loras)
            + flat(self.inversions > 0, 1.0)
    }

    /// The worker's reward for one image, by its model's family.
    pub fn reward(&self, family: Baseline) -> Kudos {
        thousandths(self.price() * self.family_factor(family))
    }

    /// The requester's charge for an image with this reward.
    pub fn charge(&self, reward: Kudos, terms: Terms) -> Kudos {
        thousandths(self.charged(reward.0 as f64 / 1000.0, terms))
    }

    /// Estimated price of `n` images, by the family of the first requested model or the default. Without the price of a
    /// workflow.
    pub fn estimate(&self, first: Option<Baseline>, terms: Terms, n: u32) -> f64 {
        let factor = plain_factor(first.unwrap_or(Baseline::Sdxl));
        let each = self.charged(self.price() * factor, terms);
        (each * f64::from(n) + 1.0).round()
    }

    fn charged(&self, reward: f64, terms: Terms) -> f64 {
        let upscalers = self.post_processing.iter().filter(|one| one.is_upscaler());
        let source = if self.source { 1.3 } else { 1.0 };
        let upscaled = 1.05_f64.powi(i32::try_from(upscalers.count()).unwrap_or(i32::MAX));
        let swift = if terms.slow_workers { 1.0 } else { 1.2 };
        let choosy = if terms.worker_blacklist { 1.1 } else { 1.0 };
        (reward * source * upscaled + FEE.0 as f64 / 1000.0) * swift * choosy
    }

    fn family_factor(&self, family: Baseline) -> f64 {
        match family {
            Baseline::Sdxl if self.qr_code => 4.0,
            Baseline::Cascade if self.hires_fix => 7.0,
            other => plain_factor(other),
        }
    }

    fn tiles(&self) -> f64 {
        f64::from(self.width) * f64::from(self.height) / TILE
    }
}

/// Larger models earn more.
fn plain_factor(family: Baseline) -> f64 {
    match family {
        Baseline::Sd15 | Baseline::Sd2 => 1.0,
        Baseline::Sdxl => 2.0,
        Baseline::Cascade => 4.0,
        Baseline::Flux | Baseline::ZImage => 8.0,
        Baseline::Qwen => 12.0,
    }
}

/// The price of a post-processor for 512×512.
fn weight(processor: PostProcessor) -> f64 {
    match processor {
        PostProcessor::StripBackground => 2.0,
        PostProcessor::ModernSpanimation => 3.0,
        PostProcessor::Gfpgan | PostProcessor::Gfpgan13 | PostProcessor::RealEsrganX4Anime => 5.0,
        PostProcessor::RestoreFormer => 6.0,
        PostProcessor::CodeFormers => 7.0,
        PostProcessor::RealEsrganX2 => 8.0,
        PostProcessor::NomosWebPhoto | PostProcessor::Nomos2RealPlksr => 9.0,
        PostProcessor::RealEsrganX4
        | PostProcessor::NmkdSiax
        | PostProcessor::AnimeSharp
        | PostProcessor::Nomos8kSc
        | PostProcessor::LsdirPlus => 12.5,
        PostProcessor::Nomos2HqDat2 => 20.0,
    }
}

/// Factor on a polling worker's image reward, by its software: full for current versions of known software, less for
/// old versions, least for unknown software.
pub fn agent_factor(agent: &BridgeAgent) -> f64 {
    match agent.is_current() {
        Some(true) => 1.0,
        Some(false) => 0.9,
        None => 0.75,
    }
}

/// The request fee, charged whatever becomes of the jobs.
pub fn activation_fee(extra_sources: usize, style_of_another: bool) -> Kudos {
    let style = if style_of_another { 2 } else { 0 };
    let sources = 5_i64.saturating_mul(i64::try_from(extra_sources).unwrap_or(i64::MAX));
    Kudos(sources.saturating_add(1 + style).saturating_mul(1000))
}

fn thousandths(kudos: f64) -> Kudos {
    rounded(kudos * 1000.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Control, Drawing, Terms, activation_fee, agent_factor, weight};
    use muster_protocol::job::Kudos;
    use muster_protocol::legacy::Body;
    use muster_protocol::legacy::agent::BridgeAgent;
    use muster_protocol::legacy::image::baseline::Baseline;
    use muster_protocol::legacy::image::params::ModelGenerationInputImage;
    use muster_protocol::legacy::words::{PostProcessor, Word};

    const PATIENT: Terms = Terms {
        slow_workers: true,
        worker_blacklist: false,
    };

    fn drawing(params: Value) -> Drawing {
        Drawing::of(&ModelGenerationInputImage::read(params).unwrap(), false)
    }

    fn reference(width: u32, height: u32, steps: u32) -> Drawing {
        Drawing {
            width,
            height,
            steps,
            ..Drawing::default()
        }
    }

    #[test]
    fn the_four_published_prices_are_met_within_five_in_a_hundred() {
        let check = |drawing: &Drawing, published: f64| {
            let off = drawing.price() / published - 1.0;
            assert!(
                off.abs() <= 0.05,
                "{drawing:?}: {} for {published}",
                drawing.price()
            );
        };
        check(&reference(512, 512, 50), 11.0);
        check(&reference(1024, 1024, 50), 29.03);
        let mended = Drawing {
            post_processing: vec![PostProcessor::Gfpgan, PostProcessor::RealEsrganX4],
            ..reference(512, 512, 35)
        };
        check(&mended, 25.46);
        let lined = json!({
            "width": 768, "height": 512, "steps": 30, "cfg_scale": 8.5, "sampler_name": "k_dpmpp_2m",
            "control_type": "canny", "denoising_strength": 0.42,
        });
        let lined = ModelGenerationInputImage::read(lined).unwrap();
        check(&Drawing::of(&lined, true), 15.13);
    }

    #[test]
    fn more_work_is_worth_more() {
        let plain = drawing(json!({}));
        let more = [
            json!({"width": 576}),
            json!({"steps": 31}),
            json!({"sampler_name": "k_heun"}),
            json!({"transparent": true}),
            json!({"post_processing": ["strip_background"]}),
            json!({"loras": [{"name": "one"}]}),
            json!({"tis": [{"name": "one"}]}),
        ];
        for params in more {
            assert!(drawing(params.clone()).price() > plain.price(), "{params}");
        }
        let sourced = Drawing {
            source: true,
            ..plain.clone()
        };
        let given = Drawing {
            control: Control::Given,
            ..sourced.clone()
        };
        let drawn = Drawing {
            control: Control::Drawn,
            ..sourced.clone()
        };
        let prices = [&plain, &sourced, &given, &drawn].map(Drawing::price);
        assert!(prices.is_sorted_by(|less, more| less < more), "{prices:?}");
        let twice = |side| drawing(json!({"width": side, "height": side, "hires_fix": true}));
        assert_eq!(twice(512).price(), plain.price(), "there is no second pass");
        assert!(twice(1024).price() > reference(1024, 1024, 30).price());
    }

    #[test]
    fn every_post_processor_has_a_weight() {
        for processor in PostProcessor::ALL {
            assert!(weight(*processor) > 0.0, "{processor:?}");
        }
    }

    #[test]
    fn larger_families_are_paid_more() {
        let plain = reference(512, 512, 50);
        let reward = |drawing: &Drawing, family| drawing.reward(family).0;
        let families = [
            (Baseline::Sd15, 11_000),
            (Baseline::Sdxl, 22_000),
            (Baseline::Cascade, 44_000),
            (Baseline::Flux, 88_000),
            (Baseline::ZImage, 88_000),
            (Baseline::Qwen, 132_000),
        ];
        for (family, expected) in families {
            assert_eq!(reward(&plain, family), expected, "{family:?}");
        }
        let code = Drawing {
            qr_code: true,
            ..plain.clone()
        };
        assert_eq!(reward(&code, Baseline::Sdxl), 44_000);
        let twice = Drawing {
            hires_fix: true,
            ..plain
        };
        assert_eq!(reward(&twice, Baseline::Cascade), 77_000);
    }

    #[test]
    fn who_asked_pays_more_than_the_worker_is_paid() {
        let plain = reference(512, 512, 50);
        let charge = |drawing: &Drawing, terms| drawing.charge(Kudos(11_000), terms).0;
        assert_eq!(charge(&plain, PATIENT), 12_000);
        let hasty = Terms {
            slow_workers: false,
            ..PATIENT
        };
        assert_eq!(charge(&plain, hasty), 14_400);
        let choosy = Terms {
            worker_blacklist: true,
            ..hasty
        };
        assert_eq!(charge(&plain, choosy), 15_840);
        let sourced = Drawing {
            source: true,
            ..plain.clone()
        };
        assert_eq!(charge(&sourced, PATIENT), 15_300);
        let processors = vec![PostProcessor::RealEsrganX4, PostProcessor::Gfpgan];
        let upscaled = Drawing {
            post_processing: processors,
            ..plain
        };
        assert_eq!(charge(&upscaled, PATIENT), 12_550);
    }

    #[test]
    fn an_estimate_is_for_all_of_them_by_the_first_model() {
        let plain = reference(512, 512, 50);
        assert_eq!(plain.estimate(Some(Baseline::Sd15), PATIENT, 1), 13.0);
        assert_eq!(plain.estimate(Some(Baseline::Sd15), PATIENT, 3), 37.0);
        assert_eq!(plain.estimate(None, PATIENT, 1), 24.0);
        let code = Drawing {
            qr_code: true,
            ..plain
        };
        assert_eq!(code.estimate(None, PATIENT, 1), 24.0);
    }

    #[test]
    fn known_software_that_is_new_is_paid_in_full() {
        let check =
            |agent, expected| assert_eq!(agent_factor(&BridgeAgent::parse(agent)), expected);
        check("AI Horde Worker reGen:13.0.1:url", 1.0);
        check("AI Horde Worker reGen:18:url", 1.0);
        check("AI Horde Worker reGen:12:url", 0.9);
        check("AI Horde Worker:24:url", 1.0);
        check("AI Horde Worker:4:url", 0.9);
        check("HordeAutoWebBridge:2:url", 0.75);
        check("nobody knows", 0.75);
    }

    #[test]
    fn some_of_a_request_is_paid_at_once() {
        assert_eq!(activation_fee(0, false), Kudos(1000));
        assert_eq!(activation_fee(2, true), Kudos(13_000));
    }
}
