//! Kudos holds: amounts kept until a request has ended, of balances for work paid upfront, of shared keys for every
//! request made with them. A held amount still belongs to its owner, but can be neither transferred nor held again.

use futures_util::future::BoxFuture;
use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Executor, Row};

use muster_protocol::job::{AccountId, Kudos, RequestId, SharedKeyId, UnixMillis};

use super::shared_keys::shared_key_id;
use super::write::Change;
use super::{StorageError, Store};

/// The source of held kudos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purse {
    /// The balance of an account above its floor.
    Account(AccountId),
    /// The rest of a shared key's budget.
    Key(SharedKeyId),
}

/// Held kudos of a request, which may have one hold of each kind of purse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub request: RequestId,
    pub of: Purse,
    pub amount: Kudos,
    pub at: UnixMillis,
}

#[derive(Debug)]
struct Release(RequestId);

/// The end of a request's job, with the number of jobs open until then.
#[derive(Debug)]
struct ReleaseShare {
    request: RequestId,
    open: i64,
}

#[derive(Debug)]
pub struct OwnedHold {
    pub hold: Hold,
    pub owner: i64,
}

/// Releases an owner's holds from before this moment whose request does not exist.
#[derive(Debug)]
struct ReleaseLost {
    before: UnixMillis,
    owner: i64,
}

/// A released hold: its purse and amount.
struct Held(Purse, Kudos);

/// The SQL for holds of one kind of purse.
struct Book {
    keep: &'static str,
    note: &'static str,
    of_request: &'static str,
    lessen: &'static str,
    delete: &'static str,
    delete_lost: &'static str,
    give_back: &'static str,
    purse: fn(&AnyRow) -> Result<Purse, StorageError>,
}

/// `$enough` is the SQL condition that a purse has `$1` beside its holds.
macro_rules! book {
    ($holds:literal of $purse:literal in $purses:literal by $id:literal, if $enough:literal, $read:expr) => {
        Book {
            keep: concat!(
                "UPDATE ",
                $purses,
                " SET held = held + $1 WHERE ",
                $id,
                " = $2 AND ",
                $enough
            ),
            note: concat!(
                "INSERT INTO ",
                $holds,
                " (request, ",
                $purse,
                ", amount, at, owner) VALUES ($1, $2, $3, $4, $5)"
            ),
            of_request: concat!(
                "SELECT ",
                $purse,
                ", amount FROM ",
                $holds,
                " WHERE request = $1"
            ),
            lessen: concat!(
                "UPDATE ",
                $holds,
                " SET amount = amount - $1 WHERE request = $2"
            ),
            delete: concat!(
                "DELETE FROM ",
                $holds,
                " WHERE request = $1 RETURNING ",
                $purse,
                ", amount"
            ),
            delete_lost: concat!(
                "DELETE FROM ",
                $holds,
                " WHERE at < $1 AND ($2 = 0 OR owner = $2) ",
                "AND NOT EXISTS (SELECT 1 FROM requests WHERE requests.id = request) ",
                "RETURNING ",
                $purse,
                ", amount"
            ),
            give_back: concat!(
                "UPDATE ",
                $purses,
                " SET held = held - $1 WHERE ",
                $id,
                " = $2"
            ),
            purse: $read,
        }
    };
}

#[rustfmt::skip]
const OF_ACCOUNTS: Book = book!(
    "holds" of "account" in "balances" by "account", if "kudos - held - $1 >= COALESCE(floor, 0)",
    |row| Ok(Purse::Account(AccountId(row.try_get(0)?)))
);
#[rustfmt::skip]
const OF_KEYS: Book = book!(
    "key_holds" of "shared_key" in "shared_keys" by "id", if "(budget IS NULL OR budget - held >= $1)",
    |row| Ok(Purse::Key(shared_key_id(row.try_get(0)?)?))
);
const BOOKS: [Book; 2] = [OF_ACCOUNTS, OF_KEYS];

impl Store {
    /// False if the purse has too little beside its other holds.
    pub async fn hold(&self, hold: Hold) -> Result<bool, StorageError> {
        let owner = self.owner();
        self.change(OwnedHold { hold, owner }).await
    }

    /// Releases the hold of a request, if there is one.
    pub async fn release(&self, request: RequestId) -> Result<(), StorageError> {
        self.change(Release(request)).await
    }

    /// Releases the share of one ended job, of `open`, from an account's hold, since its price is charged by now. A
    /// hold of a key shrinks at settlement instead, and its rest is released with the request.
    pub async fn release_share(&self, request: RequestId, open: usize) -> Result<(), StorageError> {
        let open = i64::try_from(open).unwrap_or(i64::MAX);
        self.change(ReleaseShare { request, open }).await
    }

    /// Releases holds of requests that no longer exist or were never stored. Returns their number.
    pub async fn release_lost(&self, before: UnixMillis) -> Result<usize, StorageError> {
        let owner = self.owner();
        self.change(ReleaseLost { before, owner }).await
    }

    /// Requests with holds.
    pub async fn holding(&self) -> Result<Vec<RequestId>, StorageError> {
        let rows = sqlx::query("SELECT request FROM holds UNION SELECT request FROM key_holds");
        let rows = rows.fetch_all(&self.readers).await?;
        let id = |row: &AnyRow| {
            let text: String = row.try_get(0)?;
            text.parse().map(RequestId).map_err(|_| {
                StorageError::Broken(format!("a kudos hold has the invalid request id {text:?}"))
            })
        };
        rows.iter().map(id).collect()
    }

    /// Amount held of an account.
    pub async fn held(&self, account: AccountId) -> Result<Kudos, StorageError> {
        let row = sqlx::query("SELECT held FROM balances WHERE account = $1").bind(account.0);
        let row = row.fetch_optional(&self.readers).await?;
        Ok(Kudos(row.map_or(Ok(0), |row| row.try_get(0))?))
    }
}

impl Purse {
    fn book(self) -> Book {
        match self {
            Self::Account(_) => OF_ACCOUNTS,
            Self::Key(_) => OF_KEYS,
        }
    }

    fn bind(self, query: Statement) -> Statement {
        match self {
            Self::Account(account) => query.bind(account.0),
            Self::Key(key) => query.bind(key.to_string()),
        }
    }
}

type Statement = Query<'static, Any, AnyArguments>;

impl Change for OwnedHold {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let hold = &self.hold;
            let book = hold.of.book();
            let kept = sqlx::query(book.keep).bind(hold.amount.0);
            let kept = hold.of.bind(kept);
            if kept.execute(&mut *connection).await?.rows_affected() == 0 {
                return Ok(false);
            }
            let row = sqlx::query(book.note).bind(hold.request.to_string());
            let row = hold.of.bind(row).bind(hold.amount.0).bind(hold.at.0);
            row.bind(self.owner).execute(connection).await?;
            Ok(true)
        })
    }
}

impl Change for Release {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            for book in BOOKS {
                let gone = sqlx::query(book.delete).bind(self.0.to_string());
                let gone = book.read(gone, connection).await?;
                give_back(&gone, connection).await?;
            }
            Ok(())
        })
    }
}

impl Change for ReleaseShare {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            let share = |kept: Kudos| Kudos(kept.0 / self.open.max(1));
            OF_ACCOUNTS.lessen(self.request, share, connection).await
        })
    }
}

/// Reduces a request's hold of a shared key. The caller updates the key itself.
pub async fn spend_hold(
    request: RequestId,
    spent: Kudos,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let less = sqlx::query(OF_KEYS.lessen).bind(spent.0);
    connection.execute(less.bind(request.to_string())).await?;
    Ok(())
}

impl Change for ReleaseLost {
    type Answer = usize;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<usize, StorageError>> {
        Box::pin(async move {
            let mut lost = 0;
            for book in BOOKS {
                let gone = sqlx::query(book.delete_lost).bind(self.before.0);
                let gone = gone.bind(self.owner);
                let gone = book.read(gone, connection).await?;
                give_back(&gone, connection).await?;
                lost += gone.len();
            }
            Ok(lost)
        })
    }
}

impl Book {
    /// Reduces a request's hold.
    async fn lessen(
        &self,
        request: RequestId,
        by: impl Fn(Kudos) -> Kudos,
        connection: &mut AnyConnection,
    ) -> Result<(), StorageError> {
        let held = sqlx::query(self.of_request).bind(request.to_string());
        let mut held = self.read(held, connection).await?;
        for Held(_, amount) in &mut held {
            *amount = by(*amount);
            let less = sqlx::query(self.lessen).bind(amount.0);
            connection.execute(less.bind(request.to_string())).await?;
        }
        give_back(&held, connection).await
    }

    async fn read(
        &self,
        query: Statement,
        connection: &mut AnyConnection,
    ) -> Result<Vec<Held>, StorageError> {
        let rows = query.fetch_all(connection).await?;
        let held = |row: &AnyRow| Ok(Held((self.purse)(row)?, Kudos(row.try_get(1)?)));
        rows.iter().map(held).collect()
    }
}

async fn give_back(held: &[Held], connection: &mut AnyConnection) -> Result<(), StorageError> {
    for Held(purse, amount) in held {
        let less = sqlx::query(purse.book().give_back).bind(amount.0);
        connection.execute(purse.bind(less)).await?;
    }
    Ok(())
}
