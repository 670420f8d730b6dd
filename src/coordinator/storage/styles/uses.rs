//! Uses of styles: counted, and paid to the owners, in the transaction that accepts the request.

use sqlx::AnyConnection;

use crate::kudos::{Cause, Posting};
use crate::values::styles::{FEE, Use};
use muster_protocol::job::Kudos;

use super::super::StorageError;
use super::super::fees::Fee;
use super::super::postings::post;

/// Pays the owner of a style for another user's use, from the request's fee, of which `left` is unspent.
pub async fn write_use(
    used: &Use,
    fee: &Fee,
    left: Kudos,
    connection: &mut AnyConnection,
) -> Result<Kudos, StorageError> {
    count(used, connection).await?;
    if used.owner == fee.account || left.0 <= 0 {
        return Ok(Kudos(0));
    }
    let (about, amount) = (format!("style {}", used.style), FEE.min(left));
    let earned = Posting::from_house(Cause::Style, used.owner, amount, fee.at).about(about);
    post(&earned, connection).await?;
    Ok(amount)
}

/// Uses of deleted styles are not counted.
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
