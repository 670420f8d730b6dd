//! Kudos: what a job costs, who is paid for it, and how an ended job becomes a settled one.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `price` | what tokens of a model are worth |
//! | `metering` | how many tokens are paid |
//! | `settlement` | the settled row of a job and its entries in the ledger |
//!
//! Everything here is a plain value in and a plain value out; `storage` writes it down.

mod metering;
mod price;
mod settlement;

#[cfg(test)]
mod tests;

pub use metering::{Counted, Counter};
pub use price::{FEE, Prices, price_text};
pub use settlement::{Entry, HOUSE, Reason, Settlement, State};
