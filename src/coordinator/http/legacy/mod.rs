//! `/api/v2`: requests that are polled for, and workers that poll. On the same queue as every other door.
//!
//! | file | what it is |
//! | --- | --- |
//! | `refused` | refusals in the words of this API |
//! | `asked` | what stands in a URL |
//! | `body` | what was sent with it, and the memory that takes |
//! | `mask`, `headers` | `X-Fields` on whatever is answered, and the headers of it |
//! | `text` | text requests: asked, looked at, cancelled |
//! | `sent` | what was sent, for whoever sent it |
//! | `streamed` | the same for a client that would rather listen than ask again |
//! | [`images`] | images, and the workers that draw them |
//! | [`forms`] | questions about images |
//! | `requested` | what all requests have in common at the door |
//! | `webhook` | where a client wants to be called |
//! | `paying` | what they cost before they are made |
//! | `progress` | how a request is doing |
//! | `pop`, `submit` | text workers: what they are given, what they bring |
//! | `people` | users |
//! | [`styles`] | styles and collections |
//! | `rigs`, [`teams`] | workers for people, and teams of them |
//! | `moderation` | filters, timeouts, and what both do at the door |
//! | `kudos`, `sharedkeys` | kudos given, and keys that are handed to others |
//! | `service` | the service about itself |
//! | [`swagger`] | this API for programs and for people |

mod asked;
mod body;
pub mod forms;
mod headers;
pub mod images;
pub mod kudos;
mod mask;
pub mod moderation;
mod paying;
mod people;
mod pop;
mod progress;
mod refused;
mod requested;
pub mod rigs;
mod sent;
pub mod service;
pub mod sharedkeys;
mod streamed;
pub mod styles;
mod submit;
pub mod swagger;
pub mod teams;
mod text;
mod webhook;

pub use headers::dress;
pub use mask::mask;
pub use people::{
    find_user, leave, list as list_users, modify as modify_user, show as show_user, try_out,
};
pub use pop::pop;
pub use refused::{Refused, reword};
pub use sent::text as sent;
pub use submit::submit;
pub use text::{ask, cancel, status};

/// Every path of this API begins with it.
pub const BASE: &str = "/api/v2/";
