//! Which parameters of a text request go together, each no with the code clients know.

use std::collections::BTreeSet;

use crate::legacy::error::{Code, Refusal};

use super::params::ModelGenerationInputText;
use super::request::GenerationInputText;

/// In bytes: four for each token of the longest context that can be requested.
pub const LONGEST_PROMPT: usize = 4 << 20;
const FULL_SAMPLER_ORDER: usize = 7;
const MOST_STOPS: usize = 128;
const MOST_STOP_CHARACTERS: usize = 2000;

impl GenerationInputText {
    /// Everything that can be said no to without looking at the queue, the kudos or the filters.
    pub fn check(&self, trusted: bool) -> Result<(), Refusal> {
        Code::MissingPrompt.when(self.prompt.is_empty())?;
        check_length(&self.prompt)?;
        self.check_batch(trusted)?;
        self.params.check()?;
        let images = self
            .extra_source_images
            .as_ref()
            .is_some_and(|images| !images.is_empty());
        Code::InvalidExtraSourceImages.when(images)
    }

    /// Options for trusted users only.
    pub fn check_batch(&self, trusted: bool) -> Result<(), Refusal> {
        let alone = self.disable_batching && self.outputs() > 1;
        Code::RequiresTrust.when(alone && !trusted)
    }
}

impl ModelGenerationInputText {
    pub fn check(&self) -> Result<(), Refusal> {
        Code::TokenOverflow.when(self.max_length > self.max_context_length)?;
        check_sampling(self.sampler_order.as_deref(), self.stop_sequence.as_deref())
    }
}

/// Not checked during parsing: a style may lengthen the prompt, and accepted requests are parsed again.
fn check_length(prompt: &str) -> Result<(), Refusal> {
    match prompt.len() {
        0..=LONGEST_PROMPT => Ok(()),
        length => {
            let wanted = format!("must have at most {LONGEST_PROMPT} bytes, found {length}");
            Err(Refusal::invalid("prompt", wanted))
        }
    }
}

fn check_sampling(order: Option<&[i64]>, stops: Option<&[String]>) -> Result<(), Refusal> {
    let short = |order: &[i64]| order.iter().collect::<BTreeSet<_>>().len() < FULL_SAMPLER_ORDER;
    Code::MissingFullSamplerOrder.when(order.is_some_and(short))?;
    let stops: BTreeSet<_> = stops.unwrap_or_default().iter().collect();
    Code::TooManyStopSequences.when(stops.len() > MOST_STOPS)?;
    let characters: usize = stops.iter().map(|stop| stop.chars().count()).sum();
    Code::ExcessiveStopSequence.when(characters > MOST_STOP_CHARACTERS)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::LONGEST_PROMPT;
    use crate::legacy::text::request::GenerationInputText;
    use crate::legacy::{Body, Code, Refusal};

    fn check(body: Value, expected: Option<Code>) {
        let request = GenerationInputText::read(body.clone()).unwrap();
        let found = request
            .check(false)
            .err()
            .and_then(|refusal| refusal.code());
        assert_eq!(found, expected, "{body}");
    }

    #[test]
    fn no_prompt_is_longer_than_the_longest_context() {
        let check = |length: usize| {
            let body = json!({"prompt": "p".repeat(length)});
            GenerationInputText::read(body).unwrap().check(false)
        };
        assert_eq!(check(LONGEST_PROMPT), Ok(()));
        let long = "must have at most 4194304 bytes, found 4194305";
        assert_eq!(
            check(LONGEST_PROMPT + 1),
            Err(Refusal::invalid("prompt", long))
        );
    }

    #[test]
    fn what_does_not_go_together_is_refused_by_its_code() {
        let params = |params: Value| json!({"prompt": "p", "params": params});
        let numbered = |count: usize| {
            (0..count)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
        };
        check(json!({"prompt": "p"}), None);
        check(json!({"prompt": ""}), Some(Code::MissingPrompt));
        check(
            params(json!({"max_length": 512, "max_context_length": 256})),
            Some(Code::TokenOverflow),
        );
        check(
            params(json!({"max_length": 256, "max_context_length": 256})),
            None,
        );
        check(
            params(json!({"sampler_order": [6, 0, 1, 2, 3, 4]})),
            Some(Code::MissingFullSamplerOrder),
        );
        check(
            params(json!({"sampler_order": [6, 0, 1, 2, 3, 4, 4]})),
            Some(Code::MissingFullSamplerOrder),
        );
        check(
            params(json!({"sampler_order": [6, 0, 1, 2, 3, 4, 5]})),
            None,
        );
        check(params(json!({"stop_sequence": numbered(128)})), None);
        check(params(json!({"stop_sequence": vec!["a"; 500]})), None);
        check(
            params(json!({"stop_sequence": numbered(129)})),
            Some(Code::TooManyStopSequences),
        );
        check(
            params(json!({"stop_sequence": ["a".repeat(2001)]})),
            Some(Code::ExcessiveStopSequence),
        );
        check(
            json!({"prompt": "p", "extra_source_images": [{"image": "x"}]}),
            Some(Code::InvalidExtraSourceImages),
        );
        check(json!({"prompt": "p", "extra_source_images": []}), None);
        check(
            json!({"prompt": "p", "disable_batching": true, "params": {"n": 2}}),
            Some(Code::RequiresTrust),
        );
    }
}
