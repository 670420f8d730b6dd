//! The families of vision towers: tensor names, settings, image processors and tokens.

use candle_core::Device;
use serde_json::Value;

use super::image::{ImageSizeError, ProcessedImage};
use super::pixtral::{PixtralProcessor, PixtralSpec, PixtralTower};
use super::qwen2::{Qwen2Spec, Qwen2Tower};
use super::qwen3::{PatchShape, QwenProcessor, QwenSpec, QwenTower};
use super::settings::ProcessorJson;
use super::siglip::{GemmaProcessor, GemmaSpec, GemmaTower, SmolProcessor, SmolSpec, SmolTower};
use super::tower::Tower;
use crate::networks::blocks::ComponentReader;
use crate::networks::weights::Flaw;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisionFamily {
    Qwen3Vl,
    /// Qwen3-VL's tower without deepstack features.
    Qwen35,
    Qwen25Vl,
    Gemma3,
    /// Idefics3 as well.
    SmolVlm,
    Mistral3,
}

/// Family, `architectures` of config.json.
const FAMILIES: &[(VisionFamily, &str)] = &[
    (VisionFamily::Qwen3Vl, "Qwen3VLForConditionalGeneration"),
    (VisionFamily::Qwen35, "Qwen3_5ForConditionalGeneration"),
    (VisionFamily::Qwen35, "Qwen3_5MoeForConditionalGeneration"),
    (VisionFamily::Qwen25Vl, "Qwen2_5_VLForConditionalGeneration"),
    (VisionFamily::Gemma3, "Gemma3ForConditionalGeneration"),
    (VisionFamily::SmolVlm, "SmolVLMForConditionalGeneration"),
    (VisionFamily::SmolVlm, "Idefics3ForConditionalGeneration"),
    (VisionFamily::Mistral3, "Mistral3ForConditionalGeneration"),
];

/// Prefixes of a tower's tensor names: ours, and those of files.
const PREFIXES: &[(&str, &[&str])] = &[
    (
        "tower.",
        &[
            "model.visual.",
            "visual.",
            "vision_tower.vision_model.",
            "model.vision_tower.vision_model.",
            "vision_tower.",
            "model.vision_tower.",
            "model.vision_model.",
        ],
    ),
    (
        "projector.",
        &[
            "multi_modal_projector.",
            "model.multi_modal_projector.",
            "model.connector.",
        ],
    ),
];

/// A model's vision tower and image processor, from its files.
#[derive(Debug, Clone)]
pub struct Vision {
    pub spec: VisionSpec,
    pub processor: ImageProcessor,
    pub tokens: ImageTokens,
}

/// The tokens that a model's files name for images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageTokens {
    /// The image placeholder of chat templates.
    pub mark: u32,
    /// The token that is replaced by image features.
    pub row: u32,
}

/// A tower that is described and not loaded yet.
#[derive(Debug, Clone)]
pub enum VisionSpec {
    Qwen(QwenSpec),
    Qwen2(Qwen2Spec),
    Gemma(GemmaSpec),
    Smol(SmolSpec),
    Pixtral(PixtralSpec),
}

/// How images are resized, and the tokens that they become.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageProcessor {
    Qwen(QwenProcessor),
    Gemma(GemmaProcessor),
    Smol(SmolProcessor),
    Pixtral(PixtralProcessor),
}

impl VisionFamily {
    /// `None` for a model without vision.
    pub fn of_architecture(name: &str) -> Option<Self> {
        let family = FAMILIES.iter().find(|entry| entry.1 == name);
        family.map(|entry| entry.0)
    }

    /// Reads the architecture in a `config.json`.
    pub fn of(config: &Value) -> Option<Self> {
        let names = config["architectures"].as_array()?.iter();
        let mut names = names.filter_map(Value::as_str);
        names.find_map(Self::of_architecture)
    }

    /// Whether the tokens of an image have bidirectional attention.
    pub fn has_blocks(self) -> bool {
        self == Self::Gemma3
    }

    /// `file` are the settings of the image processor, if the model has any.
    pub fn read(self, config: &Value, file: Option<&Value>) -> Result<Vision, Flaw> {
        let json = ProcessorJson::read(file)?;
        let tower = &config["vision_config"];
        let (processor, spec, tokens) = match self {
            Self::Qwen3Vl | Self::Qwen35 => {
                let spec = QwenSpec::read(tower, self == Self::Qwen3Vl)?;
                let patches = PatchShape {
                    side: spec.patch_size,
                    merge: spec.merge_size,
                    frames: spec.temporal_patch_size,
                };
                let processor = QwenProcessor::read(&json, patches)?;
                (
                    ImageProcessor::Qwen(processor),
                    VisionSpec::Qwen(spec),
                    ImageTokens::one(token(config, &["image_token_id"])?),
                )
            }
            Self::Qwen25Vl => {
                let spec = Qwen2Spec::read(tower)?;
                let patches = PatchShape {
                    side: spec.patch_size,
                    merge: spec.merge_size,
                    frames: spec.temporal_patch_size,
                };
                let processor = QwenProcessor::read_qwen2(&json, patches)?;
                (
                    ImageProcessor::Qwen(processor),
                    VisionSpec::Qwen2(spec),
                    ImageTokens::one(token(config, &["image_token_id"])?),
                )
            }
            Self::Gemma3 => {
                let spec = GemmaSpec::read(config)?;
                let processor = GemmaProcessor::read(&json, &spec)?;
                let tokens = ImageTokens {
                    mark: token(config, &["boi_token_index"])?,
                    row: token(config, &["image_token_index", "image_token_id"])?,
                };
                (
                    ImageProcessor::Gemma(processor),
                    VisionSpec::Gemma(spec),
                    tokens,
                )
            }
            Self::SmolVlm => {
                let spec = SmolSpec::read(config)?;
                let processor = SmolProcessor::read(&json, &spec)?;
                (
                    ImageProcessor::Smol(processor),
                    VisionSpec::Smol(spec),
                    ImageTokens::one(token(config, &["image_token_id"])?),
                )
            }
            Self::Mistral3 => {
                let spec = PixtralSpec::read(config)?;
                let processor = PixtralProcessor::read(&json, &spec)?;
                let token = token(config, &["image_token_index", "image_token_id"])?;
                (
                    ImageProcessor::Pixtral(processor),
                    VisionSpec::Pixtral(spec),
                    ImageTokens::one(token),
                )
            }
        };
        Ok(Vision {
            spec,
            processor,
            tokens,
        })
    }
}

impl ImageTokens {
    /// The same token for both.
    fn one(token: u32) -> Self {
        Self {
            mark: token,
            row: token,
        }
    }
}

/// The token that config.json has under one of these names.
fn token(config: &Value, names: &[&str]) -> Result<u32, Flaw> {
    let found = names.iter().find_map(|name| config[*name].as_u64());
    let token = found.and_then(|token| u32::try_from(token).ok());
    token.ok_or_else(|| {
        let name = names.first().copied().unwrap_or_default();
        let found = &config[name];
        Flaw::broken(name, found, "a token of the vocabulary")
    })
}

impl VisionSpec {
    /// The width of the rows that the tower makes.
    pub fn out_size(&self) -> usize {
        match self {
            Self::Qwen(spec) => spec.out_size,
            Self::Qwen2(spec) => spec.out_size,
            Self::Gemma(spec) => spec.out_size,
            Self::Smol(spec) => spec.out_size,
            Self::Pixtral(spec) => spec.out_size,
        }
    }

    /// Number of decoder layers with added features.
    pub fn added_layers(&self) -> usize {
        match self {
            Self::Qwen(spec) => spec.deepstack.len(),
            Self::Qwen2(_) | Self::Gemma(_) | Self::Smol(_) | Self::Pixtral(_) => 0,
        }
    }

    pub fn load(
        &self,
        device: &Device,
        reader: &mut ComponentReader<'_>,
    ) -> Result<Box<dyn Tower>, Flaw> {
        Ok(match self {
            Self::Qwen(spec) => Box::new(QwenTower::read(spec, device, reader)?),
            Self::Qwen2(spec) => Box::new(Qwen2Tower::read(spec, device, reader)?),
            Self::Gemma(spec) => Box::new(GemmaTower::read(spec, device, reader)?),
            Self::Smol(spec) => Box::new(SmolTower::read(spec, device, reader)?),
            Self::Pixtral(spec) => Box::new(PixtralTower::read(spec, device, reader)?),
        })
    }
}

impl ImageProcessor {
    /// The processor of the published models of Qwen3-VL.
    pub fn published() -> Self {
        Self::Qwen(QwenProcessor::published())
    }

    /// Whether tokens have positions by rows and columns.
    pub fn has_axes(&self) -> bool {
        match self {
            Self::Qwen(_) => true,
            Self::Gemma(_) | Self::Smol(_) | Self::Pixtral(_) => false,
        }
    }

    /// The same with a limit of pixels, within its own minimum.
    pub fn within(&self, pixels: usize) -> Self {
        match self {
            Self::Qwen(processor) => Self::Qwen(processor.within(pixels)),
            Self::Gemma(processor) => Self::Gemma(processor.clone()),
            Self::Smol(processor) => Self::Smol(processor.within(pixels)),
            Self::Pixtral(processor) => Self::Pixtral(processor.within(pixels)),
        }
    }

    /// Number of feature tokens of an image of this width and height, excluding those between its rows.
    pub fn rows(&self, size: [usize; 2]) -> Result<usize, ImageSizeError> {
        if size.contains(&0) {
            return Err(ImageSizeError::Empty);
        }
        Ok(match self {
            Self::Qwen(processor) => processor.grid(size)?.tokens(),
            Self::Gemma(processor) => processor.tokens(),
            Self::Smol(processor) => processor.rows(size),
            Self::Pixtral(processor) => processor.grid(size)?.tokens(),
        })
    }

    /// Resizes rows of RGB bytes.
    pub fn process(
        &self,
        bytes: &[u8],
        size: [usize; 2],
    ) -> Result<ProcessedImage, ImageSizeError> {
        if size.contains(&0) {
            return Err(ImageSizeError::Empty);
        }
        match self {
            Self::Qwen(processor) => processor.process(bytes, size),
            Self::Gemma(processor) => Ok(processor.process(bytes, size)),
            Self::Smol(processor) => Ok(processor.process(bytes, size)),
            Self::Pixtral(processor) => processor.process(bytes, size),
        }
    }
}

/// Whether a tensor is of the tower, and none of the decoder's.
pub fn is_of_tower(name: &str) -> bool {
    let prefixes = PREFIXES.iter().flat_map(|(_, prefixes)| *prefixes);
    prefixes.into_iter().any(|prefix| name.starts_with(prefix))
}

/// Converts our tensor names to those of a file with these tensors.
pub fn naming<'n>(tensors: impl Iterator<Item = &'n str> + Clone) -> impl Fn(&str) -> String {
    let found = PREFIXES.iter().map(|(own, prefixes)| {
        let mut prefixes = prefixes.iter().copied();
        let found = prefixes.find(|prefix| tensors.clone().any(|name| name.starts_with(prefix)));
        (*own, found.unwrap_or_default())
    });
    let found: Vec<_> = found.collect();
    move |name| {
        let mut named = found.iter();
        let named = named.find_map(|(own, prefix)| Some((prefix, name.strip_prefix(own)?)));
        named.map_or_else(
            || name.to_owned(),
            |(prefix, rest)| format!("{prefix}{rest}"),
        )
    }
}
