//! Text requests.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Nth, Task, end_user};
use crate::requests::Wishes;
use muster_protocol::job::{
    Body, Capabilities, Formats, Limits, Needs, TextInput, TextNeeds, TextRequest,
};
use muster_protocol::legacy::text::format;
use muster_protocol::legacy::text::request::GenerationInputText;
use muster_protocol::legacy::{Body as _, Refusal};

/// Lifetime of a text request.
pub const LIFETIME: Duration = Duration::from_secs(20 * 60);
/// Timeout of a polling worker for a text.
const PATIENCE: Duration = Duration::from_secs(150);
/// Formats with a field for every setting; public socket workers' dialects lack most of them.
const FORMATS: Formats = Formats::LEGACY.with(Formats::NEUTRAL);
/// Texts hardly have fewer tokens than one in this many bytes.
const BYTES_PER_TOKEN: usize = 8;

/// A text request.
#[derive(Debug)]
pub struct TextAsked {
    request: GenerationInputText,
    /// Settings that socket workers ignore.
    acting: Vec<&'static str>,
}

impl TextAsked {
    pub fn new(request: GenerationInputText) -> Self {
        Self {
            acting: request.text(0).sampling.only_for_legacy_workers(),
            request,
        }
    }

    pub fn read(mut body: Value) -> Result<Self, Refusal> {
        GenerationInputText::read(body["request"].take()).map(Self::new)
    }

    pub fn stored(&self) -> Value {
        json!({"request": self.request})
    }

    pub fn outputs(&self) -> u32 {
        self.request.outputs()
    }

    pub fn wishes(&self) -> Wishes {
        Wishes {
            end_user: end_user(self.request.proxied_account.as_deref()),
            ..Wishes::default()
        }
    }

    pub fn webhook(&self) -> Option<&str> {
        self.request.webhook.as_deref()
    }

    pub fn models(&self) -> &[String] {
        &self.request.models
    }

    pub fn caveat(&self) -> Option<String> {
        let unknown = (!self.acting.is_empty()).then(|| {
            format!(
                "socket workers ignore {}; the first free worker of any kind serves the request",
                self.acting.join(", ")
            )
        });
        let softprompt = self.request.softprompt.as_ref();
        let softprompt = softprompt.map(|_| "softprompt has no effect".to_owned());
        let caveats: Vec<String> = unknown.into_iter().chain(softprompt).collect();
        (!caveats.is_empty()).then(|| caveats.join("; "))
    }

    pub(super) fn task(&self, nth: Nth) -> Task {
        let params = &self.request.params;
        let length = self.request.prompt.len() / BYTES_PER_TOKEN;
        Task {
            body: Body::Text(Box::new(self.text(nth))),
            limits: Limits {
                formats: FORMATS,
                prompt_tokens: u32::try_from(length).unwrap_or(u32::MAX),
                output_tokens: Some(params.max_length),
                needs: Needs::Text(TextNeeds {
                    window: params.max_context_length,
                    output: params.max_length,
                    ..TextNeeds::default()
                }),
                patience: Some(PATIENCE),
                requires: self.requires(),
                ..Limits::default()
            },
            trusted: self.request.trusted_workers,
            original: None,
            price: None,
        }
    }

    fn requires(&self) -> Capabilities {
        let wanted = [
            (!self.request.slow_workers, Capabilities::FAST),
            (self.request.validated_backends, Capabilities::VALIDATED),
        ];
        let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
        wanted.fold(Capabilities::default(), |all, (_, one)| all.with(one))
    }

    fn text(&self, nth: Nth) -> TextRequest {
        let mut text = self.request.text(nth.index);
        text.sampling.seed = Some(nth.seed + u64::from(nth.index));
        if let TextInput::Prompt(prompt) = &mut text.input
            && let Some(legacy) = &mut text.sampling.legacy
        {
            *prompt = format::prompt(prompt, legacy).into_owned();
            legacy.frmtadsnsp = legacy.frmtadsnsp.map(|_| false);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FORMATS, Formats, Nth, TextAsked};

    fn asked(params: &Value) -> TextAsked {
        let body = json!({"request": {"prompt": "Once", "params": params}});
        TextAsked::read(body).unwrap()
    }

    #[test]
    fn a_text_is_for_whoever_is_told_all_its_settings() {
        let every = json!({
            "typical": 0.9, "tfs": 0.9, "top_a": 0.1, "smoothing_factor": 0.3, "dynatemp_range": 0.5,
            "rep_pen": 1.1, "rep_pen_range": 64, "rep_pen_slope": 0.7, "use_default_badwordsids": true,
        });
        for params in [json!({}), every] {
            let task = asked(&params).task(Nth { index: 0, seed: 1 });
            assert_eq!(task.limits.formats, FORMATS, "{params}");
        }
        for dialect in [
            Formats::OPENAI_CHAT,
            Formats::OPENAI_RESPONSES,
            Formats::ANTHROPIC,
        ] {
            assert!(!FORMATS.meets(dialect), "{dialect:?}");
        }
    }

    #[test]
    fn only_what_the_engine_does_without_is_told_of() {
        let check = |params: Value, wanted: Option<&str>| {
            let caveat = asked(&params).caveat();
            let wanted = wanted.map(|names| {
                format!("socket workers ignore {names}; the first free worker of any kind serves the request")
            });
            assert_eq!(caveat, wanted, "{params}");
        };
        let honoured = json!({"tfs": 0.9, "top_a": 0.1, "rep_pen": 1.1, "rep_pen_range": 64});
        check(honoured, None);
        check(json!({"rep_pen_slope": 0.7}), None);
        check(
            json!({"rep_pen": 1.1, "rep_pen_slope": 0.7, "typical": 0.9}),
            Some("rep_pen_slope"),
        );
        check(
            json!({"sampler_order": [0, 6, 1, 2, 3, 4, 5], "use_default_badwordsids": true}),
            Some("sampler_order, use_default_badwordsids"),
        );
    }
}
