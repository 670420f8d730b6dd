//! The reply to a text worker's pop, with a job or without.

use crate::job::JobId;
use crate::legacy::image::request::ExtraSourceImage;
use crate::legacy::pop::ResponseModelMessagePop;
use crate::legacy::tables::reply;

use super::params::ModelGenerationInputText;

reply! {
    /// `POST /v2/generate/text/pop`
    pub struct GenerationPayloadText {
        always {
            payload: ModelPayloadText,
            id: Option<JobId>,
            ids: Vec<JobId>,
            messages: Vec<ResponseModelMessagePop>,
            /// Seconds before the job is taken away.
            ttl: Option<u64>,
            extra_source_images: Option<Vec<ExtraSourceImage>>,
            skipped: NoValidRequestFoundText,
            softprompt: Option<String>,
            model: Option<String>,
        }
    }

    /// The parameters as workers know them.
    pub struct ModelPayloadText {
        always {
            max_context_length: u32,
            max_length: u32,
            min_p: f64,
            smoothing_factor: f64,
            dynatemp_range: f64,
            dynatemp_exponent: f64,
        }
        known {
            prompt: String,
            n: u32,
            frmtadsnsp: bool,
            frmtrmblln: bool,
            frmtrmspch: bool,
            frmttriminc: bool,
            rep_pen: f64,
            rep_pen_range: u32,
            rep_pen_slope: f64,
            singleline: bool,
            temperature: f64,
            tfs: f64,
            top_a: f64,
            top_k: u32,
            top_p: f64,
            typical: f64,
            sampler_order: Vec<i64>,
            use_default_badwordsids: bool,
            stop_sequence: Vec<String>,
        }
    }

    /// Why requests that wait were not given, counted by reason.
    #[derive(Default)]
    pub struct NoValidRequestFoundText {
        known {
            max_context_length: u64,
            max_length: u64,
            matching_softprompt: u64,
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

impl GenerationPayloadText {
    /// No job, and why.
    pub fn empty(skipped: NoValidRequestFoundText, messages: Vec<ResponseModelMessagePop>) -> Self {
        Self {
            payload: ModelPayloadText::from(ModelGenerationInputText::default()),
            id: None,
            ids: Vec::new(),
            messages,
            ttl: None,
            extra_source_images: None,
            skipped,
            softprompt: None,
            model: None,
        }
    }
}

impl From<ModelGenerationInputText> for ModelPayloadText {
    fn from(params: ModelGenerationInputText) -> Self {
        Self {
            max_context_length: params.max_context_length,
            max_length: params.max_length,
            min_p: params.min_p.unwrap_or(0.0),
            smoothing_factor: params.smoothing_factor.unwrap_or(0.0),
            dynatemp_range: params.dynatemp_range.unwrap_or(0.0),
            dynatemp_exponent: params.dynatemp_exponent,
            prompt: None,
            n: None,
            frmtadsnsp: params.frmtadsnsp,
            frmtrmblln: params.frmtrmblln,
            frmtrmspch: params.frmtrmspch,
            frmttriminc: params.frmttriminc,
            rep_pen: params.rep_pen,
            rep_pen_range: params.rep_pen_range,
            rep_pen_slope: params.rep_pen_slope,
            singleline: params.singleline,
            temperature: params.temperature,
            tfs: params.tfs,
            top_a: params.top_a,
            top_k: params.top_k,
            top_p: params.top_p,
            typical: params.typical,
            sampler_order: params.sampler_order,
            use_default_badwordsids: params.use_default_badwordsids,
            stop_sequence: params.stop_sequence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GenerationPayloadText, NoValidRequestFoundText};
    use crate::legacy::schemas::assert_fits;

    #[test]
    fn an_empty_pop_holds_defaults_and_reasons() {
        let skipped = NoValidRequestFoundText {
            models: Some(3),
            ..Default::default()
        };
        let empty = GenerationPayloadText::empty(skipped, Vec::new());
        assert_fits("GenerationPayloadText", &empty);
        let empty = serde_json::to_value(&empty).unwrap();
        assert_eq!(empty["payload"]["max_length"], 80);
        assert_eq!(empty["skipped"], serde_json::json!({"models": 3}));
        assert!(empty["id"].is_null() && empty["ttl"].is_null());
    }
}
