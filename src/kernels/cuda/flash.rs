//! Paged flash attention: one kernel launch for prompts, prompt chunks and single tokens together.

use candle_core::{Device, Result, Tensor};
use candle_flash_attn::flash_attn_varlen_paged_windowed;

use super::{Pages, Plan, context};
use crate::{AttentionOptions, KvDtype, PAGE_TOKENS, Span};

/// How long the spans of a step are.
#[derive(Debug, Clone)]
pub struct Lengths {
    /// Cumulative sequence lengths: the first new token of each span, and the end of the last span.
    query_starts: Tensor,
    /// The same for all tokens, as if the contexts were concatenated.
    context_starts: Tensor,
    most_new: usize,
    longest: usize,
}

impl Lengths {
    pub fn new(spans: &[Span], device: &Device) -> Result<Self> {
        let (mut queries, mut contexts) = (vec![0u32], vec![0u32]);
        let (mut query, mut all) = (0, 0);
        for span in spans {
            query += span.new_tokens;
            all += context(span);
            queries.push(query as u32);
            contexts.push(all as u32);
        }
        Ok(Self {
            query_starts: Tensor::new(queries, device)?,
            context_starts: Tensor::new(contexts, device)?,
            most_new: spans.iter().map(|span| span.new_tokens).max().unwrap_or(0),
            longest: spans.iter().map(context).max().unwrap_or(0),
        })
    }
}

/// The largest supported head dimension, and the number that must divide head dimensions.
const MOST_HEAD_DIM: usize = 512;
const HEAD_DIM_STEP: usize = 8;

/// Whether flash attention supports these pages: half precision only, and no odd head dimension.
pub fn takes(stored: KvDtype, head_dim: usize) -> bool {
    matches!(stored, KvDtype::F16 | KvDtype::Bf16)
        && head_dim <= MOST_HEAD_DIM
        && head_dim.is_multiple_of(HEAD_DIM_STEP)
}

/// `None` where it cannot be used: not on a GPU, or pages it does not take.
pub fn attend(
    q: &Tensor,
    pages: &Pages,
    plan: &Plan,
    options: AttentionOptions,
) -> Result<Option<Tensor>> {
    let dtype = pages.keys.dtype();
    if !q.device().is_cuda() || !takes(pages.stored, pages.head_dim) {
        return Ok(None);
    }
    let shape = ((), PAGE_TOKENS, pages.kv_heads, pages.head_dim);
    let result = flash_attn_varlen_paged_windowed(
        &q.to_dtype(dtype)?.contiguous()?,
        &pages.keys.reshape(shape)?,
        &pages.values.reshape(shape)?,
        &plan.lengths.query_starts,
        &plan.lengths.context_starts,
        &plan.page_table,
        None,
        plan.lengths.most_new,
        plan.lengths.longest,
        options.scale,
        options.window.map(|window| window.saturating_sub(1)),
        Some(0),
        PAGE_TOKENS,
        options.softcap,
    )?;
    result.to_dtype(q.dtype()).map(Some)
}
