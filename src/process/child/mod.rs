//! This program once more, for work of a library that may not end: its process can be ended, and has limits on memory,
//! stack and time, and no rights.
//!
//! | file | what it is |
//! | --- | --- |
//! | `process` | the child as its parent sees it: start, ask, find out why it ended |
//! | `frames` | how requests and replies cross a pipe |
//! | `limits` | what the child may use |
//! | `confine` | what the child may ask of the system |

mod confine;
mod frames;
mod limits;
mod process;

pub use confine::confine;
pub use frames::{read, to_bytes, write_table};
pub use limits::{Watch, limit_memory, write_no_core};
pub use process::{ChildProcess, Death, Killer, THIS_PROGRAM};
