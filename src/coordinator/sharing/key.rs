//! A key that a user hands to others.

use muster_protocol::job::{AccountId, Kudos, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;

/// As it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedKey {
    pub id: SharedKeyId,
    /// The key itself, sealed.
    pub sealed: Option<String>,
    pub owner: AccountId,
    pub owner_name: String,
    pub name: Option<String>,
    /// What is left of it; none is no limit.
    pub budget: Option<Kudos>,
    /// Of that, what is kept for requests that have not ended.
    pub held: Kudos,
    pub utilized: Kudos,
    pub expires_at: Option<UnixMillis>,
    /// It pays for styles: as long as it does, it works through them only.
    pub has_styles: bool,
    pub limits: JobLimits,
}

/// One to be made, if its owner has fewer than `most`.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub id: SharedKeyId,
    /// The key itself, sealed.
    pub sealed: String,
    pub owner: AccountId,
    pub name: Option<String>,
    pub budget: Option<Kudos>,
    pub expires_at: Option<UnixMillis>,
    pub limits: JobLimits,
    pub now: UnixMillis,
    pub most: i64,
}

/// What is to be different; nothing is left as it is. Of the budget and the expiry, the inner nothing is none.
#[derive(Debug, Clone)]
pub struct KeyChange {
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
    /// Whether its budget is spent. What is only kept for requests may come back.
    pub fn is_empty(&self) -> bool {
        self.budget.is_some_and(|budget| budget.0 <= 0)
    }

    pub fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}
