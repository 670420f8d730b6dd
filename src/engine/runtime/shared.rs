//! State that the inference thread publishes: loaded models and load.

use std::sync::{Arc, OnceLock};

use super::device_thread::ModelBoard;
use super::grammar::{Grammars, Prover};
use super::text::Language;
use super::{ImageInput, ModelInfo, ModelStatus, Sampling, Status};

/// Enough of a loaded model to prepare a job for it, on any thread.
#[derive(Clone)]
pub struct Listing {
    pub info: Arc<ModelInfo>,
    pub language: Arc<Language>,
    pub defaults: Sampling,
    pub grammars: Arc<Grammars>,
    /// `None` for a model without vision.
    pub images: Option<Arc<ImageInput>>,
}

#[derive(Default)]
pub struct Shared {
    pub board: ModelBoard<Listing, ModelStatus>,
    prover: OnceLock<Arc<Prover>>,
}

impl Shared {
    pub fn enlist(
        &self,
        info: Arc<ModelInfo>,
        language: Arc<Language>,
        defaults: Sampling,
        images: Option<ImageInput>,
    ) {
        let prover = self.prover.get().cloned();
        let grammars = Grammars::new(Arc::clone(&language), info.vocabulary, prover);
        let listing = Listing {
            info,
            language,
            defaults,
            grammars: Arc::new(grammars),
            images: images.map(Arc::new),
        };
        self.board.enlist(listing.info.name.clone(), listing);
    }

    /// Lists an adapter with the tokenizer and chat template of its model.
    pub fn enlist_adapter(&self, info: Arc<ModelInfo>, base: Listing) {
        let name = info.name.clone();
        self.board.enlist(name, Listing { info, ..base });
    }

    /// Sets the prover of grammars for models listed from now on. Only the first call counts.
    pub fn prove_with(&self, prover: Prover) {
        let _ = self.prover.set(Arc::new(prover));
    }

    pub fn status(&self) -> Status {
        let models = self.board.status();
        Status {
            running: models.iter().map(|model| model.running).sum(),
            waiting: models.iter().map(|model| model.waiting).sum(),
            models,
            is_paused: self.board.is_paused(),
        }
    }
}
