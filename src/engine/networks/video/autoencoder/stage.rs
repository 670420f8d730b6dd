//! The stages of a video autoencoder: causal convolutions over frames, residual blocks, attention.

use candle_core::{Result, Tensor};

use super::resize::{FrameResize, ResidualLevel};
use crate::networks::blocks::{ComponentReader, Projection};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution, Mask, dense_attention, rms_norm, silu};

/// A stage with one input frame, and none, one or two output frames.
pub enum VideoStage {
    Fold(usize),
    Unfold(usize),
    Projection(Projection),
    Convolution(CausalConvolution),
    Resnet(CausalResnet),
    Attention(FrameAttention),
    Resize(FrameResize),
    Level(ResidualLevel),
    Output(FrameOutput),
}

impl VideoStage {
    pub async fn forward(&self, x: Tensor, memory: &mut FrameMemory) -> Result<Vec<Tensor>> {
        Ok(vec![match self {
            Self::Fold(patch) => fold(&x, *patch)?,
            Self::Unfold(patch) => unfold(&x, *patch)?,
            Self::Projection(projection) => projection.apply(&x)?,
            Self::Convolution(convolution) => convolution.forward(&x, memory)?,
            Self::Resnet(resnet) => resnet.forward(&x, memory)?,
            Self::Attention(attention) => attention.forward(&x)?,
            Self::Output(output) => output.forward(&x, memory)?,
            Self::Resize(resize) => return resize.forward(&x, memory),
            Self::Level(level) => return level.forward(x, memory).await,
        }])
    }
}

/// Numbers the places where stages remember frames.
#[derive(Default)]
pub struct SlotCounter(usize);

/// The number of a stage's place in a [`FrameMemory`].
#[derive(Debug, Clone, Copy)]
pub struct FrameSlot(usize);

impl SlotCounter {
    pub fn next(&mut self) -> FrameSlot {
        self.0 += 1;
        FrameSlot(self.0 - 1)
    }
}

/// The frames of one video that stages still need.
#[derive(Default)]
pub struct FrameMemory(Vec<PastFrames>);

/// The frames that one stage saw before.
#[derive(Default)]
pub struct PastFrames {
    pub has_begun: bool,
    /// The last but one, and the last.
    pub frames: [Option<Tensor>; 2],
}

impl FrameMemory {
    pub fn of(&mut self, slot: FrameSlot) -> &mut PastFrames {
        if self.0.len() <= slot.0 {
            self.0.resize_with(slot.0 + 1, PastFrames::default);
        }
        &mut self.0[slot.0]
    }
}

impl PastFrames {
    /// The two frames before, zeros where there were none, and this one, joined by their channels. Remembers this one.
    pub fn joined(&mut self, x: &Tensor) -> Result<Tensor> {
        let before = |frame: &Option<Tensor>| match frame {
            Some(frame) => Ok(frame.clone()),
            None => x.zeros_like(),
        };
        let [first, second] = [before(&self.frames[0])?, before(&self.frames[1])?];
        self.frames = [self.frames[1].take(), Some(x.clone())];
        Tensor::cat(&[&first, &second, x], 3)
    }
}

/// A convolution over a frame and the two before it.
pub struct CausalConvolution {
    convolution: Convolution,
    slot: FrameSlot,
}

impl CausalConvolution {
    pub fn load(
        reader: &mut ComponentReader,
        name: &str,
        sizes: [usize; 2],
        slots: &mut SlotCounter,
    ) -> std::result::Result<Self, Flaw> {
        let same = Axis {
            padding: [1, 1],
            ..Axis::default()
        };
        Ok(Self {
            convolution: reader.convolution_of_maps(name, sizes, [3, 3, 3], [same; 2])?,
            slot: slots.next(),
        })
    }

    fn forward(&self, x: &Tensor, memory: &mut FrameMemory) -> Result<Tensor> {
        let joined = memory.of(self.slot).joined(x)?;
        self.convolution.apply(&joined)
    }
}

/// A norm of each place over its channels.
pub struct ChannelNorm(Tensor);

impl ChannelNorm {
    /// The reference divides by the length alone.
    const EPS: f64 = 1e-20;

    fn load(
        reader: &mut ComponentReader,
        name: &str,
        width: usize,
    ) -> std::result::Result<Self, Flaw> {
        let shapes: [&[usize]; 3] = [&[width], &[width, 1, 1], &[width, 1, 1, 1]];
        let factors = reader.numbers(&format!("{name}.gamma"), &shapes)?;
        Ok(Self(factors.reshape(width)?))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        rms_norm(x, &self.0, Self::EPS)
    }
}

/// Two causal convolutions with a shortcut.
pub struct CausalResnet {
    first_norm: ChannelNorm,
    first: CausalConvolution,
    second_norm: ChannelNorm,
    second: CausalConvolution,
    shortcut: Option<Projection>,
}

impl CausalResnet {
    pub fn load(
        reader: &mut ComponentReader,
        name: &str,
        (inputs, outputs): (usize, usize),
        slots: &mut SlotCounter,
    ) -> std::result::Result<Self, Flaw> {
        let part = |part: &str| format!("{name}.{part}");
        Ok(Self {
            first_norm: ChannelNorm::load(reader, &part("norm1"), inputs)?,
            first: CausalConvolution::load(reader, &part("conv1"), [outputs, inputs], slots)?,
            second_norm: ChannelNorm::load(reader, &part("norm2"), outputs)?,
            second: CausalConvolution::load(reader, &part("conv2"), [outputs, outputs], slots)?,
            shortcut: match inputs == outputs {
                true => None,
                false => {
                    Some(reader.projection(&part("conv_shortcut"), (outputs, inputs), true)?)
                }
            },
        })
    }

    pub fn forward(&self, x: &Tensor, memory: &mut FrameMemory) -> Result<Tensor> {
        let inner = silu(&self.first_norm.forward(x)?)?;
        let inner = self.first.forward(&inner, memory)?;
        let inner = silu(&self.second_norm.forward(&inner)?)?;
        let inner = self.second.forward(&inner, memory)?;
        match &self.shortcut {
            Some(shortcut) => shortcut.apply(x)? + inner,
            None => x + inner,
        }
    }
}

/// Attention of all places of one frame to each other, with one head of all channels.
pub struct FrameAttention {
    norm: ChannelNorm,
    inward: Projection,
    outward: Projection,
}

impl FrameAttention {
    pub fn load(
        reader: &mut ComponentReader,
        name: &str,
        width: usize,
    ) -> std::result::Result<Self, Flaw> {
        Ok(Self {
            norm: ChannelNorm::load(reader, &format!("{name}.norm"), width)?,
            inward: reader.projection(&format!("{name}.to_qkv"), (3 * width, width), true)?,
            outward: reader.projection(&format!("{name}.proj"), (width, width), true)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (_, height, width, channels) = x.dims4()?;
        let normed = self
            .norm
            .forward(x)?
            .reshape((1, height * width, channels))?;
        let all = self.inward.apply(&normed)?;
        let part = |index: usize| {
            let part = all.narrow(2, index * channels, channels)?;
            part.contiguous()?.unsqueeze(2)
        };
        let scale = (channels as f32).powf(-0.5);
        let attended = dense_attention(&part(0)?, &part(1)?, &part(2)?, scale, Mask::None)?;
        x + self
            .outward
            .apply(&attended.squeeze(2)?)?
            .reshape(x.dims())?
    }
}

/// The end of an encoder or a decoder.
pub struct FrameOutput {
    norm: ChannelNorm,
    convolution: CausalConvolution,
}

impl FrameOutput {
    pub fn load(
        reader: &mut ComponentReader,
        stem: &str,
        [outputs, inputs]: [usize; 2],
        slots: &mut SlotCounter,
    ) -> std::result::Result<Self, Flaw> {
        let name = format!("{stem}.conv_out");
        Ok(Self {
            norm: ChannelNorm::load(reader, &format!("{stem}.norm_out"), inputs)?,
            convolution: CausalConvolution::load(reader, &name, [outputs, inputs], slots)?,
        })
    }

    fn forward(&self, x: &Tensor, memory: &mut FrameMemory) -> Result<Tensor> {
        let normed = silu(&self.norm.forward(x)?)?;
        self.convolution.forward(&normed, memory)
    }
}

/// Patches of pixels become channels: colors first, then columns, then rows.
fn fold(x: &Tensor, patch: usize) -> Result<Tensor> {
    if patch == 1 {
        return Ok(x.clone());
    }
    let (_, height, width, colors) = x.dims4()?;
    let shape = vec![height / patch, patch, width / patch, patch, colors];
    let parts = x.reshape(shape)?.permute((0, 2, 4, 3, 1))?.contiguous()?;
    parts.reshape((1, height / patch, width / patch, colors * patch * patch))
}

fn unfold(x: &Tensor, patch: usize) -> Result<Tensor> {
    if patch == 1 {
        return Ok(x.clone());
    }
    let (_, height, width, channels) = x.dims4()?;
    let colors = channels / (patch * patch);
    let parts = x.reshape(vec![height, width, colors, patch, patch])?;
    let rows = parts.permute((0, 4, 1, 3, 2))?.contiguous()?;
    rows.reshape((1, height * patch, width * patch, colors))
}
