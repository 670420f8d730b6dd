//! A user's row.

use sqlx::Row;
use sqlx::any::AnyRow;
use uuid::Uuid;

use crate::storage::rows::{Stored, all, first};
use crate::storage::{StorageError, Store};
use crate::values::Roles;
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRow {
    pub account: AccountId,
    pub name: String,
    pub roles: Roles,
    pub created_at: UnixMillis,
    pub kudos: Kudos,
    /// Earned, and held until the user is trusted.
    pub escrow: Kudos,
    /// Login at another service.
    pub login: Option<String>,
    pub contact: Option<String>,
    pub admin_comment: Option<String>,
    /// Overrides the configured concurrency.
    pub concurrency: Option<i64>,
    pub worker_invited: i64,
    pub public_workers: bool,
    pub monthly_kudos: Kudos,
    pub monthly_paid_at: Option<UnixMillis>,
    pub suspicion: i64,
    pub deleted_at: Option<UnixMillis>,
    /// Encrypted, as stored.
    pub proxy_passkey: Option<String>,
    pub records: Records,
}

/// Lifetime totals of a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Records {
    /// Factor on a user's kudos costs, in thousandths.
    pub multiplier: i64,
    /// In thousands of pixelsteps.
    pub used_pixelsteps: i64,
    pub used_tokens: i64,
    pub made_pixelsteps: i64,
    pub made_tokens: i64,
    pub asked: Amounts,
    pub made: Amounts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    pub images: i64,
    pub texts: i64,
    pub interrogations: i64,
}

/// Order of a list of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Highest balance first.
    Kudos,
    /// Oldest account first.
    Age,
}

/// Selects the columns of a [`PersonRow`], followed by `$rest`. An owner's escrow is the account with the negated
/// number (see `kudos::escrow`).
macro_rules! select_people {
    ($rest:literal) => {
        concat!(
            "SELECT accounts.id, accounts.name, roles, created_at, COALESCE(balances.kudos, 0) AS kudos, \
             COALESCE(escrow.kudos, 0) AS escrow, people.login, contact, admin_comment, concurrency, \
             worker_invited, public_workers, monthly_kudos, monthly_paid_at, suspicion, deleted_at, \
             proxy_passkey, COALESCE(multiplier, 1000) AS multiplier, \
             COALESCE(used_pixelsteps, 0) AS used_pixelsteps, COALESCE(used_tokens, 0) AS used_tokens, \
             COALESCE(made_pixelsteps, 0) AS made_pixelsteps, COALESCE(made_tokens, 0) AS made_tokens, \
             COALESCE(asked_images, 0) AS asked_images, COALESCE(asked_texts, 0) AS asked_texts, \
             COALESCE(asked_interrogations, 0) AS asked_interrogations, \
             COALESCE(made_images, 0) AS made_images, COALESCE(made_texts, 0) AS made_texts, \
             COALESCE(made_interrogations, 0) AS made_interrogations \
             FROM accounts JOIN people ON people.account = accounts.id \
             LEFT JOIN balances ON balances.account = accounts.id \
             LEFT JOIN balances AS escrow ON escrow.account = -1 - accounts.id AND accounts.id > 0 \
             LEFT JOIN records ON records.account = accounts.id ",
            $rest
        )
    };
}

impl Store {
    pub async fn person(&self, account: AccountId) -> Result<Option<PersonRow>, StorageError> {
        let row = sqlx::query(select_people!("WHERE accounts.id = $1"));
        first(row.bind(account.0), &self.readers).await
    }

    /// A page of users, after the first `after`.
    pub async fn people(
        &self,
        order: Order,
        most: u32,
        after: u64,
    ) -> Result<Vec<PersonRow>, StorageError> {
        let page = match order {
            Order::Kudos => sqlx::query(select_people!(
                "ORDER BY COALESCE(balances.kudos, 0) DESC, accounts.id LIMIT $1 OFFSET $2"
            )),
            Order::Age => sqlx::query(select_people!(
                "ORDER BY created_at, accounts.id LIMIT $1 OFFSET $2"
            )),
        };
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        all(page.bind(i64::from(most)).bind(after), &self.readers).await
    }

    /// Ids of all workers of an account, the oldest first.
    pub async fn workers_of(&self, owner: AccountId) -> Result<Vec<Uuid>, StorageError> {
        let rows = sqlx::query("SELECT public_id FROM workers WHERE owner = $1 ORDER BY id");
        let rows = rows.bind(owner.0).fetch_all(&self.readers).await?;
        let ids = rows.iter().map(|row| row.try_get::<String, _>(0));
        let ids: Vec<String> = ids.collect::<Result<_, _>>()?;
        Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
    }
}

impl Stored for PersonRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let moment =
            |name| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(name)?.map(UnixMillis));
        Ok(Self {
            account: AccountId(row.try_get("id")?),
            name: row.try_get("name")?,
            roles: Roles::parse(row.try_get("roles")?),
            created_at: UnixMillis(row.try_get("created_at")?),
            kudos: Kudos(row.try_get("kudos")?),
            escrow: Kudos(row.try_get("escrow")?),
            login: row.try_get("login")?,
            contact: row.try_get("contact")?,
            admin_comment: row.try_get("admin_comment")?,
            concurrency: row.try_get("concurrency")?,
            worker_invited: row.try_get("worker_invited")?,
            public_workers: row.try_get::<i64, _>("public_workers")? != 0,
            monthly_kudos: Kudos(row.try_get("monthly_kudos")?),
            monthly_paid_at: moment("monthly_paid_at")?,
            suspicion: row.try_get("suspicion")?,
            deleted_at: moment("deleted_at")?,
            proxy_passkey: row.try_get("proxy_passkey")?,
            records: Records::load(row)?,
        })
    }
}

impl Stored for Records {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let number = |name| row.try_get::<i64, _>(name);
        Ok(Self {
            multiplier: number("multiplier")?,
            used_pixelsteps: number("used_pixelsteps")?,
            used_tokens: number("used_tokens")?,
            made_pixelsteps: number("made_pixelsteps")?,
            made_tokens: number("made_tokens")?,
            asked: Amounts {
                images: number("asked_images")?,
                texts: number("asked_texts")?,
                interrogations: number("asked_interrogations")?,
            },
            made: Amounts {
                images: number("made_images")?,
                texts: number("made_texts")?,
                interrogations: number("made_interrogations")?,
            },
        })
    }
}
