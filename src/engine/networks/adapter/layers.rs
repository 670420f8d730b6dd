//! The layers of a network that an adapter can change, by all names that files have for them.

use std::collections::HashMap;

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

#[derive(Debug, Default)]
pub struct LayerTable {
    shapes: Vec<LayerShape>,
    by_key: HashMap<String, LayerId>,
}

impl LayerTable {
    /// `names` are those of one layer, without the ending of its tensors.
    pub fn add(&mut self, names: &[String], shape: LayerShape) -> LayerId {
        let layer = LayerId(self.shapes.len());
        self.shapes.push(shape);
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

/// Some files separate the parts of a name with underscores, as parts themselves do.
fn key(name: &str) -> String {
    name.replace('.', "_")
}
