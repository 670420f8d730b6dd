//! Uses of styles: counted, and paid to their owners, in the transaction that accepts the request.

use sqlx::AnyConnection;

use crate::coordinator::kudos::{Cause, Posting};
use crate::coordinator::styles::{FEE, Use};
use crate::protocol::job::{AccountId, UnixMillis};

use super::super::StorageError;
use super::super::postings::post;

/// The owner of a style is paid when somebody else uses it. Whoever does pays as much with the fee of the request.
pub async fn write_use(
    used: &Use,
    asker: AccountId,
    at: UnixMillis,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    count(used, connection).await?;
    if used.owner != asker {
        let about = format!("style {}", used.style);
        let earned = Posting::from_house(Cause::Style, used.owner, FEE, at).about(about);
        post(&earned, connection).await?;
    }
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
