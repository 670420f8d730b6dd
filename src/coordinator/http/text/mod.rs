//! Text requests of every API dialect, from the body to the reply.
//!
//! | file | what it is |
//! | --- | --- |
//! | `endpoint` | what a route of a dialect calls |
//! | `incoming` | a body on its way to jobs |
//! | `auto` | which model `auto` is |
//! | `dictation` | jobs that write down audio parts |
//! | `files` | files that models read as images or text |
//! | `images` | images that models read |
//! | `moderated` | messages as filters let them pass |
//! | `order` | a request that was read to jobs for the queue |
//! | `choices` | the events of all choices, in the order they come |
//! | `stream` | those events as a body of server-sent events |
//! | `ignored` | the header that names fields that were left aside |
//! | `refused` | what the queue's refusal means to the client |

pub mod auto;
mod choices;
mod dictation;
mod endpoint;
mod files;
mod ignored;
mod images;
mod incoming;
mod moderated;
mod order;
mod refused;
mod stream;

pub use endpoint::TextEndpoint;
pub use ignored::{IGNORED_FIELDS, with_ignored};
pub use incoming::Incoming;
pub use refused::is_too_long;
