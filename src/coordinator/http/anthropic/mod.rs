//! Anthropic's routes.
//!
//! | file | what it is |
//! | --- | --- |
//! | `messages` | messages |
//! | `models` | the list of models for Anthropic's clients |

pub mod messages;
pub mod models;
