//! Settlements: ended jobs on their way from the queue to the store.
//!
//! | file | contents |
//! | --- | --- |
//! | `lost` | holds whose jobs are gone |

mod lost;

pub use lost::release_lost;

use std::sync::Arc;

use tracing::warn;

use super::dispatch::Facts;
use super::kudos::{Prices, Settlement};
use super::storage::{StorageError, Store};
use super::switchboard::{Books, Unsettled};
use muster_protocol::job::AccountId;

/// Further work at the settlement of a job.
pub type Aside = Box<dyn FnOnce() + Send>;

/// The settlement of ended jobs in a store, for the switchboard.
///
/// Half of an untrusted owner's reward goes to escrow.
pub fn books(
    store: Store,
    prices: Arc<Prices>,
    is_trusted: impl Fn(AccountId) -> bool + Send + Sync + 'static,
    aside: impl Fn(&Facts, &Settlement) -> Aside + Send + Sync + 'static,
) -> Books {
    Books::new(move |facts, counted| {
        let settlement = Settlement::of(&facts, counted, &prices).keeping_back(&is_trusted);
        let aside = aside(&facts, &settlement);
        let store = store.clone();
        async move {
            let job = settlement.job;
            let reward = store.settle(settlement).await.map_err(|error| {
                // The store logs outages itself, once.
                if let StorageError::Refused(_) = error {
                    warn!(job.id = %job, "settling job {job} failed: {error}");
                }
                match error {
                    StorageError::Full => Unsettled::Full,
                    _ => Unsettled::Unknown,
                }
            })?;
            aside();
            Ok(reward)
        }
    })
}
