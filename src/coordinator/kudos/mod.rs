//! Kudos: what a job costs, who is paid for it, and how an ended job becomes a settled one.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `price` | what tokens of a model are worth |
//! | `metering` | how many tokens are paid |
//! | `settlement` | the settled row of a job and its entries in the ledger |
//! | `posting` | entries that are no job's: transfers, awards, corrections |
//!
//! These are plain values in and plain values out. [`books`] hands them to the store.

mod metering;
mod posting;
mod price;
mod settlement;

#[cfg(test)]
mod tests;

pub use posting::{Cause, MOST, Posted, Posting, PostingId};
pub use price::{FEE, Prices, price_text};
pub use settlement::{Entry, HOUSE, Reason, Settlement, State};

use std::sync::Arc;

use tracing::warn;

use super::storage::{StorageError, Store};
use super::switchboard::{Books, Unsettled};

/// The books of a store: where the switchboard writes down what has ended.
pub fn books(store: Store, prices: Prices) -> Books {
    let prices = Arc::new(prices);
    Books::new(move |facts, counted| {
        let settlement = Settlement::of(&facts, counted, &prices);
        let store = store.clone();
        async move {
            let job = settlement.job;
            let settled = store.settle(settlement).await;
            settled.map_err(|error| {
                // An outage is the store's to report, once.
                if let StorageError::Refused(_) = error {
                    warn!(job.id = %job, "job {job} could not be settled: {error}");
                }
                Unsettled
            })
        }
    })
}
