//! Latent attention in a decoder: its sizes, the fields of `config.json`, and the cost of its cache and matrices.

use serde::Deserialize;

use super::{config::ConfigJson, experts::wanted, spec::DecoderSpec};
use crate::networks::{layers::LatentSizes, weights::Flaw};

/// The epsilon of the latents' norms, which files omit: the references use a separate constant.
pub const LATENT_NORM_EPS: f64 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentSpec {
    /// The width that queries go through; `None` where they have one matrix.
    pub query_rank: Option<usize>,
    pub sizes: LatentSizes,
}

/// The fields of `config.json` about latent attention.
#[derive(Debug, Deserialize)]
pub struct LatentJson {
    q_lora_rank: Option<usize>,
    kv_lora_rank: Option<usize>,
    qk_nope_head_dim: Option<usize>,
    qk_rope_head_dim: Option<usize>,
    v_head_dim: Option<usize>,
    /// The sum of two of the above, in newer files.
    qk_head_dim: Option<usize>,
    pub rope_interleave: Option<bool>,
}

impl ConfigJson {
    pub fn latent(&self) -> Result<LatentSpec, Flaw> {
        let json = &self.latent;
        let spec = LatentSpec {
            query_rank: json.q_lora_rank,
            sizes: LatentSizes {
                rank: wanted(json.kv_lora_rank, "kv_lora_rank")?,
                plain_dim: wanted(json.qk_nope_head_dim, "qk_nope_head_dim")?,
                rope_dim: wanted(json.qk_rope_head_dim, "qk_rope_head_dim")?,
                value_dim: wanted(json.v_head_dim, "v_head_dim")?,
            },
        };
        spec.check()?;
        let sum = spec.sizes.query_dim();
        match json.qk_head_dim {
            Some(found) if found != sum => {
                let wanted = format!("{sum}, the sum of qk_nope_head_dim and qk_rope_head_dim");
                Err(Flaw::broken("qk_head_dim", found, wanted))
            }
            _ => Ok(spec),
        }
    }
}

impl LatentSpec {
    pub fn check(&self) -> Result<(), Flaw> {
        let sizes = self.sizes;
        for (name, size, most) in [
            ("the rank of queries", self.query_rank.unwrap_or(1), 1 << 16),
            ("the rank of latents", sizes.rank, 1 << 16),
            (
                "the part of a head that does not turn",
                sizes.plain_dim,
                1 << 12,
            ),
            ("the part of a head that turns", sizes.rope_dim, 1 << 12),
            ("the size of a head's value", sizes.value_dim, 1 << 12),
        ] {
            if !(1..=most).contains(&size) {
                return Err(Flaw::broken(name, size, format!("1 to {most}")));
            }
        }
        Ok(())
    }
}

impl DecoderSpec {
    /// Numbers that pages of a layer hold of a token.
    pub fn kept_numbers(&self, layer: usize) -> usize {
        match &self.latent {
            Some(latent) => latent.sizes.kept(),
            None => 2 * self.kv_size(layer),
        }
    }

    /// Parameters of an attention layer: those applied to every row of a step, and those of the output projection.
    pub fn attention_parameters(&self, layer: usize) -> (usize, usize) {
        let (hidden, query) = (self.hidden_size, self.query_size(layer));
        let before = match &self.latent {
            Some(latent) => {
                let sizes = latent.sizes;
                let queries = match latent.query_rank {
                    Some(rank) => (hidden + query) * rank,
                    None => hidden * query,
                };
                let by_head = sizes.rank * (sizes.plain_dim + sizes.value_dim);
                queries + hidden * sizes.kept() + self.heads * by_head
            }
            None => {
                let gates = if self.attention_gate { query } else { 0 };
                let own = match self.layer_heads(layer).keys_are_values {
                    _ if self.cache_source(layer).is_some() => 0,
                    true => self.kv_size(layer),
                    false => 2 * self.kv_size(layer),
                };
                hidden * (query + gates + own)
            }
        };
        (before, hidden * self.gathered_size(layer))
    }

    /// Width of the attention output, before its projection.
    pub fn gathered_size(&self, layer: usize) -> usize {
        match &self.latent {
            Some(latent) => self.heads * latent.sizes.value_dim,
            None => self.query_size(layer),
        }
    }

    /// Multiplications of a query of all heads with one token: by its key, and of its value.
    pub fn seen_numbers(&self, layer: usize) -> usize {
        match &self.latent {
            Some(latent) => self.heads * (latent.sizes.kept() + latent.sizes.rank),
            None => 2 * self.query_size(layer),
        }
    }

    /// The widths that a row has on its way through attention, all together.
    pub fn attention_width(&self) -> usize {
        match &self.latent {
            Some(latent) => {
                let sizes = latent.sizes;
                let by_head = 3 * sizes.query_dim() + 3 * sizes.kept() + 3 * sizes.rank;
                let low = latent.query_rank.unwrap_or(0);
                2 * low + 3 * sizes.kept() + self.heads * (by_head + 3 * sizes.value_dim)
            }
            None => {
                let layers = 0..self.layers;
                let widths = layers.map(|it| 2 * self.query_size(it) + 4 * self.kv_size(it));
                widths.max().unwrap_or(0)
            }
        }
    }

    /// Numbers of a head that may have rope.
    pub fn rope_head_dim(&self) -> usize {
        let latent = self.latent.as_ref();
        latent.map_or(self.head_dim, |latent| latent.sizes.rope_dim)
    }
}
