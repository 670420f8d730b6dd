//! Moderation: filters and timeouts, and their checks of requests.
//!
//! | file | contents |
//! | --- | --- |
//! | `filters` | `/filters`: create, test, read, change, delete |
//! | `operations` | `/operations`: blocked addresses |
//! | `door` | the checks of a request |

mod door;
mod filters;
mod operations;

pub use door::Door;
pub use filters::{change, list, make, read, regexes, remove, try_out};
pub use operations::{around, block, block_worker, blocked, unblock, unblock_worker};
