//! The decoder: embeddings, layers, a final norm and the output matrix.
//!
//! | file | content |
//! | --- | --- |
//! | `pages` | the caches of all layers |
//! | `step` | a step in progress through the layers |
//! | `streams` | layers of several streams |

mod pages;
mod step;
mod streams;

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::{
    images::{AxisFrequencies, AxisPositions, ImageRows, StepImages},
    spec::DecoderSpec,
    step_adapters::StepAdapters,
};
use crate::networks::{
    layers::{
        AdapterTarget, AlternatingUpdate, DecoderAdapter, Embedding, FeedForward, LayerCache,
        PerLayerEmbeddings, PerLayerInput, Positions, RmsNorm, Streams, TokenMixer,
    },
    weights::Weight,
};
use muster_kernels::{
    self as kernels, AttentionPlan, KvDtype, LayerPages, LayerStates, PAGE_TOKENS, RopeTable, Span,
};

pub use pages::KvPages;
use pages::{CacheKind, CacheSlot, ScratchCache};
pub use step::LastStatesPass;
use step::{State, Step, state_spans};

/// A text decoder on a device.
pub struct Decoder {
    pub(super) spec: DecoderSpec,
    pub(super) device: Device,
    /// The type of activations.
    pub(super) dtype: DType,
    pub(super) weights_are_f32: bool,
    pub(super) ropes: Ropes,
    pub(super) embedding: Embedding,
    /// The per-layer inputs, in families that have them.
    pub(super) layer_inputs: Option<PerLayerEmbeddings>,
    /// For families whose hidden states are several streams.
    pub(super) streams: Option<Streams>,
    pub(super) layers: Vec<Layer>,
    pub(super) norm: RmsNorm,
    /// `None` for a text encoder, which returns hidden states only.
    pub(super) head: Option<Weight>,
}

pub(super) struct Layer {
    pub attention_norms: Norms,
    pub mixer: TokenMixer,
    pub feed_norms: Norms,
    pub feed_forward: FeedForward,
    /// The layer's transformation of its own input.
    pub input: Option<PerLayerInput>,
    /// Factor of the sum after the layer.
    pub scale: Option<f64>,
    /// For families whose hidden states are several streams.
    pub alternating: Option<AlternatingUpdate>,
}

/// The norms on the way into a part of a layer and out of it; families have one of them or both.
pub(super) struct Norms {
    pub before: Option<RmsNorm>,
    pub after: Option<RmsNorm>,
}

/// Rope tables.
pub(super) struct Ropes {
    pub global: RopeTable,
    /// For layers with a window, if their rope differs.
    pub windowed: Option<RopeTable>,
    /// For positions on several axes.
    pub axes: Option<AxisFrequencies>,
}

/// A step: the new tokens of several sequences, one sequence after the other.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub tokens: Vec<u32>,
    /// The sequences of these tokens, in the same order.
    pub spans: Vec<Span>,
    /// The slot of each span's state, no two alike; counted only where layers are recurrent.
    pub states: Vec<u32>,
    /// The rows of `tokens` whose logits are requested.
    pub logit_rows: Vec<u32>,
    /// The tokens that images give the rows of, in order.
    pub images: Vec<ImageRows>,
    /// For every token if a sequence has images, else empty.
    pub positions: Vec<AxisPositions>,
    /// The adapter of each span; empty where none has one.
    pub adapters: Vec<Option<Arc<DecoderAdapter>>>,
}

/// Prompt rows whose logits are in memory at once: as many as texts that decode together by default.
const SCORED_ROWS: usize = 32;

/// The tokens whose hidden states are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateRows {
    All,
    /// The last one of each sequence.
    Last,
}

impl Decoder {
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Device memory of the matrices. On the CPU the embedding table counts zero, because its rows stay in the file.
    pub fn weight_bytes(&self) -> u64 {
        let layers = self.layers.iter().map(Layer::bytes).sum::<u64>();
        let head = self.head.as_ref().map_or(0, Weight::bytes);
        let inputs = self.layer_inputs.as_ref();
        let inputs = inputs.map_or(0, PerLayerEmbeddings::bytes);
        let streams = self.streams.as_ref().map_or(0, Streams::bytes);
        layers + head + inputs + streams + self.embedding.device_bytes()
    }

    /// The default storage type of the KV cache.
    pub fn kv_dtype(&self) -> KvDtype {
        match (self.device.is_cpu(), self.weights_are_f32) {
            (true, true) => KvDtype::F32,
            (true, false) => KvDtype::F16,
            (false, _) if self.dtype == DType::F16 => KvDtype::F16,
            (false, _) => KvDtype::Bf16,
        }
    }

    pub fn new_pages(&self, pages: usize, dtype: KvDtype) -> Result<KvPages> {
        let layers = (0..self.spec.layers).map(|layer| match self.spec.cache_source(layer) {
            Some(source) => Ok(CacheSlot::Of(source)),
            None => self.layer_cache(layer, pages, dtype).map(CacheSlot::Own),
        });
        let layers = layers.collect::<Result<Vec<_>>>()?;
        Ok(KvPages { layers })
    }

    /// Runs a step and returns the logits, f32 `[asked, vocab]`, of the requested rows, in order.
    pub fn forward(&self, batch: &Batch, pages: &mut KvPages) -> Result<Tensor> {
        self.forward_scored(batch, &[], pages, &mut |_| Ok(()))
    }

    /// The same, and passes the logits of the rows `scored` to `take`, in order and [`SCORED_ROWS`] at a time: those of
    /// a whole prompt would take gigabytes.
    pub fn forward_scored(
        &self,
        batch: &Batch,
        scored: &[u32],
        pages: &mut KvPages,
        take: &mut dyn FnMut(Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        self.check(batch, scored)?;
        if self.spec.is_bidirectional {
            bail!("a decoder that reads in both directions writes no text");
        }
        if pages.layers.len() != self.layers.len() {
            let (found, wanted) = (pages.layers.len(), self.layers.len());
            bail!("the pages have {found} layers, but the decoder has {wanted}");
        }
        let images = StepImages::new(batch, self.ropes.axes.as_ref(), &self.spec, &self.device)?;
        let drawn = batch.logit_rows.len();
        let asked = [&batch.logit_rows, scored].concat();
        let step = self.step(batch.spans.clone(), &batch.states, [&batch.tokens, &asked])?;
        let mut step = Step {
            plan: step.plan.with_blocks(&images.blocks(&self.spec)?)?,
            images,
            adapters: StepAdapters::new(batch, &asked, self.layers.len(), &self.device)?,
            ..step
        };
        let mut state = self.first_state(&batch.tokens, &mut step)?;
        for index in 0..self.layers.len() {
            let is_last = index + 1 == self.layers.len();
            // After the last attention no row depends on others, so only the requested rows continue.
            let rows = is_last.then_some(&step.asked);
            let cache = pages.of_layer(index)?;
            state = self.through_layer(index, state, &step, cache, rows)?;
        }
        for first in (0..scored.len()).step_by(SCORED_ROWS) {
            let rows = SCORED_ROWS.min(scored.len() - first);
            take(self.logits(&state.normed.narrow(0, drawn + first, rows)?)?)?;
        }
        match (drawn, scored.is_empty()) {
            // On the host: the step's result is read there, and drivers may refuse empty allocations.
            (0, _) => Tensor::zeros((0, self.spec.vocab_size), DType::F32, &Device::Cpu),
            (_, true) => self.logits(&state.normed),
            (_, false) => self.logits(&state.normed.narrow(0, 0, drawn)?),
        }
    }

    fn logits(&self, normed: &Tensor) -> Result<Tensor> {
        match &self.head {
            Some(head) => self.shaped_logits(head.product(normed)?),
            None => bail!("the decoder was loaded without the way to logits"),
        }
    }

    fn shaped_logits(&self, logits: Tensor) -> Result<Tensor> {
        let logits = scaled(logits.to_dtype(DType::F32)?, 1.0 / self.spec.scales.logits)?;
        match self.spec.soft_caps.logits {
            Some(cap) => kernels::soft_cap(&logits, cap),
            None => Ok(logits),
        }
    }

    /// The last hidden state `[sequences, hidden]` of each sequence's last token, in f32.
    pub fn last_states(&self, sequences: &[&[u32]]) -> Result<Tensor> {
        let mut pass = self.begin_states(sequences, StateRows::Last)?;
        loop {
            if let Some(states) = self.advance_last_states(&mut pass)? {
                return Ok(states);
            }
        }
    }

    /// The same one layer at a time, of all tokens or of the last ones: before the first layer.
    pub fn begin_states(&self, sequences: &[&[u32]], wanted: StateRows) -> Result<LastStatesPass> {
        let mut batch = Batch::default();
        let mut pages = 0_u32;
        for tokens in sequences {
            let count = tokens.len().div_ceil(PAGE_TOKENS) as u32;
            let first = batch.tokens.len() as u32;
            batch.tokens.extend_from_slice(tokens);
            let end = batch.tokens.len() as u32;
            batch.logit_rows.extend(match wanted {
                StateRows::Last => end.saturating_sub(1)..end,
                StateRows::All => first..end,
            });
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
        self.check(&batch, &[])?;
        let slots: Vec<u32> = (0..batch.spans.len() as u32).collect();
        let lists = [&batch.tokens[..], &batch.logit_rows];
        let mut step = self.step(batch.spans, &slots, lists)?;
        let state = self.first_state(&batch.tokens, &mut step)?;
        Ok(LastStatesPass {
            step,
            scratch: self.scratch(pages as usize)?,
            state: Some(state),
            layers: 0,
        })
    }

    /// Runs one more layer. Returns the states after the last one.
    pub fn advance_last_states(&self, pass: &mut LastStatesPass) -> Result<Option<Tensor>> {
        let Some(state) = pass.state.take() else {
            bail!("the pass has ended");
        };
        let index = pass.layers;
        let is_last = index + 1 == self.layers.len();
        let rows = is_last.then_some(&pass.step.asked);
        let cache = pass.scratch.of_kind(self.cache_kind(index))?;
        let state = self.through_layer(index, state, &pass.step, cache, rows)?;
        pass.layers += 1;
        if is_last {
            return state.normed.to_dtype(DType::F32).map(Some);
        }
        pass.state = Some(state);
        Ok(None)
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
        let mut step = self.step(vec![span], &[0], [tokens, &[]])?;
        let mut scratch = self.scratch(pages)?;
        let mut state = self.first_state(tokens, &mut step)?;
        let mut states = vec![self.unscaled(&state)?];
        for index in 0..layers.iter().copied().max().unwrap_or(0) {
            let cache = scratch.of_kind(self.cache_kind(index))?;
            state = self.through_layer(index, state, &step, cache, None)?;
            let is_last = index + 1 == self.layers.len();
            states.push(if is_last {
                state.normed.clone()
            } else {
                self.unscaled(&state)?
            });
        }
        Ok(layers.iter().map(|&layer| states[layer].clone()).collect())
    }

    fn check(&self, batch: &Batch, scored: &[u32]) -> Result<()> {
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
            None if [&batch.logit_rows, scored]
                .into_iter()
                .flatten()
                .any(|&row| row as usize >= tokens) =>
            {
                bail!("a logits row is out of range (rows: {tokens})")
            }
            None => Ok(()),
        }
    }

    /// `tokens` are those of the spans, `asked` the rows to continue after the last attention.
    fn step(&self, spans: Vec<Span>, slots: &[u32], [tokens, asked]: [&[u32]; 2]) -> Result<Step> {
        let query_scales = self.query_scales(&spans)?;
        let states = match self.spec.is_recurrent() {
            true => state_spans(&spans, slots)?,
            false => Vec::new(),
        };
        let list = [tokens, asked].concat();
        let (plan, list) = AttentionPlan::with_list(spans, &list, &self.device)?;
        Ok(Step {
            states,
            plan,
            tokens: list.narrow(0, 0, tokens.len())?,
            asked: list.narrow(0, tokens.len(), asked.len())?,
            query_scales,
            images: StepImages::default(),
            layer_inputs: None,
            adapters: StepAdapters::default(),
        })
    }

    /// A factor for the queries of each row, `[rows, 1, 1]`; `None` where all are 1.
    fn query_scales(&self, spans: &[Span]) -> Result<Option<Tensor>> {
        let Some(temperature) = &self.spec.query_temperature else {
            return Ok(None);
        };
        let places = spans
            .iter()
            .flat_map(|span| span.past_tokens..span.past_tokens + span.new_tokens);
        let scales: Vec<f32> = places
            .map(|position| temperature.scale(position) as f32)
            .collect();
        if scales.iter().all(|&scale| scale == 1.0) {
            return Ok(None);
        }
        let shape = (scales.len(), 1, 1);
        let scales = Tensor::from_vec(scales, shape, &self.device)?;
        scales.to_dtype(self.dtype).map(Some)
    }

    fn positions<'a>(&'a self, step: &'a Step, layer: usize) -> Positions<'a> {
        let windowed = self.ropes.windowed.as_ref();
        let windowed = windowed.filter(|_| self.spec.window(layer).is_some());
        let table = windowed.unwrap_or(&self.ropes.global);
        let (table, at) = match &step.images.turned {
            Some((table, at)) => (table, at),
            None => (table, step.plan.positions()),
        };
        let turns = self.spec.rope(layer).is_some();
        let temperature = self.spec.query_temperature.as_ref();
        let is_plain = turns && temperature.is_some_and(|it| it.is_of_unturned);
        Positions {
            plan: &step.plan,
            states: &step.states,
            rope: turns.then_some((table, at)),
            query_scales: step.query_scales.as_ref().filter(|_| !is_plain),
            adaptation: step.adapters.of_all(layer),
        }
    }

    fn layer_cache(&self, layer: usize, pages: usize, dtype: KvDtype) -> Result<LayerCache> {
        if let Some(recurrence) = self.spec.recurrence(layer) {
            let states = LayerStates::new(recurrence.state(), &self.device)?;
            return Ok(LayerCache::States(states));
        }
        if let Some(latent) = &self.spec.latent {
            let numbers = [latent.sizes.kept(), latent.sizes.rank];
            let pages = LayerPages::of_latents(pages, numbers, dtype, &self.device)?;
            return Ok(LayerCache::Pages(pages));
        }
        let heads = self.spec.layer_heads(layer);
        let (heads, size) = (heads.kv_heads, heads.head_dim);
        let pages = LayerPages::new(pages, heads, size, dtype, &self.device)?;
        Ok(LayerCache::Pages(pages))
    }

    /// A temporary cache for sequences that are read from their first token, layer by layer: each layer writes before
    /// it reads, or reads the last layer of its kind, so that all layers of a kind share one cache.
    fn scratch(&self, pages: usize) -> Result<ScratchCache> {
        let of_kind = |kind: CacheKind| {
            let layer = (0..self.spec.layers).find(|&layer| self.cache_kind(layer) == kind);
            let cache = layer.map(|layer| self.layer_cache(layer, pages, self.kv_dtype()));
            cache.transpose()
        };
        Ok(ScratchCache {
            pages: of_kind(CacheKind::Pages)?,
            windowed: of_kind(CacheKind::Windowed)?,
            states: of_kind(CacheKind::States)?,
        })
    }

    fn cache_kind(&self, layer: usize) -> CacheKind {
        let differ = self.spec.global_heads.is_some() || self.spec.shared_layers > 0;
        match differ && self.spec.window(layer).is_some() {
            _ if self.spec.is_recurrent_layer(layer) => CacheKind::States,
            true => CacheKind::Windowed,
            false => CacheKind::Pages,
        }
    }

    /// The embeddings of a step's tokens; adds the per-layer inputs to the step.
    fn first_state(&self, tokens: &[u32], step: &mut Step) -> Result<State> {
        let scales = &self.spec.scales;
        let embedded = self.embedding.gather_uploaded(tokens, &step.tokens)?;
        let sum = scaled(embedded, scales.embedding / scales.residual)?;
        let sum = step.images.embedded(sum)?;
        if let Some(inputs) = &self.layer_inputs {
            let inputs = inputs.inputs(tokens, &step.tokens, &sum, &self.device)?;
            step.layer_inputs = Some(inputs);
        }
        if let (Some(streams), Some(updates)) = (&self.streams, self.spec.alternating_updates) {
            let streams = streams.split(&sum)?;
            let sum = streams[updates.active].clone();
            return Ok(State {
                normed: sum.clone(),
                sum,
                streams,
            });
        }
        let normed = match self.norm_before(0) {
            Some(norm) => norm.forward(&sum)?,
            None => sum.clone(),
        };
        Ok(State {
            sum,
            normed,
            streams: Vec::new(),
        })
    }

    /// The running sum as the reference has it.
    fn unscaled(&self, state: &State) -> Result<Tensor> {
        scaled(state.sum.clone(), self.spec.scales.residual)
    }

    /// The norm that a layer's input goes through, or that after the last layer.
    fn norm_before(&self, layer: usize) -> Option<&RmsNorm> {
        match self.layers.get(layer) {
            Some(layer) => layer.attention_norms.before.as_ref(),
            None => Some(&self.norm),
        }
    }

    /// Applies a layer to the residual stream; with `rows`, only these rows continue.
    fn through_layer(
        &self,
        index: usize,
        state: State,
        step: &Step,
        cache: &mut LayerCache,
        rows: Option<&Tensor>,
    ) -> Result<State> {
        let layer = &self.layers[index];
        if let Some(alternating) = &layer.alternating {
            return self.through_streams(index, alternating, state, step, cache, rows);
        }
        let positions = self.positions(step, index);
        let mut gathered = layer.mixer.gather(&state.normed, &positions, cache)?;
        let mut sum = state.sum;
        if let Some(rows) = rows {
            if rows.elem_count() == 0 {
                // The keys and values are stored, and no logits are requested.
                return Ok(State::plain(sum));
            }
            gathered = kernels::select_rows(&gathered, rows)?;
            sum = kernels::select_rows(&sum, rows)?;
        }
        let adaptation = match rows {
            None => positions.adaptation,
            Some(_) => step.adapters.of_asked(index),
        };
        let attended = layer.mixer.output().forward(&gathered)?;
        let attended = adaptation.add(AdapterTarget::AttentionOutput, &gathered, attended)?;
        let norms = &layer.attention_norms;
        let state = added(
            sum,
            attended,
            norms.after.as_ref(),
            layer.feed_norms.before.as_ref(),
        )?;
        let fed = layer
            .feed_forward
            .forward(&state.normed, &state.sum, adaptation)?;
        let (after, next) = (layer.feed_norms.after.as_ref(), self.norm_before(index + 1));
        if layer.input.is_none() && layer.scale.is_none() {
            let sum = step.images.after_layer(index, state.sum)?;
            return added(sum, fed, after, next);
        }
        let mut sum = added(state.sum, fed, after, None)?.sum;
        if let (Some(input), Some(inputs)) = (&layer.input, step.inputs_of(index, rows)?) {
            sum = (&sum + input.forward(&sum, &inputs)?)?;
        }
        sum = scaled(sum, layer.scale.unwrap_or(1.0))?;
        let normed = match next {
            Some(norm) => norm.forward(&sum)?,
            None => sum.clone(),
        };
        Ok(State {
            normed,
            ..State::plain(sum)
        })
    }
}

/// Adds the output of attention or feed-forward to the residual stream, and normalizes the sum for the next part.
fn added(
    sum: Tensor,
    said: Tensor,
    after: Option<&RmsNorm>,
    before: Option<&RmsNorm>,
) -> Result<State> {
    let said = match after {
        Some(norm) => norm.forward(&said)?,
        None => said,
    };
    match before {
        Some(norm) => {
            let (sum, normed) = norm.after_adding(&sum, &said)?;
            Ok(State {
                normed,
                ..State::plain(sum)
            })
        }
        None => Ok(State::plain((sum + said)?)),
    }
}

fn scaled(tensor: Tensor, factor: f64) -> Result<Tensor> {
    if factor == 1.0 {
        return Ok(tensor);
    }
    tensor * factor
}

impl Layer {
    pub fn bytes(&self) -> u64 {
        self.mixer.bytes() + self.feed_forward.bytes() + self.input_bytes()
    }

    /// Bytes of the weights for the layer's own input.
    pub fn input_bytes(&self) -> u64 {
        let input = self.input.as_ref().map_or(0, PerLayerInput::bytes);
        let alternating = self.alternating.as_ref();
        input + alternating.map_or(0, AlternatingUpdate::bytes)
    }
}
