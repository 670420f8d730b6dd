//! Paged attention: spans of a step, the pages of one layer, and the operation.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::{Constants, PAGE_TOKENS, RotaryHeads, cpu, cuda};

/// One sequence's part of a step: the rows of its new tokens in the flat batch, and the pages of its context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Number of new tokens, in order, directly after those of the spans before this one.
    pub new_tokens: usize,
    /// How many tokens are already in the pages; the position of the first new token.
    pub past_tokens: usize,
    /// The pages of the sequence, in order, with space for `past_tokens + new_tokens`.
    pub pages: Vec<u32>,
}

impl Span {
    fn check(&self) -> Result<()> {
        let room = self.pages.len().saturating_mul(PAGE_TOKENS);
        match self.past_tokens.checked_add(self.new_tokens) {
            Some(tokens) if tokens <= room => Ok(()),
            _ => bail!(
                "a span of {} + {} tokens does not fit in its {} pages of {PAGE_TOKENS}",
                self.past_tokens,
                self.new_tokens,
                self.pages.len()
            ),
        }
    }
}

/// A step's spans and their device tables, made once per step and shared by all layers.
#[derive(Debug, Clone)]
pub struct AttentionPlan {
    spans: Vec<Span>,
    positions: Tensor,
    /// The end of the block that each row is in, 0 of one that is in none. Empty where no row is.
    block_ends: Vec<usize>,
    /// Tables for devices other than the CPU.
    on_device: Option<cuda::Plan>,
}

impl AttentionPlan {
    pub fn new(spans: Vec<Span>, device: &Device) -> Result<Self> {
        Self::with_list(spans, &[], device).map(|(plan, _)| plan)
    }

    /// Uploads a further list in the same copy: each copy has a fixed cost.
    pub fn with_list(spans: Vec<Span>, list: &[u32], device: &Device) -> Result<(Self, Tensor)> {
        let mut positions = Vec::new();
        for span in &spans {
            span.check()?;
            let end = span.past_tokens + span.new_tokens;
            positions.extend((span.past_tokens..end).map(|position| position as u32));
        }
        let (on_device, [positions, list]) = match device {
            Device::Cpu => (
                None,
                [Tensor::new(positions, device)?, Tensor::new(list, device)?],
            ),
            _ => {
                let (plan, lists) = cuda::Plan::new(&spans, [&positions, list], device)?;
                (Some(plan), lists)
            }
        };
        let plan = Self {
            spans,
            positions,
            block_ends: Vec::new(),
            on_device,
        };
        Ok((plan, list))
    }

    /// Adds bidirectional blocks: rows of a block attend to each other, also to later ones. A block is part of one
    /// span.
    pub fn with_blocks(self, blocks: &[Range<usize>]) -> Result<Self> {
        if blocks.is_empty() {
            return Ok(self);
        }
        let rows = self.spans.iter().map(|span| span.new_tokens).sum();
        let mut block_ends = vec![0; rows];
        let mut first = 0;
        for span in &self.spans {
            let end = first + span.new_tokens;
            for block in blocks
                .iter()
                .filter(|block| (first..end).contains(&block.start))
            {
                if block.end > end {
                    bail!("rows {block:?} see each other, but their span ends at {end}");
                }
                let position = span.past_tokens + block.end - first;
                block_ends[block.clone()].fill(position);
            }
            first = end;
        }
        Ok(Self { block_ends, ..self })
    }

    /// The position of each row of the flat batch, u32 `[rows]`.
    pub fn positions(&self) -> &Tensor {
        &self.positions
    }

    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
}

/// The sizes of a layer's attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Storage type of keys and values.
    pub stored: KvDtype,
    /// Each layer sees the past through a window at most: no sinks, no chunks, no latents, both directions nowhere.
    pub is_plain: bool,
}

/// Memory that attention allocates on a GPU besides its operands and pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttentionScratch {
    pub bytes: u64,
    /// And for each token of the longest sequence.
    pub bytes_per_token: u64,
}

impl AttentionShape {
    /// For steps of up to `new_tokens` in sequences of up to `context`.
    pub fn scratch(&self, new_tokens: usize, context: usize) -> AttentionScratch {
        cuda::scratch(self, new_tokens, context)
    }
}

/// Attention settings that differ between layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionOptions {
    /// Factor of the attention scores.
    pub scale: f32,
    /// How many tokens a query sees, itself included; `None` is all before it.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    pub reach: AttentionReach,
}

/// The tokens that a query attends to, within its window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AttentionReach {
    /// The tokens up to its own.
    #[default]
    Past,
    /// Chunked attention: the tokens up to its own in its chunk of this many positions, at least one.
    Chunk(usize),
    /// Bidirectional: all past and new tokens of its sequence; a window extends to both sides.
    Sequence,
}

/// How keys and values are stored in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvDtype {
    F32,
    F16,
    Bf16,
    /// Whole numbers of eight bits, and an f16 scale for each 32 of a head.
    Q8_0,
}

impl KvDtype {
    /// Numbers that share a scale in [`KvDtype::Q8_0`].
    pub const BLOCK: usize = 32;

    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0];

    /// The type of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Whether heads of this size can be stored.
    pub fn takes(self, head_dim: usize) -> bool {
        self != Self::Q8_0 || head_dim.is_multiple_of(Self::BLOCK)
    }

    /// Bytes of this many numbers of whole heads.
    pub fn bytes(self, numbers: usize) -> usize {
        match self {
            Self::F32 => 4 * numbers,
            Self::F16 | Self::Bf16 => 2 * numbers,
            Self::Q8_0 => numbers + 2 * numbers / Self::BLOCK,
        }
    }

    /// The type of a tensor that holds them; none where a scale belongs to them.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Self::F32 => Some(DType::F32),
            Self::F16 => Some(DType::F16),
            Self::Bf16 => Some(DType::BF16),
            Self::Q8_0 => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
        }
    }
}

impl std::fmt::Display for KvDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The KV cache of one layer, in pages on a device.
#[derive(Debug)]
pub struct LayerPages(Store);

#[derive(Debug)]
enum Store {
    Cpu(cpu::Pages),
    Device(cuda::Pages),
}

impl LayerPages {
    /// Pages of [`PAGE_TOKENS`] tokens each.
    pub fn new(
        pages: usize,
        kv_heads: usize,
        head_dim: usize,
        dtype: KvDtype,
        device: &Device,
    ) -> Result<Self> {
        Ok(Self(match device {
            Device::Cpu => Store::Cpu(cpu::Pages::new(pages, kv_heads, head_dim, dtype)?),
            _ => Store::Device(cuda::Pages::new(pages, kv_heads, head_dim, dtype, device)?),
        }))
    }

    /// Pages of latents (MLA): each token has a key of `dim` numbers, whose first `value_dim` are also its value and
    /// are stored once.
    pub fn of_latents(
        pages: usize,
        [dim, value_dim]: [usize; 2],
        dtype: KvDtype,
        device: &Device,
    ) -> Result<Self> {
        match device {
            Device::Cpu => {
                let pages = cpu::Pages::of_latents(pages, dim, value_dim, dtype)?;
                Ok(Self(Store::Cpu(pages)))
            }
            _ => {
                let pages = cuda::Pages::of_latents(pages, [dim, value_dim], dtype, device)?;
                Ok(Self(Store::Device(pages)))
            }
        }
    }

    /// Changes the number of pages: the first ones have the contents of `kept`, in order, the others are empty. After an
    /// error the contents are lost.
    pub fn resize(&mut self, pages: usize, kept: &[u32]) -> Result<()> {
        if kept.len() > pages {
            bail!("{} pages do not fit {pages}", kept.len());
        }
        match &mut self.0 {
            Store::Cpu(own) => own.resize(pages, kept),
            Store::Device(own) => own.resize(pages, kept),
        }
    }

    pub fn bytes(&self) -> usize {
        match &self.0 {
            Store::Cpu(pages) => pages.bytes(),
            Store::Device(pages) => pages.bytes(),
        }
    }
}

/// Writes `k` and `v` of the new tokens into the pages, then attends causally.
///
/// `q` is `[t, heads, d]`, `k` and `v` are `[t, kv_heads, d]`, the result is `[t, heads, d]`.
pub fn paged_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    pages: &mut LayerPages,
    plan: &AttentionPlan,
    options: AttentionOptions,
) -> Result<Tensor> {
    match (&mut pages.0, &plan.on_device) {
        (Store::Cpu(pages), _) => {
            let rows = (plan.spans(), &plan.block_ends[..]);
            cpu::paged_attention_in_blocks([q, k, v], pages, rows, options)
        }
        (Store::Device(pages), _) => attend_on_device(q, Some([k, v]), pages, plan, options, None),
    }
}

/// Attends on a device, after writing new keys and values, if any.
fn attend_on_device(
    q: &Tensor,
    new: Option<[&Tensor; 2]>,
    pages: &cuda::Pages,
    plan: &AttentionPlan,
    options: AttentionOptions,
    sinks: Option<&Constants>,
) -> Result<Tensor> {
    let Some(on_device) = &plan.on_device else {
        bail!("the plan is for the CPU, but the pages are on another device");
    };
    let seen = cuda::AttentionScope {
        options,
        block_ends: &plan.block_ends,
        sinks: sinks.map(|sinks| sinks.on(q.device())).transpose()?,
    };
    cuda::paged_attention(q, new, pages, on_device, &seen)
}

/// The same with a sink for each head: a score in the softmax that no token has and that gives nothing to the sum.
pub fn paged_attention_with_sinks(
    [q, k, v]: [&Tensor; 3],
    pages: &mut LayerPages,
    plan: &AttentionPlan,
    options: AttentionOptions,
    sinks: &Constants,
) -> Result<Tensor> {
    match &mut pages.0 {
        Store::Cpu(pages) => {
            cpu::paged_attention([q, k, v], pages, plan.spans(), options, Some(sinks))
        }
        Store::Device(pages) => {
            attend_on_device(q, Some([k, v]), pages, plan, options, Some(sinks))
        }
    }
}

/// Norms and turns queries and keys, then writes and attends as [`paged_attention`] does, with the sinks if there are any.
/// `q` is `[t, heads, d]`, `k` and `v` are `[t, kv_heads, d]`.
pub fn rotary_attention(
    [q, k, v]: [&Tensor; 3],
    heads: &RotaryHeads<'_>,
    pages: &mut LayerPages,
    plan: &AttentionPlan,
    options: AttentionOptions,
    sinks: Option<&Constants>,
) -> Result<Tensor> {
    if let (Store::Device(pages), Some(on_device)) = (&pages.0, &plan.on_device) {
        let seen = cuda::AttentionScope {
            options,
            block_ends: &plan.block_ends,
            sinks: sinks.map(|sinks| sinks.on(q.device())).transpose()?,
        };
        if let Some(result) = cuda::rotary_attention([q, k, v], heads, pages, on_device, &seen)? {
            return Ok(result);
        }
    }
    let (q, k) = (heads.applied(0, q)?, heads.applied(1, k)?);
    match sinks {
        None => paged_attention(&q, &k, v, pages, plan, options),
        Some(sinks) => paged_attention_with_sinks([&q, &k, v], pages, plan, options, sinks),
    }
}

/// Attends to keys and values that another layer has written of the step's tokens: `q` is `[t, heads, d]`, and so is the
/// result.
pub fn shared_attention(
    q: &Tensor,
    pages: &LayerPages,
    plan: &AttentionPlan,
    options: AttentionOptions,
) -> Result<Tensor> {
    match &pages.0 {
        Store::Cpu(pages) => cpu::shared_attention(q, pages, plan.spans(), options),
        Store::Device(pages) => attend_on_device(q, None, pages, plan, options, None),
    }
}

/// Writes the latents of the new tokens (`[t, 1, d]`) into pages of latents, then attends causally: all heads of `q`
/// (`[t, heads, d]`) to the same latents. The result is `[t, heads, value_dim]`.
pub fn paged_latent_attention(
    q: &Tensor,
    latents: &Tensor,
    pages: &mut LayerPages,
    plan: &AttentionPlan,
    options: AttentionOptions,
) -> Result<Tensor> {
    match &mut pages.0 {
        Store::Cpu(pages) if pages.holds_latents() => {
            cpu::paged_attention([q, latents, latents], pages, plan.spans(), options, None)
        }
        Store::Cpu(_) => bail!("the pages hold keys and values, but latents are written"),
        Store::Device(pages) if pages.holds_latents() => {
            attend_on_device(q, Some([latents, latents]), pages, plan, options, None)
        }
        Store::Device(_) => bail!("the pages hold keys and values, but latents are written"),
    }
}
