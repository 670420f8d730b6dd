//! Text styles.

use uuid::Uuid;

use crate::legacy::Refusal;
use crate::legacy::rules::{flag, inner, list, text};
use crate::legacy::shared_key::SharedKeyDetails;
use crate::legacy::tables::{body, reply};
use crate::legacy::text::params::{ModelGenerationInputText, ModelStyleInputParamsText};

use super::prompt::{TEXT_TEMPLATE, TEXT_VARIABLES, check_lists, check_template};

body! {
    /// `POST /v2/styles/text`
    pub struct ModelStyleInputText {
        needs { name: String = text(1..=100), }
        fills {
            prompt: String = text(3..) => TEXT_TEMPLATE.to_owned(),
            params: ModelStyleInputParamsText = inner() => ModelStyleInputParamsText::default(),
            public: bool = flag() => true,
            nsfw: bool = flag() => false,
            tags: Vec<String> = list(text(1..=25)) => Vec::new(),
            /// From one to five.
            models: Vec<String> = list(text(1..=255)) => Vec::new(),
        }
        may {
            info: String = text(10..=1000),
            sharedkey: String = text(..),
        }
    }
}

body! {
    /// `PATCH /v2/styles/text/{id}`: missing fields stay unchanged.
    pub struct ModelStylePatchText {
        may {
            name: String = text(1..=100),
            info: String = text(1..=1000),
            prompt: String = text(7..),
            params: ModelStyleInputParamsText = inner(),
            public: bool = flag(),
            nsfw: bool = flag(),
            tags: Vec<String> = list(text(1..=25)),
            models: Vec<String> = list(text(1..=255)),
            sharedkey: String = text(..),
        }
    }
}

reply! {
    /// `GET /v2/styles/text/{id}`, and one of the list.
    pub struct StyleText {
        always {
            id: Uuid,
            use_count: u64,
            creator: String,
            name: String,
            prompt: String,
            params: ModelStyleInputParamsText,
            public: bool,
            nsfw: bool,
            tags: Vec<String>,
            models: Vec<String>,
        }
        known {
            shared_key: SharedKeyDetails,
            info: String,
        }
    }
}

impl ModelStyleInputText {
    pub fn check(&self) -> Result<(), Refusal> {
        check_template(&self.prompt, &TEXT_VARIABLES)?;
        check_lists(Some(&self.models), Some(&self.tags))?;
        self.params.check()
    }
}

impl ModelStylePatchText {
    pub fn check(&self) -> Result<(), Refusal> {
        if let Some(prompt) = &self.prompt {
            check_template(prompt, &TEXT_VARIABLES)?;
        }
        check_lists(self.models.as_deref(), self.tags.as_deref())?;
        self.params
            .as_ref()
            .map_or(Ok(()), ModelStyleInputParamsText::check)
    }

    pub fn changes_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl ModelStyleInputParamsText {
    /// Whether who asks for nothing else may ask with them.
    pub fn check(&self) -> Result<(), Refusal> {
        self.over(&ModelGenerationInputText::default()).check()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::{ModelStyleInputText, ModelStylePatchText, StyleText};
    use crate::legacy::schemas::{assert_fits, assert_reads};
    use crate::legacy::text::params::ModelStyleInputParamsText;
    use crate::legacy::{Body, Code};

    #[test]
    fn styles_are_read_as_the_contract_says() {
        assert_reads::<ModelStyleInputText>("ModelStyleInputText");
        assert_reads::<ModelStylePatchText>("ModelStylePatchText");
    }

    #[test]
    fn a_style_needs_its_variable_and_whole_settings() {
        let check = |body, expected: Code| {
            let refusal = ModelStyleInputText::read(body)
                .unwrap()
                .check()
                .unwrap_err();
            assert_eq!(refusal.code(), Some(expected));
        };
        check(
            json!({"name": "x", "models": ["m"], "prompt": "none"}),
            Code::StylePromptMissingVars,
        );
        check(json!({"name": "x"}), Code::BadRequest);
        let short = json!({"sampler_order": [1]});
        check(
            json!({"name": "x", "models": ["m"], "params": short}),
            Code::MissingFullSamplerOrder,
        );
        let long = json!({"max_length": 4096});
        check(
            json!({"name": "x", "models": ["m"], "params": long}),
            Code::TokenOverflow,
        );
        let patch = ModelStylePatchText::read(json!({"params": short})).unwrap();
        assert!(patch.check().is_err() && !patch.changes_nothing());
    }

    #[test]
    fn a_style_is_shown_as_the_contract_says() {
        let style = StyleText {
            id: Uuid::nil(),
            use_count: 0,
            creator: "alice#1".to_owned(),
            name: "x".to_owned(),
            prompt: "{p}".to_owned(),
            params: ModelStyleInputParamsText::default(),
            public: true,
            nsfw: false,
            tags: Vec::new(),
            models: vec!["m".to_owned()],
            shared_key: None,
            info: Some("for stories".to_owned()),
        };
        assert_fits("StyleText", &style);
    }
}
