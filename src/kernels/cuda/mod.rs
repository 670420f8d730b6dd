//! Operations on GPUs: our own kernels, and attention over pages that are candle tensors.
//!
//! With the feature `flash-attn` and half-precision pages attention is one call of paged flash attention; otherwise our
//! kernels attend if they support the head dimension; otherwise the pages of each sequence are gathered and multiplied
//! with candle's operations, on any device. Products on a GPU run in cuBLAS: last bits may differ with a step's shape.

#[cfg_attr(not(feature = "cuda"), path = "few_rows_absent.rs")]
mod few_rows;
#[cfg_attr(feature = "flash-attn", path = "flash.rs")]
#[cfg_attr(not(feature = "flash-attn"), path = "flash_absent.rs")]
mod flash;
#[cfg_attr(not(feature = "cuda"), path = "heads_absent.rs")]
mod heads;
#[cfg(feature = "cuda")]
mod launch;
mod lowered;
#[cfg_attr(not(feature = "cuda"), path = "native_absent.rs")]
mod native;
#[cfg_attr(not(feature = "cuda"), path = "paged_absent.rs")]
mod paged;
#[cfg_attr(not(all(feature = "cuda", stand_ins)), path = "products_absent.rs")]
mod products;
#[cfg_attr(not(feature = "cuda"), path = "recurrence_absent.rs")]
mod recurrence;
mod resize;
mod states;
#[cfg_attr(not(feature = "cuda"), path = "text_absent.rs")]
mod text;
#[cfg_attr(not(feature = "cuda"), path = "transfer_absent.rs")]
mod transfer;
#[cfg_attr(not(feature = "cuda"), path = "trial_absent.rs")]
mod trial;
#[cfg(feature = "cuda")]
mod trial_record;
mod upload;

use std::ops::Range;

use candle_core::{D, DType, Device, Result, Tensor, bail};

use super::{
    AttentionOptions, AttentionReach, AttentionScratch, AttentionShape, KvDtype, PAGE_TOKENS, Span,
};
use crate::rope::RotaryHeads;
pub use few_rows::{few_gated_rows, few_rows};
pub use lowered::{LOWERED_BYTES, convolve as convolve_lowered};
pub use native::{attention, convolve, group_norm, layer_norm, product};
pub use states::{DeviceTaps, States};
pub use text::{
    add_rms_norm, gate, give_back_gpu_memory, gpu_free_bytes, open_gpu, rotate, select_rows,
};
pub use transfer::PinnedFloats;
pub use trial::{gpu_faults, gpu_trials, keep_gpu_trials};
use upload::Upload;

/// Whether products of dense matrices on GPUs are the vendor's, and not our own slower ones.
pub fn has_vendor_products() -> bool {
    products::are_the_vendors()
}

/// A convolution lowered to a product: input positions of its taps, and its sizes.
#[derive(Debug, Clone)]
pub struct Lowering {
    /// The input that each tap of each output sees along each axis, u32; the largest number for none.
    pub seen: [Tensor; 2],
    pub outputs: [usize; 2],
    pub taps: [usize; 2],
    pub groups: usize,
}

/// Limit of attention scores (f32) that are in memory at once: queries of a long prompt are processed in chunks.
const MAX_SCORES_BYTES: usize = 32 << 20;
/// Copies of the scores in memory at the peak of a masked softmax: scores, shifted, exponentials, normalized, and the
/// mask.
const SCORES_COPIES: u64 = 5;
/// A number of a gathered key, and one of a value as it is stored, as f32, and again in order.
const GATHERED_BYTES: u64 = 4 + 4 + 4 + 4;

/// Key and value pages of one layer, `[pages * PAGE_TOKENS, kv_heads * head_dim]` each.
#[derive(Debug)]
pub struct Pages {
    stored: KvDtype,
    keys: Tensor,
    values: Tensor,
    /// Scales of an eight-bit KV cache, f16 `[pages * PAGE_TOKENS, kv_heads * head_dim / 32]`. The quantized numbers
    /// are stored as unsigned bytes, offset by [`ZERO`].
    scales: Option<[Tensor; 2]>,
    kv_heads: usize,
    head_dim: usize,
    /// For pages of latents (MLA): the value is this many leading numbers of the key, and no value pages exist.
    value_dim: Option<usize>,
}

/// Options that select the keys of each query.
pub struct AttentionScope<'a> {
    pub options: AttentionOptions,
    /// See [`crate::AttentionPlan::with_blocks`].
    pub block_ends: &'a [usize],
    /// A score of each head that no token has, f32 `[heads]`.
    pub sinks: Option<&'a Tensor>,
}

impl AttentionScope<'_> {
    /// Whether kernels take it: each query sees tokens up to its own.
    fn is_causal(&self) -> bool {
        self.options.reach != AttentionReach::Sequence && self.block_ends.is_empty()
    }

    /// A window and a cap alone.
    fn is_plain(&self) -> bool {
        self.is_causal() && self.options.reach == AttentionReach::Past && self.sinks.is_none()
    }
}

/// A step's spans in the device's layout. Spans without new tokens are omitted.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The slot of each new token's key and value in the pages.
    slots: Tensor,
    /// `[spans, most pages]`, filled up with page 0.
    page_table: Tensor,
    lengths: flash::Lengths,
    spans: Vec<Span>,
    /// The tokens of spans with few of them.
    single: Option<SingleTokens>,
    /// The other spans.
    prompts: Vec<Prompt>,
}

/// Tokens that attend individually.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "only the kernels look at it")
)]
struct SingleTokens {
    /// The row of each, its span, and its position.
    rows: Tensor,
    spans: Tensor,
    positions: Tensor,
    /// Tokens in the longest of their contexts.
    longest: usize,
}

/// A span with more than [`FEW_TOKENS`] new tokens, which attend together.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "only the kernels look at it")
)]
struct Prompt {
    span: Span,
    /// The row of its first token.
    first: usize,
    /// The pages with its context.
    pages: Tensor,
}

/// Tokens of spans up to this length attend individually.
const FEW_TOKENS: usize = 8;

impl Plan {
    /// Uploads further lists of the step in the same copy.
    pub fn new(spans: &[Span], lists: [&[u32]; 2], device: &Device) -> Result<(Self, [Tensor; 2])> {
        let spans: Vec<_> = spans
            .iter()
            .filter(|span| span.new_tokens > 0)
            .cloned()
            .collect();
        let most_pages = spans.iter().map(|span| span.pages.len()).max().unwrap_or(0);
        let mut upload = Upload::default();
        let (mut slots, mut table) = (Vec::new(), Vec::new());
        for span in &spans {
            let context = context(span);
            for position in span.past_tokens..context {
                let page = span.pages[position / PAGE_TOKENS] as usize;
                slots.push((page * PAGE_TOKENS + position % PAGE_TOKENS) as u32);
            }
            table.extend_from_slice(&span.pages);
            table.resize(table.len() + most_pages - span.pages.len(), 0);
        }
        let (mut rows, mut of_spans, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        let (mut prompts, mut first, mut longest) = (Vec::new(), 0, 0);
        for (index, span) in spans.iter().enumerate() {
            if span.new_tokens <= FEW_TOKENS {
                longest = longest.max(context(span));
                for token in 0..span.new_tokens {
                    rows.push((first + token) as u32);
                    of_spans.push(index as u32);
                    positions.push((span.past_tokens + token) as u32);
                }
            } else {
                let pages = &span.pages[..context(span).div_ceil(PAGE_TOKENS)];
                prompts.push((upload.add(pages), span.clone(), first));
            }
            first += span.new_tokens;
        }
        let [rows_at, spans_at, positions_at, slots_at, table_at] =
            [&rows, &of_spans, &positions, &slots, &table].map(|numbers| upload.add(numbers));
        let [first_list, second_list] = lists.map(|numbers| upload.add(numbers));
        let there = upload.put(device)?;
        let single = match rows.is_empty() {
            true => None,
            false => Some(SingleTokens {
                rows: there.get(rows_at)?,
                spans: there.get(spans_at)?,
                positions: there.get(positions_at)?,
                longest,
            }),
        };
        let prompts = prompts.into_iter().map(|(pages, span, first)| {
            let pages = there.get(pages)?;
            Ok(Prompt { span, first, pages })
        });
        let plan = Self {
            single,
            prompts: prompts.collect::<Result<_>>()?,
            slots: there.get(slots_at)?,
            page_table: there.get(table_at)?.reshape((spans.len(), most_pages))?,
            lengths: flash::Lengths::new(&spans, device)?,
            spans,
        };
        Ok((plan, [there.get(first_list)?, there.get(second_list)?]))
    }
}

/// 1.5 * 2^23: adding and subtracting this number rounds an f32 to an integer.
const EVEN: f64 = 12_582_912.0;

/// Zero as a byte.
const ZERO: f64 = 128.0;

/// Either half of a layer's pages.
#[derive(Debug, Clone, Copy)]
enum PagePart {
    Keys,
    Values,
}

/// Bytes, and a scale for each 32 of them, of which the largest number is 127 times.
fn in_eight_bits(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let blocks = x.to_dtype(DType::F32)?.contiguous()?;
    let blocks = blocks.reshape(((), KvDtype::BLOCK))?;
    // A tensor as divisor, because candle multiplies by the reciprocal of a constant, which rounds differently.
    let most = Tensor::new(127f32, x.device())?;
    let scales = blocks.abs()?.max_keepdim(1)?.broadcast_div(&most)?;
    let scales = scales.to_dtype(DType::F16)?;
    let wide = scales.to_dtype(DType::F32)?;
    // A block of zeros has the scale 0.
    let divisor = (&wide + wide.eq(0.0)?.to_dtype(DType::F32)?)?;
    let numbers = blocks.broadcast_mul(&divisor.recip()?)?;
    // Rounds half to even.
    let numbers = ((numbers + EVEN)? - EVEN)?;
    let bytes = (numbers.clamp(-127.0, 127.0)? + ZERO)?.to_dtype(DType::U8)?;
    Ok((bytes, scales))
}

fn context(span: &Span) -> usize {
    span.past_tokens + span.new_tokens
}

impl Pages {
    pub fn new(
        pages: usize,
        kv_heads: usize,
        head_dim: usize,
        stored: KvDtype,
        device: &Device,
    ) -> Result<Self> {
        Self::of([kv_heads, head_dim], None, (pages, stored), device)
    }

    /// See [`crate::LayerPages::of_latents`].
    pub fn of_latents(
        pages: usize,
        [dim, value_dim]: [usize; 2],
        stored: KvDtype,
        device: &Device,
    ) -> Result<Self> {
        Self::of([1, dim], Some(value_dim), (pages, stored), device)
    }

    fn of(
        [kv_heads, head_dim]: [usize; 2],
        value_dim: Option<usize>,
        (pages, stored): (usize, KvDtype),
        device: &Device,
    ) -> Result<Self> {
        if !stored.takes(head_dim) {
            bail!(
                "keys and values are stored as {stored} where 32 divides the size of a head, which is {head_dim}"
            );
        }
        let (tokens, width) = (pages * PAGE_TOKENS, kv_heads * head_dim);
        let dtype = stored.dtype().unwrap_or(DType::U8);
        let zeros = |width, dtype| Tensor::zeros((tokens, width), dtype, device);
        let scales = || zeros(width / KvDtype::BLOCK, DType::F16);
        let keys = zeros(width, dtype)?;
        Ok(Self {
            stored,
            values: match value_dim {
                // Latents are keys, and so are their values.
                Some(_) => keys.clone(),
                None => zeros(width, dtype)?,
            },
            keys,
            scales: match stored.dtype() {
                Some(_) => None,
                None => Some([scales()?, scales()?]),
            },
            kv_heads,
            head_dim,
            value_dim,
        })
    }

    pub fn holds_latents(&self) -> bool {
        self.value_dim.is_some()
    }

    pub fn bytes(&self) -> usize {
        let copies = if self.holds_latents() { 1 } else { 2 };
        copies * self.stored.bytes(self.keys.elem_count())
    }

    fn write(&self, k: &Tensor, v: &Tensor, slots: &Tensor) -> Result<()> {
        let put = |pages: &Tensor, new: &Tensor| {
            let shape = (slots.elem_count(), pages.dim(1)?);
            let slots = slots.unsqueeze(1)?.broadcast_as(shape)?.contiguous()?;
            let new = new.reshape(shape)?.to_dtype(pages.dtype())?.contiguous()?;
            pages.scatter_set(&slots, &new, 0)
        };
        let both = [(&self.keys, k), (&self.values, v)].into_iter().enumerate();
        for (at, (pages, new)) in both.take(if self.holds_latents() { 1 } else { 2 }) {
            match &self.scales {
                None => put(pages, new)?,
                Some(scales) => {
                    let (numbers, of_blocks) = in_eight_bits(new)?;
                    put(pages, &numbers)?;
                    put(&scales[at], &of_blocks)?;
                }
            }
        }
        Ok(())
    }

    /// The keys or values of a span's tokens, f32 `[kv_heads, tokens, head_dim]`.
    fn gathered(&self, part: PagePart, ids: &Tensor, tokens: usize) -> Result<Tensor> {
        let of_pages = |pages: &Tensor| {
            let width = pages.dim(1)?;
            let rows = pages.reshape(((), PAGE_TOKENS * width))?;
            let rows = rows.index_select(ids, 0)?.reshape(((), width))?;
            rows.narrow(0, 0, tokens)?.to_dtype(DType::F32)
        };
        let numbers = of_pages(self.numbers(part))?;
        let wide = match self.scales_of(part) {
            None => numbers,
            Some(scales) => {
                let signed = (numbers - ZERO)?.reshape((tokens, (), KvDtype::BLOCK))?;
                signed.broadcast_mul(&of_pages(scales)?.unsqueeze(2)?)?
            }
        };
        wide.reshape((tokens, self.kv_heads, self.head_dim))?
            .transpose(0, 1)?
            .contiguous()
    }

    fn numbers(&self, part: PagePart) -> &Tensor {
        match part {
            PagePart::Keys => &self.keys,
            PagePart::Values => &self.values,
        }
    }

    fn scales_of(&self, part: PagePart) -> Option<&Tensor> {
        self.scales.as_ref().map(|scales| &scales[part as usize])
    }
}

/// See [`crate::paged_attention`].
pub fn paged_attention(
    q: &Tensor,
    new: Option<[&Tensor; 2]>,
    pages: &Pages,
    plan: &Plan,
    seen: &AttentionScope<'_>,
) -> Result<Tensor> {
    let (tokens, heads, head_dim) = q.dims3()?;
    if head_dim != pages.head_dim || heads % pages.kv_heads.max(1) != 0 {
        bail!(
            "queries of shape {:?} do not fit {} heads of {}",
            q.dims(),
            pages.kv_heads,
            pages.head_dim
        );
    }
    if plan.slots.elem_count() != tokens {
        bail!(
            "the plan has {} rows, but the queries have {tokens}",
            plan.slots.elem_count()
        );
    }
    if tokens == 0 {
        return q.narrow(2, 0, pages.value_dim.unwrap_or(head_dim));
    }
    let is_gathered = pages.holds_latents() || !seen.is_causal();
    let is_flash = !is_gathered && seen.is_plain() && flash::takes(pages.stored, head_dim);
    if !is_gathered
        && !is_flash
        && let Some(result) = paged::paged_attention(q, new, pages, plan, seen)?
    {
        return Ok(result);
    }
    if let Some([k, v]) = new {
        pages.write(k, v, &plan.slots)?;
    }
    if is_flash && let Some(result) = flash::attend(q, pages, plan, seen.options)? {
        return Ok(result);
    }
    attend_gathered(q, pages, plan, seen, MAX_SCORES_BYTES)
}

/// See [`crate::rotary_attention`]. `None` where norms, rotation and attention are separate.
pub fn rotary_attention(
    qkv: [&Tensor; 3],
    heads: &RotaryHeads<'_>,
    pages: &Pages,
    plan: &Plan,
    seen: &AttentionScope<'_>,
) -> Result<Option<Tensor>> {
    let [q, ..] = qkv;
    let (tokens, count, head_dim) = q.dims3()?;
    let fits = head_dim == pages.head_dim && count.is_multiple_of(pages.kv_heads.max(1));
    let is_flash = seen.is_plain() && flash::takes(pages.stored, head_dim);
    if !fits || is_flash || tokens == 0 || pages.holds_latents() || !seen.is_causal() {
        return Ok(None);
    }
    heads::rotary_attention(qkv, heads, pages, plan, seen)
}

/// Scratch memory of paged attention.
pub fn scratch(shape: &AttentionShape, new_tokens: usize, context: usize) -> AttentionScratch {
    if shape.is_plain && flash::takes(shape.stored, shape.head_dim) {
        return AttentionScratch::default();
    }
    // The scores of one query are computed at once, whatever their size.
    let row_bytes = (shape.heads * size_of::<f32>()) as u64;
    let scores = row_bytes
        .saturating_mul(new_tokens as u64)
        .saturating_mul(context as u64);
    let width = (shape.kv_heads * shape.head_dim) as u64;
    AttentionScratch {
        bytes: SCORES_COPIES * scores.min(MAX_SCORES_BYTES as u64),
        bytes_per_token: SCORES_COPIES * row_bytes + GATHERED_BYTES * width,
    }
}

fn attend_gathered(
    q: &Tensor,
    pages: &Pages,
    plan: &Plan,
    seen: &AttentionScope<'_>,
    most_scores_bytes: usize,
) -> Result<Tensor> {
    let mut results = Vec::with_capacity(plan.spans.len());
    let mut first = 0;
    for (index, span) in plan.spans.iter().enumerate() {
        let rows = q.narrow(0, first, span.new_tokens)?;
        let needed = context(span).div_ceil(PAGE_TOKENS);
        let ids = plan.page_table.get(index)?.narrow(0, 0, needed)?;
        let (heads, tokens) = (q.dim(1)?, context(span));
        let keys = pages.gathered(PagePart::Keys, &ids, tokens)?;
        let values = match pages.value_dim {
            Some(value_dim) => keys.narrow(2, 0, value_dim)?.contiguous()?,
            None => pages.gathered(PagePart::Values, &ids, tokens)?,
        };
        let row_bytes = heads * tokens * size_of::<f32>();
        let at_once = (most_scores_bytes / row_bytes.max(1)).max(1);
        for start in (0..span.new_tokens).step_by(at_once) {
            let count = at_once.min(span.new_tokens - start);
            let position = span.past_tokens + start;
            let rows = rows.narrow(0, start, count)?;
            let ends = seen.block_ends.get(first + start..first + start + count);
            let queries = Queries {
                positions: position..position + count,
                block_ends: ends.unwrap_or_default(),
                total: tokens,
            };
            results.push(attend_rows(&rows, &keys, &values, &queries, seen)?);
        }
        first += span.new_tokens;
    }
    Tensor::cat(&results, 0)?.to_dtype(q.dtype())
}

/// Some of a sequence's new tokens.
struct Queries<'a> {
    positions: Range<usize>,
    /// Empty if no span has bidirectional blocks.
    block_ends: &'a [usize],
    /// Tokens of the sequence.
    total: usize,
}

impl Queries<'_> {
    /// The positions that the query at this index attends to.
    fn seen(&self, at: usize, options: AttentionOptions) -> Range<usize> {
        let position = self.positions.start + at;
        let (end, window) = (position + 1, options.window.unwrap_or(self.total));
        let first = end.saturating_sub(window);
        let of_block = self.block_ends.get(at).copied().unwrap_or(0);
        match options.reach {
            AttentionReach::Past => first..end.max(of_block),
            AttentionReach::Chunk(tokens) => first.max(position - position % tokens)..end,
            AttentionReach::Sequence => first..self.total.min(position.saturating_add(window)),
        }
    }
}

/// Attends with some of a sequence's new tokens to its keys and values.
fn attend_rows(
    q: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    queries: &Queries<'_>,
    seen: &AttentionScope<'_>,
) -> Result<Tensor> {
    let (new, heads, _) = q.dims3()?;
    let (kv_heads, total, _) = keys.dims3()?;
    let value_dim = values.dim(2)?;
    let scores = masked_scores(q, keys, queries, seen.options)?;
    let weights = match seen.sinks {
        None => candle_nn::ops::softmax(&scores, D::Minus1)?,
        Some(sinks) => {
            // The attention sink is one more key in the softmax, and its weight is dropped.
            let sinks = sinks
                .reshape((heads, 1, 1))?
                .broadcast_as((heads, new, 1))?;
            let scores = Tensor::cat(&[&scores, &sinks.contiguous()?], 2)?;
            let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
            weights.narrow(2, 0, total)?.contiguous()?
        }
    };
    weights
        .reshape((kv_heads, heads / kv_heads * new, total))?
        .matmul(values)?
        .reshape((heads, new, value_dim))?
        .transpose(0, 1)?
        .contiguous()
}

/// Attention scores with softcap and mask, f32 `[heads, new, context]`. Frees all intermediate tensors.
fn masked_scores(
    q: &Tensor,
    keys: &Tensor,
    queries: &Queries<'_>,
    options: AttentionOptions,
) -> Result<Tensor> {
    let (new, heads, head_dim) = q.dims3()?;
    let (kv_heads, total, _) = keys.dims3()?;
    let hidden = hidden(queries, options, q.device())?;
    let queries = q
        .to_dtype(DType::F32)?
        .transpose(0, 1)?
        .contiguous()?
        .reshape((kv_heads, heads / kv_heads * new, head_dim))?;
    let mut scores = (queries.matmul(&keys.t()?)? * f64::from(options.scale))?;
    if let Some(cap) = options.softcap.map(f64::from) {
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    scores.reshape((heads, new, total))?.broadcast_add(&hidden)
}

/// Zero where the token at a position may see a token of the context, minus infinity elsewhere:
/// `[1, positions, context]`.
fn hidden(queries: &Queries<'_>, options: AttentionOptions, device: &Device) -> Result<Tensor> {
    let (new, total) = (queries.positions.len(), queries.total);
    let mut mask = Vec::with_capacity(new * total);
    for at in 0..new {
        let seen = queries.seen(at, options);
        mask.extend((0..total).map(|past| match seen.contains(&past) {
            true => 0f32,
            false => f32::NEG_INFINITY,
        }));
    }
    Tensor::from_vec(mask, (1, new, total), device)
}

#[cfg(all(test, feature = "cuda"))]
mod agreement;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionPlan, Constants, LayerPages};

    fn check(dtype: KvDtype, options: AttentionOptions) {
        check_with(dtype, options, None);
        if options.reach == AttentionReach::Past {
            let sinks = Constants::from(vec![-3.0, 0.5, 2.0, 9.0, 40.0, -200.0]);
            check_with(dtype, options, Some(sinks));
        }
    }

    fn check_with(dtype: KvDtype, options: AttentionOptions, sinks: Option<Constants>) {
        let device = Device::Cpu;
        let span = |new_tokens, past_tokens, pages: &[u32]| Span {
            new_tokens,
            past_tokens,
            pages: pages.to_vec(),
        };
        let steps = [
            vec![span(40, 0, &[3, 1]), span(5, 0, &[0]), span(0, 0, &[])],
            vec![span(1, 40, &[3, 1]), span(30, 5, &[0, 2])],
        ];
        let ours = Pages::new(4, 2, 32, dtype, &device).unwrap();
        let mut reference = LayerPages::new(4, 2, 32, dtype, &device).unwrap();
        for spans in steps {
            let rows = spans.iter().map(|span| span.new_tokens).sum::<usize>();
            let random = |heads| Tensor::randn(0f32, 1.0, (rows, heads, 32), &device).unwrap();
            let (q, k, v) = (random(6), random(2), random(2));
            let plan = Plan::new(&spans, [&[], &[]], &device).unwrap().0;
            let of_sinks = sinks.as_ref().map(|sinks| sinks.on(&device).unwrap());
            let seen = AttentionScope {
                options,
                block_ends: &[],
                sinks: of_sinks,
            };
            let found = paged_attention(&q, Some([&k, &v]), &ours, &plan, &seen).unwrap();
            let shared = paged_attention(&q, None, &ours, &plan, &seen).unwrap();
            // Three queries at once, or two where the context is longer.
            let in_turns = attend_gathered(&q, &ours, &plan, &seen, 3 * 6 * 40 * 4).unwrap();
            let plan = AttentionPlan::new(spans, &device).unwrap();
            let pages = &mut reference;
            let wanted = match &sinks {
                None => crate::paged_attention(&q, &k, &v, pages, &plan, options),
                Some(sinks) => {
                    let qkv = [&q, &k, &v];
                    crate::paged_attention_with_sinks(qkv, pages, &plan, options, sinks)
                }
            };
            let wanted = wanted.unwrap();
            for found in [found, shared, in_turns] {
                let gap = (found - &wanted).unwrap().abs().unwrap();
                let gap = gap.max_all().unwrap().to_scalar::<f32>().unwrap();
                assert!(gap < 1e-5, "{gap}");
            }
        }
    }

    #[test]
    fn long_contexts_take_more_for_each_token_and_no_more_at_once() {
        let shape = AttentionShape {
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            stored: KvDtype::F32,
            is_plain: true,
        };
        let short = shape.scratch(16, 100);
        assert_eq!(short.bytes, 5 * 32 * 16 * 100 * 4);
        let long = shape.scratch(512, 1 << 26);
        assert_eq!(long.bytes, 5 * (32 << 20));
        assert_eq!(long.bytes_per_token, 5 * 32 * 4 + 16 * 8 * 128);
    }

    #[test]
    fn gathered_attention_agrees_with_the_reference() {
        for dtype in KvDtype::ALL {
            let past = AttentionReach::Past;
            for (window, softcap, reach) in [
                (None, None, past),
                (Some(7), None, past),
                (None, Some(5.0), past),
                (None, None, AttentionReach::Chunk(16)),
                (Some(9), None, AttentionReach::Sequence),
            ] {
                let options = AttentionOptions {
                    scale: 0.25,
                    window,
                    softcap,
                    reach,
                };
                check(dtype, options);
            }
        }
    }
}
