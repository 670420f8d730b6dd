//! Text requests of every API dialect, from the body to the reply.
//!
//! | file | contents |
//! | --- | --- |
//! | `endpoint` | the handler of every dialect |
//! | `incoming` | a body on its way to jobs |
//! | `dictation` | transcription jobs for audio parts |
//! | `files` | files that models read as images or text |
//! | `images` | images that models read |
//! | `moderated` | messages after the filters |
//! | `order` | jobs for the queue from a parsed request |
//! | `choices` | events of all choices, in order of arrival |
//! | `stream` | those events as server-sent events |
//! | `continued` | streams that an earlier coordinator began |
//! | `ignored` | the header that lists ignored fields |
//! | `refused` | the client's error for a refusal by the queue |

mod choices;
mod continued;
mod dictation;
mod endpoint;
mod files;
mod ignored;
mod images;
mod incoming;
mod moderated;
pub(super) mod order;
mod refused;
mod stream;

pub use endpoint::TextEndpoint;
pub use ignored::with_ignored;
pub use incoming::Incoming;
pub use refused::is_too_long;
