//! The decoder: embeddings, layers, a last norm and the way to logits.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::spec::DecoderSpec;
use crate::networks::{
    layers::{Attention, Embedding, FeedForward, Positions, RmsNorm},
    weights::Weight,
};
use muster_kernels::{AttentionPlan, LayerPages, PAGE_TOKENS, RopeTable, Span};

/// A text decoder on a device.
pub struct Decoder {
    pub(super) spec: DecoderSpec,
    pub(super) device: Device,
    /// The type of activations.
    pub(super) dtype: DType,
    pub(super) weights_are_f32: bool,
    pub(super) rope: RopeTable,
    pub(super) embedding: Embedding,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: RmsNorm,
    /// None of one whose hidden states are wanted alone.
    pub(super) head: Option<Weight>,
}

pub(super) struct Layer {
    pub attention_norm: RmsNorm,
    pub attention: Attention,
    pub feed_norm: RmsNorm,
    pub feed_forward: FeedForward,
}

/// One step: the new tokens of several sequences, one sequence after the other.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub tokens: Vec<u32>,
    /// Whose tokens they are, in the same order.
    pub spans: Vec<Span>,
    /// The rows of `tokens` whose next token somebody wants to know.
    pub logit_rows: Vec<u32>,
}

/// The keys and values of every layer, in pages of [`PAGE_TOKENS`] tokens.
#[derive(Debug)]
pub struct KvPages {
    layers: Vec<LayerPages>,
}

impl KvPages {
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes() as u64).sum()
    }
}

impl Decoder {
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What the matrices take of the device's memory. The table of embeddings counts nothing on the CPU, where
    /// its rows stay in the file.
    pub fn weight_bytes(&self) -> u64 {
        let layers = self.layers.iter().map(Layer::bytes).sum::<u64>();
        let head = self.head.as_ref().map_or(0, Weight::bytes);
        layers + head + self.embedding.device_bytes()
    }

    /// The type that keys and values are kept in unless somebody wants another.
    pub fn kv_dtype(&self) -> DType {
        match (self.device.is_cpu(), self.weights_are_f32) {
            (true, true) => DType::F32,
            (true, false) => DType::F16,
            (false, _) if self.dtype == DType::F16 => DType::F16,
            (false, _) => DType::BF16,
        }
    }

    pub fn new_pages(&self, pages: usize, dtype: DType) -> Result<KvPages> {
        let layers = (0..self.spec.layers).map(|_| self.layer_pages(pages, dtype));
        let layers = layers.collect::<Result<Vec<_>>>()?;
        Ok(KvPages { layers })
    }

    /// Runs a step and returns the logits, f32 `[asked, vocab]`, of the rows asked for, in their order.
    pub fn forward(&self, batch: &Batch, pages: &mut KvPages) -> Result<Tensor> {
        self.check(batch)?;
        if pages.layers.len() != self.layers.len() {
            let (found, wanted) = (pages.layers.len(), self.layers.len());
            bail!("the pages have {found} layers, but the decoder has {wanted}");
        }
        let plan = AttentionPlan::new(batch.spans.clone(), &self.device)?;
        let positions = self.positions(&plan);
        let asked = Tensor::new(batch.logit_rows.as_slice(), &self.device)?;
        let mut state = self.first_state(&batch.tokens)?;
        for (index, pages) in pages.layers.iter_mut().enumerate() {
            let is_last = index + 1 == self.layers.len();
            // Past the last attention no row looks at another, so the others are done.
            let rows = is_last.then_some(&asked);
            state = self.through_layer(index, state, &positions, pages, rows)?;
        }
        match (&self.head, batch.logit_rows.is_empty()) {
            (_, true) => Tensor::zeros((0, self.spec.vocab_size), DType::F32, &self.device),
            (Some(head), false) => head.product(&state.normed)?.to_dtype(DType::F32),
            (None, false) => bail!("the decoder was loaded without the way to logits"),
        }
    }

    /// The last hidden state `[sequences, hidden]` of each sequence's last token, in f32.
    pub fn last_states(&self, sequences: &[&[u32]]) -> Result<Tensor> {
        let mut batch = Batch::default();
        let mut pages = 0_u32;
        for tokens in sequences {
            let count = tokens.len().div_ceil(PAGE_TOKENS) as u32;
            batch.tokens.extend_from_slice(tokens);
            batch
                .logit_rows
                .push((batch.tokens.len() as u32).saturating_sub(1));
            batch.spans.push(Span {
                new_tokens: tokens.len(),
                past_tokens: 0,
                pages: (pages..pages + count).collect(),
            });
            pages += count;
        }
        if sequences.iter().any(|tokens| tokens.is_empty()) {
            bail!("hidden states need at least one token");
        }
        self.check(&batch)?;
        let plan = AttentionPlan::new(batch.spans, &self.device)?;
        let positions = self.positions(&plan);
        let asked = Tensor::new(batch.logit_rows.as_slice(), &self.device)?;
        // Each layer writes all it reads, so that one layer's pages do for all.
        let mut scratch = self.layer_pages(pages as usize, self.kv_dtype())?;
        let mut state = self.first_state(&batch.tokens)?;
        for index in 0..self.layers.len() {
            let is_last = index + 1 == self.layers.len();
            let rows = is_last.then_some(&asked);
            state = self.through_layer(index, state, &positions, &mut scratch, rows)?;
        }
        state.normed.to_dtype(DType::F32)
    }

    /// The hidden states `[tokens, hidden]` of one sequence, numbered as the reference numbers them: 0 are the
    /// embeddings, `n` the output of the n-th layer, and that of the last layer has been through the last norm.
    pub fn hidden_states(&self, tokens: &[u32], layers: &[usize]) -> Result<Vec<Tensor>> {
        if let Some(layer) = layers.iter().find(|&&layer| layer > self.layers.len()) {
            bail!(
                "layer {layer} is out of range (layers: {})",
                self.layers.len()
            );
        }
        if tokens.is_empty() {
            bail!("hidden states need at least one token");
        }
        let pages = tokens.len().div_ceil(PAGE_TOKENS);
        let span = Span {
            new_tokens: tokens.len(),
            past_tokens: 0,
            pages: (0..pages as u32).collect(),
        };
        let plan = AttentionPlan::new(vec![span], &self.device)?;
        let positions = self.positions(&plan);
        // Each layer writes all it reads, so that one layer's pages do for all.
        let mut scratch = self.layer_pages(pages, self.kv_dtype())?;
        let mut state = self.first_state(tokens)?;
        let mut states = vec![state.sum.clone()];
        for index in 0..layers.iter().copied().max().unwrap_or(0) {
            state = self.through_layer(index, state, &positions, &mut scratch, None)?;
            let is_last = index + 1 == self.layers.len();
            states.push(if is_last {
                state.normed.clone()
            } else {
                state.sum.clone()
            });
        }
        Ok(layers.iter().map(|&layer| states[layer].clone()).collect())
    }

    fn check(&self, batch: &Batch) -> Result<()> {
        let tokens = batch.tokens.len();
        let spanned: usize = batch.spans.iter().map(|span| span.new_tokens).sum();
        if tokens == 0 || spanned != tokens {
            bail!("the spans hold {spanned} tokens, but the step has {tokens}");
        }
        let longest = batch
            .spans
            .iter()
            .map(|span| span.past_tokens + span.new_tokens);
        match longest.max().filter(|&longest| longest > self.spec.context) {
            Some(longest) => bail!(
                "a sequence of {longest} tokens does not fit the context of {}",
                self.spec.context
            ),
            None if batch.logit_rows.iter().any(|&row| row as usize >= tokens) => {
                bail!("a logits row is out of range (rows: {tokens})")
            }
            None => Ok(()),
        }
    }

    fn positions<'a>(&'a self, plan: &'a AttentionPlan) -> Positions<'a> {
        Positions {
            plan,
            rope: &self.rope,
        }
    }

    fn layer_pages(&self, pages: usize, dtype: DType) -> Result<LayerPages> {
        let (heads, size) = (self.spec.kv_heads, self.spec.head_dim);
        LayerPages::new(pages, heads, size, dtype, &self.device)
    }

    fn first_state(&self, tokens: &[u32]) -> Result<State> {
        let sum = self.embedding.gather(tokens, &self.device)?;
        let normed = self.norm_before(0).forward(&sum)?;
        Ok(State { sum, normed })
    }

    /// The norm that a layer's input goes through, or that after the last layer.
    fn norm_before(&self, layer: usize) -> &RmsNorm {
        let layer = self.layers.get(layer);
        layer.map_or(&self.norm, |layer| &layer.attention_norm)
    }

    /// Adds what a layer has to say; with `rows`, only these rows go on.
    fn through_layer(
        &self,
        index: usize,
        state: State,
        positions: &Positions<'_>,
        pages: &mut LayerPages,
        rows: Option<&Tensor>,
    ) -> Result<State> {
        let layer = &self.layers[index];
        let mut gathered = layer.attention.gather(&state.normed, positions, pages)?;
        let mut sum = state.sum;
        if let Some(rows) = rows {
            if rows.elem_count() == 0 {
                // The keys and values are written, and nobody wants more of this step.
                return Ok(State {
                    normed: sum.clone(),
                    sum,
                });
            }
            gathered = gathered.index_select(rows, 0)?;
            sum = sum.index_select(rows, 0)?;
        }
        let attended = layer.attention.output.forward(&gathered)?;
        let (sum, normed) = layer.feed_norm.after_adding(&sum, &attended)?;
        let fed = layer.feed_forward.forward(&normed)?;
        let (sum, normed) = self.norm_before(index + 1).after_adding(&sum, &fed)?;
        Ok(State { sum, normed })
    }
}

/// The running sum of a step, and the same as the next layer wants it.
struct State {
    sum: Tensor,
    normed: Tensor,
}

impl Layer {
    pub fn bytes(&self) -> u64 {
        self.attention.bytes() + self.feed_forward.bytes()
    }
}
