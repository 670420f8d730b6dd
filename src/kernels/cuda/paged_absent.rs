//! Stands where CUDA is not built in: pages are gathered with candle's operations.

use candle_core::{Result, Tensor};

use super::{Pages, Plan};
use crate::AttentionOptions;

pub fn paged_attention(
    _: &Tensor,
    _: &Tensor,
    _: &Tensor,
    _: &Pages,
    plan: &Plan,
    _: AttentionOptions,
) -> Result<Option<Tensor>> {
    let (_, _) = (&plan.single, &plan.prompts);
    Ok(None)
}
