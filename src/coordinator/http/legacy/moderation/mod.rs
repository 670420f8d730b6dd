//! What moderators do: filters and timeouts. And what both do to requests at the door.
//!
//! | file | what it is |
//! | --- | --- |
//! | `filters` | `/filters`: made, tried, read, changed, deleted |
//! | `operations` | `/operations`: addresses that are kept out |
//! | `door` | what stands at the door of a request |

mod door;
mod filters;
mod operations;

pub use door::Door;
pub use filters::{change, list, make, read, regexes, remove, try_out};
pub use operations::{around, block, block_worker, blocked, unblock, unblock_worker};
