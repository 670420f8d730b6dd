//! Unfinished requests, by kind and by each model that may serve them. For display; no decision depends on this.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_protocol::job::{Job, Kind};

/// Waiting and running jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    pub jobs: u64,
    /// Tokens or pixelsteps, by [`Job::size`].
    pub size: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands {
    by_kind: BTreeMap<Kind, Demand>,
    by_model: BTreeMap<(Kind, Arc<str>), Demand>,
}

impl Demands {
    pub fn of(&self, kind: Kind) -> Demand {
        self.by_kind.get(&kind).copied().unwrap_or_default()
    }

    /// Jobs that this model may serve, even if others may, too.
    pub fn of_model(&self, kind: Kind, model: &str) -> Demand {
        let demand = self.by_model.get(&(kind, Arc::from(model)));
        demand.copied().unwrap_or_default()
    }

    /// Every model requested by name.
    pub fn models(&self, kind: Kind) -> impl Iterator<Item = (&Arc<str>, Demand)> {
        let of_kind = self.by_model.iter().filter(move |((of, _), _)| *of == kind);
        of_kind.map(|((_, model), demand)| (model, *demand))
    }

    /// Number of kinds and models with unfinished requests.
    pub(super) fn len(&self) -> usize {
        let kinds = self.by_kind.values().filter(|demand| demand.jobs > 0);
        kinds.count() + self.by_model.len()
    }

    pub(super) fn add(&mut self, job: &Job) {
        let size = job.size();
        self.by_kind.entry(job.kind).or_default().add(size);
        for model in &job.model.0 {
            let demand = self.by_model.entry((job.kind, model.clone()));
            demand.or_default().add(size);
        }
    }

    pub(super) fn remove(&mut self, job: &Job) {
        let size = job.size();
        if let Some(demand) = self.by_kind.get_mut(&job.kind) {
            demand.remove(size);
        }
        for model in &job.model.0 {
            let key = (job.kind, model.clone());
            let Some(demand) = self.by_model.get_mut(&key) else {
                continue;
            };
            demand.remove(size);
            if demand.jobs == 0 {
                self.by_model.remove(&key);
            }
        }
    }
}

impl Demand {
    fn add(&mut self, size: u64) {
        self.jobs = self.jobs.saturating_add(1);
        self.size = self.size.saturating_add(size);
    }

    fn remove(&mut self, size: u64) {
        self.jobs = self.jobs.saturating_sub(1);
        self.size = self.size.saturating_sub(size);
    }
}
