//! Image styles and their examples.

use uuid::Uuid;

use crate::legacy::image::params::ModelStyleInputParamsImage;
use crate::legacy::rules::{flag, inner, list, text};
use crate::legacy::shared_key::SharedKeyDetails;
use crate::legacy::tables::{body, reply};

use super::prompt::{IMAGE_TEMPLATE, IMAGE_VARIABLES, check_template};
use crate::legacy::Refusal;

body! {
    /// `POST /v2/styles/image`
    pub struct ModelStyleInputImage {
        needs { name: String = text(1..=100), }
        fills {
            prompt: String = text(7..) => IMAGE_TEMPLATE.to_owned(),
            params: ModelStyleInputParamsImage = inner() => ModelStyleInputParamsImage::default(),
            public: bool = flag() => true,
            nsfw: bool = flag() => false,
            tags: Vec<String> = list(text(1..=25)) => Vec::new(),
            /// From one to five.
            models: Vec<String> = list(text(1..=255)) => Vec::new(),
        }
        may {
            info: String = text(10..=1000),
            sharedkey: String = text(36..=36),
        }
    }
}

body! {
    /// `PATCH /v2/styles/image/{id}`: missing fields stay unchanged.
    pub struct ModelStylePatchImage {
        may {
            name: String = text(1..=100),
            info: String = text(1..=1000),
            prompt: String = text(7..),
            params: ModelStyleInputParamsImage = inner(),
            public: bool = flag(),
            nsfw: bool = flag(),
            tags: Vec<String> = list(text(1..=25)),
            models: Vec<String> = list(text(1..=255)),
            sharedkey: String = text(36..=36),
        }
    }
}

body! {
    /// `POST /v2/styles/image/{id}/example`
    pub struct InputStyleExamplePost {
        needs {
            url: String = text(..),
            primary: bool = flag(),
        }
    }
}

body! {
    /// `PATCH /v2/styles/image/{id}/example/{id}`: missing fields stay unchanged.
    pub struct InputStyleExamplePatch {
        may {
            url: String = text(..),
            primary: bool = flag(),
        }
    }
}

reply! {
    /// `GET /v2/styles/image/{id}`, and one of the list.
    pub struct StyleImage {
        always {
            id: Uuid,
            use_count: u64,
            creator: String,
            examples: Vec<StyleExample>,
            name: String,
            prompt: String,
            params: ModelStyleInputParamsImage,
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

    pub struct StyleExample {
        always {
            id: Uuid,
            url: String,
            primary: bool,
        }
    }
}

impl ModelStyleInputImage {
    pub fn check(&self) -> Result<(), Refusal> {
        check_template(&self.prompt, &IMAGE_VARIABLES)?;
        super::prompt::check_lists(Some(&self.models), Some(&self.tags))
    }
}

impl ModelStylePatchImage {
    pub fn check(&self) -> Result<(), Refusal> {
        if let Some(prompt) = &self.prompt {
            check_template(prompt, &IMAGE_VARIABLES)?;
        }
        super::prompt::check_lists(self.models.as_deref(), self.tags.as_deref())
    }

    pub fn changes_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::{
        InputStyleExamplePatch, InputStyleExamplePost, ModelStyleInputImage, ModelStylePatchImage,
        StyleExample, StyleImage,
    };
    use crate::legacy::image::params::ModelStyleInputParamsImage;
    use crate::legacy::schemas::{assert_fits, assert_reads};
    use crate::legacy::{Body, Code};

    #[test]
    fn styles_are_read_as_the_contract_says() {
        assert_reads::<ModelStyleInputImage>("ModelStyleInputImage");
        assert_reads::<ModelStylePatchImage>("ModelStylePatchImage");
        assert_reads::<InputStyleExamplePatch>("InputStyleExamplePost");
    }

    #[test]
    fn a_new_example_says_everything() {
        let example = json!({"url": "https://example.org/a.webp", "primary": true});
        assert!(InputStyleExamplePost::read(example).is_ok());
        for missing in [json!({"primary": true}), json!({"url": "x"})] {
            assert!(InputStyleExamplePost::read(missing).is_err());
        }
    }

    #[test]
    fn a_style_has_a_prompt_for_both_parts_and_few_models_and_tags() {
        let check = |change: Value, expected: Option<Code>| {
            let mut body = json!({"name": "x", "models": ["m"]});
            for (name, value) in change.as_object().unwrap() {
                body[name] = value.clone();
            }
            let refusal = ModelStyleInputImage::read(body).unwrap().check().err();
            assert_eq!(
                refusal.and_then(|refusal| refusal.code()),
                expected,
                "{change}"
            );
        };
        check(json!({}), None);
        check(
            json!({"prompt": "a {p} only"}),
            Some(Code::StylePromptMissingVars),
        );
        check(json!({"models": []}), Some(Code::BadRequest));
        check(
            json!({"models": ["1", "2", "3", "4", "5", "6"]}),
            Some(Code::BadRequest),
        );
        check(json!({"tags": vec!["t"; 11]}), Some(Code::BadRequest));
    }

    #[test]
    fn a_change_is_held_to_what_it_changes() {
        let read = |body| ModelStylePatchImage::read(body).unwrap();
        assert!(read(json!({})).changes_nothing());
        assert!(read(json!({"public": false})).check().is_ok());
        assert!(read(json!({"models": []})).check().is_err());
        assert!(read(json!({"prompt": "nothing"})).check().is_err());
    }

    #[test]
    fn a_style_is_shown_as_the_contract_says() {
        let style = StyleImage {
            id: Uuid::nil(),
            use_count: 0,
            creator: "alice#1".to_owned(),
            examples: vec![StyleExample {
                id: Uuid::nil(),
                url: "https://example.org/a.webp".to_owned(),
                primary: true,
            }],
            name: "x".to_owned(),
            prompt: "{p}{np}".to_owned(),
            params: ModelStyleInputParamsImage::default(),
            public: true,
            nsfw: false,
            tags: Vec::new(),
            models: vec!["m".to_owned()],
            shared_key: None,
            info: None,
        };
        assert_fits("StyleImage", &style);
    }
}
