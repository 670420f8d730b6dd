//! A step on its way through the layers.

use candle_core::{Result, Tensor, bail};

use super::super::images::StepImages;
use super::super::step_adapters::StepAdapters;
use super::pages::ScratchCache;
use muster_kernels::{AttentionPlan, Span, StateSpan, select_rows};

/// The rows of a step, for all layers.
pub(super) struct Step {
    pub(super) plan: AttentionPlan,
    /// On the device: the tokens, and the rows to continue after the last attention.
    pub(super) tokens: Tensor,
    pub(super) asked: Tensor,
    pub(super) states: Vec<StateSpan>,
    pub(super) query_scales: Option<Tensor>,
    pub(super) images: StepImages,
    /// The inputs that layers have besides the hidden state, `[rows, layers, size]`.
    pub(super) layer_inputs: Option<Tensor>,
    pub(super) adapters: StepAdapters,
}

/// Sequences on their way to the hidden states of their last tokens.
pub struct LastStatesPass {
    pub(super) step: Step,
    pub(super) scratch: ScratchCache,
    /// `None` after the pass has ended or failed.
    pub(super) state: Option<State>,
    /// Layers that they have been through.
    pub(super) layers: usize,
}

/// The residual stream of a step, and its normalized form for the next layer.
pub(super) struct State {
    /// Divided by the residual scale; of several streams the active one.
    pub(super) sum: Tensor,
    pub(super) normed: Tensor,
    pub(super) streams: Vec<Tensor>,
}

impl State {
    pub(super) fn plain(sum: Tensor) -> Self {
        Self {
            normed: sum.clone(),
            sum,
            streams: Vec::new(),
        }
    }
}

impl Step {
    /// The inputs of a layer, of these rows or of all.
    pub(super) fn inputs_of(&self, layer: usize, rows: Option<&Tensor>) -> Result<Option<Tensor>> {
        let Some(inputs) = &self.layer_inputs else {
            return Ok(None);
        };
        let inputs = inputs.narrow(1, layer, 1)?.squeeze(1)?.contiguous()?;
        match rows {
            Some(rows) => select_rows(&inputs, rows).map(Some),
            None => Ok(Some(inputs)),
        }
    }
}

/// The rows of each sequence's state.
pub(super) fn state_spans(spans: &[Span], slots: &[u32]) -> Result<Vec<StateSpan>> {
    if spans.len() != slots.len() {
        let (found, wanted) = (slots.len(), spans.len());
        bail!("a step of {wanted} sequences has {found} states");
    }
    let spans = spans.iter().zip(slots).map(|(span, slot)| StateSpan {
        new_tokens: span.new_tokens,
        is_first: span.past_tokens == 0,
        slot: *slot as usize,
    });
    Ok(spans.collect())
}
