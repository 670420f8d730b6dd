//! The styles of a collection: given by id or name, and all of one kind.

use uuid::Uuid;

use super::Styles;
use crate::storage::StorageError;
use muster_protocol::legacy::style::name::StyleName;
use muster_protocol::legacy::words::{Making, Word};

/// Limit of styles in a collection.
const MOST: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    pub making: Making,
    /// Without duplicates, in order.
    pub ids: Vec<Uuid>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoMembers {
    #[error("a collection must have 1 to {MOST} styles, not {0}")]
    Amount(usize),
    /// By index, because a name may be anything.
    #[error("styles.{0}: no style has this id or name")]
    Unknown(usize),
    #[error("styles.{place} is of type {found}, the others are of type {wanted}")]
    OtherMaking {
        place: usize,
        found: &'static str,
        wanted: &'static str,
    },
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Styles {
    /// The styles of these names. The kind is the collection's, or else that of the first style.
    pub async fn members(
        &self,
        names: &[String],
        wanted: Option<Making>,
    ) -> Result<Members, NoMembers> {
        if names.is_empty() || names.len() > MOST {
            return Err(NoMembers::Amount(names.len()));
        }
        let (mut making, mut ids) = (wanted, Vec::with_capacity(names.len()));
        for (place, name) in names.iter().enumerate() {
            let likely = making.unwrap_or(Making::Image);
            let style = self.style(&StyleName::parse(name), likely).await?;
            let style = style.ok_or(NoMembers::Unknown(place))?;
            let found = style.recipe.making();
            let wanted = *making.get_or_insert(found);
            if found != wanted {
                return Err(NoMembers::OtherMaking {
                    place,
                    found: found.word(),
                    wanted: wanted.word(),
                });
            }
            if !ids.contains(&style.id) {
                ids.push(style.id);
            }
        }
        Ok(Members {
            making: making.unwrap_or(Making::Image),
            ids,
        })
    }
}
