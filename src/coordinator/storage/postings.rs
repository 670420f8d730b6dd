//! Postings: balanced entries without a job. A posting is written as a whole or answered with a reason; a refusal is an
//! answer and fails no other write of the batch.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Executor, Row};

use crate::kudos::{Cause, Posted, Posting};
use muster_protocol::job::{AccountId, Kudos, UnixMillis};

use super::entries::{LEDGER, sums};
use super::script::insert;
use super::values::{Values, storable, without_zeros};
use super::write::Change;
use super::{StorageError, Store};

impl Store {
    /// Moves kudos between accounts.
    pub async fn post(&self, posting: Posting) -> Result<Posted, StorageError> {
        self.change(posting).await
    }

    /// The outcome of an earlier posting with the same idempotency key.
    pub async fn posted_before(&self, posting: &Posting) -> Result<Option<Posted>, StorageError> {
        match posting.once {
            Some(_) => earlier(posting, &mut *self.readers.acquire().await?).await,
            None => Ok(None),
        }
    }

    /// Whether one user has sent another kudos after this time.
    pub async fn has_given(
        &self,
        from: AccountId,
        to: AccountId,
        since: UnixMillis,
    ) -> Result<bool, StorageError> {
        let count = sqlx::query(
            "SELECT COUNT(*) FROM postings WHERE at > $1 AND cause IN ($2, $3) \
             AND (about = $4 OR about LIKE $5)",
        );
        let about = format!("{} to {}", from.0, to.0);
        let count = count
            .bind(since.0)
            .bind(Cause::Transfer.word())
            .bind(Cause::Donation.word())
            .bind(about.clone())
            .bind(format!("{about} by %"));
        let count: i64 = count.fetch_one(&self.readers).await?.try_get(0)?;
        Ok(count > 0)
    }

    /// Lifetime sums per cause of an account outside of jobs, negative if it paid; gifts given and received are
    /// separate.
    pub async fn tallies(
        &self,
        account: AccountId,
    ) -> Result<HashMap<String, Kudos>, StorageError> {
        let rows = sqlx::query("SELECT cause, kudos FROM tallies WHERE account = $1");
        let rows = rows.bind(account.0).fetch_all(&self.readers).await?;
        let tally = |row: &sqlx::any::AnyRow| {
            Ok::<_, sqlx::Error>((row.try_get(0)?, Kudos(row.try_get(1)?)))
        };
        Ok(rows.iter().map(tally).collect::<Result<_, _>>()?)
    }
}

impl Change for Posting {
    type Answer = Posted;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Posted, StorageError>> {
        Box::pin(post(self, connection))
    }
}

/// Posts within another change.
pub async fn post(
    posting: &Posting,
    connection: &mut AnyConnection,
) -> Result<Posted, StorageError> {
    if !posting.is_sound() {
        let what = posting.terms();
        return Err(StorageError::Refused(format!(
            "ledger entries do not balance: {what}"
        )));
    }
    if let Some(earlier) = earlier(posting, connection).await? {
        return Ok(earlier);
    }
    if !change_balances(posting, connection).await? {
        return Ok(Posted::NotEnough);
    }
    append(posting, connection).await?;
    Ok(Posted::Done)
}

/// The earlier outcome under the same idempotency key.
async fn earlier(
    posting: &Posting,
    connection: &mut AnyConnection,
) -> Result<Option<Posted>, StorageError> {
    let Some(once) = &posting.once else {
        return Ok(None);
    };
    let row = sqlx::query("SELECT terms FROM postings WHERE once = $1");
    let row = row
        .bind(without_zeros(once))
        .fetch_optional(connection)
        .await?;
    let terms: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
    Ok(
        terms.map(|terms| match terms == without_zeros(&posting.terms()) {
            true => Posted::Already,
            false => Posted::Conflict,
        }),
    )
}

/// False if an account has too little; nothing is changed then.
async fn change_balances(
    posting: &Posting,
    connection: &mut AnyConnection,
) -> Result<bool, StorageError> {
    connection.execute("SAVEPOINT posting").await?;
    // In the order of account ids: every transaction locks them in the same order, which prevents deadlocks.
    for (account, sum) in sums(posting.moves.iter().copied()) {
        if !change_balance(account, sum, posting.floored.contains(&account), connection).await? {
            connection.execute("ROLLBACK TO SAVEPOINT posting").await?;
            return Ok(false);
        }
    }
    connection.execute("RELEASE SAVEPOINT posting").await?;
    Ok(true)
}

async fn change_balance(
    account: AccountId,
    sum: i64,
    floored: bool,
    connection: &mut AnyConnection,
) -> Result<bool, StorageError> {
    let begin =
        "INSERT INTO balances (account, kudos) VALUES ($1, 0) ON CONFLICT (account) DO NOTHING";
    sqlx::query(begin)
        .bind(account.0)
        .execute(&mut *connection)
        .await?;
    // The floor of an account without one is zero.
    let changed = match floored {
        false => "UPDATE balances SET kudos = kudos + $1 WHERE account = $2",
        true => {
            "UPDATE balances SET kudos = kudos + $1 \
             WHERE account = $2 AND kudos + $1 - held >= COALESCE(floor, 0)"
        }
    };
    let changed = sqlx::query(changed).bind(sum).bind(account.0);
    Ok(changed.execute(connection).await?.rows_affected() > 0)
}

/// Inserts the posting's row, its entries, and its tallies per cause.
async fn append(posting: &Posting, connection: &mut AnyConnection) -> Result<(), StorageError> {
    let row = sqlx::query(
        "INSERT INTO postings (id, cause, about, once, terms, at) VALUES ($1, $2, $3, $4, $5, $6)",
    );
    let row = row
        .bind(posting.id.0.to_string())
        .bind(posting.cause.word())
        .bind(storable(&posting.about))
        .bind(posting.once.as_deref().map(without_zeros))
        .bind(without_zeros(&posting.terms()))
        .bind(posting.at.0);
    row.execute(&mut *connection).await?;
    let entries: Vec<_> = posting
        .moves
        .iter()
        .map(|entry| (posting, *entry))
        .collect();
    insert(&LEDGER, &entries, entry_row, connection).await?;
    for (account, sum) in sums(posting.moves.iter().copied()) {
        tally(account, posting.cause.tally(Kudos(sum)), sum, connection).await?;
    }
    Ok(())
}

async fn tally(
    account: AccountId,
    cause: &str,
    sum: i64,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let tally = sqlx::query(
        "INSERT INTO tallies (account, cause, kudos) VALUES ($1, $2, $3) \
         ON CONFLICT (account, cause) DO UPDATE SET kudos = tallies.kudos + excluded.kudos",
    );
    let tally = tally.bind(account.0).bind(cause.to_owned()).bind(sum);
    tally.execute(connection).await?;
    Ok(())
}

fn entry_row((posting, (account, amount)): &(&Posting, (AccountId, Kudos)), values: &mut Values) {
    values.text(&posting.id.0.to_string());
    values.number(account.0);
    values.maybe(None);
    values.text(posting.cause.word());
    values.number(amount.0);
    values.number(posting.at.0);
}
