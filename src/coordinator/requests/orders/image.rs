//! Images. The stored request has its source images as keys of the media store.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Nth, Task, end_user};
use crate::requests::Wishes;
use muster_protocol::job::ImageRequest;
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::{Body as _, Refusal, seed};

/// Lifetime of an image request.
pub const LIFETIME: Duration = Duration::from_secs(10 * 60);

#[derive(Debug)]
pub struct ImageAsked {
    request: GenerationInputImage,
}

impl ImageAsked {
    pub fn new(request: GenerationInputImage) -> Self {
        Self { request }
    }

    pub fn read(mut body: Value) -> Result<Self, Refusal> {
        GenerationInputImage::read(body["request"].take()).map(Self::new)
    }

    pub fn stored(&self) -> Value {
        json!({"request": self.request})
    }

    pub fn outputs(&self) -> u32 {
        self.request.params.n
    }

    pub fn webhook(&self) -> Option<&str> {
        self.request.webhook.as_deref()
    }

    pub fn extra_sources(&self) -> usize {
        self.request.extra_source_images().len()
    }

    pub fn sources(&self) -> Vec<&str> {
        let extra = self.request.extra_source_images().iter();
        let extra = extra.filter_map(|extra| extra.image.as_deref());
        let source = self.request.source_image.as_deref().into_iter();
        let mask = self.request.source_mask.as_deref();
        source.chain(mask).chain(extra).collect()
    }

    pub fn models(&self) -> &[String] {
        &self.request.models
    }

    pub fn wishes(&self) -> Wishes {
        Wishes {
            links: self.request.r2,
            shared: self.request.shared,
            end_user: end_user(self.request.proxied_account.as_deref()),
            media: None,
        }
    }

    pub(super) fn task(&self, nth: Nth) -> Task {
        Task {
            body: self.image(nth).into(),
            limits: self.request.limits(),
            trusted: self.request.trusted_workers,
            original: None,
            price: None,
        }
    }

    fn image(&self, nth: Nth) -> ImageRequest {
        let params = &self.request.params;
        // With other seeds, each job is a batch of one.
        let index = match (params.seed.as_deref(), params.seed_variation) {
            (Some(seed), None) if seed::seed(seed).is_some() => nth.index,
            _ => 0,
        };
        self.request.neutral(self.seed(nth), index)
    }

    /// The client's seed, varied per image if requested; a random one for each image without it.
    fn seed(&self, nth: Nth) -> u32 {
        let params = &self.request.params;
        let asked = params.seed.as_deref().and_then(seed::seed);
        // Below 2^32, so the cast loses nothing.
        let base = asked.unwrap_or(nth.seed as u32);
        match (params.seed_variation, asked) {
            (Some(variation), _) => {
                seed::varied(base, variation, params.n - nth.index.min(params.n))
            }
            (None, Some(_)) => base,
            (None, None) => base.wrapping_add(nth.index.wrapping_mul(0x9e37_79b9)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ImageAsked, Nth};
    use muster_protocol::job::Formats;
    use muster_protocol::legacy::Body as _;
    use muster_protocol::legacy::image::request::GenerationInputImage;

    fn asked(params: Value) -> ImageAsked {
        let body = json!({"prompt": "a cat ### a dog", "params": params});
        ImageAsked::new(GenerationInputImage::read(body).unwrap())
    }

    fn seeds(params: Value) -> Vec<u64> {
        let asked = asked(params);
        let seed = |index| {
            let body = asked.task(Nth { index, seed: 7 }).body;
            body.image().and_then(|image| image.seed).unwrap()
        };
        (0..asked.outputs()).map(seed).collect()
    }

    #[test]
    fn seeds_are_the_clients_or_drawn_and_vary_as_asked() {
        assert_eq!(seeds(json!({"n": 2, "seed": "42"})), [42, 42]);
        assert_eq!(
            seeds(json!({"n": 3, "seed": "42", "seed_variation": 10})),
            [72, 62, 52]
        );
        let drawn = seeds(json!({"n": 3}));
        assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2]);
        assert!(drawn.iter().all(|seed| *seed < 1 << 32));
        assert_eq!(drawn, seeds(json!({"n": 3, "seed": ""})), "the same again");
    }

    #[test]
    fn a_plain_image_is_for_every_worker_and_a_special_one_for_those_of_this_api() {
        for plain in [json!({}), json!({"scheduler": "normal"})] {
            assert!(asked(plain).request.formats().meets(Formats::OPENAI_CHAT));
        }
        for special in [
            json!({"transparent": true}),
            json!({"post_processing": ["GFPGAN"]}),
            json!({"sampler_name": "seeds_2"}),
            json!({"scheduler": "gits"}),
            json!({"sampler_eta": 0}),
        ] {
            assert_eq!(asked(special).request.formats(), Formats::LEGACY);
        }
    }

    #[test]
    fn a_setting_that_public_media_workers_lack_is_for_our_workers_too() {
        let both = Formats::LEGACY.with(Formats::NEUTRAL);
        for params in [
            json!({"clip_skip": 2}),
            json!({"tiling": true}),
            json!({"hires_fix": true}),
            json!({"scheduler": "beta"}),
            json!({"sampler_name": "uni_pc"}),
            json!({"tis": [{"name": "owl", "inject_ti": "prompt"}]}),
        ] {
            assert_eq!(asked(params).request.formats(), both);
        }
        let masked = json!({
            "prompt": "a cat", "source_image": "a", "source_mask": "b",
            "source_processing": "inpainting",
        });
        let request = GenerationInputImage::read(masked).unwrap();
        assert_eq!(request.formats(), both);
        let opaque =
            json!({"prompt": "a cat", "source_image": "a", "source_processing": "inpainting"});
        let request = GenerationInputImage::read(opaque).unwrap();
        assert_eq!(request.formats(), Formats::LEGACY);
    }

    #[test]
    fn how_far_a_source_image_counts_public_media_workers_cannot_be_told() {
        let body =
            |params: Value| json!({"prompt": "a cat", "source_image": "a", "params": params});
        let formats = |params| {
            let request = GenerationInputImage::read(body(params)).unwrap();
            request.formats()
        };
        let strength = json!({"denoising_strength": 0.5});
        assert_eq!(
            formats(strength.clone()),
            Formats::LEGACY.with(Formats::NEUTRAL)
        );
        assert!(formats(json!({})).meets(Formats::OPENAI_CHAT));
        assert!(
            asked(strength)
                .request
                .formats()
                .meets(Formats::OPENAI_CHAT)
        );
    }

    #[test]
    fn what_is_stored_becomes_the_same_jobs_again() {
        let asked = asked(json!({
            "n": 2, "disable_batching": true, "sampler_name": "seeds_2", "scheduler": "gits",
            "sampler_solver_type": "phi_1", "sampler_order": 2, "sampler_s_tmax": 14.6,
        }));
        let again = ImageAsked::read(asked.stored()).unwrap();
        let nth = Nth { index: 1, seed: 3 };
        assert_eq!(asked.task(nth).body, again.task(nth).body);
        assert_eq!(asked.task(nth).limits, again.task(nth).limits);
        assert_eq!(asked.stored(), again.stored());
    }
}
