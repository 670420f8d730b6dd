//! Interrogation requests: questions about images.
//!
//! | file | contents |
//! | --- | --- |
//! | `ask` | creating a request |
//! | `look` | status and results |
//! | `offered` | capabilities of a polling worker |
//! | `work` | pop and submit |

mod ask;
mod look;
mod offered;
mod work;

pub use ask::ask;
pub use look::{cancel, status};
pub use work::{pop, submit};

use crate::requests::results::LINKS;
