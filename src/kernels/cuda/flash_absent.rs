//! Stands where paged flash attention is not built in: nothing is done, and the caller gathers pages instead.

use candle_core::{Device, Result, Tensor};

use super::{Pages, Plan};
use crate::{AttentionOptions, KvDtype, Span};

/// Empty without flash attention.
#[derive(Debug, Clone)]
pub struct Lengths;

impl Lengths {
    pub fn new(_: &[Span], _: &Device) -> Result<Self> {
        Ok(Self)
    }
}

pub fn takes(_: KvDtype, _: usize) -> bool {
    false
}

pub fn attend(_: &Tensor, _: &Pages, plan: &Plan, _: AttentionOptions) -> Result<Option<Tensor>> {
    let Lengths = plan.lengths;
    Ok(None)
}
