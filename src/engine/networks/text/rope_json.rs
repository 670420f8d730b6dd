//! The fields of `config.json` about rope, of which newer and older files have their own.

use serde::Deserialize;

use super::rope::{Rope, RopeScaling, Yarn};
use crate::networks::weights::Flaw;
use muster_kernels::RopeStyle;

#[derive(Debug, Clone, Default, Deserialize)]
pub struct RopeJson {
    /// Older files have `type`.
    #[serde(alias = "type")]
    rope_type: Option<String>,
    pub rope_theta: Option<f64>,
    pub partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    pub original_max_position_embeddings: Option<usize>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    attention_factor: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    short_factor: Option<Vec<f32>>,
    long_factor: Option<Vec<f32>>,
    pub llama_4_scaling_beta: Option<f64>,
    pub mrope_section: Option<[usize; 3]>,
    pub mrope_interleaved: Option<bool>,
    /// If layers with and without a window have separate fields.
    full_attention: Option<Box<RopeJson>>,
    sliding_attention: Option<Box<RopeJson>>,
}

impl RopeJson {
    pub fn of_full_attention(mut self) -> Self {
        match self.full_attention.take() {
            Some(json) => *json,
            None => self,
        }
    }

    pub fn of_windows(self) -> Option<Self> {
        self.sliding_attention.map(|json| *json)
    }

    /// For heads of this size and a model trained for `context` tokens; `theta` is the default base.
    pub fn rope(&self, head_dim: usize, theta: f64, context: usize) -> Result<Rope, Flaw> {
        let theta = self.rope_theta.unwrap_or(theta);
        let share = self.partial_rotary_factor.unwrap_or(1.0);
        if self.rope_type.as_deref() == Some("proportional") {
            let scaling = RopeScaling::Proportional {
                turned: ((head_dim as f64 * share) as usize / 2).min(head_dim),
                factor: self.factor.unwrap_or(1.0),
            };
            return Ok(Rope {
                scaling,
                ..Rope::plain(theta, RopeStyle::Halves, head_dim)
            });
        }
        let dims = (head_dim as f64 * share) as usize;
        Ok(Rope {
            scaling: self.scaling(dims, context)?,
            ..Rope::plain(theta, RopeStyle::Halves, dims)
        })
    }

    /// DeepSeek's factor of attention scores: the square of the magnitude computed from `mscale_all_dim`.
    pub fn product_weight(&self, context: usize) -> f64 {
        let is_scaled = !matches!(self.rope_type.as_deref(), None | Some("default" | "mrope"));
        let weight = self.mscale_all_dim.filter(|_| is_scaled).unwrap_or(0.0);
        Yarn::magnitude_for(self.factor_of(context), weight).powi(2)
    }

    /// DeepSeek's files name no factor: the two contexts do.
    fn factor_of(&self, context: usize) -> f64 {
        let original = self.original_max_position_embeddings.unwrap_or(context);
        self.factor.unwrap_or(context as f64 / original as f64)
    }

    fn scaling(&self, dims: usize, context: usize) -> Result<RopeScaling, Flaw> {
        match self.rope_type.as_deref() {
            // Older files have sections and call an unscaled rope `mrope`.
            None | Some("default" | "mrope") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear {
                factor: wanted(self.factor, "factor")?,
            }),
            Some("llama3") => Ok(RopeScaling::Llama3 {
                factor: wanted(self.factor, "factor")?,
                low_frequency_factor: wanted(self.low_freq_factor, "low_freq_factor")?,
                high_frequency_factor: wanted(self.high_freq_factor, "high_freq_factor")?,
                original_context: wanted(
                    self.original_max_position_embeddings,
                    "original_max_position_embeddings",
                )?,
            }),
            Some("yarn") => Ok(RopeScaling::Yarn(self.yarn(context))),
            // The first files of Phi 3 have `su`.
            Some("longrope" | "su") => self.longrope(dims, context),
            Some(other) => Err(Flaw::unsupported(
                "the rope_scaling type",
                other,
                "default, linear, llama3, longrope, proportional and yarn",
            )),
        }
    }

    fn longrope(&self, dims: usize, context: usize) -> Result<RopeScaling, Flaw> {
        let factors = |list: &Option<Vec<f32>>, name: &str| match list {
            Some(list) if list.len() == dims / 2 => Ok(list.clone()),
            list => {
                let found = list.as_ref().map_or(0, Vec::len);
                let what = format!("rope_scaling.{name}");
                let wanted = format!("{} numbers", dims / 2);
                Err(Flaw::broken(what, format!("{found} numbers"), wanted))
            }
        };
        let original = self.original_max_position_embeddings.unwrap_or(context) as f64;
        let factor = self.factor.unwrap_or(context as f64 / original);
        let magnitude = match factor > 1.0 {
            true => (1.0 + factor.ln() / original.ln()).sqrt(),
            false => 1.0,
        };
        Ok(RopeScaling::LongRope {
            short: factors(&self.short_factor, "short_factor")?,
            long: factors(&self.long_factor, "long_factor")?,
            original_context: original as usize,
            magnitude: self.attention_factor.unwrap_or(magnitude),
        })
    }

    fn yarn(&self, context: usize) -> Yarn {
        let original_context = self.original_max_position_embeddings.unwrap_or(context);
        let factor = self.factor_of(context);
        let plain = Yarn::new(factor, original_context);
        // Zero means none for the last two.
        let given = |value: Option<f64>| value.filter(|&value| value != 0.0);
        let magnitude = match (
            self.attention_factor,
            given(self.mscale),
            given(self.mscale_all_dim),
        ) {
            (Some(magnitude), ..) => magnitude,
            (None, Some(above), Some(below)) => {
                Yarn::magnitude_for(factor, above) / Yarn::magnitude_for(factor, below)
            }
            _ => plain.magnitude,
        };
        Yarn {
            fast_turns: given(self.beta_fast).unwrap_or(plain.fast_turns),
            slow_turns: given(self.beta_slow).unwrap_or(plain.slow_turns),
            truncated: self.truncate.unwrap_or(plain.truncated),
            magnitude,
            ..plain
        }
    }
}

fn wanted<T>(value: Option<T>, name: &str) -> Result<T, Flaw> {
    value.ok_or_else(|| Flaw::broken(format!("rope_scaling.{name}"), "nothing", "a number"))
}
