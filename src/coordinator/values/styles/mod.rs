//! Styles of the AI Horde API, and collections of them, as they are stored.
//!
//! | file | contents |
//! | --- | --- |
//! | `recipe` | the contents of a style |
//! | `examples` | example images |

mod examples;
mod recipe;

pub use examples::{Example, ExampleChange, NotChanged};
pub use recipe::{Params, Recipe, RecipeChange};

use uuid::Uuid;

use super::Alias;
use muster_protocol::job::{AccountId, Kudos, SharedKeyId};
use muster_protocol::legacy::style::name::StyleName;
use muster_protocol::legacy::words::Making;

/// Reward of a style's owner for each use, paid by the user unless that is the owner.
pub const FEE: Kudos = Kudos(2000);

#[derive(Debug, Clone, PartialEq)]
pub struct Style {
    pub id: Uuid,
    pub owner: AccountId,
    /// The owner's current name.
    pub owner_name: String,
    pub recipe: Recipe,
    pub examples: Vec<Example>,
    /// The owner's shared key that pays for its uses.
    pub shared_key: Option<SharedKeyId>,
    pub use_count: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    pub id: Uuid,
    pub owner: AccountId,
    pub making: Making,
    pub name: String,
    pub info: Option<String>,
    pub public: bool,
    pub use_count: i64,
    pub members: Vec<Member>,
}

/// A style within its collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: Uuid,
    pub name: String,
    pub owner: AccountId,
    pub owner_name: String,
}

/// A use, stored when the request is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub style: Uuid,
    /// The collection it was chosen from.
    pub collection: Option<Uuid>,
    pub owner: AccountId,
    /// The owner's shared key that pays for it.
    pub shared_key: Option<SharedKeyId>,
}

/// Whether a request can name it: a name that parses as something else could not be found.
pub fn is_findable(name: &str) -> bool {
    let plain = StyleName::Name {
        of: None,
        owner: None,
        name: name.to_owned(),
    };
    StyleName::parse(name) == plain
}

impl Style {
    /// `name#id`
    pub fn creator(&self) -> String {
        alias(&self.owner_name, self.owner).to_string()
    }

    /// The name in lists: `name#id::style::name`.
    pub fn full_name(&self) -> String {
        full_name(alias(&self.owner_name, self.owner), &self.recipe.name)
    }
}

impl Member {
    /// The name in lists: `name#id::style::name`.
    pub fn full_name(&self) -> String {
        full_name(alias(&self.owner_name, self.owner), &self.name)
    }
}

fn full_name(owner: Alias<'_>, name: &str) -> String {
    format!("{owner}::style::{name}")
}

fn alias(name: &str, account: AccountId) -> Alias<'_> {
    Alias { name, account }
}
