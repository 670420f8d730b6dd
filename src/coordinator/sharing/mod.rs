//! Shared keys: their owner pays for requests made with them, within a budget and until an expiry, and lends their
//! priority. A key is a UUID, and knowing it is permission to use and read it.

use std::time::Duration;

use uuid::Uuid;

use super::accounts::{ANONYMOUS, Caller};
use super::clock::wall_clock;
use super::display_name::{FORBIDDEN, is_readable};
use super::storage::{StorageError, Store};
use super::values::{NewSharedKey, Roles, Seal, SharedKey, SharedKeyChange};
use muster_protocol::job::{AccountId, Kudos, SharedKeyId, SharedKeyText, UnixMillis};
use muster_protocol::legacy::shared_key::{JobLimits, SharedKeyInput, UNLIMITED};
use muster_protocol::legacy::{Code, Refusal};

const DAY: Duration = Duration::from_secs(86_400);
/// A longer lifetime is unlimited.
const MOST_DAYS: i64 = 36_500;
/// Limit of budgets, so that additions cannot overflow.
const MOST_KUDOS: i64 = 1_000_000_000_000;
const LONGEST_NAME: usize = 255;

/// All shared keys. Clones share the store.
#[derive(Debug, Clone)]
pub struct Sharing {
    store: Store,
    seal: Seal,
}

/// Why a change of a key was refused.
#[derive(Debug, thiserror::Error)]
pub enum NotShared {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<Code> for NotShared {
    fn from(code: Code) -> Self {
        Self::Refused(code.into())
    }
}

impl Sharing {
    pub fn new(store: Store, seal: Seal) -> Self {
        Self { store, seal }
    }

    /// The text of a shared key, for callers who may see it.
    pub fn text_of(&self, key: &SharedKey) -> Result<SharedKeyText, StorageError> {
        let sealed = key.sealed.as_deref();
        let text = sealed.and_then(|sealed| self.seal.open_key(sealed));
        text.ok_or_else(|| StorageError::Broken("decrypting a shared key failed".to_owned()))
    }

    pub async fn create(
        &self,
        owner: &Caller,
        asked: SharedKeyInput,
    ) -> Result<SharedKey, NotShared> {
        Code::AnonForbidden.when(owner.account == ANONYMOUS)?;
        let (now, asked) = (wall_clock(), asked.creates());
        let text = SharedKeyText::new(Uuid::new_v4());
        let id = self.seal.number_of(text);
        let key = NewSharedKey {
            id,
            sealed: self.seal.close_key(text),
            owner: owner.account,
            name: asked.name.map(checked_name).transpose()?,
            budget: budget(asked.kudos),
            expires_at: asked.expires_in_days.map(|days| expiry(days, now)),
            limits: JobLimits {
                image_pixels: asked.max_image_pixels,
                image_steps: asked.max_image_steps,
                text_tokens: asked.max_text_tokens,
            },
            now,
            most: most_keys(owner.roles),
        };
        if !self.store.create_shared_key(key).await? {
            let message = format!(
                "the limit of {} shared keys per account is reached",
                most_keys(owner.roles)
            );
            return Err(Refusal::new(Code::Forbidden, message).into());
        }
        self.known(id).await
    }

    /// Looks up a key by its text, which may be malformed.
    pub async fn find(&self, id: &str) -> Result<Option<SharedKey>, StorageError> {
        match SharedKeyText::parse(id) {
            Some(text) => self.store.shared_key(self.seal.number_of(text)).await,
            None => Ok(None),
        }
    }

    /// The caller of a request with this key.
    pub async fn holder(&self, key: SharedKeyText) -> Result<Option<Caller>, StorageError> {
        self.caller(self.seal.number_of(key)).await
    }

    async fn caller(&self, id: SharedKeyId) -> Result<Option<Caller>, StorageError> {
        let Some(key) = self.store.shared_key(id).await? else {
            return Ok(None);
        };
        let owner = self.store.account(key.owner).await?;
        Ok(owner.map(|owner| Caller::with_shared(key, owner)))
    }

    /// The owner of a style's key, who pays for uses of the style; `None` if the key is spent or expired.
    pub async fn patron(&self, key: Option<SharedKeyId>) -> Result<Option<Caller>, StorageError> {
        let Some(key) = key else {
            return Ok(None);
        };
        let now = wall_clock();
        let is_worth = |key: &SharedKey| !key.is_empty() && !key.is_expired(now);
        let patron = self.caller(key).await?;
        Ok(patron.filter(|patron| {
            let key = patron.shared.as_deref();
            let barred = [Roles::DELETED, Roles::SUSPENDED];
            key.is_some_and(is_worth) && !barred.iter().any(|role| patron.roles.contains(*role))
        }))
    }

    /// The key that pays for a style of this caller.
    pub async fn for_style(&self, owner: &Caller, id: &str) -> Result<SharedKeyId, NotShared> {
        let key = self.find(id).await?;
        let key = key.filter(|key| key.owner == owner.account);
        let key = key.ok_or(Code::SharedKeyInvalid)?;
        let refuse = |code: Code| Refusal::from(code).at(400);
        if key.is_empty() {
            return Err(refuse(Code::SharedKeyEmpty).into());
        }
        match key.is_expired(wall_clock()) {
            true => Err(refuse(Code::SharedKeyExpired).into()),
            false => Ok(key.id),
        }
    }

    /// Like [`Self::find`], but an unknown key is an error.
    pub async fn look(&self, id: &str) -> Result<SharedKey, NotShared> {
        self.find(id).await?.ok_or_else(unknown)
    }

    pub async fn list(&self, owner: AccountId) -> Result<Vec<SharedKey>, StorageError> {
        self.store.shared_keys(owner).await
    }

    pub async fn change(
        &self,
        owner: &Caller,
        id: &str,
        asked: SharedKeyInput,
    ) -> Result<SharedKey, NotShared> {
        let key = self.of(owner, id).await?;
        Code::NoSharedKeyModSelected.when(asked.changes_nothing())?;
        let change = SharedKeyChange {
            id: key.id,
            owner: owner.account,
            name: asked.name.map(checked_name).transpose()?,
            budget: asked.kudos.map(budget),
            expires_at: asked
                .expiry
                .map(|days| (days != UNLIMITED).then(|| expiry(days, wall_clock()))),
            image_pixels: asked.max_image_pixels,
            image_steps: asked.max_image_steps,
            text_tokens: asked.max_text_tokens,
        };
        match self.store.change_shared_key(change).await? {
            true => self.known(key.id).await,
            false => Err(unknown()),
        }
    }

    pub async fn delete(&self, owner: &Caller, id: &str) -> Result<(), NotShared> {
        let key = self.of(owner, id).await?;
        match self.store.remove_shared_key(key.id, owner.account).await? {
            true => Ok(()),
            false => Err(unknown()),
        }
    }

    /// A key of this caller.
    async fn of(&self, owner: &Caller, id: &str) -> Result<SharedKey, NotShared> {
        let key = self.look(id).await?;
        match key.owner == owner.account {
            true => Ok(key),
            false => Err(Refusal::new(
                Code::Forbidden,
                "this shared key belongs to another account",
            )
            .into()),
        }
    }

    async fn known(&self, id: SharedKeyId) -> Result<SharedKey, NotShared> {
        self.store.shared_key(id).await?.ok_or_else(unknown)
    }
}

/// Limit of shared keys by role.
fn most_keys(roles: Roles) -> i64 {
    match (
        roles.contains(Roles::TRUSTED),
        roles.contains(Roles::EDUCATION),
    ) {
        (true, _) => 10,
        (false, true) => 1000,
        (false, false) => 3,
    }
}

fn budget(kudos: i64) -> Option<Kudos> {
    (kudos != UNLIMITED).then(|| Kudos(kudos.min(MOST_KUDOS) * 1000))
}

fn expiry(days: i64, now: UnixMillis) -> UnixMillis {
    let days = u32::try_from(days.clamp(0, MOST_DAYS)).unwrap_or(0);
    now.after(DAY * days)
}

fn checked_name(name: String) -> Result<String, Refusal> {
    if !is_readable(&name) {
        let wanted = format!("the name must not contain {FORBIDDEN}");
        return Err(Refusal::invalid("name", wanted));
    }
    let length = name.chars().count();
    match length <= LONGEST_NAME {
        true => Ok(name),
        false => Err(Refusal::invalid(
            "name",
            format!("the name has {length} characters, at most {LONGEST_NAME} are allowed"),
        )),
    }
}

/// With the status of the specification and the code that clients expect.
fn unknown() -> NotShared {
    Refusal::new(Code::InvalidApiKey, "unknown shared key")
        .at(404)
        .into()
}

#[cfg(test)]
mod tests {
    use super::{budget, expiry, most_keys};
    use crate::values::Roles;
    use muster_protocol::job::{Kudos, UnixMillis};

    #[test]
    fn trusted_users_and_schools_may_have_more_keys() {
        assert_eq!(most_keys(Roles::USER), 3);
        assert_eq!(most_keys(Roles::TRUSTED), 10);
        assert_eq!(most_keys(Roles::EDUCATION), 1000);
        assert_eq!(most_keys(Roles::EDUCATION.with(Roles::TRUSTED)), 10);
    }

    #[test]
    fn absurd_budgets_and_days_are_very_large_ones() {
        assert_eq!(budget(-1), None);
        assert_eq!(budget(5), Some(Kudos(5000)));
        assert_eq!(budget(i64::MAX), Some(Kudos(1_000_000_000_000_000)));
        assert_eq!(expiry(1, UnixMillis(0)), UnixMillis(86_400_000));
        assert_eq!(
            expiry(i64::MAX, UnixMillis(0)),
            expiry(36_500, UnixMillis(0))
        );
        assert_eq!(expiry(0, UnixMillis(7)), UnixMillis(7));
    }
}
