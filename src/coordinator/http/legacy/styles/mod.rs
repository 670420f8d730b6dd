//! Styles of images and of texts, their examples, and collections of them.
//!
//! | file | contents |
//! | --- | --- |
//! | `kinds` | the differences between image styles and text styles |
//! | `read` | list, and lookup by id or name |
//! | `write` | create, change, delete |
//! | `examples` | example images of image styles |
//! | `collections` | the same routes for collections |

mod collections;
mod examples;
mod kinds;
mod read;
mod write;

pub use collections::{
    change_collection, collection, collection_by_name, collections, create_collection,
    delete_collection,
};
pub use examples::{add_example, change_example, remove_example};
pub use kinds::{OfImages, OfTexts};
pub use read::{list, named, show};
pub use write::{change, create, delete};

use axum::http::StatusCode;
use axum::response::Response;
use tracing::warn;

use crate::accounts::{ANONYMOUS, Caller};
use crate::display_name::{FORBIDDEN, is_readable};
use crate::http::reply;
use crate::profanity::is_profane;
use crate::storage::{StorageError, Store};
use crate::values::Roles;
use crate::values::styles::is_findable;
use muster_protocol::job::AccountId;
use muster_protocol::legacy::style::StyleModify;
use muster_protocol::legacy::{Code, Refusal};

/// Whether an account may have styles and collections.
fn may_have(caller: &Caller) -> Result<(), Refusal> {
    Code::StylesAnonForbidden.when(caller.account == ANONYMOUS)?;
    Code::DeletedUser.when(caller.roles.contains(Roles::DELETED))
}

fn is_owner(caller: &Caller, owner: AccountId) -> Result<(), Refusal> {
    Code::Forbidden.when(caller.account != owner)
}

/// Only the owner or a moderator of higher rank may change a style.
async fn may_manage(caller: &Caller, owner: AccountId, store: &Store) -> Result<(), Refusal> {
    let may = caller.may_manage(owner, store).await.map_err(not_stored)?;
    Code::Forbidden.when(!may)
}

/// Refuses profanity in public fields.
fn check_words(name: Option<&str>, info: Option<&str>, tags: &[String]) -> Result<(), Refusal> {
    let tags = tags.iter().map(String::as_str);
    let mut words = name.into_iter().chain(info).chain(tags);
    if !words.any(is_profane) {
        return Ok(());
    }
    let message = "name, info or tags contain profanity";
    Err(Refusal::new(Code::BadRequest, message))
}

/// Refuses names that a lookup could not find.
fn check_name(name: &str) -> Result<(), Refusal> {
    if !is_readable(name) {
        let message = format!("name must not contain {FORBIDDEN}");
        return Err(Refusal::new(Code::BadRequest, message));
    }
    if is_findable(name) {
        return Ok(());
    }
    let message = "name must not look like an id or a qualified style name; choose another name";
    Err(Refusal::new(Code::BadRequest, message))
}

fn done(answer: &StyleModify) -> Response {
    reply::json(StatusCode::OK, answer)
}

fn name_taken() -> Refusal {
    Refusal::new(
        Code::BadRequest,
        "you already have one with this name; choose another name",
    )
}

fn not_stored(error: StorageError) -> Refusal {
    match error {
        StorageError::Refused(_) | StorageError::Broken(_) => {
            warn!("style or collection query failed: {error}");
            Refusal::plain(500, "internal error: the database refused the operation")
        }
        _ => Refusal::plain(503, "the database is unavailable; retry later"),
    }
}
