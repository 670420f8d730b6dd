//! LoRA and its relatives: small products added to the layers of a network, selected per request.
//!
//! Adapters are applied while the network runs, never merged into its weights. So requests with different adapters
//! share one copy of the weights, quantized or not, and an adapter is usable as soon as its file is read.
//!
//! [`LayerTable`] names the layers of a network; [`AdapterFile`] reads a file; [`Pass`] carries the adapters of a
//! forward pass to the layers.

mod deltas;
mod file;
mod inversion;
mod layers;
mod names;

pub use self::{
    deltas::{Adaptation, NetworkDeltas},
    file::AdapterFile,
    inversion::InversionVectors,
    layers::{LayerId, LayerShape, LayerTable, StoredLayer},
    names::AdapterPart,
};

use candle_core::{Result, Tensor};

use muster_kernels::Edges;

/// The settings of one forward pass that all layers share.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub edges: Edges,
    pub adaptations: &'a [Adaptation],
}

impl Pass<'_> {
    /// Without adapters.
    pub fn plain(edges: Edges) -> Self {
        Self {
            edges,
            adaptations: &[],
        }
    }

    /// The output `y` of a layer for `x`, with the adapters added.
    pub fn adapt(self, layer: LayerId, x: &Tensor, y: Tensor) -> Result<Tensor> {
        let plain = y.clone();
        self.adaptations.iter().try_fold(y, |y, adaptation| {
            adaptation.add_to(layer, (x, &plain), y, self.edges)
        })
    }
}
