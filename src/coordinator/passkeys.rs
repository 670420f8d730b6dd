//! Passkeys of service accounts: a service that sends one is trusted to name its own user's address. All passkeys are
//! in memory, so that a guess costs no query; a new one is known within seconds.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::sleep;
use tracing::debug;

use super::storage::Store;
use crate::values::{Seal, Sealed};
use muster_process::tasks::Tasks;

/// Clones are the same.
#[derive(Clone, Default)]
pub struct Passkeys(Arc<RwLock<HashSet<String>>>);

const REFRESH: Duration = Duration::from_secs(2);

/// Hides the passkeys, which are secrets.
impl std::fmt::Debug for Passkeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passkeys(hidden)")
    }
}

impl Passkeys {
    pub fn start(store: Store, seal: Seal, tasks: &Tasks) -> Self {
        let (passkeys, stopping) = (Self::default(), tasks.stopping());
        let followed = passkeys.clone();
        tasks.start(async move {
            let following = followed.follow(store, seal);
            stopping.run_until_cancelled(following).await
        });
        passkeys
    }

    pub fn contains(&self, passkey: &str) -> bool {
        let known = self.0.read();
        known.contains(passkey)
    }

    async fn follow(self, store: Store, seal: Seal) {
        loop {
            match store.passkeys().await {
                Ok(all) => {
                    let mut known = self.0.write();
                    let opened = all.iter().filter_map(|one| seal.open(Sealed::Passkey, one));
                    *known = opened.collect();
                }
                Err(error) => debug!("refreshing passkeys failed, keeping the known ones: {error}"),
            }
            sleep(REFRESH).await;
        }
    }
}
