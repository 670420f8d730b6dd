//! Leadership of a database: one coordinator at a time is the leader. The epoch is the number of an election, stored in
//! the rows that the leader owns. A leader whose lease has run out by its own clock pauses: no job is placed and no
//! request taken until the lease is renewed. A leader that another coordinator has fenced writes nothing more, and
//! ends.
//!
//! Elections are in [`super::storage`]; this file does not access the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Clones share the lease.
#[derive(Debug, Clone)]
pub struct Leadership(Arc<LeaseState>);

#[derive(Debug)]
struct LeaseState {
    epoch: Epoch,
    elected: Instant,
    /// End of the lease in milliseconds after the election; the maximum without other coordinators.
    lease_millis: AtomicU64,
    /// The last renewal in milliseconds after the election.
    renewed_millis: AtomicU64,
    is_paused: AtomicBool,
    resumed: watch::Sender<()>,
    fenced: CancellationToken,
    /// Held by each writer of the database.
    writers: Arc<()>,
}

/// The number of an election. Rows without an owner have 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub i64);

/// Whether this coordinator may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenure {
    Leading,
    /// The lease was not renewed in time.
    Paused,
    /// Another coordinator leads.
    Fenced,
}

impl Leadership {
    /// A permanent lease, for a database without other coordinators.
    pub fn undisputed(epoch: Epoch) -> Self {
        Self::with(epoch, u64::MAX)
    }

    /// Paused until the first renewal.
    pub fn elected(epoch: Epoch) -> Self {
        Self::with(epoch, 0)
    }

    fn with(epoch: Epoch, lease_millis: u64) -> Self {
        Self(Arc::new(LeaseState {
            epoch,
            elected: Instant::now(),
            lease_millis: AtomicU64::new(lease_millis),
            renewed_millis: AtomicU64::default(),
            is_paused: AtomicBool::new(false),
            resumed: watch::Sender::new(()),
            fenced: CancellationToken::new(),
            writers: Arc::default(),
        }))
    }

    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// By the monotonic clock, so that a suspended process notices the expiry when it resumes.
    pub fn tenure(&self) -> Tenure {
        if self.is_fenced() {
            return Tenure::Fenced;
        }
        match self.0.lease_millis.load(Ordering::Relaxed) {
            u64::MAX => Tenure::Leading,
            lease if self.0.elected.elapsed() < Duration::from_millis(lease) => Tenure::Leading,
            _ => Tenure::Paused,
        }
    }

    pub fn is_leading(&self) -> bool {
        self.tenure() == Tenure::Leading
    }

    pub fn is_fenced(&self) -> bool {
        self.0.fenced.is_cancelled()
    }

    /// Time since the last renewal; `None` for a permanent lease.
    pub fn lease_age(&self) -> Option<Duration> {
        let lasts = self.0.lease_millis.load(Ordering::Relaxed) == u64::MAX;
        let renewed = Duration::from_millis(self.0.renewed_millis.load(Ordering::Relaxed));
        (!lasts).then(|| self.0.elected.elapsed().saturating_sub(renewed))
    }

    /// Extends the lease, counted from the time when its renewal was sent.
    pub fn renew(&self, sent: Instant, lease: Duration) {
        let millis = |at: Instant| {
            let after = at.saturating_duration_since(self.0.elected).as_millis();
            u64::try_from(after).unwrap_or(u64::MAX - 1)
        };
        self.0
            .lease_millis
            .store(millis(sent + lease), Ordering::Relaxed);
        self.0.renewed_millis.store(millis(sent), Ordering::Relaxed);
        if self.0.is_paused.swap(false, Ordering::Relaxed) {
            self.0.resumed.send_replace(());
        }
    }

    /// True once per pause.
    pub fn has_paused(&self) -> bool {
        self.tenure() == Tenure::Paused && !self.0.is_paused.swap(true, Ordering::Relaxed)
    }

    /// Records that another coordinator leads.
    pub fn fence(&self) {
        self.0.fenced.cancel();
    }

    /// Returns once another coordinator leads.
    pub async fn fenced(&self) {
        self.0.fenced.cancelled().await;
    }

    /// Held by a writer until its last write.
    pub fn writer(&self) -> Arc<()> {
        self.0.writers.clone()
    }

    pub fn has_writers(&self) -> bool {
        Arc::strong_count(&self.0.writers) > 1
    }

    /// Notifies of ends of pauses.
    pub fn resumed(&self) -> watch::Receiver<()> {
        self.0.resumed.subscribe()
    }
}

/// For a store without other coordinators, in tests and commands.
impl Default for Leadership {
    fn default() -> Self {
        Self::undisputed(Epoch::default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Epoch, Leadership, Tenure};

    #[test]
    fn a_lease_that_is_not_renewed_pauses_until_it_is() {
        let leadership = Leadership::elected(Epoch(3));
        assert!(leadership.has_paused() && !leadership.has_paused());
        let resumed = leadership.resumed();
        leadership.renew(Instant::now(), Duration::from_secs(60));
        assert_eq!(leadership.tenure(), Tenure::Leading);
        assert!(resumed.has_changed().unwrap());
        assert!(leadership.lease_age().unwrap() < Duration::from_secs(1));
        // A late reply renews from the moment of the request.
        let earlier = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        leadership.renew(earlier, Duration::from_secs(1));
        assert_eq!(leadership.tenure(), Tenure::Paused);
        assert!(leadership.has_paused());
    }

    #[test]
    fn a_fenced_leader_never_leads_again() {
        let leadership = Leadership::elected(Epoch(3));
        leadership.fence();
        leadership.renew(Instant::now(), Duration::from_secs(60));
        assert_eq!(leadership.tenure(), Tenure::Fenced);
    }

    #[test]
    fn without_rivals_a_leader_leads_for_ever() {
        let leadership = Leadership::default();
        assert!(leadership.is_leading() && leadership.lease_age().is_none());
    }
}
