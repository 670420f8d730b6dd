//! Differences between image styles and text styles: their bodies and replies.

use serde::Serialize;

use crate::values::styles::{Example, Params, Recipe, RecipeChange, Style};
use muster_protocol::legacy::image::params::ModelStyleInputParamsImage;
use muster_protocol::legacy::shared_key::SharedKeyDetails;
use muster_protocol::legacy::style::image::{
    ModelStyleInputImage, ModelStylePatchImage, StyleExample, StyleImage,
};
use muster_protocol::legacy::style::text::{ModelStyleInputText, ModelStylePatchText, StyleText};
use muster_protocol::legacy::text::params::ModelStyleInputParamsText;
use muster_protocol::legacy::words::Making;
use muster_protocol::legacy::{Body, Code, Refusal};

/// A kind of style.
pub trait Kind: 'static {
    const MAKING: Making;
    /// The code for an unknown id of this kind.
    const UNKNOWN: Code;
    type Shown: Serialize;

    /// A new style, and the shared key to pay for it.
    fn made(body: &[u8]) -> Result<New, Refusal>;

    fn changed(body: &[u8]) -> Result<Changed, Refusal>;

    /// The style as JSON, with its shared key if the caller may see it.
    fn shown(style: Style, key: Option<SharedKeyDetails>) -> Self::Shown;
}

pub struct New {
    pub recipe: Recipe,
    pub shared_key: Option<String>,
    /// Errors in the prompt and the lists, reported after authentication.
    pub checked: Result<(), Refusal>,
}

pub struct Changed {
    pub change: RecipeChange,
    pub shared_key: Option<String>,
    pub checked: Result<(), Refusal>,
}

pub struct OfImages;
pub struct OfTexts;

impl Kind for OfImages {
    const MAKING: Making = Making::Image;
    const UNKNOWN: Code = Code::ImageStyleNotFound;
    type Shown = StyleImage;

    fn made(body: &[u8]) -> Result<New, Refusal> {
        let mut new = ModelStyleInputImage::parse(body)?;
        Ok(New {
            checked: new.check(),
            shared_key: new.sharedkey.take(),
            recipe: new.into(),
        })
    }

    fn changed(body: &[u8]) -> Result<Changed, Refusal> {
        let mut change = ModelStylePatchImage::parse(body)?;
        Ok(Changed {
            checked: change.check(),
            shared_key: change.sharedkey.take(),
            change: change.into(),
        })
    }

    fn shown(style: Style, key: Option<SharedKeyDetails>) -> StyleImage {
        let recipe = style.recipe.clone();
        StyleImage {
            id: style.id,
            use_count: style.use_count.unsigned_abs(),
            creator: style.creator(),
            examples: style.examples.into_iter().map(shown_example).collect(),
            name: recipe.name,
            prompt: recipe.prompt,
            params: match recipe.params {
                Params::Image(params) => *params,
                Params::Text(_) => ModelStyleInputParamsImage::default(),
            },
            public: recipe.public,
            nsfw: recipe.nsfw,
            tags: recipe.tags,
            models: recipe.models,
            shared_key: key,
            info: recipe.info,
        }
    }
}

impl Kind for OfTexts {
    const MAKING: Making = Making::Text;
    const UNKNOWN: Code = Code::TextStyleNotFound;
    type Shown = StyleText;

    fn made(body: &[u8]) -> Result<New, Refusal> {
        let mut new = ModelStyleInputText::parse(body)?;
        Ok(New {
            checked: new.check(),
            shared_key: new.sharedkey.take(),
            recipe: new.into(),
        })
    }

    fn changed(body: &[u8]) -> Result<Changed, Refusal> {
        let mut change = ModelStylePatchText::parse(body)?;
        Ok(Changed {
            checked: change.check(),
            shared_key: change.sharedkey.take(),
            change: change.into(),
        })
    }

    fn shown(style: Style, key: Option<SharedKeyDetails>) -> StyleText {
        let recipe = style.recipe.clone();
        StyleText {
            id: style.id,
            use_count: style.use_count.unsigned_abs(),
            creator: style.creator(),
            name: recipe.name,
            prompt: recipe.prompt,
            params: match recipe.params {
                Params::Text(params) => *params,
                Params::Image(_) => ModelStyleInputParamsText::default(),
            },
            public: recipe.public,
            nsfw: recipe.nsfw,
            tags: recipe.tags,
            models: recipe.models,
            shared_key: key,
            info: recipe.info,
        }
    }
}

fn shown_example(example: Example) -> StyleExample {
    StyleExample {
        id: example.id,
        url: example.url,
        primary: example.primary,
    }
}
