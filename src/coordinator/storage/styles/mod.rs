//! Styles as they are read: one by id or name, or a page of public ones.
//!
//! | file | contents |
//! | --- | --- |
//! | `changes` | create, change, delete |
//! | `examples` | their examples, changed one at a time |
//! | `uses` | counts and payment of uses |

mod changes;
mod examples;
mod uses;

pub use changes::NewStyle;
pub use uses::write_use;

use serde_json::{Value, json};
use sqlx::Row;
use sqlx::any::AnyRow;
use uuid::Uuid;

use crate::values::styles::{Example, Params, Recipe, Style};
use muster_protocol::job::{AccountId, SharedKeyId};
use muster_protocol::legacy::style::{PAGE, Sort};
use muster_protocol::legacy::words::{Making, Word, named};

use super::rows::{Stored, all, first};
use super::values::{storable, without_zeros};
use super::{StorageError, Store};

/// Filter and page of a list of public styles.
#[derive(Debug, Clone)]
pub struct StylePage {
    pub making: Making,
    pub sort: Sort,
    /// Page 0 is the first.
    pub page: u32,
    pub tag: Option<String>,
    pub model: Option<String>,
}

/// Selects the columns of a [`Style`], followed by `$rest`.
macro_rules! select_styles {
    ($rest:literal) => {
        concat!(
            "SELECT styles.id, owner, accounts.name AS owner_name, making, styles.name, info, prompt, params, \
             public, nsfw, tags, models, examples, shared_key, use_count \
             FROM styles JOIN accounts ON accounts.id = styles.owner ",
            $rest
        )
    };
}

impl Store {
    pub async fn style(&self, id: Uuid) -> Result<Option<Style>, StorageError> {
        let row = sqlx::query(select_styles!("WHERE styles.id = $1"));
        first(row.bind(id.to_string()), &self.readers).await
    }

    /// A style by name: of the wanted kind if there is one, else any; public before private, oldest first.
    pub async fn style_named(
        &self,
        owner: Option<AccountId>,
        name: &str,
        making: Making,
    ) -> Result<Option<Style>, StorageError> {
        let row = sqlx::query(select_styles!(
            "WHERE styles.name = $1 AND ($2 = 0 OR owner = $3) \
             ORDER BY CASE WHEN making = $4 THEN 0 ELSE 1 END, public DESC, number LIMIT 1"
        ));
        let row = row.bind(without_zeros(name));
        let row = row.bind(i64::from(owner.is_some()));
        let row = row.bind(owner.map_or(0, |owner| owner.0));
        first(row.bind(making.word()), &self.readers).await
    }

    /// Public ones, the most used or the oldest first.
    pub async fn styles(&self, page: &StylePage) -> Result<Vec<Style>, StorageError> {
        let rows = sqlx::query(select_styles!(
            "WHERE making = $1 AND public = 1 \
             AND ($2 = '' OR EXISTS (SELECT 1 FROM style_words \
             WHERE style = styles.id AND what = 'tag' AND word = $2)) \
             AND ($3 = '' OR EXISTS (SELECT 1 FROM style_words \
             WHERE style = styles.id AND what = 'model' AND word = $3)) \
             ORDER BY CASE WHEN $4 = 'popular' THEN use_count ELSE 0 END DESC, number \
             LIMIT $5 OFFSET $6"
        ));
        let word = |word: &Option<String>| word.as_deref().map(storable).unwrap_or_default();
        let rows = rows.bind(page.making.word());
        let rows = rows.bind(word(&page.tag)).bind(word(&page.model));
        let rows = rows.bind(page.sort.word()).bind(PAGE as i64);
        let rows = rows.bind(offset(page.page));
        all(rows, &self.readers).await
    }

    /// All styles of an account, public or not, the oldest first.
    pub async fn styles_of(&self, owner: AccountId) -> Result<Vec<Style>, StorageError> {
        let rows = sqlx::query(select_styles!("WHERE owner = $1 ORDER BY number"));
        all(rows.bind(owner.0), &self.readers).await
    }
}

/// Rows before the page.
pub(super) fn offset(page: u32) -> i64 {
    i64::from(page) * PAGE as i64
}

impl Stored for Style {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let making = making(row)?;
        let flag = |name| Ok::<_, sqlx::Error>(row.try_get::<i64, _>(name)? != 0);
        let params: String = row.try_get("params")?;
        let shared_key: Option<String> = row.try_get("shared_key")?;
        let examples: String = row.try_get("examples")?;
        Ok(Self {
            id: id(row, "id")?,
            owner: AccountId(row.try_get("owner")?),
            owner_name: row.try_get("owner_name")?,
            recipe: Recipe {
                name: row.try_get("name")?,
                info: row.try_get("info")?,
                prompt: row.try_get("prompt")?,
                params: Params::read(making, &params).map_err(|_| broken("params"))?,
                public: flag("public")?,
                nsfw: flag("nsfw")?,
                tags: words(row, "tags")?,
                models: words(row, "models")?,
            },
            examples: read_examples(&examples)?,
            shared_key: shared_key.and_then(|key| SharedKeyId::parse(&key)),
            use_count: row.try_get("use_count")?,
        })
    }
}

pub(super) fn making(row: &AnyRow) -> Result<Making, StorageError> {
    let word: String = row.try_get("making")?;
    named(&word).ok_or_else(|| broken("making"))
}

pub(super) fn id(row: &AnyRow, column: &str) -> Result<Uuid, StorageError> {
    let text: String = row.try_get(column)?;
    text.parse().map_err(|_| broken(column))
}

fn words(row: &AnyRow, column: &str) -> Result<Vec<String>, StorageError> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|_| broken(column))
}

fn read_examples(text: &str) -> Result<Vec<Example>, StorageError> {
    let stored: Vec<Value> = serde_json::from_str(text).map_err(|_| broken("examples"))?;
    let example = |stored: &Value| {
        Some(Example {
            id: stored["id"].as_str()?.parse().ok()?,
            url: stored["url"].as_str()?.to_owned(),
            primary: stored["primary"].as_bool()?,
        })
    };
    let examples: Option<Vec<_>> = stored.iter().map(example).collect();
    examples.ok_or_else(|| broken("examples"))
}

fn written_examples(examples: &[Example]) -> String {
    let stored = examples
        .iter()
        .map(|example| json!({"id": example.id, "url": example.url, "primary": example.primary}));
    Value::from_iter(stored).to_string()
}

fn broken(column: &str) -> StorageError {
    StorageError::Broken(format!("invalid {column} of a style"))
}
