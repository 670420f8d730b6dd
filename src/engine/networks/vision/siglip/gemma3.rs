//! Gemma 3: one square per image, whose patches are averaged in blocks.

use candle_core::{DType, Device, Result, Tensor};
use serde_json::Value;

use super::encoder::SiglipEncoder;
use super::spec::{SiglipDefaults, SiglipSpec};
use crate::networks::blocks::ComponentReader;
use crate::networks::layers::RmsNorm;
use crate::networks::vision::image::{ImagePart, Levels, ProcessedImage, Tile};
use crate::networks::vision::resize::{Filter, Weights, resize};
use crate::networks::vision::settings::{ProcessorJson, same};
use crate::networks::vision::tower::{ImageFeatures, Tower, TowerPass};
use crate::networks::weights::{Flaw, sized};
use muster_kernels::Convolution;

/// Defaults of the reference.
const USUAL: SiglipDefaults = SiglipDefaults {
    hidden_size: 768,
    intermediate_size: 3072,
    layers: 12,
    heads: 12,
    image_size: 224,
    patch_size: 16,
};
/// Default number of an image's tokens.
const TOKENS: usize = 256;

#[derive(Debug, Clone, PartialEq)]
pub struct GemmaSpec {
    pub siglip: SiglipSpec,
    /// Tokens in a row of an image.
    pub tokens_in_row: usize,
    pub out_size: usize,
}

/// Every image becomes a square of the same size.
#[derive(Debug, Clone, PartialEq)]
pub struct GemmaProcessor {
    side: usize,
    tokens: usize,
    levels: Levels,
}

pub struct GemmaTower {
    spec: GemmaSpec,
    encoder: SiglipEncoder,
    norm: RmsNorm,
    projection: Convolution,
}

impl GemmaSpec {
    pub fn read(config: &Value) -> std::result::Result<Self, Flaw> {
        let siglip = SiglipSpec::read(&config["vision_config"], USUAL)?;
        let tokens = config["mm_tokens_per_image"].as_u64();
        let tokens = tokens.map_or(TOKENS, |tokens| tokens as usize);
        let row = tokens.isqrt();
        let side = siglip.side();
        if row == 0 || row * row != tokens || !side.is_multiple_of(row) {
            let wanted = format!("a square that divides {side} x {side} patches");
            return Err(Flaw::broken("mm_tokens_per_image", tokens, wanted));
        }
        let out = config["text_config"]["hidden_size"].as_u64();
        Ok(Self {
            siglip,
            tokens_in_row: row,
            out_size: sized("text_config.hidden_size", out.unwrap_or(2304) as usize)?,
        })
    }

    fn tokens(&self) -> usize {
        self.tokens_in_row * self.tokens_in_row
    }
}

impl GemmaProcessor {
    pub fn read(json: &ProcessorJson, spec: &GemmaSpec) -> std::result::Result<Self, Flaw> {
        json.check(Filter::Bilinear)?;
        let side = spec.siglip.image_size;
        let size = json.size.unwrap_or_default();
        same("size.height", size.height, side)?;
        same("size.width", size.width, side)?;
        same("image_seq_length", json.image_seq_length, spec.tokens())?;
        if json.do_pan_and_scan == Some(true) {
            return Err(Flaw::unsupported("do_pan_and_scan", true, "false"));
        }
        Ok(Self {
            side,
            tokens: spec.tokens(),
            levels: json.levels(&Levels::HALVES)?,
        })
    }

    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Tokens of an image see each other, so that all of them are read together.
    pub fn process(&self, bytes: &[u8], size: [usize; 2]) -> ProcessedImage {
        let (width, height) = (self.side, self.side);
        let bytes = resize(
            bytes,
            size,
            [width, height],
            Filter::Bilinear,
            Weights::Torch,
        );
        ProcessedImage {
            tiles: vec![Tile {
                width,
                height,
                bytes,
            }],
            levels: self.levels.clone(),
            parts: vec![
                ImagePart::Text("\n\n<start_of_image>".to_owned()),
                ImagePart::Rows(self.tokens),
                ImagePart::Text("<end_of_image>\n\n".to_owned()),
            ],
            axes: None,
            is_whole: true,
        }
    }
}

impl GemmaTower {
    pub fn read(
        spec: &GemmaSpec,
        device: &Device,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (hidden, out) = (spec.siglip.block.hidden, spec.out_size);
        let weight = reader.vector("projector.mm_soft_emb_norm.weight", hidden)?;
        let projection = reader.table("projector.mm_input_projection_weight", (hidden, out))?;
        Ok(Self {
            encoder: SiglipEncoder::read(&spec.siglip, device, reader)?,
            // Norms of Gemma multiply by their weight and one more.
            norm: RmsNorm {
                weight: (weight + 1.0)?,
                eps: spec.siglip.block.epsilon,
            },
            projection: Convolution::product(&projection.t()?.contiguous()?, None)?,
            spec: spec.clone(),
        })
    }

    /// Averages of blocks of patches.
    fn pooled(&self, patches: &Tensor) -> Result<Tensor> {
        let (row, hidden) = (self.spec.tokens_in_row, self.spec.siglip.block.hidden);
        let each = self.spec.siglip.side() / row;
        let blocks = patches.to_dtype(DType::F32)?;
        let blocks = blocks.reshape(&[row, each, row, each, hidden][..])?;
        let sums = blocks.sum(3)?.sum(1)?.reshape((row * row, hidden))?;
        sums / (each * each) as f64
    }
}

impl Tower for GemmaTower {
    fn begin(&self, image: &ProcessedImage) -> Result<TowerPass> {
        self.encoder.begin(image)
    }

    fn advance(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        self.encoder.advance(pass, |patches| {
            let normed = self.norm.forward(&self.pooled(patches)?)?;
            self.projection.apply(&normed.unsqueeze(0)?)?.squeeze(0)
        })
    }
}
