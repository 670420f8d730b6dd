//! Benchmarks of single U-Net blocks of each kind and size with random weights, for networks whose whole pass takes
//! minutes.

use candle_core::{Device, Tensor};

use super::synthetic::{GUIDED, PROMPT_TOKENS, SyntheticImage};
use super::unet::{Resnet, ResnetShape, Transformer, UnetSpec, same};
use crate::networks::adapter::Pass;
use crate::networks::blocks::{ComponentReader, ComponentSource, ConvolutionLayer, Layout, run};
use crate::networks::weights::{Flaw, InventedTensors};
use muster_kernels::{Axis, Edges, Resampling, resample};

/// Blocks and their inputs: a prompt and a negative prompt.
pub struct BlockBench {
    blocks: Vec<SyntheticBlock>,
    time: Tensor,
    context: Tensor,
    device: Device,
}

struct SyntheticBlock {
    name: String,
    /// Height and width of its map.
    size: [usize; 2],
    channels: usize,
    operations: u64,
    network: BlockNetwork,
}

enum BlockNetwork {
    Resnet(Box<Resnet>),
    /// With a single layer; the blocks of a level repeat it.
    Transformer(Box<Transformer>),
    Down(ConvolutionLayer),
    Up(ConvolutionLayer),
}

impl BlockBench {
    /// The blocks of a pass over an image of this width and height.
    pub fn new(
        shape: SyntheticImage,
        [width, height]: [u32; 2],
        device: &Device,
    ) -> Result<Self, Flaw> {
        let (spec, autoencoder) = shape.specs();
        let source = ComponentSource {
            tensors: &InventedTensors::on(device),
            layout: Layout::Folder,
            device,
            quantize: None,
        };
        let mut reader = ComponentReader::new(source, str::to_owned);
        let latent = [height, width].map(|side| side as usize / autoencoder.factor());
        let ones = |shape: &[usize]| {
            let ones = Tensor::ones(shape, candle_core::DType::F32, device);
            ones.map_err(|error| Flaw::broken("the input of a block", error, "a tensor"))
        };
        let mut blocks = Vec::new();
        for index in 0..spec.levels.len() {
            read_level(&spec, index, latent, &mut reader, &mut blocks)?;
        }
        Ok(Self {
            blocks,
            time: ones(&[GUIDED, spec.time_width()])?,
            context: ones(&[GUIDED, PROMPT_TOKENS, spec.context])?,
            device: device.clone(),
        })
    }

    /// The name of each block with its multiplications and additions.
    pub fn parts(&self) -> impl Iterator<Item = (&str, u64)> {
        let blocks = self.blocks.iter();
        blocks.map(|block| (block.name.as_str(), GUIDED as u64 * block.operations))
    }

    /// Runs a block once.
    pub fn pass(&self, index: usize) -> candle_core::Result<()> {
        let Some(block) = self.blocks.get(index) else {
            candle_core::bail!("there is no block {index}");
        };
        let [height, width] = block.size;
        let shape = [GUIDED, height, width, block.channels];
        let x = Tensor::ones(&shape, candle_core::DType::F32, &self.device)?;
        let pass = Pass::plain(Edges::Zeros);
        match &block.network {
            BlockNetwork::Resnet(resnet) => resnet.forward(&x, Some(&self.time), pass)?,
            BlockNetwork::Transformer(transformer) => {
                run(transformer.forward(&x, &self.context, pass))?
            }
            BlockNetwork::Down(convolution) => convolution.forward(&x, pass)?,
            BlockNetwork::Up(convolution) => {
                let larger = resample(&x, [2 * height, 2 * width], Resampling::Nearest)?;
                convolution.forward(&larger, pass)?
            }
        };
        self.device.synchronize()
    }
}

fn read_level(
    spec: &UnetSpec,
    index: usize,
    latent: [usize; 2],
    reader: &mut ComponentReader,
    blocks: &mut Vec<SyntheticBlock>,
) -> Result<(), Flaw> {
    let level = &spec.levels[index];
    let channels = level.channels;
    let size @ [height, width] = latent.map(|side| (side >> index).max(1));
    let places = (height * width) as u64;
    let mut add = |kind: &str, operations: u64, network| {
        blocks.push(SyntheticBlock {
            name: format!("{kind} {channels} at {width}x{height}"),
            size,
            channels,
            operations: 2 * operations,
            network,
        });
    };
    let wide = channels as u64;
    let shape = ResnetShape {
        groups: spec.groups,
        norm_eps: spec.norm_eps,
        time_width: Some(spec.time_width()),
    };
    let resnet = Resnet::load(reader, "resnet", (channels, channels), shape)?;
    add(
        "resnet",
        spec.resnet_operations(places, wide, wide),
        BlockNetwork::Resnet(Box::new(resnet)),
    );
    if level.depth > 0 {
        let one = (channels, 1, level.heads);
        let transformer = Transformer::load(reader, "transformer", one, spec)?;
        add(
            "transformer",
            spec.transformer_operations(places, wide, 1, PROMPT_TOKENS as u64),
            BlockNetwork::Transformer(Box::new(transformer)),
        );
    }
    let square = [channels, channels, 3];
    if index + 1 < spec.levels.len() {
        let halve = Axis {
            stride: 2,
            ..same()
        };
        let down = reader.convolution("down", square, halve)?;
        add(
            "down",
            9 * (places / 4) * wide * wide,
            BlockNetwork::Down(down),
        );
    }
    if index > 0 {
        let up = reader.convolution("up", square, same())?;
        add("up", 9 * (4 * places) * wide * wide, BlockNetwork::Up(up));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_block_is_measured_at_each_size() {
        let bench = BlockBench::new(SyntheticImage::Tiny, [64, 128], &Device::Cpu).unwrap();
        let names: Vec<&str> = bench.parts().map(|(name, _)| name).collect();
        let expected = [
            "resnet 32 at 32x64",
            "transformer 32 at 32x64",
            "down 32 at 32x64",
            "resnet 64 at 16x32",
            "transformer 64 at 16x32",
            "up 64 at 16x32",
        ];
        assert_eq!(names, expected);
        for (index, (name, operations)) in bench.parts().enumerate() {
            assert!(operations > 1_000_000, "{name}: {operations}");
            bench.pass(index).unwrap();
        }
        assert!(bench.pass(names.len()).is_err());
    }

    /// The operations of the blocks sum up to those of the whole network.
    #[test]
    fn operations_of_blocks_are_those_of_the_network() {
        let spec = UnetSpec::stable_diffusion_xl();
        let deeper = |depth: u64| spec.transformer_operations(1024, 1280, depth, 77);
        let one = deeper(2) - deeper(1);
        assert_eq!(deeper(10) - deeper(1), 9 * one);
        assert_eq!(spec.transformer_operations(1024, 1280, 0, 77), 0);
        // Two convolutions of 3 by 3, and the time.
        assert_eq!(
            spec.resnet_operations(4, 320, 320),
            2 * 9 * 4 * 320 * 320 + 1280 * 320
        );
    }
}
