//! Salts for the prompt caches of workers: jobs of one owner share a salt, those of different owners never do.

use std::hash::{BuildHasher, RandomState};

use muster_protocol::job::Job;

/// Keyed by a secret of this process: a worker cannot identify accounts by their salts, and two workers cannot compare
/// them.
#[derive(Debug, Clone, Default)]
pub struct CacheSalts {
    secret: RandomState,
}

impl CacheSalts {
    pub fn salt(&self, worker: &str, job: &Job) -> String {
        format!("{:016x}", self.secret.hash_one((worker, job.cache_owner())))
    }
}
