//! What shared keys pay: for requests where they are accepted, for jobs where they are settled. A key pays no more than
//! is left of its budget beside what is kept of it for other requests. What is charged beyond that the house pays, as it
//! does below a floor.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Executor, Row};

use crate::kudos::{Entry, forgive};
use muster_protocol::job::{AccountId, Kudos, RequestId, SharedKeyId, UnixMillis};

use super::entries::Booked;
use super::holds::{Hold, OwnedHold, Purse, spend_hold};
use super::write::Change;
use super::{StorageError, Store};

/// What a job or a request has cost that was asked for with a key.
pub struct Charge<'a> {
    pub key: SharedKeyId,
    pub request: RequestId,
    pub account: AccountId,
    pub amount: Kudos,
    /// Under which it stands in the ledger.
    pub booked: &'a dyn Booked,
}

/// What is left of a key, to be kept for a request that may cost more.
#[derive(Debug)]
struct Rest {
    key: SharedKeyId,
    request: RequestId,
    most: Kudos,
    at: UnixMillis,
    owner: i64,
}

/// What a key has; without a budget there is no end of it.
struct Means {
    budget: Option<i64>,
    held: i64,
}

/// What is taken of a key.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    paid: i64,
    /// Of that, what was kept for the requests that have cost it.
    of_kept: i64,
}

impl Store {
    /// Keeps of a key what is left of it beside what is held already, and no more than this: whether there was anything.
    pub async fn hold_rest(
        &self,
        key: SharedKeyId,
        request: RequestId,
        most: Kudos,
        at: UnixMillis,
    ) -> Result<bool, StorageError> {
        let rest = Rest {
            key,
            request,
            most,
            at,
            owner: self.owner(),
        };
        self.change(rest).await
    }
}

/// Takes from the keys what they have; the entries by which the house pays for the rest.
pub async fn spend<'a>(
    charges: Vec<Charge<'a>>,
    connection: &mut AnyConnection,
) -> Result<Vec<(&'a dyn Booked, Entry)>, StorageError> {
    // In the order of the keys, as everybody locks them.
    let mut by_key = BTreeMap::<SharedKeyId, BTreeMap<RequestId, Vec<Charge<'a>>>>::new();
    for charge in charges {
        let of_key = by_key.entry(charge.key).or_default();
        of_key.entry(charge.request).or_default().push(charge);
    }
    let mut forgiven = Vec::new();
    for (key, requests) in by_key {
        let mut means = means(key, connection).await?;
        let mut spent = Spent::default();
        for (request, charges) in requests {
            let asked = charges.iter().map(|charge| charge.amount.0).sum();
            let taken = take(means.as_mut(), request, asked, connection).await?;
            spent.add(taken);
            forgiven.extend(beyond(&charges, taken.paid));
        }
        if means.is_some() {
            write_spent(key, spent, connection).await?;
        }
    }
    Ok(forgiven)
}

/// For one request as much of what is asked as its key can pay, which is kept for the request no more.
async fn take(
    means: Option<&mut Means>,
    request: RequestId,
    asked: i64,
    connection: &mut AnyConnection,
) -> Result<Spent, StorageError> {
    let kept = kept_for(request, connection).await?;
    let left = match &means {
        Some(means) => means.left().map(|left| left + kept.unwrap_or(0)),
        // Of a key that was taken back since there is what is kept; where nothing is, it had no end.
        None => kept,
    };
    let paid = left.map_or(asked, |left| asked.min(left.max(0)));
    let taken = Spent {
        paid,
        of_kept: kept.map_or(0, |kept| kept.min(paid)),
    };
    if taken.of_kept > 0 {
        spend_hold(request, Kudos(taken.of_kept), connection).await?;
    }
    if let Some(means) = means {
        means.lose(taken);
    }
    Ok(taken)
}

/// What the house pays of these charges, of which so much is paid: the first ones first.
fn beyond<'a>(charges: &[Charge<'a>], mut paid: i64) -> Vec<(&'a dyn Booked, Entry)> {
    let mut forgiven = Vec::new();
    for charge in charges {
        let share = charge.amount.0.min(paid);
        paid -= share;
        let rest = Kudos(charge.amount.0 - share);
        if rest.0 > 0 {
            let entries = forgive(charge.account, rest);
            forgiven.extend(entries.map(|entry| (charge.booked, entry)));
        }
    }
    forgiven
}

async fn write_spent(
    key: SharedKeyId,
    spent: Spent,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    if spent.paid == 0 {
        return Ok(());
    }
    let row = sqlx::query(
        "UPDATE shared_keys SET utilized = utilized + $1, budget = budget - $1, held = held - $2 \
         WHERE id = $3",
    );
    let row = row.bind(spent.paid).bind(spent.of_kept);
    connection.execute(row.bind(key.to_string())).await?;
    Ok(())
}

/// Nothing, where the key is no more. Until the transaction ends nobody else changes it.
async fn means(
    key: SharedKeyId,
    connection: &mut AnyConnection,
) -> Result<Option<Means>, StorageError> {
    let row = "UPDATE shared_keys SET held = held WHERE id = $1 RETURNING budget, held";
    let rows = sqlx::query(row).bind(key.to_string());
    let rows = rows.fetch_all(connection).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    Ok(Some(Means {
        budget: row.try_get("budget")?,
        held: row.try_get("held")?,
    }))
}

/// What is kept of its key for a request, if anything ever was.
async fn kept_for(
    request: RequestId,
    connection: &mut AnyConnection,
) -> Result<Option<i64>, StorageError> {
    let row = sqlx::query("SELECT amount FROM key_holds WHERE request = $1");
    let row = row.bind(request.to_string());
    let row = row.fetch_optional(connection).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

impl Means {
    /// Beside what is kept of it.
    fn left(&self) -> Option<i64> {
        self.budget.map(|budget| budget - self.held)
    }

    fn lose(&mut self, spent: Spent) {
        self.budget = self.budget.map(|budget| budget - spent.paid);
        self.held -= spent.of_kept;
    }
}

impl Spent {
    fn add(&mut self, more: Self) {
        self.paid += more.paid;
        self.of_kept += more.of_kept;
    }
}

impl Change for Rest {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let Some(means) = means(self.key, connection).await? else {
                return Ok(false);
            };
            let most = self.most.0;
            let amount = means.left().map_or(most, |left| left.min(most));
            if amount <= 0 {
                return Ok(false);
            }
            let hold = Hold {
                request: self.request,
                of: Purse::Key(self.key),
                amount: Kudos(amount),
                at: self.at,
            };
            let owner = self.owner;
            OwnedHold { hold, owner }.apply(connection).await
        })
    }
}
