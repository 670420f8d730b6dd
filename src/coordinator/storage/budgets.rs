//! Charges to shared keys: request fees when a request is accepted, job prices when a job is settled. A key pays at
//! most its budget less the holds of other requests. The house pays the rest, as it does below an account's floor.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Executor, Row};

use crate::kudos::{Entry, forgive};
use muster_protocol::job::{AccountId, Kudos, RequestId, SharedKeyId, UnixMillis};

use super::entries::Booked;
use super::holds::{Hold, OwnedHold, Purse, spend_hold};
use super::write::Change;
use super::{StorageError, Store};

/// A charge of a job or a request to its shared key.
pub struct Charge<'a> {
    pub key: SharedKeyId,
    pub request: RequestId,
    pub account: AccountId,
    pub amount: Kudos,
    /// The kind of the ledger entries.
    pub booked: &'a dyn Booked,
}

/// A hold of a key's remaining budget, for a request whose price may exceed it.
#[derive(Debug)]
struct Rest {
    key: SharedKeyId,
    request: RequestId,
    most: Kudos,
    at: UnixMillis,
    owner: i64,
}

/// The budget of a key and the amount held of it; `budget` is `None` if unlimited.
struct Means {
    budget: Option<i64>,
    held: i64,
}

/// Amounts taken from a key.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    paid: i64,
    /// The part taken from holds of the charged requests.
    of_kept: i64,
}

impl Store {
    /// Holds the rest of a key's budget, at most `most`. False if the budget is exhausted.
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

/// Charges the keys. Returns the entries by which the house pays the rest.
pub async fn spend<'a>(
    charges: Vec<Charge<'a>>,
    connection: &mut AnyConnection,
) -> Result<Vec<(&'a dyn Booked, Entry)>, StorageError> {
    // In the order of the keys: every transaction locks them in the same order, which prevents deadlocks.
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

/// Takes as much of a request's charge as its key can pay, from the request's hold first.
async fn take(
    means: Option<&mut Means>,
    request: RequestId,
    asked: i64,
    connection: &mut AnyConnection,
) -> Result<Spent, StorageError> {
    let kept = kept_for(request, connection).await?;
    let left = match &means {
        Some(means) => means.left().map(|left| left + kept.unwrap_or(0)),
        // A key deleted since then pays from the hold; without a hold its budget was unlimited.
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

/// The house's share of these charges after `paid`, which covers the first ones first.
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

/// The key's budget, `None` if the key was deleted. Locks the row until the transaction ends.
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

/// The hold for a request, `None` if there never was one.
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
    /// The budget less all holds.
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
