//! The contents of a style, and changes of it.

use serde_json::Value;

use muster_protocol::legacy::image::check::{Asker, Known};
use muster_protocol::legacy::image::params::{
    ModelGenerationInputImage, ModelStyleInputParamsImage,
};
use muster_protocol::legacy::image::reference;
use muster_protocol::legacy::requests::RequestSingleWarning;
use muster_protocol::legacy::style::image::{ModelStyleInputImage, ModelStylePatchImage};
use muster_protocol::legacy::style::text::{ModelStyleInputText, ModelStylePatchText};
use muster_protocol::legacy::text::params::ModelStyleInputParamsText;
use muster_protocol::legacy::words::Making;
use muster_protocol::legacy::{Body, Code, Refusal};

/// A whole page must fit into one reply.
const LARGEST: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    pub name: String,
    pub info: Option<String>,
    /// The template.
    pub prompt: String,
    pub params: Params,
    pub public: bool,
    pub nsfw: bool,
    pub tags: Vec<String>,
    pub models: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Params {
    Image(Box<ModelStyleInputParamsImage>),
    Text(Box<ModelStyleInputParamsText>),
}

/// `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecipeChange {
    pub name: Option<String>,
    pub info: Option<String>,
    pub prompt: Option<String>,
    pub params: Option<Params>,
    pub public: Option<bool>,
    pub nsfw: Option<bool>,
    pub tags: Option<Vec<String>>,
    pub models: Option<Vec<String>>,
}

impl Recipe {
    pub fn making(&self) -> Making {
        self.params.making()
    }

    /// Whether the parameters fit together and with its models, for an account with or without the special role.
    pub fn check(&self, special: bool) -> Result<(), Refusal> {
        let size = self.size();
        if size > LARGEST {
            let message = format!("the style has {size} bytes, at most {LARGEST} are allowed");
            return Err(Refusal::new(Code::BadRequest, message));
        }
        match &self.params {
            Params::Image(params) => {
                Code::SpecialFieldNeedsSpecialUser.when(params.special.is_some() && !special)?;
                let asker = Asker {
                    alias: "",
                    special,
                    trusted: false,
                };
                let known = Known {
                    baseline: &reference::family,
                    asker,
                };
                let params = params.over(&ModelGenerationInputImage::default());
                params.check(&self.models, known)
            }
            Params::Text(params) => params.check(),
        }
    }

    /// Mismatches with one of its models, for requests without other parameters.
    pub fn warnings(&self) -> Vec<RequestSingleWarning> {
        match &self.params {
            Params::Image(params) => {
                let params = params.over(&ModelGenerationInputImage::default());
                reference::warnings(&self.models, &params)
            }
            Params::Text(_) => Vec::new(),
        }
    }

    #[must_use]
    pub fn changed(self, change: RecipeChange) -> Self {
        Self {
            name: change.name.unwrap_or(self.name),
            info: change.info.or(self.info),
            prompt: change.prompt.unwrap_or(self.prompt),
            params: change.params.unwrap_or(self.params),
            public: change.public.unwrap_or(self.public),
            nsfw: change.nsfw.unwrap_or(self.nsfw),
            tags: change.tags.unwrap_or(self.tags),
            models: change.models.unwrap_or(self.models),
        }
    }

    fn size(&self) -> usize {
        let lists = self.tags.iter().chain(&self.models);
        let lists: usize = lists.map(String::len).sum();
        let info = self.info.as_ref().map_or(0, String::len);
        self.prompt.len() + self.params.json().len() + lists + info
    }
}

impl Params {
    pub fn making(&self) -> Making {
        match self {
            Self::Image(_) => Making::Image,
            Self::Text(_) => Making::Text,
        }
    }

    pub fn json(&self) -> String {
        let json = match self {
            Self::Image(params) => serde_json::to_value(params),
            Self::Text(params) => serde_json::to_value(params),
        };
        // All fields serialize.
        json.unwrap_or(Value::Null).to_string()
    }

    pub fn read(making: Making, json: &str) -> Result<Self, Refusal> {
        let bytes = json.as_bytes();
        Ok(match making {
            Making::Image => Self::Image(ModelStyleInputParamsImage::parse(bytes)?.into()),
            Making::Text => Self::Text(ModelStyleInputParamsText::parse(bytes)?.into()),
        })
    }
}

impl RecipeChange {
    pub fn changes_nothing(&self) -> bool {
        *self == Self::default()
    }
}

macro_rules! recipes {
    ($($new:ty, $change:ty => $params:path;)+) => {$(
        impl From<$new> for Recipe {
            fn from(new: $new) -> Self {
                Self {
                    name: new.name,
                    info: new.info,
                    prompt: new.prompt,
                    params: $params(new.params.into()),
                    public: new.public,
                    nsfw: new.nsfw,
                    tags: new.tags,
                    models: new.models,
                }
            }
        }

        impl From<$change> for RecipeChange {
            fn from(change: $change) -> Self {
                Self {
                    name: change.name,
                    info: change.info,
                    prompt: change.prompt,
                    params: change.params.map(|params| $params(params.into())),
                    public: change.public,
                    nsfw: change.nsfw,
                    tags: change.tags,
                    models: change.models,
                }
            }
        }
    )+};
}

recipes! {
    ModelStyleInputImage, ModelStylePatchImage => Params::Image;
    ModelStyleInputText, ModelStylePatchText => Params::Text;
}
