//! Styles of the AI Horde API: prompts and parameters that users share, and collections of them.
//!
//! | file | contents |
//! | --- | --- |
//! | `lookup` | from the name in a request to the style that is used |
//! | `members` | which styles a collection is made of |
//!
//! A style is looked up when it is named, and the resulting request is stored: neither a later change of the style nor
//! a restart changes it. A user of another user's style pays its owner [`FEE`](crate::values::styles::FEE).

mod lookup;
mod members;

#[cfg(test)]
mod tests;

pub use lookup::{Applied, Chosen, NoStyle, Styles};
pub use members::{Members, NoMembers};
