//! The autoencoder between videos and latents, causal in time.
//!
//! Both halves are a row of stages that each see one frame after the other and remember the few that they still need, so
//! that memory does not depend on a video's length: [`FrameStream`].

mod resize;
mod spec;
mod stage;

pub use self::spec::VideoAutoencoderSpec;

use candle_core::{Result, Tensor};

use self::resize::{Direction, FrameResize, ResidualLevel};
use self::stage::{
    CausalConvolution, CausalResnet, FrameAttention, FrameMemory, FrameOutput, SlotCounter,
    VideoStage,
};
use super::original::AutoencoderNames;
use crate::networks::blocks::{ComponentReader, ComponentSource, block_end};
use crate::networks::weights::Flaw;

/// An autoencoder on a device.
pub struct VideoAutoencoder {
    spec: VideoAutoencoderSpec,
    encoder: Vec<VideoStage>,
    decoder: Vec<VideoStage>,
}

/// A video in progress through an encoder or a decoder.
pub struct FrameStream<'a> {
    stages: &'a [VideoStage],
    memory: FrameMemory,
    /// Frames and the stage that sees them next; the last one first.
    waiting: Vec<(usize, Tensor)>,
}

impl VideoAutoencoder {
    pub fn load(
        spec: VideoAutoencoderSpec,
        source: ComponentSource,
    ) -> std::result::Result<Self, Flaw> {
        let names = AutoencoderNames::of(source.tensors, spec.blocks, spec.is_residual);
        let mut reader = ComponentReader::new(source, move |name| names.name(name));
        let encoder = encoder(&spec, &mut reader)?;
        let decoder = decoder(&spec, &mut reader)?;
        reader.check_nothing_was_ignored(|_| true)?;
        Ok(Self {
            spec,
            encoder,
            decoder,
        })
    }

    pub fn spec(&self) -> &VideoAutoencoderSpec {
        &self.spec
    }

    /// Encodes frames `[1, height, width, 3]` from -1 to 1 to means and log variances of latents, concatenated.
    pub fn encoding(&self) -> FrameStream<'_> {
        FrameStream::new(&self.encoder)
    }

    /// Decodes latent frames `[1, height, width, channels]`, unscaled, to frames of about -1 to 1.
    pub fn decoding(&self) -> FrameStream<'_> {
        FrameStream::new(&self.decoder)
    }
}

impl<'a> FrameStream<'a> {
    fn new(stages: &'a [VideoStage]) -> Self {
        Self {
            stages,
            memory: FrameMemory::default(),
            waiting: Vec::new(),
        }
    }

    /// Hands over the next frame, after [`next`](Self::next) gave none.
    pub fn push(&mut self, frame: Tensor) {
        self.waiting.push((0, frame));
    }

    /// The next frame that is complete; none until another one is pushed.
    pub async fn next(&mut self) -> Result<Option<Tensor>> {
        while let Some((at, frame)) = self.waiting.pop() {
            let Some(stage) = self.stages.get(at) else {
                return Ok(Some(frame));
            };
            let frames = stage.forward(frame, &mut self.memory).await?;
            let frames = frames.into_iter().rev();
            self.waiting.extend(frames.map(|frame| (at + 1, frame)));
            block_end().await;
        }
        Ok(None)
    }
}

fn encoder(
    spec: &VideoAutoencoderSpec,
    reader: &mut ComponentReader,
) -> std::result::Result<Vec<VideoStage>, Flaw> {
    let mut slots = SlotCounter::default();
    let widths = spec.encoder_widths();
    let mut stages = vec![VideoStage::Fold(spec.patch)];
    let inward = [widths[0], spec.colors()];
    stages.push(VideoStage::Convolution(CausalConvolution::load(
        reader,
        "encoder.conv_in",
        inward,
        &mut slots,
    )?));
    let mut place = 0;
    for (index, pair) in widths.windows(2).enumerate() {
        let halves_time = spec.halves_time.get(index).copied();
        let [mut inputs, outputs] = [pair[0], pair[1]];
        let (before, stem) = (inputs, format!("encoder.down_blocks.{index}"));
        let mut resnets = Vec::new();
        for block in 0..spec.blocks {
            let name = match spec.is_residual {
                true => format!("{stem}.resnets.{block}"),
                false => format!("encoder.down_blocks.{place}"),
            };
            place += 1;
            resnets.push(CausalResnet::load(
                reader,
                &name,
                (inputs, outputs),
                &mut slots,
            )?);
            inputs = outputs;
        }
        let resize = match halves_time {
            None => None,
            Some(in_time) => {
                let name = match spec.is_residual {
                    true => format!("{stem}.downsampler"),
                    false => format!("encoder.down_blocks.{place}"),
                };
                place += 1;
                let direction = Direction::Down;
                let sizes = [outputs, outputs];
                Some(FrameResize::load(
                    reader,
                    &name,
                    sizes,
                    (direction, in_time),
                    &mut slots,
                )?)
            }
        };
        let direction = Direction::Down;
        push_level(
            &mut stages,
            spec,
            (resnets, resize),
            (direction, [before, outputs]),
            &mut slots,
        )?;
    }
    let last = widths[widths.len() - 1];
    push_middle(&mut stages, reader, "encoder.mid_block", last, &mut slots)?;
    let channels = 2 * spec.latent_channels;
    let output = FrameOutput::load(reader, "encoder", [channels, last], &mut slots)?;
    stages.push(VideoStage::Output(output));
    let quantizer = reader.projection("quant_conv", (channels, channels), true)?;
    stages.push(VideoStage::Projection(quantizer));
    Ok(stages)
}

fn decoder(
    spec: &VideoAutoencoderSpec,
    reader: &mut ComponentReader,
) -> std::result::Result<Vec<VideoStage>, Flaw> {
    let mut slots = SlotCounter::default();
    let widths = spec.decoder_widths();
    let latent = spec.latent_channels;
    let quantizer = reader.projection("post_quant_conv", (latent, latent), true)?;
    let mut stages = vec![VideoStage::Projection(quantizer)];
    stages.push(VideoStage::Convolution(CausalConvolution::load(
        reader,
        "decoder.conv_in",
        [widths[0], latent],
        &mut slots,
    )?));
    push_middle(
        &mut stages,
        reader,
        "decoder.mid_block",
        widths[0],
        &mut slots,
    )?;
    for (index, pair) in widths.windows(2).enumerate() {
        let [mut inputs, outputs] = [pair[0], pair[1]];
        if index > 0 && !spec.is_residual {
            // The step between levels has halved them.
            inputs /= 2;
        }
        let (before, stem) = (inputs, format!("decoder.up_blocks.{index}"));
        let mut resnets = Vec::new();
        for block in 0..=spec.blocks {
            let name = format!("{stem}.resnets.{block}");
            resnets.push(CausalResnet::load(
                reader,
                &name,
                (inputs, outputs),
                &mut slots,
            )?);
            inputs = outputs;
        }
        let steps = spec.halves_time.len();
        let doubles_time = (index < steps).then(|| spec.halves_time[steps - 1 - index]);
        let resize = match doubles_time {
            None => None,
            Some(in_time) => {
                let (name, narrower) = match spec.is_residual {
                    true => (format!("{stem}.upsampler"), outputs),
                    false => (format!("{stem}.upsamplers.0"), outputs / 2),
                };
                let direction = Direction::Up;
                let sizes = [narrower, outputs];
                Some(FrameResize::load(
                    reader,
                    &name,
                    sizes,
                    (direction, in_time),
                    &mut slots,
                )?)
            }
        };
        let direction = Direction::Up;
        push_level(
            &mut stages,
            spec,
            (resnets, resize),
            (direction, [before, outputs]),
            &mut slots,
        )?;
    }
    let last = widths[widths.len() - 1];
    let output = FrameOutput::load(reader, "decoder", [spec.colors(), last], &mut slots)?;
    stages.push(VideoStage::Output(output));
    stages.push(VideoStage::Unfold(spec.patch));
    Ok(stages)
}

/// A level as one stage where it has a path around it, else as a stage for each part.
fn push_level(
    stages: &mut Vec<VideoStage>,
    spec: &VideoAutoencoderSpec,
    (resnets, resize): (Vec<CausalResnet>, Option<FrameResize>),
    (direction, sizes): (Direction, [usize; 2]),
    slots: &mut SlotCounter,
) -> std::result::Result<(), Flaw> {
    if spec.is_residual {
        let level = ResidualLevel::new((resnets, resize), direction, sizes, slots)?;
        stages.push(VideoStage::Level(level));
        return Ok(());
    }
    stages.extend(resnets.into_iter().map(VideoStage::Resnet));
    stages.extend(resize.map(VideoStage::Resize));
    Ok(())
}

fn push_middle(
    stages: &mut Vec<VideoStage>,
    reader: &mut ComponentReader,
    stem: &str,
    width: usize,
    slots: &mut SlotCounter,
) -> std::result::Result<(), Flaw> {
    let sizes = (width, width);
    let first = CausalResnet::load(reader, &format!("{stem}.resnets.0"), sizes, slots)?;
    let attention = FrameAttention::load(reader, &format!("{stem}.attentions.0"), width)?;
    let second = CausalResnet::load(reader, &format!("{stem}.resnets.1"), sizes, slots)?;
    stages.push(VideoStage::Resnet(first));
    stages.push(VideoStage::Attention(attention));
    stages.push(VideoStage::Resnet(second));
    Ok(())
}
