//! Converts a text request to the neutral job, and a neutral job of any API to a polling worker's payload. A request of
//! the AI Horde API is converted back unchanged.

use crate::job::{LegacySampling, Sampling, StopRules, TextInput, TextRequest};

use super::params::ModelGenerationInputText;
use super::payload::ModelPayloadText;
use super::request::GenerationInputText;

/// A worker's limits: defaults where a request names no lengths, and maxima.
#[derive(Debug, Clone, Copy)]
pub struct Lengths {
    pub context: u32,
    pub output: u32,
}

impl GenerationInputText {
    /// The neutral job of one output, counted from 0.
    pub fn text(&self, choice: u32) -> TextRequest {
        text_of(self.prompt.clone(), &self.params, choice)
    }
}

pub fn text_of(prompt: String, params: &ModelGenerationInputText, choice: u32) -> TextRequest {
    TextRequest {
        input: TextInput::Prompt(prompt),
        sampling: sampling_of(params),
        max_tokens: Some(params.max_length),
        stop: params.stop_sequence.clone().unwrap_or_default(),
        logprobs: None,
        prompt_logprobs: None,
        tool_choice: None,
        stop_rules: StopRules::default(),
        parallel_tool_calls: None,
        format: None,
        choice,
    }
}

fn sampling_of(params: &ModelGenerationInputText) -> Sampling {
    let legacy = LegacySampling {
        max_context_length: Some(params.max_context_length),
        typical: params.typical,
        tfs: params.tfs,
        top_a: params.top_a,
        rep_pen_range: params.rep_pen_range,
        rep_pen_slope: params.rep_pen_slope,
        sampler_order: params.sampler_order.clone(),
        use_default_badwordsids: params.use_default_badwordsids,
        smoothing_factor: params.smoothing_factor,
        dynatemp_range: params.dynatemp_range,
        dynatemp_exponent: Some(params.dynatemp_exponent),
        frmtadsnsp: params.frmtadsnsp,
        frmtrmblln: params.frmtrmblln,
        frmtrmspch: params.frmtrmspch,
        frmttriminc: params.frmttriminc,
        singleline: params.singleline,
    };
    Sampling {
        temperature: params.temperature.map(|number| number as f32),
        top_k: params.top_k,
        top_p: params.top_p.map(|number| number as f32),
        min_p: params.min_p.map(|number| number as f32),
        repetition_penalty: params.rep_pen.map(|number| number as f32),
        legacy: Some(Box::new(legacy)),
        ..Sampling::default()
    }
}

impl ModelPayloadText {
    /// The payload of one job. `prompt` is separate, because a chat has to be formatted for its model first.
    pub fn of(request: &TextRequest, prompt: String, lengths: Lengths) -> Self {
        let sampling = &request.sampling;
        let legacy = sampling.legacy.as_deref().cloned().unwrap_or_default();
        Self {
            max_context_length: legacy.max_context_length.unwrap_or(lengths.context),
            max_length: request
                .max_tokens
                .map_or(lengths.output, |asked| asked.min(lengths.output)),
            min_p: sampling.min_p.map_or(0.0, as_written),
            smoothing_factor: legacy.smoothing_factor.unwrap_or(0.0),
            dynatemp_range: legacy.dynatemp_range.unwrap_or(0.0),
            dynatemp_exponent: legacy.dynatemp_exponent.unwrap_or(1.0),
            prompt: Some(prompt),
            n: Some(1),
            frmtadsnsp: legacy.frmtadsnsp,
            frmtrmblln: legacy.frmtrmblln,
            frmtrmspch: legacy.frmtrmspch,
            frmttriminc: legacy.frmttriminc,
            rep_pen: sampling.repetition_penalty.map(as_written),
            rep_pen_range: legacy.rep_pen_range,
            rep_pen_slope: legacy.rep_pen_slope,
            singleline: legacy.singleline,
            temperature: sampling.temperature.map(as_written),
            tfs: legacy.tfs,
            top_a: legacy.top_a,
            top_k: sampling.top_k,
            top_p: sampling.top_p.map(as_written),
            typical: legacy.typical,
            sampler_order: legacy.sampler_order,
            use_default_badwordsids: legacy.use_default_badwordsids,
            stop_sequence: (!request.stop.is_empty()).then(|| request.stop.clone()),
        }
    }
}

/// The shortest number that is this one in single precision: 0.7 comes back as 0.7, not as 0.699999988079071.
fn as_written(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};
    use serde_json::{Value, json};

    use super::{Lengths, ModelPayloadText, as_written};
    use crate::job::{Chat, Sampling, StopRules, TextInput, TextRequest};
    use crate::legacy::Body;
    use crate::legacy::schemas::assert_fits;
    use crate::legacy::text::request::GenerationInputText;

    const LENGTHS: Lengths = Lengths {
        context: 8192,
        output: 512,
    };

    fn payload(params: &Value) -> Value {
        let body = json!({"prompt": "once", "params": params});
        let request = GenerationInputText::read(body).unwrap().text(0);
        // Between coordinator and worker, and on disk, it is JSON.
        let kept: TextRequest =
            serde_json::from_str(&serde_json::to_string(&request).unwrap()).unwrap();
        assert_eq!(kept, request);
        let payload = ModelPayloadText::of(&kept, "once".to_owned(), LENGTHS);
        assert_fits("ModelPayloadText", &payload);
        serde_json::to_value(payload).unwrap()
    }

    #[test]
    fn a_legacy_worker_gets_what_its_client_sent() {
        let params = json!({
            "max_context_length": 4096, "max_length": 100, "frmtadsnsp": true, "frmtrmblln": false,
            "frmtrmspch": true, "frmttriminc": true, "rep_pen": 1.07, "rep_pen_range": 320, "rep_pen_slope": 0.7,
            "singleline": false, "temperature": 0.7, "tfs": 0.97, "top_a": 0.03, "top_k": 100, "top_p": 0.92,
            "typical": 0.95, "sampler_order": [6, 0, 1, 2, 3, 4, 5], "use_default_badwordsids": true,
            "stop_sequence": ["\n\n", "You:"], "min_p": 0.05, "smoothing_factor": 0.2, "dynatemp_range": 0.1,
            "dynatemp_exponent": 1.5,
        });
        let payload = payload(&params);
        for (name, sent) in params.as_object().unwrap() {
            assert_eq!(&payload[name], sent, "{name}");
        }
        assert_eq!(
            (&payload["n"], &payload["prompt"]),
            (&json!(1), &json!("once"))
        );
    }

    #[test]
    fn what_was_not_sent_is_not_made_up() {
        let expected = json!({
            "max_context_length": 2048, "max_length": 80, "min_p": 0.0, "smoothing_factor": 0.0,
            "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "prompt": "once", "n": 1,
        });
        assert_eq!(payload(&json!({})), expected);
    }

    #[test]
    fn requests_of_other_dialects_fit_a_legacy_worker_if_it_can_be_told_everything() {
        let mut request = TextRequest {
            input: TextInput::Chat(Chat::default()),
            sampling: Sampling {
                temperature: Some(0.3),
                ..Sampling::default()
            },
            max_tokens: None,
            stop: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            tool_choice: None,
            stop_rules: StopRules::default(),
            parallel_tool_calls: None,
            format: None,
            choice: 0,
        };
        let payload = ModelPayloadText::of(&request, "user: hi".to_owned(), LENGTHS);
        assert_fits("ModelPayloadText", &payload);
        assert_eq!(
            (payload.max_length, payload.max_context_length),
            (512, 8192)
        );
        assert_eq!((payload.temperature, payload.rep_pen), (Some(0.3), None));
        assert!(request.beyond_plain_text().is_empty());
        request.logprobs = Some(0);
        request.sampling.presence_penalty = Some(0.5);
        assert_eq!(
            request.beyond_plain_text(),
            ["logprobs", "presence_penalty"]
        );
    }

    proptest! {
        #[test]
        fn a_number_of_six_digits_comes_back_as_it_was_written(digits in 0..=1_000_000u32) {
            let sent = f64::from(digits) / 1_000_000.0;
            prop_assert_eq!(as_written(sent as f32), sent);
        }
    }
}
