//! When the machine is its owner's alone.
//!
//! | file | what it is |
//! | --- | --- |
//! | `pause` | commands and rules in force, and what they come to |

mod pause;

pub use pause::{Availability, OwnerPause, PauseOrder};
