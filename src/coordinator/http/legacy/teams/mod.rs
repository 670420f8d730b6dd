//! Teams of workers.
//!
//! | file | contents |
//! | --- | --- |
//! | `list` | all teams, or one by id |
//! | `change` | create, change and delete |

mod change;
mod list;

pub use change::{change, create, delete};
pub use list::{list, show};

use crate::http::horde_refusal::Refused;
use crate::teams::NotTeamed;

impl From<NotTeamed> for Refused {
    fn from(not: NotTeamed) -> Self {
        match not {
            NotTeamed::Refused(refusal) => refusal.into(),
            NotTeamed::Storage(error) => error.into(),
        }
    }
}
