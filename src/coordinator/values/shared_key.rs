//! A key that a user shares with others.

use muster_protocol::job::{AccountId, Kudos, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;

/// A shared key's present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedKey {
    pub id: SharedKeyId,
    /// The key itself, encrypted.
    pub sealed: Option<String>,
    pub owner: AccountId,
    pub owner_name: String,
    pub name: Option<String>,
    /// Remaining budget; `None` is unlimited.
    pub budget: Option<Kudos>,
    /// The part of it held for unfinished requests.
    pub held: Kudos,
    pub utilized: Kudos,
    pub expires_at: Option<UnixMillis>,
    /// Whether styles use it as payer; then it can be used through them only.
    pub has_styles: bool,
    pub limits: JobLimits,
}

/// A key to create, if its owner has fewer than `most`.
#[derive(Debug, Clone)]
pub struct NewSharedKey {
    pub id: SharedKeyId,
    /// The key itself, encrypted.
    pub sealed: String,
    pub owner: AccountId,
    pub name: Option<String>,
    pub budget: Option<Kudos>,
    pub expires_at: Option<UnixMillis>,
    pub limits: JobLimits,
    pub now: UnixMillis,
    pub most: i64,
}

/// Changes of a key; `None` leaves a field unchanged. For the budget and the expiry, `Some(None)` removes the limit.
#[derive(Debug, Clone)]
pub struct SharedKeyChange {
    pub id: SharedKeyId,
    pub owner: AccountId,
    pub name: Option<String>,
    pub budget: Option<Option<Kudos>>,
    pub expires_at: Option<Option<UnixMillis>>,
    pub image_pixels: Option<i64>,
    pub image_steps: Option<i64>,
    pub text_tokens: Option<i64>,
}

impl SharedKey {
    /// Whether its budget is spent. Held amounts do not count as spent, since they may be released.
    pub fn is_empty(&self) -> bool {
        self.budget.is_some_and(|budget| budget.0 <= 0)
    }

    pub fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}
