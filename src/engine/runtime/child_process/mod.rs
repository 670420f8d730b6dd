//! This program once more, for work of a library that may not end: its process can be ended, and has limits on memory,
//! stack and time.
//!
//! | file | what it is |
//! | --- | --- |
//! | `process` | the child as its parent sees it: start, ask, find out why it ended |
//! | `frames` | how requests and replies cross a pipe |
//! | `limits` | what the child may use |

mod frames;
mod limits;
mod process;

pub use frames::{read, to_bytes, write_table};
pub use limits::{Watch, limit_memory, write_no_core};
pub use process::{ChildProcess, Death};
