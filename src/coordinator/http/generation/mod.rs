//! Requests for images, music and video of every route, from the body to links or base64.
//!
//! | file | contents |
//! | --- | --- |
//! | [`encode`], [`bodies`] | jobs whose results are values, for every dialect, and their bodies |
//! | `endpoint` | the caller of a route, and the parts of the service that answer it |
//! | `sources` | source images of a request |
//! | `gathering` | the events of all jobs, until each has its output |
//! | [`results`] | outputs of a request that was served later |
//! | `delivery` | a stored output as the client wants it |
//! | `unknown_words` | the header with words that a small model does not know |
//! | `refused` | a refusal of the queue or of the filters as an error for the client |
//!
//! A route reads its body, has the model chosen and the prompt examined, and queues one job for each output. A client
//! that leaves cancels its jobs, and so does the failure of one of them.

pub mod bodies;
mod delivery;
pub mod encode;
mod endpoint;
mod gathering;
mod refused;
pub mod results;
mod sources;
mod unknown_words;

pub use delivery::{MediaDelivery, ResultStore};
pub use endpoint::{MediaEndpoint, MediaOrder, MediaParts, read_body, with_job_ids};
pub use gathering::{Gathering, MadeMedia, MediaEvent};
pub use refused::{RefusedFields, blocked};
pub use sources::refused_source;
