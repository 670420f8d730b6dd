//! Stands where CUDA is not built in: pages are gathered with candle's operations.

use candle_core::{Result, Tensor};

use super::{AttentionScope, Pages, Plan};

pub fn paged_attention(
    _: &Tensor,
    _: Option<[&Tensor; 2]>,
    _: &Pages,
    plan: &Plan,
    _: &AttentionScope<'_>,
) -> Result<Option<Tensor>> {
    let (_, _) = (&plan.single, &plan.prompts);
    Ok(None)
}
