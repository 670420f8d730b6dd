//! Metadata keys of latent attention in GGUF files, for reading and writing.
//!
//! Converters write the heads as stored in pages, one key head with the latent's width, and the sizes of the expanded
//! heads under separate keys.

use super::{File, describe::Keys};
use crate::networks::{
    layers::LatentSizes,
    text::{
        family::{Family, Naming, Part, Role},
        latent::LatentSpec,
        rope::{RopeScaling, Yarn},
        spec::DecoderSpec,
    },
    weights::Flaw,
};

/// Factor of the logarithm's weight in files of this architecture.
const LOG_WEIGHT: f64 = 0.1;

impl File<'_> {
    pub(super) fn has_latents(&self) -> bool {
        self.family.gguf_name() == Family::DeepseekV3.gguf_name()
    }

    pub(super) fn latent(&self) -> Result<Option<LatentSpec>, Flaw> {
        if !self.has_latents() {
            return Ok(None);
        }
        let rank = self.size("attention.kv_lora_rank")?;
        let rope_dim = self.size("rope.dimension_count")?;
        let Some(query_dim) = self.optional_size("attention.key_length_mla")? else {
            // Such a file has keys and values in one matrix, which is quantized along the wrong side.
            return Err(Flaw::unsupported(
                self.key("attention.key_length_mla"),
                "nothing (a file converted before April 2025)",
                "the sizes of expanded heads, as converters write them since; convert the model again",
            ));
        };
        let Some(plain_dim) = query_dim.checked_sub(rope_dim) else {
            let wanted = format!("more than the {rope_dim} numbers that turn");
            let key = self.key("attention.key_length_mla");
            return Err(Flaw::broken(key, query_dim, wanted));
        };
        let spec = LatentSpec {
            query_rank: self.query_rank()?,
            sizes: LatentSizes {
                rank,
                plain_dim,
                rope_dim,
                value_dim: self.size("attention.value_length_mla")?,
            },
        };
        spec.check()?;
        for (name, wanted) in [
            ("attention.key_length", spec.sizes.kept()),
            ("attention.value_length", rank),
            ("attention.head_count_kv", 1),
        ] {
            match self.optional_size(name)? {
                Some(found) if found != wanted => {
                    return Err(Flaw::broken(self.key(name), found, wanted.to_string()));
                }
                _ => {}
            }
        }
        Ok(Some(spec))
    }

    /// Some converters write a rank where the file has a single matrix.
    fn query_rank(&self) -> Result<Option<usize>, Flaw> {
        let down = Naming::Gguf.weight(Role::Layer(0, Part::QueryDown));
        match self.checkpoint.tensor(&down) {
            Some(_) => self.size("attention.q_lora_rank").map(Some),
            None => Ok(None),
        }
    }

    /// YaRN's factor of the attention scores; cosines and sines have none.
    pub(super) fn latent_scale(&self, latent: &LatentSpec) -> Result<Option<f64>, Flaw> {
        let Some(weight) = self.nonzero("rope.scaling.yarn_log_multiplier")? else {
            return Ok(None);
        };
        let factor = self.nonzero("rope.scaling.factor")?.unwrap_or(1.0);
        let magnitude = Yarn::magnitude_for(factor, weight / LOG_WEIGHT);
        let size = latent.sizes.query_dim() as f64;
        Ok(Some(magnitude.powi(2) / size.sqrt()).filter(|_| magnitude != 1.0))
    }
}

impl Keys<'_> {
    pub(super) fn latent(&mut self, spec: &DecoderSpec, latent: &LatentSpec) {
        let sizes = latent.sizes;
        for (name, size) in [
            ("attention.kv_lora_rank", sizes.rank),
            ("attention.key_length", sizes.kept()),
            ("attention.value_length", sizes.rank),
            ("attention.key_length_mla", sizes.query_dim()),
            ("attention.value_length_mla", sizes.value_dim),
            ("rope.dimension_count", sizes.rope_dim),
        ] {
            self.size(name, size);
        }
        if let Some(rank) = latent.query_rank {
            self.size("attention.q_lora_rank", rank);
        }
        if let (Some(scale), RopeScaling::Yarn(yarn)) = (spec.attention_scale, &spec.rope.scaling) {
            let magnitude = (scale * (sizes.query_dim() as f64).sqrt()).sqrt();
            let weight = (magnitude - 1.0) / yarn.factor.ln();
            self.float("rope.scaling.yarn_log_multiplier", weight);
        }
    }
}
