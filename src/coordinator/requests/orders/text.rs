//! Texts.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Nth, Task, end_user};
use crate::coordinator::requests::Wishes;
use crate::protocol::job::{Body, Capabilities, Formats, Limits, Reach, TextInput, TextRequest};
use crate::protocol::legacy::text::format;
use crate::protocol::legacy::text::request::GenerationInputText;
use crate::protocol::legacy::{Body as _, Refusal};

/// Text is stale after this.
pub const LIFETIME: Duration = Duration::from_secs(20 * 60);
/// How long a worker that polls may keep one.
const PATIENCE: Duration = Duration::from_secs(150);
/// Hardly any text has fewer tokens than one in so many bytes.
const BYTES_PER_TOKEN: usize = 8;

/// A text, as its client asked for it.
#[derive(Debug)]
pub struct TextAsked {
    request: GenerationInputText,
    /// Settings in it that our own engine does not have.
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

    pub fn formats(&self) -> Formats {
        let sampling = self.request.text(0).sampling;
        match sampling.unknown_to_our_engine().is_empty() {
            true => Formats::LEGACY.with(Formats::NEUTRAL),
            false => Formats::LEGACY,
        }
    }

    pub fn caveat(&self) -> Option<String> {
        let acting = &self.acting;
        let unknown = !acting.is_empty() && self.formats().meets(Formats::NEUTRAL);
        let unknown = unknown.then(|| {
            format!(
                "workers on a socket do not know {}; whichever worker is free first serves this",
                acting.join(", ")
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
                formats: self.formats(),
                prompt_tokens: u32::try_from(length).unwrap_or(u32::MAX),
                output_tokens: Some(params.max_length),
                reach: Reach {
                    window: params.max_context_length,
                    output: params.max_length,
                    ..Reach::default()
                },
                patience: Some(PATIENCE),
                requires: self.requires(),
                ..Limits::default()
            },
            trusted: self.request.trusted_workers,
            original: None,
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
