//! ACE-Step 1.5: music from a text and lyrics. A transformer takes the noise out of latents of sound, under conditions
//! that [`SongConditions`] encodes. After *ACE-Step* (Gong et al., 2025).

mod conditions;
mod layers;
mod spec;

pub use self::conditions::SongConditions;
pub use self::spec::{AceStepSpec, SongConditionSpec, SongLayerSpec};

use candle_core::{DType, Result, Tensor, bail};

use self::layers::{SongAttention, SongFeed, SongKeys, SongRope};
use crate::networks::blocks::{ComponentReader, ComponentSource, Projection, block_end, sinusoid};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution, rms_norm};

/// The transformer on a device.
pub struct AceStep {
    spec: AceStepSpec,
    patches: Projection,
    /// Embedders of the time, and of the interval that a step covers.
    time: SongTime,
    interval: SongTime,
    conditions: Projection,
    layers: Vec<AceStepLayer>,
    norm: Tensor,
    /// Shift and scale of the last norm, `[1, 2, width]`.
    table: Tensor,
    outward: Convolution,
}

/// Keys and values of the conditions of songs, for each layer: the same in all steps.
pub struct SongContext(Vec<SongKeys>);

struct SongTime([Projection; 3]);

struct AceStepLayer {
    own: SongAttention,
    own_norm: Tensor,
    cross: SongAttention,
    cross_norm: Tensor,
    feed: SongFeed,
    feed_norm: Tensor,
    /// `[1, 6, width]`: shift, scale and gate of attention, then of the feed-forward layer.
    table: Tensor,
    window: Option<usize>,
}

/// Numbers that a time becomes before its layers.
const TIME_WIDTH: usize = 256;
/// Training steps of the time from 0 to 1.
const TIME_STEPS: f32 = 1000.0;

impl AceStep {
    pub fn load(spec: AceStepSpec, source: ComponentSource) -> std::result::Result<Self, Flaw> {
        let reader = &mut ComponentReader::new(source, str::to_owned);
        let (width, patch, inputs) = (spec.layer.width, spec.patch, 3 * spec.latent);
        let patches = reader.projection_stored(
            "proj_in_conv",
            (width, inputs * patch),
            true,
            &[&[width, inputs, patch]],
        )?;
        let mut layers = Vec::with_capacity(spec.layers.len());
        for (at, has_window) in spec.layers.iter().enumerate() {
            let window = spec.layer.sight(*has_window);
            layers.push(AceStepLayer::load(reader, at, &spec.layer, window)?);
        }
        let weight = reader.tensor("proj_out_conv.weight", &[width, spec.latent, patch])?;
        let weight = weight.to_dtype(DType::F32)?;
        let bias = reader.vector("proj_out_conv.bias", spec.latent)?;
        let axis = Axis {
            stride: patch,
            ..Axis::default()
        };
        let network = Self {
            patches,
            time: SongTime::load(reader, "time_embed", width)?,
            interval: SongTime::load(reader, "time_embed_r", width)?,
            conditions: reader.projection("condition_embedder", (width, spec.conditions), true)?,
            layers,
            norm: reader.vector("norm_out.weight", width)?,
            table: reader.numbers("scale_shift_table", &[&[1, 2, width]])?,
            outward: Convolution::transposed(&weight, Some(&bias), [Axis::default(), axis], 1)?,
            spec,
        };
        reader.check_nothing_was_ignored(|_| true)?;
        Ok(network)
    }

    pub fn spec(&self) -> &AceStepSpec {
        &self.spec
    }

    /// Keys and values of conditions `[batch, states, width]` for each layer.
    pub async fn context(&self, conditions: &Tensor) -> Result<SongContext> {
        let states = self.conditions.apply(conditions)?;
        let mut keys = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            keys.push(layer.cross.keys(&states)?);
            block_end().await;
        }
        Ok(SongContext(keys))
    }

    /// The velocity from sound to noise at latents `[batch, frames, numbers]`, each at a time from 0 to 1. The source
    /// has the latents to keep or replace, followed by a mask.
    pub async fn forward(
        &self,
        x: &Tensor,
        source: &Tensor,
        times: &[f32],
        context: &SongContext,
    ) -> Result<Tensor> {
        let (batch, frames, _) = x.dims3()?;
        if times.len() != batch || frames == 0 {
            bail!(
                "{batch} songs of {frames} frames, and {} times",
                times.len()
            );
        }
        let mut state = self.patches.apply(&self.to_patches(x, source)?)?;
        let rope = self.spec.layer.rope(state.dim(1)?, x.device())?;
        let times: Vec<f32> = times.iter().map(|time| TIME_STEPS * time).collect();
        let [embedded, projected] = self.time.forward(&times, x)?;
        // A step covers no interval: the network predicts the direction at its time.
        let [of_interval, projected_too] = self.interval.forward(&vec![0.0; batch], x)?;
        let embedded = (embedded + of_interval)?;
        let projected = (projected + projected_too)?;
        block_end().await;
        for (layer, keys) in self.layers.iter().zip(&context.0) {
            state = layer
                .forward(&state, &projected, (&rope, keys), self.spec.layer.eps)
                .await?;
            block_end().await;
        }
        let rows = self.table.broadcast_add(&embedded.unsqueeze(1)?)?;
        let normed = modulated(&state, &self.norm, [0, 1], &rows, self.spec.layer.eps)?;
        self.outward.apply(&normed)?.narrow(1, 0, frames)
    }

    /// `[batch, places, channels * patch]`, channels first like the weights. The last position is padded with zeros.
    fn to_patches(&self, x: &Tensor, source: &Tensor) -> Result<Tensor> {
        let (latent, patch) = (self.spec.latent, self.spec.patch);
        let (batch, frames, found) = x.dims3()?;
        if found != latent || source.dims() != [batch, frames, 2 * latent] {
            bail!(
                "latents of {:?} with a source of {:?}, but a frame has {latent} numbers",
                x.dims(),
                source.dims()
            );
        }
        let places = self.spec.places(frames);
        let joined = Tensor::cat(&[source, x], 2)?;
        let joined = joined.pad_with_zeros(1, 0, places * patch - frames)?;
        let parts = joined.reshape((batch, places, patch, 3 * latent))?;
        parts.transpose(2, 3)?.contiguous()?.flatten_from(2)
    }
}

/// The norm with weights, then `x * (1 + scale) + shift`. `kinds` are the rows of shift and scale.
fn modulated(
    x: &Tensor,
    weight: &Tensor,
    [shift, scale]: [usize; 2],
    rows: &Tensor,
    eps: f64,
) -> Result<Tensor> {
    let factor = (rows.narrow(1, scale, 1)? + 1.0)?;
    let normed = rms_norm(x, weight, eps)?.broadcast_mul(&factor)?;
    normed.broadcast_add(&rows.narrow(1, shift, 1)?)
}

impl SongTime {
    fn load(
        reader: &mut ComponentReader<'_>,
        stem: &str,
        width: usize,
    ) -> std::result::Result<Self, Flaw> {
        let mut layer =
            |part: &str, shape| reader.projection(&format!("{stem}.{part}"), shape, true);
        Ok(Self([
            layer("linear_1", (width, TIME_WIDTH))?,
            layer("linear_2", (width, width))?,
            layer("time_proj", (6 * width, width))?,
        ]))
    }

    /// `[batch, width]`, and for each layer `[batch, 6, width]`.
    fn forward(&self, times: &[f32], like: &Tensor) -> Result<[Tensor; 2]> {
        let [first, second, third] = &self.0;
        let waves = sinusoid(times, TIME_WIDTH, like)?;
        let embedded = second.apply(&first.apply(&waves)?.silu()?)?;
        let projected = third.apply(&embedded.silu()?)?;
        let shape = (times.len(), 6, embedded.dim(1)?);
        Ok([embedded, projected.reshape(shape)?])
    }
}

impl AceStepLayer {
    fn load(
        reader: &mut ComponentReader<'_>,
        at: usize,
        spec: &SongLayerSpec,
        window: Option<usize>,
    ) -> std::result::Result<Self, Flaw> {
        let stem = format!("layers.{at}");
        let width = spec.width;
        Ok(Self {
            own: SongAttention::load(reader, &format!("{stem}.self_attn"), spec)?,
            own_norm: reader.vector(&format!("{stem}.self_attn_norm.weight"), width)?,
            cross: SongAttention::load(reader, &format!("{stem}.cross_attn"), spec)?,
            cross_norm: reader.vector(&format!("{stem}.cross_attn_norm.weight"), width)?,
            feed: SongFeed::load(reader, &format!("{stem}.mlp"), spec)?,
            feed_norm: reader.vector(&format!("{stem}.mlp_norm.weight"), width)?,
            table: reader.numbers(&format!("{stem}.scale_shift_table"), &[&[1, 6, width]])?,
            window,
        })
    }

    async fn forward(
        &self,
        x: &Tensor,
        times: &Tensor,
        (rope, keys): (&SongRope, &SongKeys),
        eps: f64,
    ) -> Result<Tensor> {
        let rows = self.table.broadcast_add(times)?;
        let gated = |y: &Tensor, gate: usize| y.broadcast_mul(&rows.narrow(1, gate, 1)?);
        let normed = modulated(x, &self.own_norm, [0, 1], &rows, eps)?;
        let attended = self.own.to_itself(&normed, rope, self.window).await?;
        let x = (x + gated(&attended, 2)?)?;
        let normed = rms_norm(&x, &self.cross_norm, eps)?;
        let x = (&x + self.cross.to_others(&normed, keys).await?)?;
        let normed = modulated(&x, &self.feed_norm, [3, 4], &rows, eps)?;
        &x + gated(&self.feed.forward(&normed)?, 5)?
    }
}

#[cfg(test)]
mod golden;
