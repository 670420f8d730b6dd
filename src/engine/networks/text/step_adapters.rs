//! The adapters of a step, by the rows that have them.

use std::iter::repeat_n;

use candle_core::{Device, Result, bail};

use super::decoder::Batch;
use crate::networks::layers::{AdapterRows, LayerAdaptation};

/// The rows of each adapter: among all rows, and among those that continue past the last attention.
#[derive(Default)]
pub struct StepAdapters {
    all: Vec<AdapterRows>,
    asked: Vec<AdapterRows>,
}

impl StepAdapters {
    /// For a decoder with this many layers, whose rows `asked` continue.
    pub fn new(batch: &Batch, asked: &[u32], layers: usize, device: &Device) -> Result<Self> {
        if batch.adapters.iter().all(Option::is_none) {
            return Ok(Self::default());
        }
        if batch.adapters.len() != batch.spans.len() {
            let (found, wanted) = (batch.adapters.len(), batch.spans.len());
            bail!("a step of {wanted} sequences has {found} adapters");
        }
        let mut others = batch.adapters.iter().flatten();
        if let Some(other) = others.find(|adapter| adapter.layers() != layers) {
            let found = other.layers();
            bail!("the adapter has {found} layers, but the decoder has {layers}");
        }
        let spans = batch.spans.iter().zip(&batch.adapters);
        let rows = spans.flat_map(|(span, it)| repeat_n(it.as_ref(), span.new_tokens));
        let rows: Vec<_> = rows.collect();
        let of_asked: Vec<_> = asked.iter().map(|&row| rows[row as usize]).collect();
        Ok(Self {
            all: AdapterRows::gather(&rows, device)?,
            asked: AdapterRows::gather(&of_asked, device)?,
        })
    }

    pub fn of_all(&self, layer: usize) -> LayerAdaptation<'_> {
        LayerAdaptation {
            rows: &self.all,
            layer,
        }
    }

    pub fn of_asked(&self, layer: usize) -> LayerAdaptation<'_> {
        LayerAdaptation {
            rows: &self.asked,
            layer,
        }
    }
}
