//! Rotary position embeddings: the plain rope and its scalings.

use candle_core::{Device, Result};

use muster_kernels::{RopeStyle, RopeTable};

#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    pub theta: f64,
    pub scaling: RopeScaling,
    pub style: RopeStyle,
    /// Numbers of a head with rope; the others are unchanged.
    pub dims: usize,
}

/// The axis of each frequency for image tokens, whose positions have time, rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RopeAxes {
    /// Number of frequencies per axis.
    pub sections: [usize; 3],
    /// Whether the axes are interleaved while their sections last; else the sections are consecutive.
    pub is_interleaved: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions are divided by the factor.
    Linear {
        factor: f64,
    },
    /// Llama 3.1: low frequencies are divided by the factor, high ones are unchanged, those in between are
    /// interpolated.
    Llama3 {
        factor: f64,
        low_frequency_factor: f64,
        high_frequency_factor: f64,
        original_context: usize,
    },
    /// Each frequency is divided by its own factor, GGUF's form of the above.
    Factors(Vec<f32>),
    /// Each frequency is divided by its own factor: the long ones when sequences may pass the original context.
    LongRope {
        short: Vec<f32>,
        long: Vec<f32>,
        original_context: usize,
        /// Factor of cosines and sines.
        magnitude: f64,
    },
    Yarn(Yarn),
    /// The first `turned` frequencies are divided by the factor, and the others have no rotation.
    Proportional {
        turned: usize,
        factor: f64,
    },
}

/// YaRN (Peng et al., 2023): frequencies with many turns in the original context are unchanged, those with few are
/// divided by the factor, those in between are interpolated.
#[derive(Debug, Clone, PartialEq)]
pub struct Yarn {
    pub factor: f64,
    pub original_context: usize,
    /// Frequencies with at least this many turns are unchanged.
    pub fast_turns: f64,
    /// Frequencies with at most this many turns are divided by the factor.
    pub slow_turns: f64,
    /// Whether the blend begins and ends at whole indices.
    pub truncated: bool,
    /// Factor of cosines and sines.
    pub magnitude: f64,
}

impl Rope {
    pub fn plain(theta: f64, style: RopeStyle, dims: usize) -> Self {
        Self {
            theta,
            scaling: RopeScaling::None,
            style,
            dims,
        }
    }

    /// For sequences of up to `context` tokens.
    pub fn inverse_frequencies(&self, context: usize) -> Vec<f64> {
        let half = self.dims / 2;
        let plain = (0..half).map(|i| self.theta.powf(-(i as f64) / half as f64));
        // References round to f32, which matters at far positions.
        let rounded = |frequency: f64| f64::from(frequency as f32);
        let scaled = plain
            .enumerate()
            .map(|(i, plain)| self.scaled(i, plain, context));
        scaled.map(rounded).collect()
    }

    /// Factor of cosines and sines.
    pub fn magnitude(&self) -> f64 {
        match &self.scaling {
            RopeScaling::LongRope { magnitude, .. } => *magnitude,
            RopeScaling::Yarn(yarn) => yarn.magnitude,
            _ => 1.0,
        }
    }

    pub fn table(&self, context: usize, device: &Device) -> Result<RopeTable> {
        let frequencies = self.inverse_frequencies(context);
        RopeTable::new(frequencies, context, self.style, self.magnitude(), device)
    }

    fn scaled(&self, index: usize, frequency: f64, context: usize) -> f64 {
        let divided = |factors: &[f32]| frequency / factors.get(index).map_or(1.0, |&f| f.into());
        match &self.scaling {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Factors(factors) => divided(factors),
            RopeScaling::LongRope {
                long,
                original_context,
                ..
            } if context > *original_context => divided(long),
            RopeScaling::LongRope { short, .. } => divided(short),
            RopeScaling::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_context,
            } => {
                let turns = *original_context as f64 * frequency / std::f64::consts::TAU;
                let share_kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                share_kept * frequency + (1.0 - share_kept) * frequency / factor
            }
            RopeScaling::Proportional { turned, .. } if index >= *turned => 0.0,
            RopeScaling::Proportional { factor, .. } => frequency / factor,
            RopeScaling::Yarn(yarn) => {
                let share_kept = yarn.share_kept(index, self.theta, self.dims);
                share_kept * frequency + (1.0 - share_kept) * frequency / yarn.factor
            }
        }
    }
}

impl Yarn {
    /// The values that files may leave out, for sequences `factor` times as long as the original.
    pub fn new(factor: f64, original_context: usize) -> Self {
        Self {
            factor,
            original_context,
            fast_turns: 32.0,
            slow_turns: 1.0,
            truncated: true,
            magnitude: Self::magnitude_for(factor, 1.0),
        }
    }

    /// The paper's magnitude for a factor, its logarithm weighted.
    pub fn magnitude_for(factor: f64, weight: f64) -> f64 {
        match factor > 1.0 {
            true => 0.1 * weight * factor.ln() + 1.0,
            false => 1.0,
        }
    }

    fn share_kept(&self, index: usize, theta: f64, dims: usize) -> f64 {
        let (first, last) = self.blended(theta, dims);
        1.0 - ((index as f64 - first) / (last - first)).clamp(0.0, 1.0)
    }

    /// The indices between which waves are blended.
    fn blended(&self, theta: f64, dims: usize) -> (f64, f64) {
        let context = self.original_context as f64;
        let index_of = |turns: f64| {
            let wave = context / (turns * std::f64::consts::TAU);
            dims as f64 * wave.ln() / (2.0 * theta.ln())
        };
        let (mut first, mut last) = (index_of(self.fast_turns), index_of(self.slow_turns));
        if self.truncated {
            (first, last) = (first.floor(), last.ceil());
        }
        let (first, last) = (first.max(0.0), last.min(dims as f64 - 1.0));
        // A blend of no width would divide by zero.
        let width = if first == last { 0.001 } else { last - first };
        (first, first + width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: f64 = 500_000.0;

    fn rope(scaling: RopeScaling) -> Rope {
        Rope {
            scaling,
            ..Rope::plain(PLAIN, RopeStyle::Halves, 128)
        }
    }

    #[test]
    fn llama3_scaling_keeps_short_waves_and_slows_long_ones() {
        let plain = rope(RopeScaling::None).inverse_frequencies(8192);
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_context: 8192,
        };
        let scaled = rope(llama3).inverse_frequencies(8192);
        assert_eq!(scaled[0], plain[0]);
        assert!((scaled[63] * 8.0 / plain[63] - 1.0).abs() < 1e-6);
        let between = plain
            .iter()
            .zip(&scaled)
            .filter(|(p, s)| s < p && **s > **p / 7.9);
        assert!(between.count() > 3);
    }

    #[test]
    fn linear_scaling_divides_positions() {
        let rope = Rope {
            scaling: RopeScaling::Linear { factor: 4.0 },
            ..Rope::plain(10_000.0, RopeStyle::Pairs, 4)
        };
        assert_eq!(rope.inverse_frequencies(1), [0.25, f64::from(0.0025_f32)]);
    }

    #[test]
    fn yarn_blends_between_whole_indices_unless_told_otherwise() {
        let yarn = Yarn::new(4.0, 8192);
        assert!((yarn.magnitude - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
        let plain = rope(RopeScaling::None).inverse_frequencies(8192);
        let scaled = rope(RopeScaling::Yarn(yarn.clone())).inverse_frequencies(8192);
        // 128 ln(8192 / (32 * 2 pi)) / (2 ln 500000) is 18.08, and 34.97 with one turn.
        assert_eq!(scaled[18], plain[18]);
        assert!(scaled[19] < plain[19]);
        assert!(scaled[34] > plain[34] / 3.99);
        assert!((scaled[35] * 4.0 / plain[35] - 1.0).abs() < 1e-6);
        let exact = Yarn {
            truncated: false,
            ..yarn
        };
        let exact = rope(RopeScaling::Yarn(exact)).inverse_frequencies(8192);
        assert!(exact[19] > scaled[19]);
    }

    #[test]
    fn longrope_takes_its_long_factors_past_the_original_context() {
        let scaling = RopeScaling::LongRope {
            short: vec![1.0; 64],
            long: vec![2.0; 64],
            original_context: 4096,
            magnitude: 1.19,
        };
        let plain = rope(RopeScaling::None).inverse_frequencies(1);
        let rope = rope(scaling);
        assert_eq!(rope.inverse_frequencies(4096), plain);
        assert_eq!(rope.inverse_frequencies(4097)[0], plain[0] / 2.0);
        assert_eq!(rope.magnitude(), 1.19);
    }
}
