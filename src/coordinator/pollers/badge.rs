//! Job tickets: the public ids of attempts. Each attempt has an id derived from the job's id, the worker and a secret
//! that outlives this process: ticket and worker give the job's id again, and a ticket cannot be forged. So a submit is
//! checked to be by the right worker, although pops are not stored.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::dispatch::Offer;
use muster_protocol::job::{JobId, WorkerId};

/// The last bits of a UUID, after its version and variant.
const OWN: u32 = 56;

/// Derives job tickets of all workers.
#[derive(Debug, Clone)]
pub struct Badges(Hmac<Sha256>);

/// Derives job tickets of one worker.
#[derive(Debug, Clone)]
pub struct Badge(Hmac<Sha256>);

impl Badges {
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC-SHA-256 accepts keys of any length"))
    }

    pub fn of(&self, worker: WorkerId) -> Badge {
        Badge(self.0.clone().chain_update(worker.0.to_be_bytes()))
    }
}

impl Badge {
    /// The ticket of an offered job.
    pub fn id_of(&self, offer: &Offer) -> JobId {
        self.called(offer.job.id, offer.attempt)
    }

    /// The possible jobs of a ticket, one per attempt.
    pub fn jobs(&self, id: JobId, attempts: u32) -> impl Iterator<Item = JobId> + use<> {
        let mark = self.mark(id);
        (1..=attempts).map(move |attempt| marked(id, mark, attempt))
    }

    fn called(&self, job: JobId, attempt: u32) -> JobId {
        marked(job, self.mark(job), attempt)
    }

    /// The difference between a job's id and its ticket; the same for both directions.
    fn mark(&self, job: JobId) -> u128 {
        let kept = job.0.as_u128() >> OWN;
        let mac = self.0.clone().chain_update(kept.to_be_bytes());
        let bytes = mac.finalize().into_bytes();
        let first = bytes.iter().take(OWN as usize / 8);
        first.fold(0, |mark, byte| mark << 8 | u128::from(*byte))
    }
}

fn marked(job: JobId, mark: u128, attempt: u32) -> JobId {
    let later = u128::from(attempt.saturating_sub(1));
    JobId(Uuid::from_u128(job.0.as_u128() ^ mark ^ later))
}

#[cfg(test)]
mod tests {
    use super::{Badge, Badges};
    use muster_protocol::job::{JobId, WorkerId};

    fn badge(secret: u8, worker: i64) -> Badge {
        Badges::new(&[secret; 32]).of(WorkerId(worker))
    }

    #[test]
    fn each_attempt_has_an_id_that_leads_to_its_job() {
        let (badge, job) = (badge(1, 1), JobId::random());
        assert_ne!(badge.called(job, 1), job);
        for attempt in 1..=16 {
            let id = badge.called(job, attempt);
            assert_ne!(id, badge.called(job, attempt + 1));
            assert!(badge.jobs(id, 16).any(|found| found == job));
            let (of_job, of_id) = (job.0, id.0);
            assert_eq!(of_id.get_version_num(), of_job.get_version_num());
            assert_eq!(of_id.get_variant(), of_job.get_variant());
        }
    }

    #[test]
    fn an_id_leads_to_its_job_by_the_same_worker_and_secret_only() {
        let job = JobId::random();
        let id = badge(1, 1).called(job, 1);
        let leads = |badge: Badge| badge.jobs(id, 16).any(|found| found == job);
        assert!(leads(badge(1, 1)));
        assert!(!leads(badge(1, 2)) && !leads(badge(2, 1)));
    }
}
