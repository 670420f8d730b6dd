//! Prices of `/v1` requests in money. Kudos are another currency: `kudos`.
//!
//! | file | contents |
//! | --- | --- |
//! | `price_book` | the prices of models, by any of their names |
//! | `charging` | which accounts pay |
//! | `funds` | the funds of an account, and the order in which they are spent |
//!
//! Before a job is queued, the most that it may cost is held (`storage::credits`). The transaction that settles the job
//! turns the hold into its cost.

mod charging;
mod funds;
mod price_book;

pub use charging::Charging;
pub use funds::Funds;
pub use muster_protocol::job::{JobPrice, MicroUsd};
pub use price_book::{ModelRates, PriceBook, modality};
