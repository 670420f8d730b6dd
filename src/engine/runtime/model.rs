//! The engine's interface to a network: steps in, logits out. The network owns its tensors and pages.

use std::path::Path;

use candle_core::{Error, Result, Tensor, bail};

use crate::networks::text::{Batch, Decoder, DecoderAdapter, KvPages, TextAdapterFile};
use crate::networks::vision::{ImageFeatures, ProcessedImage, TowerPass, VisionTower};
use crate::runtime::LoadError;
use crate::runtime::scheduler::StateCopy;
use muster_kernels::KvDtype;

/// A network with the pages its sequences live in.
pub trait Model: Send {
    /// How many logits a row has.
    fn vocabulary(&self) -> usize;

    /// Whether the model has recurrent states besides its pages. A state includes all computed tokens: draft tokens
    /// cannot be undone.
    fn keeps_states(&self) -> bool {
        false
    }

    /// Whether the model has the cache of one sequence alone: no batches, no shared prefixes and no draft tokens.
    fn runs_one_sequence(&self) -> bool {
        false
    }

    /// Limit of prompt tokens that a sequence may have in a step after `past` computed ones.
    fn step_tokens(&self, _past: usize) -> usize {
        usize::MAX
    }

    /// Gives a slot the state of another one.
    fn copy_state(&mut self, _copy: StateCopy) -> Result<()> {
        bail!("the model has no states")
    }

    /// Changes the number of pages: the first ones have the contents of `kept`, in order. After an error the contents
    /// are lost.
    fn resize_cache(&mut self, pages: usize, kept: &[u32]) -> Result<()>;

    /// Brings an adapter to the network's device.
    fn load_adapter(&self, path: &Path) -> std::result::Result<DecoderAdapter, LoadError> {
        let path = path.display();
        Err(LoadError::Device(format!(
            "the model takes no adapter {path}"
        )))
    }

    /// Computes a step and returns the logits, f32 `[asked, vocabulary]`, of the requested rows. Logits of the rows
    /// `scored` are passed to `take` in chunks, in order.
    fn forward(
        &mut self,
        batch: &Batch,
        scored: &[u32],
        take: &mut dyn FnMut(Tensor) -> Result<()>,
    ) -> Result<Tensor>;

    /// Sends an image into the tower, before its first block.
    fn begin_image(&self, _image: &ProcessedImage) -> Result<TowerPass> {
        bail!("the model has no vision tower")
    }

    /// Runs one more block of the vision tower; returns the features after the last one.
    fn advance_image(&self, _pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        bail!("the model has no vision tower")
    }
}

/// A decoder and its keys and values.
pub struct PagedDecoder {
    decoder: Decoder,
    pages: KvPages,
    tower: Option<VisionTower>,
}

impl PagedDecoder {
    pub fn new(decoder: Decoder, pages: usize, kv: KvDtype) -> Result<Self> {
        let pages = decoder.new_pages(pages, kv)?;
        Ok(Self {
            decoder,
            pages,
            tower: None,
        })
    }

    pub fn with_tower(self, tower: Option<VisionTower>) -> Self {
        Self { tower, ..self }
    }

    fn tower(&self) -> Result<&VisionTower> {
        match &self.tower {
            Some(tower) => Ok(tower),
            None => bail!("the model has no vision tower"),
        }
    }

    pub fn cache_bytes(&self) -> u64 {
        self.pages.bytes()
    }
}

impl Model for PagedDecoder {
    fn vocabulary(&self) -> usize {
        self.decoder.spec().vocab_size
    }

    fn keeps_states(&self) -> bool {
        self.decoder.spec().is_recurrent()
    }

    fn copy_state(&mut self, copy: StateCopy) -> Result<()> {
        self.pages.copy_state(copy.from as usize, copy.to as usize)
    }

    fn resize_cache(&mut self, pages: usize, kept: &[u32]) -> Result<()> {
        self.pages.resize(pages, kept)
    }

    fn load_adapter(&self, path: &Path) -> std::result::Result<DecoderAdapter, LoadError> {
        let file = TextAdapterFile::open(path)?;
        Ok(self.decoder.load_adapter(&file)?)
    }

    fn forward(
        &mut self,
        batch: &Batch,
        scored: &[u32],
        take: &mut dyn FnMut(Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        self.decoder
            .forward_scored(batch, scored, &mut self.pages, take)
    }

    fn begin_image(&self, image: &ProcessedImage) -> Result<TowerPass> {
        self.tower()?.begin(image)
    }

    fn advance_image(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        self.tower()?.advance(pass)
    }
}

/// The message without the backtrace that candle may append.
pub fn plain(error: &Error) -> String {
    match error {
        Error::WithBacktrace { inner, .. } => plain(inner),
        other => other.to_string(),
    }
}
