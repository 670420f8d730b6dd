//! Stands where CUDA is not built in: no tensor is on a GPU.

use candle_core::{Result, Tensor};

use super::{AttentionScope, Pages, Plan};
use crate::rope::RotaryHeads;

pub fn rotary_attention(
    _: [&Tensor; 3],
    _: &RotaryHeads<'_>,
    _: &Pages,
    _: &Plan,
    _: &AttentionScope<'_>,
) -> Result<Option<Tensor>> {
    Ok(None)
}
