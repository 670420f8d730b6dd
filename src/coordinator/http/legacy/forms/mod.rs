//! Questions about images: asked, looked at, answered.
//!
//! | file | what it is |
//! | --- | --- |
//! | `ask` | a request comes in |
//! | `look` | how its forms are doing, and what was found |
//! | `offered` | what a worker that comes can do |
//! | `work` | a worker comes for forms, and brings what it found |

mod ask;
mod look;
mod offered;
mod work;

pub use ask::ask;
pub use look::{cancel, status};
pub use work::{pop, submit};

use crate::requests::results::LINKS;
