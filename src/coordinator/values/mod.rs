//! Values that storage and the modules above share. Nothing here does I/O or knows where a value is stored.
//!
//! | file | contents |
//! | --- | --- |
//! | `roles`, `scopes`, `named` | roles of accounts; scopes of keys; both are named sets |
//! | `login`, `alias`, `account_kind` | an operator's and the public name of an account; how an account was created |
//! | `key` | the format of keys, and the stored digest |
//! | `seal`, `byte_seal` | encryption under the secret of this server, and of bytes under one key |
//! | `means` | balances of accounts |
//! | `shared_key` | shared keys and their changes |
//! | [`modes`] | service modes |
//! | [`suspicion`] | the reasons for suspicion, and how they add up |
//! | [`styles`] | styles and collections |

mod account_kind;
pub mod alias;
mod byte_seal;
pub mod key;
mod login;
mod means;
pub mod modes;
pub mod named;
mod roles;
mod scopes;
mod seal;
mod shared_key;
pub mod styles;
pub mod suspicion;

pub use account_kind::AccountKind;
pub use alias::Alias;
pub use byte_seal::ByteSeal;
pub use key::{KeyId, KeyText};
pub use login::{InvalidLogin, Login};
pub use means::Means;
pub use roles::{Rank, Roles};
pub use scopes::Scopes;
pub use seal::{Seal, Sealed};
pub use shared_key::{NewSharedKey, SharedKey, SharedKeyChange};
