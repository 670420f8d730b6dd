//! What requests to `/v1` cost in money. Kudos are another currency: `kudos`.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `amount` | an amount of money in micro-USD |
//! | `price_book` | the prices of models, by any of their names |

mod amount;
mod price_book;

pub use amount::MicroUsd;
pub use price_book::{PriceBook, Rates};
