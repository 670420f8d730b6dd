//! Metadata of Llama 4's GGUF files, most of which is implied.

use super::File;
use crate::networks::{
    text::{
        config,
        family::Family,
        llama4::{CHUNK, TEMPERATURE},
        spec::{QueryKeyNorm, QueryTemperature},
    },
    weights::Flaw,
};

/// The period of global layers without rope.
const PERIOD: usize = 4;
/// Models with this many experts have no norms of queries and keys.
const UNNORMED_EXPERTS: usize = 128;

impl File<'_> {
    /// A window of zero means that all layers are global and have rope.
    fn is_cut(&self) -> Result<bool, Flaw> {
        let window = self.optional_size("attention.sliding_window")?;
        Ok(self.family == Family::Llama4 && window != Some(0))
    }

    pub(super) fn chunks(&self, layers: usize) -> Result<Vec<Option<usize>>, Flaw> {
        if !self.is_cut()? {
            return Ok(Vec::new());
        }
        let period = self.optional_size("attention.sliding_window_pattern")?;
        let period = period.unwrap_or(PERIOD);
        Ok(config::windows(CHUNK, layers, |layer| {
            super::is_within(layer, period)
        }))
    }

    pub(super) fn layers_without_rope(&self, layers: usize) -> Result<Vec<usize>, Flaw> {
        if self.family == Family::GraniteHybrid {
            return match self.flag("rope.scaling.finetuned")? {
                Some(true) => Ok(Vec::new()),
                _ => Ok((0..layers).collect()),
            };
        }
        if !self.is_cut()? {
            return Ok(self.rules.layers_without_rope(layers));
        }
        let is_last = |layer: &usize| (layer + 1).is_multiple_of(PERIOD);
        Ok((0..layers).filter(is_last).collect())
    }

    pub(super) fn llama4_temperature(&self) -> Result<Option<QueryTemperature>, Flaw> {
        Ok(self.is_cut()?.then_some(TEMPERATURE))
    }

    pub(super) fn llama4_norm(&self) -> Result<Option<QueryKeyNorm>, Flaw> {
        let experts = self.optional_size("expert_count")?;
        let is_normed = experts != Some(UNNORMED_EXPERTS);
        Ok(is_normed.then_some(QueryKeyNorm::Unweighted))
    }
}
