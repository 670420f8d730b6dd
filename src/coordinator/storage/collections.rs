//! Collections of styles, and which styles are in them.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};
use uuid::Uuid;

use crate::values::styles::{Collection, Member};
use muster_protocol::job::{AccountId, UnixMillis};
use muster_protocol::legacy::style::{PAGE, Sort};
use muster_protocol::legacy::words::{Making, Word};

use super::named::{NotNamed, insert, unless_taken, update};
use super::rows::{Stored, all, first};
use super::styles::{id, making, offset};
use super::values::without_zeros;
use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug, Clone)]
pub struct NewCollection {
    pub id: Uuid,
    pub owner: AccountId,
    pub making: Making,
    pub name: String,
    pub info: Option<String>,
    pub public: bool,
    /// In the order of the collection.
    pub members: Vec<Uuid>,
    pub created_at: UnixMillis,
}

/// Changes of a collection; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectionChange {
    pub name: Option<String>,
    pub info: Option<String>,
    pub public: Option<bool>,
    pub members: Option<Vec<Uuid>>,
}

#[derive(Debug)]
struct Changed {
    id: Uuid,
    change: CollectionChange,
}

#[derive(Debug)]
struct Deleted(Uuid);

/// Selects the columns of a [`Collection`], followed by `$rest`.
macro_rules! select_collections {
    ($rest:literal) => {
        concat!(
            "SELECT id, owner, making, name, info, public, use_count FROM collections ",
            $rest
        )
    };
}

impl Store {
    pub async fn collection(&self, id: Uuid) -> Result<Option<Collection>, StorageError> {
        let row = sqlx::query(select_collections!("WHERE id = $1"));
        let found = first(row.bind(id.to_string()), &self.readers).await?;
        self.with_members(found).await
    }

    /// A collection by name: of the wanted kind if there is one, else any; public before private, oldest first.
    pub async fn collection_named(
        &self,
        owner: Option<AccountId>,
        name: &str,
        making: Making,
    ) -> Result<Option<Collection>, StorageError> {
        let row = sqlx::query(select_collections!(
            "WHERE name = $1 AND ($2 = 0 OR owner = $3) \
             ORDER BY CASE WHEN making = $4 THEN 0 ELSE 1 END, public DESC, number LIMIT 1"
        ));
        let row = row.bind(without_zeros(name));
        let row = row.bind(i64::from(owner.is_some()));
        let row = row.bind(owner.map_or(0, |owner| owner.0));
        let found = first(row.bind(making.word()), &self.readers).await?;
        self.with_members(found).await
    }

    /// Public ones, the most used or the oldest first. Page 0 is the first.
    pub async fn collections(
        &self,
        making: Option<Making>,
        sort: Sort,
        page: u32,
    ) -> Result<Vec<Collection>, StorageError> {
        let rows = sqlx::query(select_collections!(
            "WHERE public = 1 AND ($1 = '' OR making = $1) \
             ORDER BY CASE WHEN $2 = 'popular' THEN use_count ELSE 0 END DESC, number \
             LIMIT $3 OFFSET $4"
        ));
        let rows = rows.bind(making.map_or("", Making::word));
        let rows = rows.bind(sort.word()).bind(PAGE as i64);
        let mut found: Vec<Collection> = all(rows.bind(offset(page)), &self.readers).await?;
        self.fill(&mut found).await?;
        Ok(found)
    }

    pub async fn create_collection(
        &self,
        collection: NewCollection,
    ) -> Result<Result<(), NotNamed>, StorageError> {
        self.change(collection).await
    }

    pub async fn change_collection(
        &self,
        id: Uuid,
        change: CollectionChange,
    ) -> Result<Result<(), NotNamed>, StorageError> {
        self.change(Changed { id, change }).await
    }

    /// Deletes a collection, not its styles. False if it did not exist.
    pub async fn delete_collection(&self, id: Uuid) -> Result<bool, StorageError> {
        self.change(Deleted(id)).await
    }

    async fn with_members(
        &self,
        found: Option<Collection>,
    ) -> Result<Option<Collection>, StorageError> {
        let mut found: Vec<_> = found.into_iter().collect();
        self.fill(&mut found).await?;
        Ok(found.pop())
    }

    /// Loads the members of these collections.
    async fn fill(&self, collections: &mut [Collection]) -> Result<(), StorageError> {
        if collections.is_empty() {
            return Ok(());
        }
        let places: Vec<_> = (1..=collections.len())
            .map(|place| format!("${place}"))
            .collect();
        let text = format!(
            "SELECT collection, styles.id, styles.name, owner, accounts.name AS owner_name \
             FROM collection_styles JOIN styles ON styles.id = style JOIN accounts ON accounts.id = owner \
             WHERE collection IN ({}) ORDER BY collection, place",
            places.join(", ")
        );
        let mut rows = sqlx::query(AssertSqlSafe(text));
        for collection in collections.iter() {
            rows = rows.bind(collection.id.to_string());
        }
        let mut members: HashMap<Uuid, Vec<Member>> = HashMap::new();
        for row in rows.fetch_all(&self.readers).await? {
            let of = id(&row, "collection")?;
            members.entry(of).or_default().push(Member::load(&row)?);
        }
        for collection in collections {
            collection.members = members.remove(&collection.id).unwrap_or_default();
        }
        Ok(())
    }
}

impl Change for NewCollection {
    type Answer = Result<(), NotNamed>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Self::Answer, StorageError>> {
        Box::pin(async move {
            let row = sqlx::query(
                "INSERT INTO collections (id, owner, making, name, info, public, use_count, created_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, 0, $7) ON CONFLICT (owner, name) DO NOTHING",
            );
            let row = row.bind(self.id.to_string()).bind(self.owner.0);
            let row = row.bind(self.making.word());
            let row = row.bind(without_zeros(&self.name));
            let row = row.bind(self.info.as_deref().map(without_zeros));
            let row = row.bind(i64::from(self.public)).bind(self.created_at.0);
            if let Err(not) = insert(row, connection).await? {
                return Ok(Err(not));
            }
            write_members(self.id, &self.members, connection).await?;
            Ok(Ok(()))
        })
    }
}

impl Change for Changed {
    type Answer = Result<(), NotNamed>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Self::Answer, StorageError>> {
        Box::pin(async move {
            let change = &self.change;
            let text = format!(
                "UPDATE collections SET name = COALESCE($2, name), info = COALESCE($3, info), \
                 public = COALESCE($4, public) {}",
                unless_taken("collections")
            );
            let row = sqlx::query(AssertSqlSafe(text)).bind(self.id.to_string());
            let row = row.bind(change.name.as_deref().map(without_zeros));
            let row = row.bind(change.info.as_deref().map(without_zeros));
            let row = row.bind(change.public.map(i64::from));
            if let Err(not) = update(row, "collections", self.id, connection).await? {
                return Ok(Err(not));
            }
            if let Some(members) = &change.members {
                write_members(self.id, members, connection).await?;
            }
            Ok(Ok(()))
        })
    }
}

impl Change for Deleted {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            write_members(self.0, &[], connection).await?;
            let gone = sqlx::query("DELETE FROM collections WHERE id = $1");
            let gone = gone.bind(self.0.to_string()).execute(connection).await?;
            Ok(gone.rows_affected() > 0)
        })
    }
}

/// Replaces the members. Deleted styles and duplicates are left out.
async fn write_members(
    collection: Uuid,
    members: &[Uuid],
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let id = collection.to_string();
    let old = sqlx::query("DELETE FROM collection_styles WHERE collection = $1");
    old.bind(&*id).execute(&mut *connection).await?;
    for (place, member) in members.iter().enumerate() {
        let new = sqlx::query(
            "INSERT INTO collection_styles (collection, style, place) \
             SELECT CAST($1 AS TEXT), id, CAST($3 AS BIGINT) FROM styles WHERE id = $2 \
             ON CONFLICT DO NOTHING",
        );
        let new = new.bind(&*id).bind(member.to_string()).bind(place as i64);
        new.execute(&mut *connection).await?;
    }
    Ok(())
}

impl Stored for Collection {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            id: id(row, "id")?,
            owner: AccountId(row.try_get("owner")?),
            making: making(row)?,
            name: row.try_get("name")?,
            info: row.try_get("info")?,
            public: row.try_get::<i64, _>("public")? != 0,
            use_count: row.try_get("use_count")?,
            members: Vec::new(),
        })
    }
}

impl Stored for Member {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            id: id(row, "id")?,
            name: row.try_get("name")?,
            owner: AccountId(row.try_get("owner")?),
            owner_name: row.try_get("owner_name")?,
        })
    }
}
