//! Cached balances of accounts. All callers of an account share one value, so a change reaches them at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use crate::values::Means;
use muster_protocol::job::{AccountId, Kudos};

/// A cached balance.
#[derive(Debug, Default)]
pub struct KnownMeans {
    kudos: AtomicI64,
    spare: AtomicI64,
}

/// Balances of all accounts with cached callers.
#[derive(Debug)]
pub struct MeansOfAll {
    by_account: HashMap<AccountId, Weak<KnownMeans>>,
    /// Size beyond which unused entries are dropped.
    most: usize,
}

impl KnownMeans {
    pub fn at(means: Means) -> Self {
        let known = Self::default();
        known.note(means);
        known
    }

    pub fn note(&self, means: Means) {
        self.kudos.store(means.kudos.0, Ordering::Relaxed);
        self.spare.store(means.spare.0, Ordering::Relaxed);
    }

    pub fn look(&self) -> Means {
        Means {
            kudos: Kudos(self.kudos.load(Ordering::Relaxed)),
            spare: Kudos(self.spare.load(Ordering::Relaxed)),
        }
    }
}

impl MeansOfAll {
    pub fn with_room_for(most: usize) -> Self {
        Self {
            by_account: HashMap::new(),
            most,
        }
    }

    /// The shared balance of an account, updated to `means`.
    pub fn of(&mut self, account: AccountId, means: Means) -> Arc<KnownMeans> {
        let known = self.by_account.get(&account).and_then(Weak::upgrade);
        let known = known.unwrap_or_default();
        known.note(means);
        self.by_account.insert(account, Arc::downgrade(&known));
        if self.by_account.len() > self.most {
            self.by_account.retain(|_, known| known.strong_count() > 0);
            self.most = self.most.max(2 * self.by_account.len());
        }
        known
    }

    pub fn note(&self, account: AccountId, means: Means) {
        if let Some(known) = self.by_account.get(&account).and_then(Weak::upgrade) {
            known.note(means);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MeansOfAll;
    use crate::values::Means;
    use muster_protocol::job::{AccountId, Kudos};

    fn means(kudos: i64) -> Means {
        Means {
            kudos: Kudos(kudos),
            spare: Kudos(kudos - 14),
        }
    }

    #[test]
    fn all_callers_of_an_account_are_told_at_once() {
        let mut all = MeansOfAll::with_room_for(10);
        let (one, same) = (
            all.of(AccountId(1), means(20)),
            all.of(AccountId(1), means(30)),
        );
        let other = all.of(AccountId(2), means(40));
        assert_eq!(one.look(), means(30));
        all.note(AccountId(1), means(50));
        assert_eq!(
            [one.look(), same.look(), other.look()],
            [50, 50, 40].map(means)
        );
    }

    #[test]
    fn accounts_that_nobody_asks_for_are_forgotten() {
        let mut all = MeansOfAll::with_room_for(10);
        let stays = all.of(AccountId(0), means(20));
        for account in 1..1000 {
            all.of(AccountId(account), means(20));
        }
        assert!(all.by_account.len() <= 11, "{}", all.by_account.len());
        all.note(AccountId(0), means(30));
        assert_eq!(stays.look(), means(30));
    }
}
