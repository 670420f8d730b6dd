//! The reply to an image worker's pop, with a job or without.

use serde_json::{Map, Value};

use crate::job::JobId;
use crate::legacy::pop::ResponseModelMessagePop;
use crate::legacy::tables::reply;
use crate::legacy::words::{
    ControlType, PostProcessor, Sampler, Scheduler, SolverType, SourceProcessing, Workflow,
};

use super::params::{
    ExtraText, ModelGenerationInputImage, ModelPayloadLorasImage,
    ModelPayloadTextualInversionsImage,
};
use super::request::{ExtraSourceImage, GenerationInputImage};

reply! {
    /// `POST /v2/generate/pop`
    pub struct GenerationPayloadImage {
        always {
            payload: ModelPayloadImage,
            id: Option<JobId>,
            ids: Vec<JobId>,
            messages: Vec<ResponseModelMessagePop>,
            /// Seconds before the job is taken away.
            ttl: Option<u64>,
            skipped: NoValidRequestFoundImage,
            model: Option<String>,
            source_image: Option<String>,
            /// Says img2img for plain images, too.
            source_processing: SourceProcessing,
            source_mask: Option<String>,
            extra_source_images: Option<Vec<ExtraSourceImage>>,
            r2_upload: Option<String>,
            /// In the order of `ids`.
            r2_uploads: Option<Vec<String>>,
        }
    }

    /// The parameters as workers know them, all defaults filled in.
    pub struct ModelPayloadImage {
        always {
            ddim_steps: u32,
            /// The number of ids.
            n_iter: u32,
            image_is_control: bool,
            return_control_map: bool,
            sampler_name: Sampler,
            cfg_scale: f64,
            height: u32,
            width: u32,
            karras: bool,
            tiling: bool,
            hires_fix: bool,
            transparent: bool,
        }
        known {
            prompt: String,
            use_nsfw_censor: bool,
            seed: String,
            control_type: ControlType,
            extra_texts: Vec<ExtraText>,
            denoising_strength: f64,
            hires_fix_denoising_strength: f64,
            post_processing: Vec<PostProcessor>,
            clip_skip: u32,
            facefixer_strength: f64,
            loras: Vec<ModelPayloadLorasImage>,
            tis: Vec<ModelPayloadTextualInversionsImage>,
            special: Map<String, Value>,
            workflow: Workflow,
            /// Only where the flag `karras` does not say it.
            scheduler: Scheduler,
            sampler_eta: f64,
            sampler_s_noise: f64,
            sampler_s_churn: f64,
            sampler_s_tmin: f64,
            sampler_s_tmax: f64,
            sampler_solver_type: SolverType,
            sampler_order: u32,
            flow_shift: f64,
            control_strength: f64,
        }
    }

    /// Why requests that wait were not given, counted by reason.
    #[derive(Default)]
    pub struct NoValidRequestFoundImage {
        known {
            max_pixels: u64,
            step_count: u64,
            unsafe_ip: u64,
            img2img: u64,
            painting: u64,
            #[serde(rename = "post-processing")]
            post_processing: u64,
            lora: u64,
            controlnet: u64,
            worker_id: u64,
            performance: u64,
            nsfw: u64,
            blacklist: u64,
            untrusted: u64,
            models: u64,
            bridge_version: u64,
            kudos: u64,
        }
    }
}

impl GenerationPayloadImage {
    /// No job, and why.
    pub fn empty(
        skipped: NoValidRequestFoundImage,
        messages: Vec<ResponseModelMessagePop>,
    ) -> Self {
        Self {
            payload: ModelPayloadImage::from(&ModelGenerationInputImage::default()),
            id: None,
            ids: Vec::new(),
            messages,
            ttl: None,
            skipped,
            model: None,
            source_image: None,
            source_processing: SourceProcessing::Img2Img,
            source_mask: None,
            extra_source_images: None,
            r2_upload: None,
            r2_uploads: None,
        }
    }
}

impl ModelPayloadImage {
    /// The payload of this many images of a request, with this seed.
    pub fn of(request: &GenerationInputImage, images: u32, seed: u32) -> Self {
        let censor = !request.nsfw && request.censor_nsfw;
        Self {
            prompt: Some(request.prompt.clone()),
            n_iter: images,
            seed: Some(seed.to_string()),
            use_nsfw_censor: censor.then_some(true),
            ..Self::from(&request.params)
        }
    }
}

impl From<&ModelGenerationInputImage> for ModelPayloadImage {
    fn from(params: &ModelGenerationInputImage) -> Self {
        Self {
            ddim_steps: params.steps(),
            n_iter: 1,
            image_is_control: params.image_is_control,
            return_control_map: params.return_control_map,
            sampler_name: params.sampler_name,
            cfg_scale: params.cfg_scale,
            height: params.height,
            width: params.width,
            karras: params.is_karras(),
            tiling: params.tiling,
            hires_fix: params.hires_fix,
            transparent: params.transparent,
            prompt: None,
            use_nsfw_censor: None,
            seed: None,
            control_type: params.control_type,
            extra_texts: params.extra_texts.clone(),
            denoising_strength: params.denoising_strength,
            hires_fix_denoising_strength: params.hires_fix_denoising_strength,
            post_processing: params.post_processing.clone(),
            clip_skip: params.clip_skip,
            facefixer_strength: params.facefixer_strength,
            loras: params.loras.clone(),
            tis: params.tis.clone(),
            special: params.special.clone(),
            workflow: params.workflow,
            scheduler: params.newer_scheduler(),
            sampler_eta: params.sampler_eta,
            sampler_s_noise: params.sampler_s_noise,
            sampler_s_churn: params.sampler_s_churn,
            sampler_s_tmin: params.sampler_s_tmin,
            sampler_s_tmax: params.sampler_s_tmax,
            sampler_solver_type: params.sampler_solver_type,
            sampler_order: params.sampler_order,
            flow_shift: params.flow_shift,
            control_strength: params.control_strength(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ModelPayloadImage;
    use crate::legacy::Body;
    use crate::legacy::image::request::GenerationInputImage;
    use crate::legacy::schemas::assert_fits;

    fn payload(params: &Value) -> Value {
        let asked = json!({"prompt": "a cat", "params": params});
        let asked = GenerationInputImage::read(asked).unwrap();
        // As restored from the database.
        let asked = GenerationInputImage::read(json!(asked)).unwrap();
        let payload = ModelPayloadImage::of(&asked, 1, 7);
        assert_fits("ModelPayloadImage", &payload);
        json!(payload)
    }

    #[test]
    fn newer_settings_are_handed_on_as_they_were_sent() {
        let params = json!({
            "sampler_name": "exp_heun_2_x0", "scheduler": "kl_optimal", "karras": false, "sampler_eta": 0.5,
            "sampler_s_noise": 1.5, "sampler_s_churn": 2.5, "sampler_s_tmin": 0.5, "sampler_s_tmax": 9.5,
            "sampler_solver_type": "midpoint", "sampler_order": 3, "flow_shift": 3.5,
            "control_type": "depth_anything_v2", "control_strength": 0.75,
        });
        let payload = payload(&params);
        for (name, value) in params.as_object().unwrap() {
            assert_eq!(&payload[name], value, "{name}");
        }
    }

    #[test]
    fn a_schedule_that_the_flag_can_tell_is_told_by_it() {
        let check = |params: Value, karras: bool| {
            let payload = payload(&params);
            assert_eq!(payload["karras"], karras, "{params}");
            assert!(payload.get("scheduler").is_none(), "{params}");
        };
        check(json!({"scheduler": "normal"}), false);
        check(json!({"scheduler": "karras", "karras": false}), true);
        check(json!({"karras": false}), false);
        check(json!({}), true);
        let other = payload(&json!({"scheduler": "beta"}));
        assert_eq!(
            (&other["scheduler"], &other["karras"]),
            (&json!("beta"), &json!(true))
        );
    }

    #[test]
    fn the_strength_of_no_control_map_is_not_told() {
        let told = payload(&json!({"control_strength": 0.5}));
        assert!(told.get("control_strength").is_none(), "{told}");
    }
}
