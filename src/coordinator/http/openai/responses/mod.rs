//! The Responses API.
//!
//! | file | what it is |
//! | --- | --- |
//! | `create` | new responses |
//! | `background` | those that run without their client, and go on after a restart |
//! | `events` | the events of a background response, from any of them on |
//! | `stored` | responses that are read, listed, cancelled and deleted |

pub mod background;
pub mod create;
mod events;
pub mod stored;
