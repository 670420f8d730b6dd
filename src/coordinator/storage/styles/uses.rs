//! Uses of styles: counted, and paid to their owners, in the transaction that accepts the request.

use sqlx::{AnyConnection, Row};

use crate::coordinator::kudos::{Cause, Posting};
use crate::coordinator::styles::{FEE, Use};
use crate::protocol::job::{AccountId, Kudos, UnixMillis};

use super::super::StorageError;
use super::super::postings::post;

/// The owner of a style is paid by whoever else uses it, as far as that one's floor allows, and by the house beyond
/// it: nobody is refused for the lack of a fee.
pub async fn write_use(
    used: &Use,
    asker: AccountId,
    at: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    count(used, connection).await?;
    if used.owner == asker {
        return Ok(());
    }
    let paid = payable(asker, connection).await?;
    let about = format!("style {}", used.style);
    if paid > Kudos(0) {
        let taken = Kudos(-paid.0);
        let charge = Posting::from_house(Cause::Request, asker, taken, at).about(&*about);
        post(&charge, connection).await?;
    }
    let earned = Posting::from_house(Cause::Style, used.owner, FEE, at).about(about);
    post(&earned, connection).await?;
    Ok(())
}

/// What was deleted since is counted nowhere.
async fn count(used: &Use, connection: &mut AnyConnection) -> Result<(), StorageError> {
    let style = sqlx::query("UPDATE styles SET use_count = use_count + 1 WHERE id = $1");
    let style = style.bind(used.style.to_string());
    style.execute(&mut *connection).await?;
    if let Some(collection) = used.collection {
        let count = sqlx::query("UPDATE collections SET use_count = use_count + 1 WHERE id = $1");
        let count = count.bind(collection.to_string());
        count.execute(connection).await?;
    }
    Ok(())
}

/// As much of the fee as the account has above its floor.
async fn payable(
    account: AccountId,
    connection: &mut AnyConnection,
) -> Result<Kudos, StorageError> {
    let row = sqlx::query("SELECT kudos, floor FROM balances WHERE account = $1");
    let row = row.bind(account.0).fetch_optional(connection).await?;
    let Some(row) = row else {
        return Ok(FEE);
    };
    let (kudos, floor): (i64, Option<i64>) = (row.try_get("kudos")?, row.try_get("floor")?);
    let above = floor.map_or(FEE.0, |floor| kudos.saturating_sub(floor));
    Ok(Kudos(above.clamp(0, FEE.0)))
}
