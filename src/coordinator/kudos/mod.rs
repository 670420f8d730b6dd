//! Kudos: prices and rewards of jobs, and the settlement of ended jobs.
//!
//! | file | decisions |
//! | --- | --- |
//! | `price` | the price of text, by tokens and model size |
//! | `sizes` | how large models are |
//! | `image`, `worth` | the price of an image, and the worth of an output of each kind |
//! | `interrogation` | the price of interrogations |
//! | `upfront` | which requests are paid before they run |
//! | `metering` | how many tokens are paid |
//! | `settlement` | the settled row of a job and its entries in the ledger |
//! | `posting` | entries without a job: transfers, awards, corrections |
//! | `escrow` | rewards of owners before they are trusted |
//! | `floor` | the forgiven part of charges below a balance's floor |
//! | `uptime` | rewards for uptime |
//! | `allowance` | monthly kudos of users |
//!
//! These are plain values in and plain values out: storage and settlements use them.

mod allowance;
mod escrow;
mod floor;
mod image;
mod interrogation;
mod metering;
mod posting;
mod price;
mod settlement;
mod sizes;
mod upfront;
mod uptime;
mod worth;

#[cfg(test)]
mod tests;

pub use allowance::allowance;
pub use escrow::{escrow_of, owner_of, withheld};
pub use floor::{Fallen, forgive, forgiven};
pub use image::{Control, Drawing, Terms, activation_fee, agent_factor};
pub use interrogation::{form_charge, form_reward, tiles};
pub use posting::{
    Cause, DONATED, GIFTED, MOST, MOST_CREATED, Posted, Posting, PostingId, RECEIVED,
};
pub use price::{FEE, estimate_text, price_text};
pub use settlement::{Entry, HOUSE, Reason, Settlement, State};
pub use sizes::Prices;
pub use upfront::{Crowd, Weighty, text_hold, text_needs_it};
pub use uptime::{Presence, UPTIME};
