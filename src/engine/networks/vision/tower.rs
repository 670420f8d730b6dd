//! The interface of vision towers for the engine: image in, features out, one block at a time.

use std::collections::VecDeque;

use candle_core::{Result, Tensor};

use super::family::{VisionSpec, is_of_tower, naming};
use super::image::ProcessedImage;
use crate::networks::blocks::{ComponentReader, ComponentSource};
use crate::networks::weights::Flaw;
use muster_kernels::RopeTable;

/// A tower on a device.
pub struct VisionTower {
    network: Box<dyn Tower>,
    weight_bytes: u64,
}

/// The network of a family.
pub trait Tower: Send {
    /// An image before the first block.
    fn begin(&self, image: &ProcessedImage) -> Result<TowerPass>;

    /// Runs one more block. Returns the features after the last one.
    fn advance(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>>;
}

/// Features that replace the embeddings of an image's tokens, `[tokens, hidden]`.
#[derive(Debug, Clone)]
pub struct ImageFeatures {
    pub embeddings: Tensor,
    /// Added to the outputs of the decoder's first layers, in order.
    pub added: Vec<Tensor>,
}

/// An image on its way through the blocks, or the tile of it that is.
pub struct TowerPass {
    pub state: Tensor,
    /// The rope table of the patches, and the row of each, in towers with rope.
    pub turned: Option<(RopeTable, Tensor)>,
    /// How many patches see each other in layers that do not see all of them.
    pub groups: Vec<usize>,
    /// The index of each token in the tower's order, if that differs.
    pub order: Option<Tensor>,
    /// Blocks that it has been through.
    pub blocks: usize,
    pub added: Vec<Tensor>,
    /// Patches of the tiles after it.
    pub waiting: VecDeque<Tensor>,
    /// Rows of the tiles before it.
    pub made: Vec<Tensor>,
}

impl TowerPass {
    pub fn new(state: Tensor) -> Self {
        Self {
            state,
            turned: None,
            groups: Vec::new(),
            order: None,
            blocks: 0,
            added: Vec::new(),
            waiting: VecDeque::new(),
            made: Vec::new(),
        }
    }
}

impl VisionTower {
    pub fn load(spec: &VisionSpec, source: ComponentSource<'_>) -> std::result::Result<Self, Flaw> {
        let headers = source.tensors.headers().iter();
        let own = headers.filter(|header| is_of_tower(&header.name));
        let weight_bytes = own.map(|header| header.bytes).sum();
        let names = source.tensors.headers().iter();
        let rename = naming(names.map(|header| header.name.as_str()));
        let mut reader = ComponentReader::new(source, rename);
        let network = spec.load(source.device, &mut reader)?;
        reader.check_nothing_was_ignored(is_of_tower)?;
        Ok(Self {
            network,
            weight_bytes,
        })
    }

    /// Bytes of the stored weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// The whole way of an image.
    pub fn forward(&self, image: &ProcessedImage) -> Result<ImageFeatures> {
        let mut pass = self.begin(image)?;
        loop {
            if let Some(features) = self.advance(&mut pass)? {
                return Ok(features);
            }
        }
    }

    /// The same one block at a time: before the first.
    pub fn begin(&self, image: &ProcessedImage) -> Result<TowerPass> {
        self.network.begin(image)
    }

    /// Runs one more block. Returns the features after the last one.
    pub fn advance(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        self.network.advance(pass)
    }
}
