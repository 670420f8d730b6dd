//! The changes that an adapter makes to the layers of one network, ready to run.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::{Result, Tensor};

use super::LayerId;
use muster_kernels::{Convolution, Edges};

/// An adapter's changes to one network, with the strength that a request gives them.
#[derive(Debug, Clone)]
pub struct Adaptation {
    deltas: Arc<NetworkDeltas>,
    strength: f64,
}

/// The changes of one file to one network.
#[derive(Debug, Default)]
pub struct NetworkDeltas(HashMap<LayerId, Delta>);

/// The addition to a layer's output.
#[derive(Debug)]
pub enum Delta {
    /// A narrow product of the input, widened again.
    LowRank { down: Convolution, up: Convolution },
    /// A product of the layer's own size.
    Full(Convolution),
}

impl Adaptation {
    /// None where it changes nothing.
    pub fn new(deltas: &Arc<NetworkDeltas>, strength: f32) -> Option<Self> {
        let is_needed = strength != 0.0 && !deltas.0.is_empty();
        is_needed.then(|| Self {
            deltas: Arc::clone(deltas),
            strength: strength.into(),
        })
    }

    pub fn add_to(&self, layer: LayerId, x: &Tensor, y: Tensor, edges: Edges) -> Result<Tensor> {
        match self.deltas.0.get(&layer) {
            None => Ok(y),
            Some(Delta::LowRank { down, up }) => {
                let narrow = (apply(down, x, edges)? * self.strength)?;
                y + apply(up, &narrow, edges)?
            }
            Some(Delta::Full(whole)) => y + (apply(whole, x, edges)? * self.strength)?,
        }
    }
}

fn apply(product: &Convolution, x: &Tensor, edges: Edges) -> Result<Tensor> {
    match x.rank() {
        2 => product.apply(&x.unsqueeze(0)?)?.squeeze(0),
        _ => product.apply_with(x, edges),
    }
}

impl NetworkDeltas {
    pub fn insert(&mut self, layer: LayerId, delta: Delta) {
        self.0.insert(layer, delta);
    }
}
