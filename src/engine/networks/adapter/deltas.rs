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
pub struct NetworkDeltas {
    by_layer: HashMap<LayerId, Delta>,
    bytes: u64,
}

/// The addition to a layer's output.
#[derive(Debug)]
pub enum Delta {
    /// A narrow product of the input, widened again.
    LowRank { down: Convolution, up: Convolution },
    /// A product of the layer's own size.
    Full(Convolution),
    /// DoRA: scales the channels of the layer's output, and adds a low-rank product.
    Decomposed {
        down: Convolution,
        up: Convolution,
        /// The relative change of each output channel, excluding the bias.
        gain: Tensor,
        bias: Option<Tensor>,
    },
}

impl Adaptation {
    /// `None` if it changes nothing.
    pub fn new(deltas: &Arc<NetworkDeltas>, strength: f32) -> Option<Self> {
        let is_needed = strength != 0.0 && !deltas.by_layer.is_empty();
        is_needed.then(|| Self {
            deltas: Arc::clone(deltas),
            strength: strength.into(),
        })
    }

    /// Adds the change to `y`; `plain` is the layer's output for `x` without adapters.
    pub fn add_to(
        &self,
        layer: LayerId,
        (x, plain): (&Tensor, &Tensor),
        y: Tensor,
        edges: Edges,
    ) -> Result<Tensor> {
        match self.deltas.by_layer.get(&layer) {
            None => Ok(y),
            Some(Delta::LowRank { down, up }) => {
                let narrow = (apply(down, x, edges)? * self.strength)?;
                y + apply(up, &narrow, edges)?
            }
            Some(Delta::Decomposed {
                down,
                up,
                gain,
                bias,
            }) => {
                let product = match bias {
                    Some(bias) => plain.broadcast_sub(bias)?,
                    None => plain.clone(),
                };
                let narrow = apply(down, x, edges)?;
                let change = (product.broadcast_mul(gain)? + apply(up, &narrow, edges)?)?;
                y + (change * self.strength)?
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
    /// `numbers`: of the change, in f32.
    pub fn insert(&mut self, layer: LayerId, delta: Delta, numbers: usize) {
        self.by_layer.insert(layer, delta);
        self.bytes += 4 * numbers as u64;
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
