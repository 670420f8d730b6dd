//! A child process of the same program, for library calls that may not end: the parent can kill it, and limits on
//! memory, stack and time and a seccomp filter apply.
//!
//! | file | content |
//! | --- | --- |
//! | `process` | the parent's handle: start, request, cause of death |
//! | `frames` | frames of requests and replies in a pipe |
//! | `limits` | limits on memory, stack and time |
//! | `confine` | the seccomp filter |

mod confine;
mod frames;
mod limits;
mod process;

pub use confine::confine;
pub use frames::{read, to_bytes, write_table};
pub use limits::{Watch, limit_memory, write_no_core};
pub use process::{ChildProcess, Death, Killer, THIS_PROGRAM};
