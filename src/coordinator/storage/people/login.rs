//! Creation of accounts: by a login elsewhere, or by an operator. Each begins at its floor.

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};

use crate::kudos::{Cause, Posting};
use crate::storage::keys::revoke_all;
use crate::storage::postings::post;
use crate::storage::values::storable;
use crate::storage::write::Change;
use crate::storage::{StorageError, Store};
use crate::values::{AccountKind, Roles};
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

/// A user logged in by another service.
#[derive(Debug, Clone)]
pub struct NewLogin {
    pub name: String,
    /// Login at the other service, which identifies the account.
    pub login: String,
    /// Sets the balance of the account, if given.
    pub kudos: Option<Kudos>,
    pub now: UnixMillis,
}

/// The account of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    pub account: AccountId,
    pub name: String,
    pub kudos: Kudos,
    /// The account was created now.
    pub is_new: bool,
}

/// The login of an account without one. Reserved, so no user can choose it.
const UNNAMED: &str = "UPDATE accounts SET login = 'user-' || CAST(id AS TEXT) WHERE id = $1";

impl Store {
    /// The account of a login, created if new and with its current name. Revokes the account's earlier keys.
    pub async fn log_in(&self, login: NewLogin) -> Result<LoggedIn, StorageError> {
        self.change(login).await
    }
}

impl Change for NewLogin {
    type Answer = LoggedIn;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<LoggedIn, StorageError>> {
        Box::pin(async move {
            let known = self.known(connection).await?;
            let account = match known {
                Some(account) => account,
                None => self.create(connection).await?,
            };
            let name = storable(&self.name);
            let named = sqlx::query("UPDATE accounts SET name = $1 WHERE id = $2");
            let named = named.bind(&*name).bind(account.0);
            named.execute(&mut *connection).await?;
            revoke_all(account, self.now, connection).await?;
            let kudos = set_balance(account, self.kudos, self.now, connection).await?;
            Ok(LoggedIn {
                account,
                name,
                kudos,
                is_new: known.is_none(),
            })
        })
    }
}

impl NewLogin {
    async fn known(
        &self,
        connection: &mut AnyConnection,
    ) -> Result<Option<AccountId>, StorageError> {
        let row = sqlx::query("SELECT account FROM people WHERE login = $1");
        let row = row
            .bind(storable(&self.login))
            .fetch_optional(connection)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.map(AccountId))
    }

    async fn create(&self, connection: &mut AnyConnection) -> Result<AccountId, StorageError> {
        let new = NewPerson {
            name: &storable(&self.name),
            login: None,
            roles: Roles::USER.with(Roles::WORKER_OWNER),
            known_as: Some(&self.login),
            now: self.now,
        };
        create_person(new, connection).await
    }
}

/// A new account.
#[derive(Debug, Clone, Copy)]
pub struct NewPerson<'a> {
    pub name: &'a str,
    /// Operators' name of the account; derived from its number if not given.
    pub login: Option<&'a str>,
    pub roles: Roles,
    /// Login at another service.
    pub known_as: Option<&'a str>,
    pub now: UnixMillis,
}

/// Creates an account with all its records.
pub async fn create_person(
    new: NewPerson<'_>,
    connection: &mut AnyConnection,
) -> Result<AccountId, StorageError> {
    let row = sqlx::query(
        "INSERT INTO accounts (name, login, roles, created_at) VALUES ($1, $2, $3, $4) RETURNING id",
    );
    let row = row.bind(new.name).bind(new.login);
    let row = row.bind(new.roles.to_string()).bind(new.now.0);
    let account = AccountId(row.fetch_one(&mut *connection).await?.try_get(0)?);
    if new.login.is_none() {
        let named = sqlx::query(UNNAMED).bind(account.0);
        named.execute(&mut *connection).await?;
    }
    let person = sqlx::query(
        "INSERT INTO people (account, login, worker_invited, public_workers, monthly_kudos, suspicion) \
         VALUES ($1, $2, 0, 0, 0, 0)",
    );
    let person = person.bind(account.0).bind(new.known_as.map(storable));
    person.execute(&mut *connection).await?;
    let kind = if new.known_as.is_some() {
        AccountKind::Known
    } else {
        AccountKind::Pseudonymous
    };
    open_balance(account, kind, new.now, connection).await?;
    Ok(account)
}

/// Gives a new account its floor as balance, paid by the house.
async fn open_balance(
    account: AccountId,
    kind: AccountKind,
    now: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let floor = kind.floor();
    let start = Posting::from_house(Cause::Start, account, floor, now);
    post(&start, connection).await?;
    let under = sqlx::query("UPDATE balances SET floor = $1 WHERE account = $2");
    under
        .bind(floor.0)
        .bind(account.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// The balance, after setting it if `wanted`.
async fn set_balance(
    account: AccountId,
    wanted: Option<Kudos>,
    now: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<Kudos, StorageError> {
    let row = sqlx::query("SELECT kudos FROM balances WHERE account = $1").bind(account.0);
    let row = row.fetch_optional(&mut *connection).await?;
    let kudos = Kudos(row.map_or(Ok(0), |row| row.try_get(0))?);
    let wanted = wanted.unwrap_or(kudos);
    if wanted != kudos {
        let missing = Kudos(wanted.0.saturating_sub(kudos.0));
        post(
            &Posting::from_house(Cause::Correction, account, missing, now),
            connection,
        )
        .await?;
    }
    Ok(wanted)
}
