//! Finds the style named by a request.

use uuid::Uuid;

use crate::storage::{StorageError, Store};
use crate::values::styles::{Collection, Params, Style, Use};
use muster_protocol::job::AccountId;
use muster_protocol::legacy::image::request::GenerationInputImage;
use muster_protocol::legacy::style::name::{Named, StyleName};
use muster_protocol::legacy::style::request::Around;
use muster_protocol::legacy::text::request::GenerationInputText;
use muster_protocol::legacy::words::Making;
use muster_protocol::legacy::{Code, Refusal};

/// All styles and collections. Clones share the store.
#[derive(Debug, Clone)]
pub struct Styles(Store);

/// The style of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    pub style: Style,
    /// The collection it was chosen from.
    pub collection: Option<Uuid>,
}

/// The style applied to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub usage: Use,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStyle {
    #[error("no style or collection has this name")]
    Unknown,
    #[error("the style is for another kind of output")]
    OtherMaking,
    #[error("the collection has no styles left")]
    Empty,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Styles {
    pub fn new(store: Store) -> Self {
        Self(store)
    }

    /// The style of this name, or a random one of the collection of this name. Styles take precedence over collections,
    /// and the wanted kind over another.
    pub async fn choose(&self, name: &str, making: Making) -> Result<Chosen, NoStyle> {
        let name = StyleName::parse(name);
        let style = self.style(&name, making).await?;
        let style = match style {
            Some(style) if style.recipe.making() == making => {
                return Ok(Chosen {
                    style,
                    collection: None,
                });
            }
            other => other,
        };
        match self.collection(&name, making).await? {
            Some(collection) if collection.making == making => self.draw(&collection).await,
            Some(_) => Err(NoStyle::OtherMaking),
            None if style.is_some() => Err(NoStyle::OtherMaking),
            None => Err(NoStyle::Unknown),
        }
    }

    /// A style by name: of the wanted kind if there is one, else any; public before private, oldest first.
    pub async fn style(
        &self,
        name: &StyleName,
        making: Making,
    ) -> Result<Option<Style>, StorageError> {
        match name {
            StyleName::Id(id) => self.0.style(*id).await,
            StyleName::Name {
                of: Some(Named::Collection),
                ..
            } => Ok(None),
            StyleName::Name { owner, name, .. } => {
                let owner = owner.map(AccountId);
                self.0.style_named(owner, name, making).await
            }
        }
    }

    /// Like [`Self::style`].
    pub async fn collection(
        &self,
        name: &StyleName,
        making: Making,
    ) -> Result<Option<Collection>, StorageError> {
        match name {
            StyleName::Id(id) => self.0.collection(*id).await,
            StyleName::Name {
                of: Some(Named::Style),
                ..
            } => Ok(None),
            StyleName::Name { owner, name, .. } => {
                let owner = owner.map(AccountId);
                self.0.collection_named(owner, name, making).await
            }
        }
    }

    /// Applies the request's style to a text request, if it names one.
    pub async fn text(
        &self,
        asked: GenerationInputText,
    ) -> Result<(GenerationInputText, Option<Applied>), NoStyle> {
        let Some(name) = &asked.style else {
            return Ok((asked, None));
        };
        let chosen = self.choose(name, Making::Text).await?;
        Ok((chosen.text(asked)?, Some(chosen.applied())))
    }

    /// Applies the request's style to an image request, if it names one.
    pub async fn image(
        &self,
        asked: GenerationInputImage,
    ) -> Result<(GenerationInputImage, Option<Applied>), NoStyle> {
        let Some(name) = &asked.style else {
            return Ok((asked, None));
        };
        let chosen = self.choose(name, Making::Image).await?;
        Ok((chosen.image(asked)?, Some(chosen.applied())))
    }

    async fn draw(&self, collection: &Collection) -> Result<Chosen, NoStyle> {
        let members = &collection.members;
        // The upper bits of a random UUID are all random.
        let random = Uuid::new_v4().as_u64_pair().0 >> 16;
        let drawn = random.checked_rem(members.len() as u64);
        let drawn = drawn.ok_or(NoStyle::Empty)? as usize;
        let style = self.0.style(members[drawn].id).await?;
        Ok(Chosen {
            // Another request may just have deleted it.
            style: style.ok_or(NoStyle::Unknown)?,
            collection: Some(collection.id),
        })
    }
}

impl Chosen {
    /// Applies the style to a text request.
    pub fn text(&self, asked: GenerationInputText) -> Result<GenerationInputText, NoStyle> {
        let recipe = &self.style.recipe;
        let Params::Text(params) = &recipe.params else {
            return Err(NoStyle::OtherMaking);
        };
        let around = Around {
            prompt: &recipe.prompt,
            params: &**params,
            models: &recipe.models,
        };
        Ok(around.apply(asked)?)
    }

    /// Applies the style to an image request.
    pub fn image(&self, asked: GenerationInputImage) -> Result<GenerationInputImage, NoStyle> {
        let recipe = &self.style.recipe;
        let Params::Image(params) = &recipe.params else {
            return Err(NoStyle::OtherMaking);
        };
        let around = Around {
            prompt: &recipe.prompt,
            params: &**params,
            models: &recipe.models,
        };
        Ok(around.apply(asked)?)
    }

    fn applied(self) -> Applied {
        Applied {
            usage: self.usage(),
            name: self.style.recipe.name,
        }
    }

    /// The use to store when the request is accepted.
    pub fn usage(&self) -> Use {
        Use {
            style: self.style.id,
            collection: self.collection,
            owner: self.style.owner,
            shared_key: self.style.shared_key,
        }
    }
}

impl From<NoStyle> for Refusal {
    fn from(none: NoStyle) -> Self {
        match none {
            NoStyle::Unknown => Code::StyleNotFound.into(),
            NoStyle::Empty => Self::new(Code::StyleNotFound, none.to_string()),
            NoStyle::OtherMaking => Code::StyleMismatch.into(),
            NoStyle::Refused(refusal) => refusal,
            NoStyle::Storage(_) => Self::plain(503, "the database is unavailable, retry later"),
        }
    }
}
