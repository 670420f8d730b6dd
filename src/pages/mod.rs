//! Pages in a browser, for servers of both halves of the program.
//!
//! | file | purpose |
//! | --- | --- |
//! | [`origin`] | which pages may send requests to a server that listens on loopback |
//! | `policy` | the content security policy of a page |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

pub mod origin;
mod policy;

pub use policy::policy;
