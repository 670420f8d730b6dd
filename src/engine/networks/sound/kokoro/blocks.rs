//! Blocks with style modulation. Sequences are channels-last, `[1, frames, channels]`; a style is `[1, style]`.

use candle_core::{DType, Result, Tensor};

use crate::networks::blocks::{ComponentReader, Projection, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution, group_norm, layer_norm, snake};

const NORM_EPS: f64 = 1e-5;
/// Slope of the activations below zero.
pub(super) const SLOPE: f64 = 0.2;

/// Adaptive instance norm: scale and shift come from the style.
pub(super) struct AdaptiveNorm {
    style: Projection,
    /// Factors and terms of the norm itself, where the file has them.
    own: Option<[Tensor; 2]>,
}

/// Norms, activations and two convolutions with a shortcut. May double the frames.
pub(super) struct AdaptiveBlock {
    norms: [AdaptiveNorm; 2],
    convolutions: [Convolution; 2],
    stretch: Option<Stretch>,
    /// If the number of channels changes.
    shortcut: Option<Convolution>,
}

/// A depthwise transposed convolution: kernel 3, stride 2, twice the frames.
struct Stretch {
    taps: [Tensor; 3],
    bias: Tensor,
}

/// Pairs of dilated convolutions with periodic activations.
pub(super) struct SnakeBlock(Vec<[SnakeStep; 2]>);

struct SnakeStep {
    norm: AdaptiveNorm,
    alpha: Tensor,
    convolution: Convolution,
}

impl AdaptiveNorm {
    pub fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        channels: usize,
        style: usize,
    ) -> std::result::Result<Self, Flaw> {
        let has_own = reader.has(&format!("{name}.norm.weight"));
        let mut vector = |kind: &str| -> std::result::Result<Tensor, Flaw> {
            let tensor = reader.tensor(&format!("{name}.norm.{kind}"), &[channels])?;
            Ok(tensor.to_dtype(DType::F32)?)
        };
        let own = match has_own {
            true => Some([vector("weight")?, vector("bias")?]),
            false => None,
        };
        Ok(Self {
            style: reader.projection(&format!("{name}.fc"), (2 * channels, style), true)?,
            own,
        })
    }

    fn factors(&self, style: &Tensor) -> Result<[Tensor; 2]> {
        let both = self.style.apply(style)?.squeeze(0)?;
        let channels = both.dim(0)? / 2;
        let factor = (both.narrow(0, 0, channels)? + 1.0)?;
        let term = both.narrow(0, channels, channels)?;
        match &self.own {
            Some([weight, bias]) => Ok([(&factor * weight)?, (term + (factor * bias)?)?]),
            None => Ok([factor, term]),
        }
    }

    /// Normalizes each channel along time.
    pub fn along_time(&self, x: &Tensor, style: &Tensor) -> Result<Tensor> {
        let [factor, term] = self.factors(style)?;
        let channels = factor.dim(0)?;
        group_norm(x, channels, Some(&factor), Some(&term), NORM_EPS)
    }

    /// Normalizes each row.
    pub fn of_rows(&self, x: &Tensor, style: &Tensor) -> Result<Tensor> {
        let [factor, term] = self.factors(style)?;
        layer_norm(x, Some(&factor), Some(&term), NORM_EPS)
    }
}

impl AdaptiveBlock {
    pub fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        (inputs, outputs): (usize, usize),
        style: usize,
        doubles: bool,
    ) -> std::result::Result<Self, Flaw> {
        let norms = [
            AdaptiveNorm::load(reader, &format!("{name}.norm1"), inputs, style)?,
            AdaptiveNorm::load(reader, &format!("{name}.norm2"), outputs, style)?,
        ];
        let mut convolution = |part: &str, inputs| {
            let name = format!("{name}.{part}");
            reader.convolution_along(&name, [outputs, inputs, 3], around(3, 1))
        };
        let convolutions = [
            convolution("conv1", inputs)?,
            convolution("conv2", outputs)?,
        ];
        let stretch = match doubles {
            true => Some(Stretch::load(reader, &format!("{name}.pool"), inputs)?),
            false => None,
        };
        let shortcut = match inputs == outputs {
            true => None,
            false => {
                let weight =
                    reader.tensor(&format!("{name}.conv1x1.weight"), &[outputs, inputs, 1])?;
                Some(Convolution::new(&weight, None, [Axis::default(); 2], 1)?)
            }
        };
        Ok(Self {
            norms,
            convolutions,
            stretch,
            shortcut,
        })
    }

    pub fn forward(&self, x: &Tensor, style: &Tensor) -> Result<Tensor> {
        let [first, second] = &self.convolutions;
        let mut y = leaky(&self.norms[0].along_time(x, style)?, SLOPE)?;
        if let Some(stretch) = &self.stretch {
            y = stretch.forward(&y)?;
        }
        let y = first.apply(&y)?;
        let y = leaky(&self.norms[1].along_time(&y, style)?, SLOPE)?;
        let y = second.apply(&y)?;
        let mut x = x.clone();
        if let Some(shortcut) = &self.shortcut {
            x = shortcut.apply(&x)?;
        }
        if self.stretch.is_some() {
            x = interleave(&x, &x)?;
        }
        (y + x)? * std::f64::consts::FRAC_1_SQRT_2
    }
}

impl Stretch {
    fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        channels: usize,
    ) -> std::result::Result<Self, Flaw> {
        let weight = reader.tensor(&format!("{name}.weight"), &[channels, 1, 3])?;
        let weight = weight.to_dtype(DType::F32)?.squeeze(1)?;
        let bias = reader.tensor(&format!("{name}.bias"), &[channels])?;
        let tap = |at: usize| weight.narrow(1, at, 1)?.squeeze(1)?.contiguous();
        Ok(Self {
            taps: [tap(0)?, tap(1)?, tap(2)?],
            bias: bias.to_dtype(DType::F32)?,
        })
    }

    /// A transposed convolution: even output frames have one input frame, odd ones two.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [before, middle, after] = &self.taps;
        let frames = x.dim(1)?;
        let next = x.narrow(1, 1, frames - 1)?.pad_with_zeros(1, 0, 1)?;
        let even = x.broadcast_mul(middle)?;
        let odd = (next.broadcast_mul(before)? + x.broadcast_mul(after)?)?;
        interleave(&even, &odd)?.broadcast_add(&self.bias)
    }
}

/// Interleaves the frames of both.
fn interleave(even: &Tensor, odd: &Tensor) -> Result<Tensor> {
    let (_, frames, channels) = even.dims3()?;
    Tensor::stack(&[even, odd], 2)?.reshape((1, 2 * frames, channels))
}

impl SnakeBlock {
    pub fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        channels: usize,
        style: usize,
        (kernel, dilations): (usize, &[usize]),
    ) -> std::result::Result<Self, Flaw> {
        let mut step = |half: usize, at: usize, dilation: usize| {
            let alpha = reader.tensor(&format!("{name}.alpha{half}.{at}"), &[1, channels, 1])?;
            let norm = format!("{name}.adain{half}.{at}");
            let convolution = format!("{name}.convs{half}.{at}");
            Ok::<_, Flaw>(SnakeStep {
                alpha: alpha.to_dtype(DType::F32)?.flatten_all()?,
                norm: AdaptiveNorm::load(reader, &norm, channels, style)?,
                convolution: reader.convolution_along(
                    &convolution,
                    [channels, channels, kernel],
                    around(kernel, dilation),
                )?,
            })
        };
        let mut pairs = Vec::with_capacity(dilations.len());
        for (at, &dilation) in dilations.iter().enumerate() {
            pairs.push([step(1, at, dilation)?, step(2, at, 1)?]);
        }
        Ok(Self(pairs))
    }

    pub async fn forward(&self, x: &Tensor, style: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for steps in &self.0 {
            let mut y = x.clone();
            for step in steps {
                y = step.forward(&y, style)?;
                block_end().await;
            }
            x = (y + x)?;
        }
        Ok(x)
    }
}

impl SnakeStep {
    fn forward(&self, x: &Tensor, style: &Tensor) -> Result<Tensor> {
        let x = self.norm.along_time(x, style)?;
        self.convolution
            .apply(&snake(&x, &self.alpha, &self.alpha)?)
    }
}

/// Padding that keeps the number of frames.
pub(super) fn around(kernel: usize, dilation: usize) -> Axis {
    Axis {
        dilation,
        padding: [(kernel - 1) * dilation / 2; 2],
        ..Axis::default()
    }
}

pub(super) fn leaky(x: &Tensor, slope: f64) -> Result<Tensor> {
    x.maximum(&(x * slope)?)
}
