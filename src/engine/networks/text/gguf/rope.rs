//! The keys and tensors of a GGUF file about rope.

use candle_core::quantized::GgmlDType;

use super::File;
use crate::networks::{
    text::{
        rope::{Rope, RopeScaling, Yarn},
        spec::QueryTemperature,
    },
    weights::{Flaw, TensorType},
};

/// Llama 3's rope scaling, one number per frequency.
pub const ROPE_FACTORS: &str = "rope_freqs.weight";
/// The two lists of LongRope.
pub const LONG_FACTORS: &str = "rope_factors_long.weight";
pub const SHORT_FACTORS: &str = "rope_factors_short.weight";
/// All tensors with rope factors.
pub const ROPE_TENSORS: &[&str] = &[ROPE_FACTORS, LONG_FACTORS, SHORT_FACTORS];

/// The ropes of global layers, and of those with a window if that differs.
pub struct LayerRopes {
    pub global: Rope,
    pub windowed: Option<Rope>,
}

impl File<'_> {
    /// For heads of these sizes: of global layers, and of those with a window.
    pub(super) fn ropes(
        &self,
        [head_dim, windowed_dim]: [usize; 2],
        has_windows: bool,
    ) -> Result<LayerRopes, Flaw> {
        let style = self.rules.gguf_rope_style;
        let dims = self
            .optional_size("rope.dimension_count")?
            .unwrap_or(head_dim);
        let theta = self.float("rope.freq_base")?.unwrap_or(10_000.0);
        let windowed = match self.rules.window_theta(theta) {
            Some(default) if has_windows => {
                let theta = self.float("rope.freq_base_swa")?.unwrap_or(default);
                let usual = if windowed_dim == head_dim {
                    dims
                } else {
                    windowed_dim
                };
                let dims = self.optional_size("rope.dimension_count_swa")?;
                Some(Rope::plain(theta, style, dims.unwrap_or(usual)))
            }
            _ => None,
        };
        let global = Rope {
            scaling: self.rope_scaling(dims)?,
            ..Rope::plain(theta, style, dims)
        };
        Ok(LayerRopes {
            windowed: windowed.filter(|rope| *rope != global),
            global,
        })
    }

    pub(super) fn query_temperature(&self) -> Result<Option<QueryTemperature>, Flaw> {
        let Some(weight) = self.nonzero("attention.temperature_scale")? else {
            return self.llama4_temperature();
        };
        let span = match self.optional_size("attention.temperature_length")? {
            Some(span) => span,
            None => self.size("rope.scaling.original_context_length")?,
        };
        Ok(Some(QueryTemperature {
            weight,
            span,
            first: 0,
            is_of_unturned: false,
        }))
    }

    fn rope_scaling(&self, dims: usize) -> Result<RopeScaling, Flaw> {
        if let Some(scaling) = self.longrope(dims)? {
            return Ok(scaling);
        }
        let key = self.key("rope.scaling.type");
        // A file that names a factor and no type means the linear one.
        let factor = match self.metadata.text(&key).unwrap_or("linear") {
            "none" => None,
            "linear" => self.linear_factor()?,
            "yarn" => return self.yarn().map(RopeScaling::Yarn),
            other => return Err(Flaw::unsupported(key, other, "none, linear and yarn")),
        };
        match (factor, self.rope_factors(ROPE_FACTORS, dims)?) {
            (None, None) => Ok(RopeScaling::None),
            (None, Some(factors)) => Ok(RopeScaling::Factors(factors)),
            (Some(factor), None) => Ok(RopeScaling::Linear { factor }),
            (Some(factor), Some(_)) => {
                let found = format!("a factor of {factor} and the tensor {ROPE_FACTORS}");
                let key = self.key("rope.scaling.factor");
                Err(Flaw::unsupported(key, found, "only one of the two"))
            }
        }
    }

    /// The factor that divides positions, by its current or its first name; zero means none.
    fn linear_factor(&self) -> Result<Option<f64>, Flaw> {
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.float("rope.scale_linear")?,
        };
        Ok(factor.filter(|factor| ![0.0, 1.0].contains(factor)))
    }

    fn longrope(&self, dims: usize) -> Result<Option<RopeScaling>, Flaw> {
        let long = self.rope_factors(LONG_FACTORS, dims)?;
        let short = self.rope_factors(SHORT_FACTORS, dims)?;
        let (Some(long), Some(short)) = (long, short) else {
            return Ok(None);
        };
        Ok(Some(RopeScaling::LongRope {
            short,
            long,
            original_context: self.size("rope.scaling.original_context_length")?,
            magnitude: self.nonzero("rope.scaling.attn_factor")?.unwrap_or(1.0),
        }))
    }

    fn yarn(&self) -> Result<Yarn, Flaw> {
        if let Some(factor) = self.float("rope.scaling.yarn_ext_factor")?
            && factor != 1.0
        {
            let key = self.key("rope.scaling.yarn_ext_factor");
            return Err(Flaw::unsupported(key, factor, "1"));
        }
        let factor = self.nonzero("rope.scaling.factor")?.unwrap_or(1.0);
        let original = self.optional_size("rope.scaling.original_context_length")?;
        let original = match original {
            Some(original) => original,
            None => self.size("context_length")?,
        };
        let plain = Yarn::new(factor, original);
        let weight = self.nonzero("rope.scaling.yarn_log_multiplier")?;
        let magnitude = match (self.nonzero("rope.scaling.yarn_attn_factor")?, weight) {
            // The weight is that of products of queries and keys.
            _ if self.has_latents() => 1.0,
            (Some(magnitude), _) => magnitude,
            (None, Some(weight)) => plain.magnitude / Yarn::magnitude_for(factor, weight),
            (None, None) => plain.magnitude,
        };
        let besides = self.nonzero("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let turns =
            |name, default| -> Result<f64, Flaw> { Ok(self.nonzero(name)?.unwrap_or(default)) };
        Ok(Yarn {
            fast_turns: turns("rope.scaling.yarn_beta_fast", plain.fast_turns)?,
            slow_turns: turns("rope.scaling.yarn_beta_slow", plain.slow_turns)?,
            magnitude: magnitude * besides,
            truncated: self.rules.truncates_yarn,
            ..plain
        })
    }

    fn rope_factors(&self, name: &str, dims: usize) -> Result<Option<Vec<f32>>, Flaw> {
        let Some(header) = self.checkpoint.tensor(name) else {
            return Ok(None);
        };
        if header.dtype != TensorType::Weight(GgmlDType::F32) || header.shape != [dims / 2] {
            return Err(Flaw::broken(
                format!("the tensor {name:?}"),
                format!("{} of shape {:?}", header.dtype, header.shape),
                format!("F32 of shape [{}]", dims / 2),
            ));
        }
        let bytes = self.checkpoint.bytes(header);
        let numbers = bytes.as_chunks().0.iter();
        Ok(Some(
            numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        ))
    }
}
