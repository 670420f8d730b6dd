//! The Responses API.
//!
//! | file | contents |
//! | --- | --- |
//! | `create` | new responses |
//! | `background` | background responses, also after a restart |
//! | `events` | events of a background response, from any number on |
//! | `stored` | stored responses: read, list, cancel, delete |

pub mod background;
pub mod create;
mod events;
pub mod stored;
