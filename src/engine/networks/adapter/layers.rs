//! The layers of a network that an adapter can change, by all names that files have for them.

use std::collections::HashMap;

use candle_core::quantized::GgmlDType;
use candle_core::{Result, Tensor};

use crate::networks::weights::{TensorBytes, convert};
use muster_kernels::Axis;

/// A layer's number within its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerId(usize);

/// The sizes of a layer: a product where `axis` is none, else a convolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerShape {
    pub outputs: usize,
    pub inputs: usize,
    pub kernel: usize,
    pub axis: Option<Axis>,
}

/// The weights of a layer as its file holds them, for adapters that are computed from both.
pub struct StoredLayer {
    pub dtype: GgmlDType,
    /// `None` if no file stores the layer in this form.
    pub weight: Option<TensorBytes>,
    pub bias: Option<Tensor>,
}

#[derive(Default)]
pub struct LayerTable {
    shapes: Vec<LayerShape>,
    stored: Vec<StoredLayer>,
    by_key: HashMap<String, LayerId>,
}

impl LayerTable {
    /// `names` are those of one layer, without the suffix of its tensors.
    pub fn add(&mut self, names: &[String], shape: LayerShape, stored: StoredLayer) -> LayerId {
        let layer = LayerId(self.shapes.len());
        self.shapes.push(shape);
        self.stored.push(stored);
        for name in names {
            self.by_key.insert(key(name), layer);
        }
        layer
    }

    pub fn find(&self, name: &str) -> Option<(LayerId, LayerShape)> {
        let layer = *self.by_key.get(&key(name))?;
        Some((layer, self.shapes[layer.0]))
    }
}

impl LayerTable {
    /// The dense numbers of a layer, as PyTorch orders them; none where its weights are quantized in the file.
    pub fn weight(&self, layer: LayerId) -> Result<Option<Vec<f32>>> {
        let stored = self.stored.get(layer.0);
        let dense = stored.filter(|stored| convert::is_dense(stored.dtype));
        let found = dense.and_then(|stored| Some((stored.dtype, stored.weight.as_ref()?)));
        found
            .map(|(dtype, bytes)| convert::floats(dtype, bytes))
            .transpose()
    }

    pub fn bias(&self, layer: LayerId) -> Option<&Tensor> {
        self.stored.get(layer.0)?.bias.as_ref()
    }
}

/// Some files separate the parts of a name with underscores, as parts themselves do.
fn key(name: &str) -> String {
    name.replace('.', "_")
}
