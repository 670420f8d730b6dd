//! Single-file checkpoints in the original layout of Stable Diffusion. Sizes of the networks are inferred from tensor
//! shapes, other parameters from the family.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use candle_core::Device;

use super::adapters::AdapterCaches;
use super::folder::{AUTOENCODER_POOL, check_fits, check_latents};
use super::networks::{DiffusionNetworks, TextEncoder};
use super::plan::{drawing_bytes, own_size};
use super::{ImageDefaults, ImageFootprint};
use crate::networks::blocks::{ClipActivation, Layout, TensorView, layer_part};
use crate::networks::image::{
    ADDED_SIZES, AddedSpec, Autoencoder, AutoencoderSpec, Unet, UnetLevel, UnetSpec,
};
use crate::networks::text_encoder::{ClipSpec, ClipText};
use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, Quantize, TensorHeader, TensorSource, TensorType,
    tensor_floats,
};
use crate::runtime::LoadError;
use crate::runtime::component::{Component, ComponentFolders, ComponentLoad};
use crate::runtime::diffusion::{Betas, NoiseTable, Prediction};
use crate::runtime::network_pool::SharedWeights;
use crate::runtime::text::ClipTokenizer;

const UNET: &str = "model.diffusion_model.";
const AUTOENCODER: &str = "first_stage_model.";
/// Tensors of families that are not supported as single files.
#[rustfmt::skip]
const OTHER_FAMILIES: [(&str, &str); 7] = [
    ("model.diffusion_model.double_blocks.",      "a Flux model"),
    ("model.diffusion_model.joint_blocks.",       "a Stable Diffusion 3 model"),
    ("model.diffusion_model.transformer_blocks.", "a Qwen-Image or PixArt model"),
    ("model.diffusion_model.cap_embedder.",       "a Lumina or Z-Image model"),
    ("model.diffusion_model.clip_mapper.",        "a Stable Cascade model"),
    ("model.diffusion_model.head.modulation",     "a Wan model"),
    ("conditioner.embedders.0.model.",            "a refiner of Stable Diffusion XL"),
];
/// Text encoders: one under the names of transformers, one under OpenCLIP's, and the two of SDXL.
const FIRST_TEXT: &str = "cond_stage_model.transformer.";
const SECOND_TEXT: &str = "cond_stage_model.model.";
const XL_TEXTS: [&str; 2] = [
    "conditioner.embedders.0.transformer.",
    "conditioner.embedders.1.model.",
];
/// Tables that follow from the schedule, marks, and averages of training: nothing that is computed with.
const LEFT_BEHIND: [&str; 18] = [
    "alphas_cumprod",
    "alphas_cumprod_prev",
    "betas",
    "denoiser.sigmas",
    "global_step",
    "log_one_minus_alphas_cumprod",
    "logvar",
    "lvlb_weights",
    "posterior_log_variance_clipped",
    "posterior_mean_coef1",
    "posterior_mean_coef2",
    "posterior_variance",
    "scale_factor",
    "sqrt_alphas_cumprod",
    "sqrt_one_minus_alphas_cumprod",
    "sqrt_recip_alphas_cumprod",
    "sqrt_recipm1_alphas_cumprod",
    "v_pred",
];
const AVERAGES: &str = "model_ema.";
const ZERO_TERMINAL: &str = "ztsnr";
const VELOCITY: &str = "v_pred";
/// Marks another kind of noise.
const OTHER_NOISE: &str = "edm_vpred.";
/// A tensor whose spread distinguishes Stable Diffusion 2's v-prediction (larger) from its noise prediction.
const TELLING_BIAS: &str = "output_blocks.11.1.transformer_blocks.0.norm1.bias";
const TELLING_SPREAD: f32 = 0.09;

const TOKENIZERS: [&str; 2] = ["tokenizer", "tokenizer_2"];

/// Facts that no tensor's shape implies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyFacts {
    pub unet_heads: HeadRule,
    pub text_heads: HeadRule,
    pub groups: usize,
    /// Width of each of the sizes that SDXL adds.
    pub size_width: usize,
    pub latent_scale: f64,
    /// Side of the latents that the network was trained with.
    pub sample_size: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadRule {
    Count(usize),
    Size(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckpointFamily {
    First,
    Second,
    Xl,
}

/// A checkpoint, opened: its header was read, weights were not.
pub struct SingleFileModel {
    checkpoint: Checkpoint,
    family: CheckpointFamily,
    facts: FamilyFacts,
    unet: UnetSpec,
    autoencoder: AutoencoderSpec,
    /// Replaces the autoencoder in the file.
    other_autoencoder: Option<Component<AutoencoderSpec>>,
    encoders: Vec<ClipSpec>,
    /// Folders to use instead of the tokenizer that is built in.
    token_folders: Vec<Option<PathBuf>>,
    prediction: Prediction,
}

impl SingleFileModel {
    /// Whether a file holds all networks of an image model.
    pub fn is_at(path: &Path) -> bool {
        let names = || Checkpoint::names_in_any(path);
        path.is_file() && names().is_some_and(|all| all.iter().any(|it| it.starts_with(UNET)))
    }

    /// `replacements` are folders that are used instead of the tokenizer and the autoencoder.
    pub fn open(path: &Path, replacements: &ComponentFolders) -> Result<Self, CheckpointError> {
        Self::open_with(path, replacements, None)
    }

    /// Opens with facts other than those of the families.
    pub fn open_with(
        path: &Path,
        replacements: &ComponentFolders,
        facts: Option<FamilyFacts>,
    ) -> Result<Self, CheckpointError> {
        let checkpoint = Checkpoint::open_file(path)?;
        let shapes = Shapes(&checkpoint);
        let read = || {
            let family = shapes.family()?;
            let prediction = shapes.prediction(family)?;
            let facts = facts.unwrap_or(family.facts(prediction));
            shapes.check_nothing_is_unknown(family)?;
            check_replacements(replacements)?;
            let networks = (shapes.unet(facts)?, shapes.autoencoder(facts)?);
            let encoders = shapes.encoders(family, facts)?;
            let specs: Vec<&ClipSpec> = encoders.iter().collect();
            check_fits(&networks.0, &specs)?;
            Ok((family, prediction, facts, networks, encoders))
        };
        let read = read().map_err(|flaw: Flaw| flaw.in_file(path))?;
        let (family, prediction, facts, (unet, own), encoders) = read;
        let other_autoencoder = replacements.get("vae").map(|folder| {
            let other = Component::open(folder, AutoencoderSpec::read)?;
            other.check(|spec| check_latents(spec, &unet))?;
            Ok::<_, CheckpointError>(other)
        });
        let other_autoencoder = other_autoencoder.transpose()?;
        let other = other_autoencoder.as_ref();
        let autoencoder = other.map_or(own, |other| other.spec.clone());
        let token_folders = TOKENIZERS.iter().take(encoders.len());
        let token_folders = token_folders.map(|name| replacements.get(*name).cloned());
        Ok(Self {
            token_folders: token_folders.collect(),
            checkpoint,
            family,
            facts,
            unet,
            autoencoder,
            other_autoencoder,
            encoders,
            prediction,
        })
    }

    pub fn footprint(&self, defaults: &ImageDefaults) -> ImageFootprint {
        let headers = self.checkpoint.tensors().iter();
        let other = self.other_autoencoder.as_ref();
        let is_replaced = |name: &str| other.is_some() && name.starts_with(AUTOENCODER);
        let used = headers.filter(|it| !is_left_behind(&it.name) && !is_replaced(&it.name));
        let other_bytes = other.map_or(0, Component::bytes);
        let size = own_size(defaults, self.sample_size(), &self.autoencoder);
        ImageFootprint {
            weight_bytes: used.map(|header| header.bytes).sum::<u64>() + other_bytes,
            drawing_bytes: drawing_bytes(&self.unet, &self.autoencoder, size, 2),
            size,
        }
    }

    /// The weights that other models in memory may hold, too.
    pub fn shared(&self) -> Vec<SharedWeights> {
        let other = self.other_autoencoder.iter();
        other.map(Component::shared).collect()
    }

    fn sample_size(&self) -> Option<[usize; 2]> {
        Some([self.facts.sample_size; 2])
    }

    pub fn load(
        self,
        device: &Device,
        quantize: Option<Quantize>,
    ) -> Result<DiffusionNetworks, LoadError> {
        let path = self.checkpoint.path().to_owned();
        let in_file = |flaw: Flaw| flaw.in_file(&path);
        let load = ComponentLoad { device, quantize };
        let mut encoders = Vec::new();
        for (index, spec) in self.encoders.iter().enumerate() {
            let tokenizer = match &self.token_folders[index] {
                Some(folder) => ClipTokenizer::open(folder)?,
                None => ClipTokenizer::built_in(spec.activation == ClipActivation::Gelu)?,
            };
            let spec = ClipSpec {
                end_token: tokenizer.end,
                ..spec.clone()
            };
            let view = self.view(index).map_err(in_file)?;
            let clip = ClipText::load(spec, load.source(&view, Layout::Folder)).map_err(in_file)?;
            encoders.push(TextEncoder {
                clip: Arc::new(clip),
                tokenizer,
            });
        }
        let tensors: &dyn TensorSource = &self.checkpoint;
        let single = || load.source(tensors, Layout::SingleFile);
        let has = |name: &str| self.checkpoint.tensor(name).is_some();
        let sample_size = self.sample_size();
        let autoencoder = match self.other_autoencoder {
            Some(other) => load.read_shared(other, &AUTOENCODER_POOL, Autoencoder::load)?,
            None => {
                let own = Autoencoder::load(self.autoencoder.clone(), single());
                Arc::new(own.map_err(in_file)?)
            }
        };
        Ok(DiffusionNetworks {
            encoders,
            unet: Unet::load(self.unet.clone(), single()).map_err(in_file)?,
            autoencoder,
            sample_size,
            prediction: self.prediction,
            table: match has(ZERO_TERMINAL) {
                true => NoiseTable::zero_terminal(Betas::STABLE_DIFFUSION),
                false => NoiseTable::stable_diffusion(),
            },
            device: device.clone(),
            colors: OnceLock::new(),
            adapters: AdapterCaches::default(),
        })
    }

    fn view(&self, index: usize) -> Result<TensorView<'_>, Flaw> {
        let (tensors, layers) = (&self.checkpoint, self.encoders[index].layers);
        match (self.family, index) {
            (CheckpointFamily::First, _) => Ok(TensorView::behind(tensors, FIRST_TEXT)),
            (CheckpointFamily::Xl, 0) => Ok(TensorView::behind(tensors, XL_TEXTS[0])),
            (CheckpointFamily::Xl, _) => TensorView::open_clip(tensors, XL_TEXTS[1], layers, true),
            (CheckpointFamily::Second, _) => {
                TensorView::open_clip(tensors, SECOND_TEXT, layers, false)
            }
        }
    }
}

impl CheckpointFamily {
    fn facts(self, prediction: Prediction) -> FamilyFacts {
        let first = FamilyFacts {
            unet_heads: HeadRule::Count(8),
            text_heads: HeadRule::Size(64),
            groups: 32,
            size_width: 256,
            latent_scale: 0.18215,
            sample_size: 64,
        };
        match self {
            Self::First => first,
            Self::Second => FamilyFacts {
                unet_heads: HeadRule::Size(64),
                sample_size: match prediction {
                    Prediction::Velocity => 96,
                    Prediction::Epsilon | Prediction::EdmVelocity => 64,
                },
                ..first
            },
            Self::Xl => FamilyFacts {
                unet_heads: HeadRule::Size(64),
                latent_scale: 0.13025,
                sample_size: 128,
                ..first
            },
        }
    }

    fn text_prefixes(self) -> &'static [&'static str] {
        match self {
            Self::First => &[FIRST_TEXT],
            Self::Second => &[SECOND_TEXT],
            Self::Xl => &XL_TEXTS,
        }
    }
}

impl HeadRule {
    fn heads(self, width: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Size(size) => width / size,
        }
    }
}

fn check_replacements(replacements: &ComponentFolders) -> Result<(), Flaw> {
    let mut names = replacements.keys().map(String::as_str);
    match names.find(|name| !TOKENIZERS.contains(name) && *name != "vae") {
        None => Ok(()),
        Some(name) => {
            let known = "tokenizer, tokenizer_2, vae: the file holds all other networks";
            Err(Flaw::unsupported("the component", name, known))
        }
    }
}

fn is_left_behind(name: &str) -> bool {
    LEFT_BEHIND.contains(&name) || name == ZERO_TERMINAL || name.starts_with(AVERAGES)
}

/// Sizes of networks by the shapes of their tensors.
struct Shapes<'a>(&'a Checkpoint);

impl Shapes<'_> {
    fn family(&self) -> Result<CheckpointFamily, Flaw> {
        let has = |prefix: &str| self.has(prefix);
        let families = [
            (XL_TEXTS[1], CheckpointFamily::Xl),
            (SECOND_TEXT, CheckpointFamily::Second),
            (FIRST_TEXT, CheckpointFamily::First),
        ];
        let known = "Stable Diffusion 1, 2 and XL with text encoders, U-Net and autoencoder";
        for (mark, family) in OTHER_FAMILIES {
            if let Some(header) = self.headers().find(|it| it.name.starts_with(mark)) {
                let what = format!("the tensor {:?}", header.name);
                return Err(Flaw::unsupported(
                    what,
                    format!("{family} in one file"),
                    known,
                ));
            }
        }
        for needed in [UNET, AUTOENCODER] {
            if !has(needed) {
                let found = format!("no tensor {needed}…");
                return Err(Flaw::unsupported("the file", found, known));
            }
        }
        let found = families.into_iter().find(|(prefix, _)| has(prefix));
        found.map(|(_, family)| family).ok_or_else(|| {
            let found = "no text encoder of these families";
            Flaw::unsupported("the file", found, known)
        })
    }

    fn prediction(&self, family: CheckpointFamily) -> Result<Prediction, Flaw> {
        if let Some(header) = self.headers().find(|it| it.name.starts_with(OTHER_NOISE)) {
            let what = format!("the tensor {:?}", header.name);
            return Err(Flaw::unsupported(
                what,
                "noise levels of EDM",
                "those of DDPM",
            ));
        }
        let telling = self.0.tensor(&format!("{UNET}{TELLING_BIAS}"));
        let is_velocity = match telling.filter(|_| family == CheckpointFamily::Second) {
            Some(header) => self.spread(header)? > TELLING_SPREAD,
            None => false,
        };
        Ok(match is_velocity || self.0.tensor(VELOCITY).is_some() {
            true => Prediction::Velocity,
            false => Prediction::Epsilon,
        })
    }

    fn spread(&self, header: &TensorHeader) -> Result<f32, Flaw> {
        let TensorType::Weight(dtype) = header.dtype else {
            return Ok(0.0);
        };
        let numbers = tensor_floats(dtype, &self.0.bytes(header))?;
        let count = numbers.len().max(1) as f32;
        let mean = numbers.iter().sum::<f32>() / count;
        let squares = numbers.iter().map(|it| (it - mean).powi(2));
        Ok((squares.sum::<f32>() / count).sqrt())
    }

    fn check_nothing_is_unknown(&self, family: CheckpointFamily) -> Result<(), Flaw> {
        let ours = [UNET, AUTOENCODER];
        let ours = ours.iter().chain(family.text_prefixes());
        let is_known = |name: &str| {
            is_left_behind(name) || ours.clone().any(|prefix| name.starts_with(prefix))
        };
        match self
            .headers()
            .map(|it| it.name.as_str())
            .filter(|it| !is_known(it))
            .min()
        {
            None => Ok(()),
            Some(name) => Err(Flaw::unsupported(
                format!("the tensor {name:?}"),
                "a tensor that this model does not use",
                "the tensors of the Stable Diffusion family",
            )),
        }
    }

    fn unet(&self, facts: FamilyFacts) -> Result<UnetSpec, Flaw> {
        let (mut levels, mut blocks) = (Vec::new(), Vec::new());
        let (mut context, mut count, mut at) = (0, 0, 1);
        let mut level = None;
        loop {
            let stem = format!("{UNET}input_blocks.{at}");
            if let Some(shape) = self.shape(&format!("{stem}.0.in_layers.2.weight")) {
                let depth = self.depth(&format!("{stem}.1"));
                let key = format!("{stem}.1.transformer_blocks.0.attn2.to_k.weight");
                context = self
                    .shape(&key)
                    .and_then(|it| it.get(1).copied())
                    .unwrap_or(context);
                let channels = shape[0];
                level = Some(UnetLevel {
                    channels,
                    depth,
                    heads: facts.unet_heads.heads(channels).max(1),
                });
                count += 1;
            } else {
                levels.extend(level.take());
                blocks.push(count);
                count = 0;
                if !self.has(&format!("{stem}.0.op.weight")) {
                    break;
                }
            }
            at += 1;
        }
        blocks.dedup();
        let [blocks] = blocks[..] else {
            let found = format!("{blocks:?}");
            return Err(Flaw::broken(
                "the blocks of the U-Net's levels",
                found,
                "one number",
            ));
        };
        let inputs = self.needed(&format!("{UNET}input_blocks.0.0.weight"), 4)?[1];
        let outputs = self.needed(&format!("{UNET}out.2.weight"), 4)?[0];
        let added = self.shape(&format!("{UNET}label_emb.0.0.weight"));
        let added = added.and_then(|shape| {
            let width = ADDED_SIZES * facts.size_width;
            Some(AddedSpec {
                pooled: shape.get(1)?.checked_sub(width)?,
                size_width: facts.size_width,
            })
        });
        let spec = UnetSpec {
            inputs,
            outputs,
            context,
            levels,
            middle_depth: self.depth(&format!("{UNET}middle_block.1")),
            blocks,
            groups: facts.groups,
            norm_eps: 1e-5,
            added,
        };
        spec.check()?;
        Ok(spec)
    }

    fn autoencoder(&self, facts: FamilyFacts) -> Result<AutoencoderSpec, Flaw> {
        let stem = format!("{AUTOENCODER}encoder.down");
        let width = |level: usize| {
            let shape = self.shape(&format!("{stem}.{level}.block.0.conv1.weight"))?;
            shape.first().copied()
        };
        let block = |index: &usize| self.has(&format!("{stem}.0.block.{index}."));
        let spec = AutoencoderSpec {
            channels: (0..).map_while(width).collect(),
            latent_channels: self.needed(&format!("{AUTOENCODER}decoder.conv_in.weight"), 4)?[1],
            blocks: (0..).take_while(block).count(),
            groups: facts.groups,
            scale: facts.latent_scale,
            shift: 0.0,
            has_quantizer: self.has(&format!("{AUTOENCODER}quant_conv.")),
        };
        match spec.channels.is_empty() {
            true => Err(Flaw::broken("the autoencoder", "no levels", "one at least")),
            false => Ok(spec),
        }
    }

    fn encoders(
        &self,
        family: CheckpointFamily,
        facts: FamilyFacts,
    ) -> Result<Vec<ClipSpec>, Flaw> {
        Ok(match family {
            CheckpointFamily::First => vec![self.clip(FIRST_TEXT, facts)?],
            // The layer before the last one is read: the last is not computed.
            CheckpointFamily::Second => {
                let spec = self.open_clip(SECOND_TEXT, facts)?;
                let layers = spec.layers.saturating_sub(1);
                let projection = None;
                vec![ClipSpec {
                    layers,
                    projection,
                    ..spec
                }]
            }
            CheckpointFamily::Xl => vec![
                self.clip(XL_TEXTS[0], facts)?,
                self.open_clip(XL_TEXTS[1], facts)?,
            ],
        })
    }

    fn clip(&self, prefix: &str, facts: FamilyFacts) -> Result<ClipSpec, Flaw> {
        let stem = format!("{prefix}text_model");
        let tokens = format!("{stem}.embeddings.token_embedding.weight");
        let positions = format!("{stem}.embeddings.position_embedding.weight");
        let feed = format!("{stem}.encoder.layers.0.mlp.fc1.weight");
        let layer = |index: &usize| self.has(&format!("{stem}.encoder.layers.{index}."));
        let [vocab_size, hidden_size] = self.matrix(&tokens)?;
        Ok(ClipSpec {
            vocab_size,
            hidden_size,
            intermediate_size: self.matrix(&feed)?[0],
            layers: (0..).take_while(layer).count(),
            heads: facts.text_heads.heads(hidden_size).max(1),
            positions: self.matrix(&positions)?[0],
            ..ClipSpec::LARGE
        })
    }

    fn open_clip(&self, prefix: &str, facts: FamilyFacts) -> Result<ClipSpec, Flaw> {
        let [vocab_size, hidden_size] = self.matrix(&format!("{prefix}token_embedding.weight"))?;
        let [positions, _] = self.matrix(&format!("{prefix}positional_embedding"))?;
        let feed = format!("{prefix}transformer.resblocks.0.mlp.c_fc.weight");
        let layers = self.headers().filter_map(|header| {
            let (index, _) = layer_part(header.name.strip_prefix(prefix)?)?;
            Some(index + 1)
        });
        let projection = self.shape(&format!("{prefix}text_projection"));
        Ok(ClipSpec {
            vocab_size,
            hidden_size,
            intermediate_size: self.matrix(&feed)?[0],
            layers: layers.max().unwrap_or(0),
            heads: facts.text_heads.heads(hidden_size).max(1),
            positions,
            activation: ClipActivation::Gelu,
            projection: projection.and_then(|shape| shape.get(1).copied()),
            ..ClipSpec::LARGE
        })
    }

    fn depth(&self, stem: &str) -> usize {
        let block = |index: &usize| self.has(&format!("{stem}.transformer_blocks.{index}."));
        (0..).take_while(block).count()
    }

    fn headers(&self) -> impl Iterator<Item = &TensorHeader> {
        self.0.tensors().iter()
    }

    fn has(&self, prefix: &str) -> bool {
        self.headers().any(|header| header.name.starts_with(prefix))
    }

    fn shape(&self, name: &str) -> Option<&[usize]> {
        Some(&self.0.tensor(name)?.shape)
    }

    fn needed(&self, name: &str, rank: usize) -> Result<&[usize], Flaw> {
        match self.shape(name) {
            Some(shape) if shape.len() == rank => Ok(shape),
            found => {
                let found = found.map_or("nothing".to_owned(), |shape| format!("{shape:?}"));
                let wanted = format!("{rank} dimensions");
                Err(Flaw::broken(format!("the tensor {name:?}"), found, wanted))
            }
        }
    }

    fn matrix(&self, name: &str) -> Result<[usize; 2], Flaw> {
        let shape = self.needed(name, 2)?;
        Ok([shape[0], shape[1]])
    }
}
