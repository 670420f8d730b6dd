//! The AI Horde API, `/api/v2`: requests that clients poll, and polling workers. Uses the same queue as every other
//! API.
//!
//! | file | contents |
//! | --- | --- |
//! | `asked` | path and query parameters |
//! | `body` | request bodies and their memory permits |
//! | `mask`, `headers` | `X-Fields`, and headers of replies |
//! | `text` | text requests: create, status, cancel |
//! | `sent` | the stored fields of a request, for its owner |
//! | `streamed` | the status of a text request as a stream |
//! | [`images`] | image requests and their workers |
//! | [`forms`] | interrogation requests and their workers |
//! | `requested` | checks and lookups common to all requests |
//! | `webhook` | checks of a request's webhook URL |
//! | `paying` | prices and kudos holds before a request runs |
//! | `progress` | the progress of a request |
//! | `pop`, `submit` | `pop` and `submit` of text workers |
//! | `people` | users |
//! | [`styles`] | styles and collections |
//! | `rigs`, [`teams`] | workers, and teams of workers |
//! | `moderation` | filters, timeouts, and their checks of requests |
//! | `kudos`, `sharedkeys` | kudos transfers, and shared keys |
//! | `service` | status, statistics and documents of the service |
//! | [`swagger`] | this API's Swagger document and its page |

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
pub use sent::text as sent;
pub use submit::submit;
pub use text::{ask, cancel, status};
