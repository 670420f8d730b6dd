//! Anthropic's routes.
//!
//! | file | contents |
//! | --- | --- |
//! | `messages` | messages |
//! | `models` | the list of models for Anthropic's clients |

pub mod messages;
pub mod models;
