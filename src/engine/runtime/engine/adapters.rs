//! The adapters of a loaded model, and the sequences that run with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::networks::text::DecoderAdapter;
use crate::runtime::kv_cache::AdapterId;
use crate::runtime::scheduler::SequenceId;

#[derive(Default)]
pub struct ResidentAdapters {
    loaded: Vec<ResidentAdapter>,
    /// The adapter of each sequence that has one.
    running: BTreeMap<SequenceId, ResidentAdapter>,
}

#[derive(Clone)]
struct ResidentAdapter {
    /// The name with which jobs select the adapter and its model.
    name: Arc<str>,
    id: AdapterId,
    weights: Arc<DecoderAdapter>,
}

impl ResidentAdapters {
    pub fn contains(&self, name: &str) -> bool {
        self.loaded.iter().any(|adapter| &*adapter.name == name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.loaded.iter().map(|adapter| &*adapter.name)
    }

    pub fn insert(&mut self, name: &str, id: AdapterId, weights: DecoderAdapter) {
        self.loaded.push(ResidentAdapter {
            name: name.into(),
            id,
            weights: Arc::new(weights),
        });
    }

    /// Takes an adapter out. The sequences that run with it are still to be ended.
    pub fn remove(&mut self, name: &str) -> Vec<SequenceId> {
        self.loaded.retain(|adapter| &*adapter.name != name);
        let running = self.running.iter();
        let running = running.filter(|(_, adapter)| &*adapter.name == name);
        running.map(|(id, _)| *id).collect()
    }

    /// Records the adapter of a sequence by the job's model name; `None` for a job of the base model.
    pub fn begin(&mut self, sequence: SequenceId, name: &str) -> Option<AdapterId> {
        let mut loaded = self.loaded.iter();
        let adapter = loaded.find(|adapter| &*adapter.name == name)?;
        self.running.insert(sequence, adapter.clone());
        Some(adapter.id)
    }

    pub fn end(&mut self, sequence: SequenceId) {
        self.running.remove(&sequence);
    }

    pub fn of(&self, sequence: SequenceId) -> Option<Arc<DecoderAdapter>> {
        let adapter = self.running.get(&sequence)?;
        Some(Arc::clone(&adapter.weights))
    }
}
