//! Kudos: prices and rewards of jobs, and the settlement of ended jobs.
//!
//! | file | decisions |
//! | --- | --- |
//! | `price` | the price of text, by tokens and model size |
//! | `sizes` | how large models are |
//! | `image`, `worth` | the price of an image, and the worth of an output of each kind |
//! | `interrogation` | the price of interrogations |
//! | `upfront` | which requests are paid before they run |
//! | `payer` | the account that pays for a request |
//! | `metering` | how many tokens are paid |
//! | `settlement` | the settled row of a job and its entries in the ledger |
//! | `posting` | entries without a job: transfers, awards, corrections |
//! | `escrow` | rewards of owners before they are trusted |
//! | `floor` | the forgiven part of charges below a balance's floor |
//! | `uptime` | rewards for uptime |
//! | `giving` | permission of transfers |
//!
//! These are plain values in and plain values out. [`books`] hands them to the store, and so does [`Giving`].

mod escrow;
mod floor;
mod giving;
mod image;
mod interrogation;
mod metering;
mod payer;
mod posting;
mod price;
mod settlement;
mod sizes;
mod upfront;
mod uptime;
mod worth;

#[cfg(test)]
mod tests;

pub use escrow::{escrow_of, owner_of, withheld};
pub use floor::{Fallen, forgive, forgiven};
pub use giving::{Gift, Giving, NotGiven};
pub use image::{Control, Drawing, Terms, activation_fee, agent_factor};
pub use interrogation::{form_charge, form_reward, tiles};
pub use payer::Payer;
pub use posting::{
    Cause, DONATED, GIFTED, MOST, MOST_CREATED, Posted, Posting, PostingId, RECEIVED,
};
pub use price::{FEE, estimate_text, price_text};
pub use settlement::{Entry, HOUSE, Reason, Settlement, State};
pub use sizes::Prices;
pub use upfront::{Crowd, Weighty, text_hold, text_needs_it};
pub use uptime::{Presence, UPTIME};

use std::sync::Arc;

use tracing::warn;

use super::dispatch::Facts;
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
