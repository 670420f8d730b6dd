//! Capabilities that an image request needs, and those of a polling worker: from its owner's permissions and its
//! software.

use crate::job::{Capabilities, named_inversions};

use super::agent::{BridgeAgent, MUSTER, NEWER_DRAWING};
use super::image::baseline::Baseline;
use super::image::request::GenerationInputImage;
use super::pop::PopInputImage;
use super::words::{ControlType, PostProcessor, Sampler, SourceProcessing, Word, Workflow};

/// In the names of models that are made for painting.
const PAINTS: &str = "inpainting";

/// Names of inpainting in worker software.
const PAINTERS: [&str; 2] = ["inpainting", "painting"];

/// Names of capabilities in the software tables.
#[rustfmt::skip]
const SOFTWARE: [(Capabilities, &str); 13] = [
    (Capabilities::UPLOADS,          "r2"),
    (Capabilities::TILING,           "tiling"),
    (Capabilities::CONTROL_NETS,     "controlnet"),
    (Capabilities::CONTROL_MAPS,     "return_control_map"),
    (Capabilities::READY_MAPS,       "image_is_control"),
    (Capabilities::QR_CODES,         "qr_code"),
    (Capabilities::TWO_PASSES,       "hires_fix"),
    (Capabilities::CLIP_SKIP,        "clip_skip"),
    (Capabilities::LORA_VERSIONS,    "lora_versions"),
    (Capabilities::INVERSIONS,       "textual_inversion"),
    (Capabilities::LAYERS,           "layer_diffuse"),
    (Capabilities::NEWER_DRAWING,    NEWER_DRAWING),
    (Capabilities::CONTROL_STRENGTH, "control_strength"),
];

impl GenerationInputImage {
    /// Capabilities that a worker needs for the request.
    pub fn abilities(&self, baseline: impl Fn(&str) -> Baseline) -> Capabilities {
        let params = &self.params;
        let any = |is: Baseline| self.models.iter().any(|model| baseline(model) == is);
        let controlled = params.control_type.is_some();
        let controlled_newly = params.control_type.is_some_and(ControlType::is_newer);
        let newer = params.sampler_name.is_newer() || params.sets_solver() || controlled_newly;
        let karras = params.is_karras();
        let qr_code = params.workflow == Some(Workflow::QrCode);
        let painting = self.is_painting();
        let is_inverted = named_inversions(&self.prompt).next().is_some();
        let inverted = is_inverted || !params.tis().is_empty();
        let versions = params.loras().iter().any(|lora| lora.is_version);
        let large = params.transparent || qr_code && any(Baseline::Sdxl);
        let ddim = params.sampler_name == Sampler::Ddim;
        let wanted = [
            (true, Capabilities::ITS_MODELS),
            (self.nsfw, Capabilities::NSFW),
            (self.source_image.is_some(), Capabilities::SOURCE_IMAGES),
            (painting, Capabilities::PAINTING),
            (painting, Capabilities::PAINTING_MODELS),
            (!painting, Capabilities::PLAIN_MODELS),
            (
                !params.post_processing().is_empty(),
                Capabilities::POST_PROCESSING,
            ),
            (!params.loras().is_empty(), Capabilities::LORAS),
            (versions, Capabilities::LORA_VERSIONS),
            (inverted, Capabilities::INVERSIONS),
            (controlled || qr_code, Capabilities::CONTROL),
            (controlled, Capabilities::CONTROL_NETS),
            (
                controlled && params.image_is_control,
                Capabilities::READY_MAPS,
            ),
            (large, Capabilities::LARGE_CONTROL),
            (params.return_control_map, Capabilities::CONTROL_MAPS),
            (qr_code, Capabilities::QR_CODES),
            (params.transparent, Capabilities::LAYERS),
            (params.tiling, Capabilities::TILING),
            (
                params.hires_fix && any(Baseline::Cascade),
                Capabilities::CASCADE_PASSES,
            ),
            (
                params.hires_fix && !any(Baseline::Cascade),
                Capabilities::TWO_PASSES,
            ),
            (
                params.clip_skip.is_some_and(|skip| skip > 1),
                Capabilities::CLIP_SKIP,
            ),
            (
                params.sampler_name == Sampler::Lcm,
                Capabilities::CONSISTENCY_SAMPLER,
            ),
            (karras, Capabilities::KARRAS),
            (ddim && karras, Capabilities::KARRAS_DDIM),
            (newer, Capabilities::NEWER_DRAWING),
            (controlled_newly, Capabilities::MORE_CONTROL),
            (
                params.control_strength().is_some(),
                Capabilities::CONTROL_STRENGTH,
            ),
            (
                !self.extra_source_images().is_empty(),
                Capabilities::MORE_SOURCES,
            ),
            (self.r2, Capabilities::UPLOADS),
        ];
        let set = gathered(wanted);
        let processors = params.post_processing().iter();
        processors.fold(set, |set, one| set.with(number(*one)))
    }

    pub fn is_painting(&self) -> bool {
        self.source_image.is_some()
            && matches!(
                self.source_processing,
                SourceProcessing::Inpainting | SourceProcessing::Outpainting
            )
    }
}

impl PopInputImage {
    /// Capabilities of a worker with this software and these models. A worker that names a model its software is too
    /// old for gets no jobs and is told so: otherwise it would get other models' jobs without learning why that model
    /// gets none.
    pub fn abilities(
        &self,
        agent: &BridgeAgent,
        models: &[String],
        baseline: impl Fn(&str) -> Baseline,
    ) -> Capabilities {
        let paints = |model: &String| model.to_lowercase().contains(PAINTS);
        let painting = models.iter().any(paints);
        let newer = models.iter().any(|model| baseline(model) == Baseline::Flux);
        let offered = [
            (!newer || agent.can("flux"), Capabilities::ITS_MODELS),
            (self.nsfw, Capabilities::NSFW),
            (
                self.allow_img2img && agent.can("img2img"),
                Capabilities::SOURCE_IMAGES,
            ),
            (
                self.allow_painting && PAINTERS.iter().any(|name| agent.can(name)),
                Capabilities::PAINTING,
            ),
            (painting, Capabilities::PAINTING_MODELS),
            (!models.iter().all(paints), Capabilities::PLAIN_MODELS),
            (self.allow_post_processing, Capabilities::POST_PROCESSING),
            (self.allow_lora && agent.can("lora"), Capabilities::LORAS),
            (self.allow_controlnet, Capabilities::CONTROL),
            (self.allow_sdxl_controlnet, Capabilities::LARGE_CONTROL),
            (self.allow_extended_controlnet, Capabilities::MORE_CONTROL),
            (self.allow_unsafe_ipaddr, Capabilities::HIDDEN_ADDRESSES),
            (
                agent.can("stable_cascade_2pass"),
                Capabilities::CASCADE_PASSES,
            ),
            (agent.can("extra_source_images"), Capabilities::MORE_SOURCES),
            (
                agent.can_sample(Sampler::Lcm, false),
                Capabilities::CONSISTENCY_SAMPLER,
            ),
            (agent.knows_karras(), Capabilities::KARRAS),
            (
                agent.can_sample(Sampler::Ddim, true),
                Capabilities::KARRAS_DDIM,
            ),
        ];
        // Older workers of ours allowed files of both kinds by one flag.
        let inverts = self.allow_textual_inversions.unwrap_or(self.allow_lora);
        let known = SOFTWARE.map(|(one, name)| {
            let allowed = one != Capabilities::INVERSIONS || agent.name != MUSTER || inverts;
            (allowed && agent.can(name), one)
        });
        let set = gathered(offered).with(gathered(known));
        let processors = PostProcessor::ALL.iter().copied();
        let processors = processors.filter(|one| agent.can_process(*one));
        processors.fold(set, |set, one| set.with(number(one)))
    }
}

fn gathered<const N: usize>(found: [(bool, Capabilities); N]) -> Capabilities {
    found
        .into_iter()
        .fold(Capabilities::default(), |set, (is_so, one)| {
            set.with_if(is_so, one)
        })
}

fn number(processor: PostProcessor) -> Capabilities {
    Capabilities::processor(processor as u32)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::job::Capabilities;
    use crate::legacy::Body;
    use crate::legacy::agent::BridgeAgent;
    use crate::legacy::image::baseline::Baseline;
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::pop::PopInputImage;

    fn wanted(mut body: Value) -> Capabilities {
        body["prompt"] = json!("a cat");
        let asked = GenerationInputImage::read(body).unwrap();
        asked.abilities(Baseline::of_unknown)
    }

    fn offered(agent: &str, mut body: Value) -> Capabilities {
        body["name"] = json!("w");
        let pop = PopInputImage::read(body).unwrap();
        let plain = || vec!["stable_diffusion".to_owned()];
        let models = pop.models.clone().unwrap_or_else(plain);
        pop.abilities(&BridgeAgent::parse(agent), &models, Baseline::of_unknown)
    }

    /// Missing capabilities of a plain worker with this software.
    fn check(agent: &str, pop: Value, asked: Value, missing: &[&str]) {
        let missing_here = wanted(asked.clone()).missing_from(offered(agent, pop));
        let names: Vec<_> = missing_here.names().collect();
        assert_eq!(names, missing, "{agent} {asked}");
    }

    const NEWEST: &str = "AI Horde Worker reGen:13:x";

    #[test]
    fn a_plain_image_goes_to_every_worker_that_uploads() {
        check(NEWEST, json!({}), json!({}), &[]);
        check("unknown:0:unknown", json!({}), json!({}), &["uploads"]);
        check("unknown:0:unknown", json!({}), json!({"r2": false}), &[]);
    }

    #[test]
    fn owners_say_what_their_workers_do() {
        let lora = json!({"params": {"loras": [{"name": "a"}]}});
        check(NEWEST, json!({}), lora.clone(), &["LoRAs"]);
        let ours = "Muster:0:x";
        check(ours, json!({}), lora.clone(), &["LoRAs"]);
        check(ours, json!({"allow_lora": true}), lora.clone(), &[]);
        check(NEWEST, json!({"allow_lora": true}), lora, &[]);
        let source = json!({"source_image": "x"});
        check(
            NEWEST,
            json!({"allow_img2img": false}),
            source.clone(),
            &["source images"],
        );
        check(
            "SD-WebUI Stable Horde Worker Bridge:4:x",
            json!({}),
            source,
            &["source images"],
        );
        let mild = json!({"nsfw": false});
        check(NEWEST, mild.clone(), json!({}), &["NSFW requests"]);
        check(NEWEST, mild.clone(), mild, &[]);
        let control = json!({"source_image": "x", "params": {"control_type": "canny"}});
        check(NEWEST, json!({}), control, &["control maps"]);
    }

    #[test]
    fn textual_inversions_are_for_software_that_knows_them_and_ours_where_files_are_allowed() {
        let listed = json!({"params": {"tis": [{"name": "a"}]}});
        let missing = &["textual inversions"];
        check("AI Horde Worker:23:x", json!({}), listed.clone(), missing);
        check(NEWEST, json!({}), listed.clone(), &[]);
        check("Muster:0:x", json!({}), listed.clone(), missing);
        check(
            "Muster:0:x",
            json!({"allow_lora": true}),
            listed.clone(),
            &[],
        );
        let alone = json!({"allow_lora": false, "allow_textual_inversions": true});
        check("Muster:0:x", alone.clone(), listed.clone(), &[]);
        let lora = json!({"params": {"loras": [{"name": "a"}]}});
        check("Muster:0:x", alone, lora, &["LoRAs"]);
        let without = json!({"allow_lora": true, "allow_textual_inversions": false});
        check("Muster:0:x", without, listed, missing);
        let named = |prompt: &str| {
            let asked = GenerationInputImage::read(json!({"prompt": prompt})).unwrap();
            let asked = asked.abilities(Baseline::of_unknown);
            asked.contains(Capabilities::INVERSIONS)
        };
        assert!(named("a cat ### embedding:blurred"));
        assert!(!named("an embedding of a cat"));
    }

    #[test]
    fn software_knows_more_with_every_version() {
        let params = |params: Value| json!({"params": params});
        let old = "AI Horde Worker:9:x";
        check(old, json!({}), params(json!({"tiling": true})), &["tiling"]);
        check(
            old,
            json!({}),
            params(json!({"hires_fix": true})),
            &["hires_fix"],
        );
        check(
            old,
            json!({}),
            params(json!({"clip_skip": 2})),
            &["clip_skip"],
        );
        check(old, json!({}), params(json!({"clip_skip": 1})), &[]);
        check(
            old,
            json!({}),
            params(json!({"sampler_name": "lcm"})),
            &["sampler lcm"],
        );
        let processed = params(json!({"post_processing": ["RestoreFormer"]}));
        check(old, json!({}), processed.clone(), &["a post-processor"]);
        check(NEWEST, json!({}), processed, &[]);
    }

    #[test]
    fn what_its_owner_allows_is_worth_what_its_software_knows() {
        let painting = json!({"source_image": "x", "source_processing": "inpainting"});
        let painter = || json!({"models": ["plain", "an inpainting"]});
        check(
            "AI Horde Worker:3:x",
            painter(),
            json!({"r2": false, "params": {"karras": false}, "source_image": "x",
                "source_processing": "inpainting"}),
            &["inpainting"],
        );
        check("AI Horde Worker:8:x", painter(), painting, &[]);
        let lora = json!({"params": {"loras": [{"name": "a"}]}});
        let allowed = || json!({"allow_lora": true});
        check("AI Horde Worker:21:x", allowed(), lora.clone(), &["LoRAs"]);
        check("AI Horde Worker:22:x", allowed(), lora, &[]);
        let map = json!({
            "source_image": "x", "params": {"control_type": "canny", "image_is_control": true},
        });
        let allowed = || json!({"allow_controlnet": true});
        check(
            "AI Horde Worker:22:x",
            allowed(),
            map.clone(),
            &["image_is_control"],
        );
        check("AI Horde Worker:23:x", allowed(), map, &[]);
    }

    #[test]
    fn the_schedule_karras_is_for_software_that_has_it() {
        let karras = |karras: bool| json!({"r2": false, "params": {"karras": karras}});
        let old = "AI Horde Worker:5:x";
        check(old, json!({}), karras(true), &["scheduler karras"]);
        check(old, json!({}), karras(false), &[]);
        check("unknown:0:unknown", json!({}), karras(true), &[]);
    }

    #[test]
    fn what_came_later_is_for_software_that_knows_it() {
        let before = "AI Horde Worker reGen:16:x";
        let since = "AI Horde Worker reGen:17:x";
        let missing = &["newer samplers and settings"];
        for params in [
            json!({"sampler_name": "uni_pc"}),
            json!({"scheduler": "simple"}),
            json!({"sampler_eta": 0}),
            json!({"sampler_s_noise": 1}),
            json!({"sampler_s_churn": 1}),
            json!({"sampler_s_tmin": 1}),
            json!({"sampler_s_tmax": 1}),
            json!({"sampler_solver_type": "heun"}),
            json!({"sampler_order": 2}),
            json!({"flow_shift": 3}),
        ] {
            let asked = json!({"params": params});
            check(before, json!({}), asked.clone(), missing);
            check("AI Horde Worker:24:x", json!({}), asked.clone(), missing);
            check(since, json!({}), asked, &[]);
        }
        let alone = json!({"params": {"control_strength": 0.5}});
        check(NEWEST, json!({}), alone, &[]);
    }

    #[test]
    fn the_word_for_a_schedule_counts_more_than_the_flag() {
        let asked = |scheduler: &str, karras: bool| {
            let params = json!({"scheduler": scheduler, "karras": karras});
            json!({"r2": false, "params": params})
        };
        let old = "AI Horde Worker:5:x";
        check(old, json!({}), asked("normal", true), &[]);
        let missing = &["scheduler karras"];
        check(old, json!({}), asked("karras", false), missing);
        check("unknown:0:unknown", json!({}), asked("karras", false), &[]);
    }

    #[test]
    fn later_kinds_of_control_maps_are_allowed_apart() {
        let map = |params: Value| json!({"source_image": "x", "params": params});
        let allowed = || json!({"allow_controlnet": true, "allow_extended_controlnet": true});
        let classic_alone = || json!({"allow_controlnet": true});
        let lines = map(json!({"control_type": "lineart"}));
        let since = "AI Horde Worker reGen:17:x";
        check(since, allowed(), lines.clone(), &[]);
        let refused = &["newer control types"];
        check(since, classic_alone(), lines.clone(), refused);
        let unknown = &["newer samplers and settings"];
        check("AI Horde Worker reGen:16:x", allowed(), lines, unknown);
        let light = map(json!({"control_type": "canny", "control_strength": 0.5}));
        let missing = &["control strength"];
        check(since, classic_alone(), light.clone(), missing);
        check("AI Horde Worker reGen:18:x", classic_alone(), light, &[]);
    }

    #[test]
    fn who_names_a_model_that_is_too_new_for_its_software_is_given_nothing() {
        let both = || json!({"models": ["stable_diffusion", "a [Flux]"]});
        let old = "AI Horde Worker reGen:8:x";
        check(
            old,
            both(),
            json!({}),
            &["a software version that supports the model"],
        );
        check("AI Horde Worker reGen:9:x", both(), json!({}), &[]);
    }

    #[test]
    fn painting_is_for_models_that_are_made_for_it() {
        let painting = json!({"source_image": "x", "source_processing": "inpainting"});
        check(NEWEST, json!({}), painting, &["inpainting models"]);
    }
}
