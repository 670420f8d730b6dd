//! Rhythm and melody: frames of each token, then pitch and energy of each frame.

use candle_core::{DType, Result, Tensor, bail};

use super::KokoroSpec;
use super::blocks::{AdaptiveBlock, AdaptiveNorm};
use super::recurrence::Recurrence;
use crate::networks::blocks::{ComponentReader, Projection, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution};

pub(super) struct Predictor {
    layers: Vec<(Recurrence, AdaptiveNorm)>,
    rhythm: Recurrence,
    durations: Projection,
    shared: Recurrence,
    pitch: Curve,
    energy: Curve,
}

/// Predicts a number for each half of a frame.
struct Curve {
    blocks: [AdaptiveBlock; 3],
    last: Convolution,
}

/// The delivery of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Prosody {
    /// Frames of each token.
    pub durations: Vec<usize>,
    /// In hertz, two per frame.
    pub pitch: Vec<f32>,
    pub energy: Vec<f32>,
}

/// Frames of one text at most: 8 minutes.
const MOST_FRAMES: usize = 20_000;

impl Predictor {
    pub fn load(
        spec: &KokoroSpec,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, style) = (spec.hidden, spec.style);
        let mut layers = Vec::with_capacity(spec.layers);
        for layer in 0..spec.layers {
            let name = |at: usize| format!("predictor.text_encoder.lstms.{at}");
            layers.push((
                Recurrence::load(reader, &name(2 * layer), hidden + style, hidden)?,
                AdaptiveNorm::load(reader, &name(2 * layer + 1), hidden, style)?,
            ));
        }
        let durations = (spec.longest, hidden);
        Ok(Self {
            layers,
            rhythm: Recurrence::load(reader, "predictor.lstm", hidden + style, hidden)?,
            durations: reader.projection(
                "predictor.duration_proj.linear_layer",
                durations,
                true,
            )?,
            shared: Recurrence::load(reader, "predictor.shared", hidden + style, hidden)?,
            pitch: Curve::load(reader, "predictor.F0", hidden, style)?,
            energy: Curve::load(reader, "predictor.N", hidden, style)?,
        })
    }

    /// Predicts prosody from states of the tokens, `[tokens, hidden]`.
    pub async fn forward(&self, x: &Tensor, style: &Tensor, speed: f32) -> Result<Prosody> {
        let styles = style.expand((x.dim(0)?, style.dim(1)?))?;
        let mut x = Tensor::cat(&[x, &styles], 1)?;
        for (recurrence, norm) in &self.layers {
            let states = norm.of_rows(&recurrence.forward(&x)?, style)?;
            x = Tensor::cat(&[&states, &styles], 1)?;
            block_end().await;
        }
        let rhythm = self.rhythm.forward(&x)?;
        let shares = sigmoid(&self.durations.apply(&rhythm)?)?;
        let sums = shares.sum(1)?.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        let frames = |sum: f32| ((sum / speed).round_ties_even() as usize).max(1);
        let durations: Vec<usize> = sums.into_iter().map(frames).collect();
        let total: usize = durations.iter().sum();
        if total > MOST_FRAMES {
            let tokens = durations.len();
            bail!(
                "{tokens} tokens would sound for {total} frames, above the {MOST_FRAMES} of one text"
            );
        }
        let places = Tensor::new(places(&durations), x.device())?;
        let states = self.shared.forward(&x.index_select(&places, 0)?)?;
        let states = states.unsqueeze(0)?;
        block_end().await;
        let pitch = self.pitch.forward(&states, style).await?;
        let energy = self.energy.forward(&states, style).await?;
        Ok(Prosody {
            durations,
            pitch,
            energy,
        })
    }
}

/// The token of each frame.
pub(super) fn places(durations: &[usize]) -> Vec<u32> {
    let repeated = durations.iter().enumerate();
    repeated
        .flat_map(|(token, &frames)| std::iter::repeat_n(token as u32, frames))
        .collect()
}

fn sigmoid(x: &Tensor) -> Result<Tensor> {
    (x.neg()?.exp()? + 1.0)?.recip()
}

impl Curve {
    fn load(
        reader: &mut ComponentReader<'_>,
        name: &str,
        hidden: usize,
        style: usize,
    ) -> std::result::Result<Self, Flaw> {
        let half = hidden / 2;
        let mut block = |at: usize, sizes, doubles| {
            AdaptiveBlock::load(reader, &format!("{name}.{at}"), sizes, style, doubles)
        };
        let blocks = [
            block(0, (hidden, hidden), false)?,
            block(1, (hidden, half), true)?,
            block(2, (half, half), false)?,
        ];
        let last =
            reader.convolution_along(&format!("{name}_proj"), [1, half, 1], Axis::default())?;
        Ok(Self { blocks, last })
    }

    async fn forward(&self, states: &Tensor, style: &Tensor) -> Result<Vec<f32>> {
        let mut x = states.clone();
        for block in &self.blocks {
            x = block.forward(&x, style)?;
            block_end().await;
        }
        let curve = self.last.apply(&x)?.flatten_all()?;
        curve.to_dtype(DType::F32)?.to_vec1()
    }
}
