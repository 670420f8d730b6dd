//! LoRA in a decoder: products of adapters added to the layers' outputs for some rows.
//!
//! Adapters are never merged into weights, so that one step computes rows with different adapters and rows without any.
//! Each row is computed separately: its bits do not depend on the others.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor};

use crate::networks::weights::Weight;

/// A product of a layer that adapters may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterTarget {
    Query,
    /// The gate of the attention output.
    AttentionGate,
    Key,
    Value,
    AttentionOutput,
    Gate,
    Up,
    Down,
}

impl AdapterTarget {
    const COUNT: usize = Self::Down as usize + 1;
}

/// `scale · up (down x)`
#[derive(Debug)]
pub struct LowRank {
    /// `[rank, inputs]`
    pub down: Weight,
    /// `[outputs, rank]`
    pub up: Weight,
    pub scale: f64,
}

/// An adapter of a decoder, on its device.
#[derive(Debug)]
pub struct DecoderAdapter {
    layers: Vec<LayerAdapter>,
}

/// The changes of one layer, by target.
#[derive(Debug, Default)]
struct LayerAdapter([Option<LowRank>; AdapterTarget::COUNT]);

/// Rows of a step that have the same adapter.
#[derive(Debug)]
pub struct AdapterRows {
    adapter: Arc<DecoderAdapter>,
    /// Their numbers; `None` where they are all rows.
    rows: Option<Tensor>,
}

/// The adapters of a step in one layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerAdaptation<'a> {
    pub rows: &'a [AdapterRows],
    pub layer: usize,
}

impl LowRank {
    pub fn bytes(&self) -> u64 {
        self.down.bytes() + self.up.bytes()
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.up.product(&(self.down.product(x)? * self.scale)?)
    }
}

impl DecoderAdapter {
    pub fn new(layers: usize) -> Self {
        Self {
            layers: (0..layers).map(|_| LayerAdapter::default()).collect(),
        }
    }

    /// Sets the change of a product; gives that of an earlier call back.
    pub fn insert(
        &mut self,
        layer: usize,
        target: AdapterTarget,
        change: LowRank,
    ) -> Option<LowRank> {
        self.layers[layer].0[target as usize].replace(change)
    }

    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    pub fn bytes(&self) -> u64 {
        let changes = self
            .layers
            .iter()
            .flat_map(|layer| layer.0.iter().flatten());
        changes.map(LowRank::bytes).sum()
    }

    fn change(&self, layer: usize, target: AdapterTarget) -> Option<&LowRank> {
        self.layers.get(layer)?.0[target as usize].as_ref()
    }
}

impl AdapterRows {
    /// The rows of each adapter of a step, by the adapters of its rows.
    pub fn gather(rows: &[Option<&Arc<DecoderAdapter>>], device: &Device) -> Result<Vec<Self>> {
        let mut groups: Vec<(&Arc<DecoderAdapter>, Vec<u32>)> = Vec::new();
        for (row, adapter) in (0..).zip(rows) {
            let Some(adapter) = *adapter else {
                continue;
            };
            match groups
                .iter_mut()
                .find(|(known, _)| Arc::ptr_eq(known, adapter))
            {
                Some((_, numbers)) => numbers.push(row),
                None => groups.push((adapter, vec![row])),
            }
        }
        let groups = groups.into_iter().map(|(adapter, numbers)| {
            let are_all = numbers.len() == rows.len();
            let numbers = (!are_all).then(|| Tensor::new(numbers, device));
            Ok(Self {
                adapter: Arc::clone(adapter),
                rows: numbers.transpose()?,
            })
        });
        groups.collect()
    }
}

impl LayerAdaptation<'_> {
    /// For rows without adapters.
    pub const NONE: Self = LayerAdaptation {
        rows: &[],
        layer: 0,
    };

    /// Adds the adapters' changes to the product `y` of `x`.
    pub fn add(self, target: AdapterTarget, x: &Tensor, y: Tensor) -> Result<Tensor> {
        let (mut numbers, mut changes) = (Vec::new(), Vec::new());
        for group in self.rows {
            let Some(change) = group.adapter.change(self.layer, target) else {
                continue;
            };
            let Some(rows) = &group.rows else {
                let change = change.forward(x)?.to_dtype(y.dtype())?;
                return y + change;
            };
            changes.push(change.forward(&x.index_select(rows, 0)?)?);
            numbers.push(rows);
        }
        let (rows, change) = match (numbers.as_slice(), changes.as_slice()) {
            ([], _) => return Ok(y),
            ([rows], [change]) => ((*rows).clone(), change.clone()),
            _ => (Tensor::cat(&numbers, 0)?, Tensor::cat(&changes, 0)?),
        };
        let change = change.to_dtype(y.dtype())?;
        y.index_add(&rows, &change, 0)
    }
}
