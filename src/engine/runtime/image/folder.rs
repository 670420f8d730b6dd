//! A folder as diffusers keeps it: `model_index.json` names the components, each has a folder of its own.

use std::path::{Path, PathBuf};

use candle_core::Device;
use serde_json::Value;

use super::networks::{DiffusionNetworks, TextEncoder};
use crate::networks::image::{
    Autoencoder, AutoencoderSpec, ClipSpec, ClipText, ComponentSource, Layout, Unet, UnetSpec,
};
use crate::networks::weights::{
    Checkpoint, CheckpointError, Description, Flaw, Quantize, read_description,
};
use crate::runtime::LoadError;
use crate::runtime::diffusion::{NoiseTable, Prediction};
use crate::runtime::text::ClipTokenizer;

const INDEX: &str = "model_index.json";

/// Components and the classes that are computed.
const COMPONENTS: &[(&str, &[&str])] = &[
    ("unet", &["UNet2DConditionModel"]),
    ("vae", &["AutoencoderKL"]),
    ("text_encoder", ENCODERS),
    ("text_encoder_2", ENCODERS),
    ("tokenizer", TOKENIZERS),
    ("tokenizer_2", TOKENIZERS),
    (
        "scheduler",
        &[
            "DDIMScheduler",
            "DDPMScheduler",
            "DPMSolverMultistepScheduler",
            "DPMSolverSDEScheduler",
            "DPMSolverSinglestepScheduler",
            "EulerAncestralDiscreteScheduler",
            "EulerDiscreteScheduler",
            "HeunDiscreteScheduler",
            "KDPM2AncestralDiscreteScheduler",
            "KDPM2DiscreteScheduler",
            "LCMScheduler",
            "LMSDiscreteScheduler",
            "PNDMScheduler",
            "UniPCMultistepScheduler",
        ],
    ),
];
const ENCODERS: &[&str] = &["CLIPTextModel", "CLIPTextModelWithProjection"];
const TOKENIZERS: &[&str] = &["CLIPTokenizer", "CLIPTokenizerFast"];
/// Components that have no part in drawing.
const UNUSED: &[&str] = &["safety_checker", "feature_extractor", "image_encoder"];

/// Settings of a scheduler that make another table of noise levels, and the values that are computed. A setting that is
/// missing has this value.
const NOISE: &[(&str, f64)] = &[
    ("beta_start", 0.00085),
    ("beta_end", 0.012),
    ("num_train_timesteps", 1000.0),
];

/// A model's folder whose index was read.
pub struct DiffusersFolder {
    path: PathBuf,
    encoders: usize,
    prediction: Prediction,
    table: NoiseTable,
}

impl DiffusersFolder {
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let index_path = path.join(INDEX);
        if !index_path.is_file() {
            return Err(CheckpointError::NotFound {
                path: index_path,
                found: "no such file".to_owned(),
                wanted: "the folder of an image model as diffusers keeps it".to_owned(),
            });
        }
        let index = read_description(&index_path)?;
        let present = components(&index).map_err(|flaw| flaw.in_file(&index_path))?;
        let scheduler_path = path.join("scheduler/scheduler_config.json");
        let scheduler = read_description(&scheduler_path)?;
        let in_file = |flaw: Flaw| flaw.in_file(&scheduler_path);
        Ok(Self {
            path: path.to_owned(),
            encoders: 1 + usize::from(present.contains(&"text_encoder_2")),
            prediction: prediction(&scheduler).map_err(in_file)?,
            table: table(&scheduler).map_err(in_file)?,
        })
    }

    /// The networks on a device, and the bytes of their weights.
    pub fn load(
        self,
        device: &Device,
        quantize: Option<Quantize>,
    ) -> Result<(DiffusionNetworks, u64), LoadError> {
        let load = ComponentLoad { device, quantize };
        let mut weight_bytes = 0;
        let mut encoders = Vec::new();
        for suffix in ["", "_2"].into_iter().take(self.encoders) {
            let component = Component::open(&self.path.join(format!("text_encoder{suffix}")))?;
            let clip = component.read(|config, checkpoint| {
                ClipText::load(ClipSpec::read(config)?, load.source(checkpoint))
            })?;
            let tokenizer = self.path.join(format!("tokenizer{suffix}"));
            let tokenizer = ClipTokenizer::open(&tokenizer)?;
            weight_bytes += component.bytes();
            encoders.push(TextEncoder { clip, tokenizer });
        }
        let unet_component = Component::open(&self.path.join("unet"))?;
        let sample_size = sample_size(unet_component.config()?);
        let unet = unet_component.read(|config, checkpoint| {
            let spec = UnetSpec::read(config)?;
            check_fits(&spec, &encoders)?;
            Unet::load(spec, load.source(checkpoint))
        })?;
        let component = Component::open(&self.path.join("vae"))?;
        let autoencoder = component.read(|config, checkpoint| {
            let spec = AutoencoderSpec::read(config)?;
            if spec.latent_channels != unet.spec().outputs {
                let found = spec.latent_channels;
                let wanted = format!("{}, as the U-Net has", unet.spec().outputs);
                return Err(Flaw::broken("latent_channels", found, wanted));
            }
            Autoencoder::load(spec, load.source(checkpoint))
        })?;
        weight_bytes += unet_component.bytes() + component.bytes();
        let networks = DiffusionNetworks {
            encoders,
            unet,
            autoencoder,
            sample_size,
            prediction: self.prediction,
            table: self.table,
            device: device.clone(),
            colors: std::sync::OnceLock::new(),
        };
        Ok((networks, weight_bytes))
    }
}

struct ComponentLoad<'a> {
    device: &'a Device,
    quantize: Option<Quantize>,
}

impl<'a> ComponentLoad<'a> {
    fn source(&self, checkpoint: &'a Checkpoint) -> ComponentSource<'a> {
        ComponentSource {
            tensors: checkpoint,
            layout: Layout::Folder,
            device: self.device,
            quantize: self.quantize,
        }
    }
}

/// The folder of one network.
struct Component {
    checkpoint: Checkpoint,
}

impl Component {
    fn open(folder: &Path) -> Result<Self, CheckpointError> {
        // Repositories keep several precisions side by side.
        let names = ["diffusion_pytorch_model", "model"];
        let names = names.map(|name| ["", ".fp16"].map(|kind| format!("{name}{kind}.safetensors")));
        let files = names.concat().into_iter().map(|name| folder.join(name));
        let found = files.into_iter().find(|file| file.is_file());
        let checkpoint = Checkpoint::open(found.as_deref().unwrap_or(folder))?;
        Ok(Self { checkpoint })
    }

    fn config(&self) -> Result<&Value, CheckpointError> {
        match self.checkpoint.description() {
            Description::Config(config) => Ok(config),
            Description::Gguf(_) => {
                let flaw = Flaw::unsupported("the file", "GGUF", "safetensors");
                Err(flaw.in_file(self.checkpoint.path()))
            }
        }
    }

    fn read<'a, T>(
        &'a self,
        read: impl FnOnce(&'a Value, &'a Checkpoint) -> Result<T, Flaw>,
    ) -> Result<T, CheckpointError> {
        let config = self.config()?;
        read(config, &self.checkpoint).map_err(|flaw| flaw.in_file(self.checkpoint.path()))
    }

    fn bytes(&self) -> u64 {
        let headers = self.checkpoint.tensors().iter();
        headers
            .map(|header| self.checkpoint.bytes(header).len() as u64)
            .sum()
    }
}

/// The components that are there. Unknown classes are refused by name.
fn components(index: &Value) -> Result<Vec<&'static str>, Flaw> {
    let Some(index) = index.as_object() else {
        return Err(Flaw::broken("the file", "no object", "components by name"));
    };
    let mut present = Vec::new();
    for (name, value) in index {
        let class = &value[1];
        if name.starts_with('_')
            || !value.is_array()
            || class.is_null()
            || UNUSED.contains(&name.as_str())
        {
            continue;
        }
        let Some((name, classes)) = COMPONENTS.iter().find(|entry| entry.0 == name) else {
            let known = COMPONENTS.iter().map(|entry| entry.0);
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(Flaw::unsupported("the component", name, known));
        };
        let class = class.as_str().unwrap_or_default();
        if !classes.contains(&class) {
            let what = format!("the class of the component {name}");
            return Err(Flaw::unsupported(what, class, classes.join(", ")));
        }
        present.push(*name);
    }
    let needed = ["unet", "vae", "text_encoder", "tokenizer", "scheduler"];
    match needed.into_iter().find(|name| !present.contains(name)) {
        None => Ok(present),
        Some(missing) => {
            let what = format!("the component {missing}");
            Err(Flaw::broken(what, "nothing", "one"))
        }
    }
}

fn prediction(scheduler: &Value) -> Result<Prediction, Flaw> {
    match scheduler["prediction_type"].as_str() {
        None | Some("epsilon") => Ok(Prediction::Epsilon),
        Some("v_prediction") => Ok(Prediction::Velocity),
        Some(other) => Err(Flaw::unsupported(
            "prediction_type",
            other,
            "epsilon, v_prediction",
        )),
    }
}

fn table(scheduler: &Value) -> Result<NoiseTable, Flaw> {
    let schedule = scheduler["beta_schedule"].as_str();
    let schedule = schedule.unwrap_or("linear");
    if schedule != "scaled_linear" {
        return Err(Flaw::unsupported(
            "beta_schedule",
            schedule,
            "scaled_linear",
        ));
    }
    if !scheduler["trained_betas"].is_null() {
        return Err(Flaw::unsupported("trained_betas", "a list", "null"));
    }
    for (name, wanted) in NOISE {
        let found = &scheduler[*name];
        if !found.is_null() && found.as_f64() != Some(*wanted) {
            return Err(Flaw::unsupported(*name, found, wanted.to_string()));
        }
    }
    Ok(match scheduler["rescale_betas_zero_snr"] == true {
        true => NoiseTable::zero_terminal(),
        false => NoiseTable::stable_diffusion(),
    })
}

/// Width and height of the latents that the network was trained with.
fn sample_size(config: &Value) -> Option<[usize; 2]> {
    let size = |value: &Value| value.as_u64().and_then(|size| usize::try_from(size).ok());
    let found = &config["sample_size"];
    match found.as_array().map(Vec::as_slice) {
        Some([height, width]) => Some([size(width)?, size(height)?]),
        _ => size(found).map(|size| [size; 2]),
    }
}

/// Whether the text encoders give what the U-Net takes.
fn check_fits(spec: &UnetSpec, encoders: &[TextEncoder]) -> Result<(), Flaw> {
    if spec.inputs != spec.outputs {
        let known = format!(
            "{}: networks that take a mask are not built yet",
            spec.outputs
        );
        return Err(Flaw::unsupported("in_channels", spec.inputs, known));
    }
    let width: usize = encoders.iter().map(|it| it.clip.spec().hidden_size).sum();
    if width != spec.context {
        let wanted = format!("{width}, the width of the text encoders");
        return Err(Flaw::broken("cross_attention_dim", spec.context, wanted));
    }
    if let Some(odd) = encoders.iter().find(|it| it.clip.spec().positions < 3) {
        let found = odd.clip.spec().positions;
        return Err(Flaw::broken("max_position_embeddings", found, "3 or more"));
    }
    let pooled = encoders.last().and_then(|it| it.clip.spec().projection);
    match (spec.added, pooled) {
        (None, _) => Ok(()),
        (Some(added), Some(pooled)) if added.pooled == pooled => Ok(()),
        (Some(added), pooled) => {
            let found = pooled.map_or("none".to_owned(), |width| width.to_string());
            let wanted = format!("{}, as the U-Net takes", added.pooled);
            Err(Flaw::broken("the pooled text's width", found, wanted))
        }
    }
}
