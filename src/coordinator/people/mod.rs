//! Users: the data of an account beyond its name, its roles and its keys.
//!
//! | file | contents |
//! | --- | --- |
//! | `giving` | permission of transfers of kudos |
//! | `rewards` | rewards for uptime, months and trust, and the task that pays them |
//! | `attendance` | uptime of each worker |
//! | `sources` | sources and uses of a user's kudos |
//! | `trial` | test users of other programs |

mod attendance;
mod giving;
mod rewards;
mod sources;
mod trial;

pub use giving::{Gift, Giving, NotGiven};
pub use rewards::Rewards;
pub use sources::Sources;
pub use trial::{Development, Trial, TrialUser};

use std::time::Duration;

use uuid::Uuid;

use super::accounts::Accounts;
use super::clock::wall_clock;
use super::storage::{Changed, Leaving, Left, Order, PersonChange, PersonRow, StorageError, Store};
use crate::values::Sealed;
use crate::values::styles::Style;
use muster_protocol::job::{AccountId, SharedKeyText};

/// All users. Clones are the same.
#[derive(Debug, Clone)]
pub struct People {
    store: Store,
    accounts: Accounts,
}

/// Users per page.
pub const PAGE: u32 = 25;
/// Grace period before a deleted account is wiped.
pub const GRACE: Duration = Duration::from_secs(30 * 86_400);

impl People {
    pub fn new(store: Store, accounts: Accounts) -> Self {
        Self { store, accounts }
    }

    pub async fn find(&self, account: AccountId) -> Result<Option<PersonRow>, StorageError> {
        let found = self.store.person(account).await?;
        Ok(found.map(|person| self.unsealed(person)))
    }

    /// Decrypts the passkey.
    fn unsealed(&self, mut person: PersonRow) -> PersonRow {
        let sealed = person.proxy_passkey.take();
        let open = |sealed: String| self.accounts.seal().open(Sealed::Passkey, &sealed);
        person.proxy_passkey = sealed.and_then(open);
        person
    }

    /// Page 0 is the first.
    pub async fn page(&self, order: Order, page: u32) -> Result<Vec<PersonRow>, StorageError> {
        let after = u64::from(page) * u64::from(PAGE);
        let page = self.store.people(order, PAGE, after).await?;
        Ok(page.into_iter().map(|one| self.unsealed(one)).collect())
    }

    pub async fn sources(&self, person: &PersonRow) -> Result<Sources, StorageError> {
        let tallies = self.store.tallies(person.account).await?;
        Ok(Sources::of(person.kudos, &tallies))
    }

    pub async fn workers(&self, owner: AccountId) -> Result<Vec<Uuid>, StorageError> {
        self.store.workers_of(owner).await
    }

    /// The account's styles, public or not.
    pub async fn styles(&self, owner: AccountId) -> Result<Vec<Style>, StorageError> {
        self.store.styles_of(owner).await
    }

    /// A user's shared keys, decrypted.
    pub async fn shared_keys(&self, owner: AccountId) -> Result<Vec<Uuid>, StorageError> {
        let keys = self.store.shared_keys(owner).await?;
        let sealed = keys.iter().filter_map(|key| key.sealed.as_deref());
        let keys = sealed.filter_map(|sealed| self.accounts.seal().open_key(sealed));
        Ok(keys.map(SharedKeyText::expose).collect())
    }

    /// `None` if the account does not exist.
    pub async fn change(
        &self,
        account: AccountId,
        mut change: PersonChange,
    ) -> Result<Option<Changed>, StorageError> {
        let passkey = change.proxy_passkey.take();
        let seal = self.accounts.seal();
        change.proxy_passkey = passkey.map(|passkey| seal.close(Sealed::Passkey, &passkey));
        let changed = self
            .store
            .change_person(account, change, wall_clock())
            .await?;
        self.accounts.catch_up().await?;
        Ok(changed)
    }

    /// The next step of a deletion.
    pub async fn leave(&self, account: AccountId) -> Result<Left, StorageError> {
        let leaving = Leaving {
            account,
            grace: GRACE,
            now: wall_clock(),
        };
        let left = self.store.leave(leaving).await?;
        self.accounts.catch_up().await?;
        Ok(left)
    }
}
