//! A folder in the layout of diffusers: `model_index.json` names the components, each in a separate folder.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use candle_core::Device;
use serde_json::Value;

use super::adapters::AdapterCaches;
use super::networks::{DiffusionNetworks, TextEncoder};
use super::plan::{drawing_bytes, own_size};
use super::{ImageDefaults, ImageFootprint};
use crate::networks::image::{Autoencoder, AutoencoderSpec, Unet, UnetSpec};
use crate::networks::text_encoder::{ClipSpec, ClipText};
use crate::networks::weights::{CheckpointError, Flaw, Quantize, read_description};
use crate::runtime::LoadError;
use crate::runtime::component::{
    Component, ComponentFolders, ComponentLoad, INDEX, component_folder,
};
use crate::runtime::diffusion::{BetaSpacing, Betas, NoiseTable, Prediction};
use crate::runtime::network_pool::{NetworkPool, SharedWeights};
use crate::runtime::text::ClipTokenizer;

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

/// Scheduler classes whose defaults are Stable Diffusion's noise schedule.
const STABLE_DIFFUSION_SCHEDULERS: &[&str] = &[
    "DPMSolverSDEScheduler",
    "HeunDiscreteScheduler",
    "KDPM2AncestralDiscreteScheduler",
    "KDPM2DiscreteScheduler",
    LCM,
];
const LCM: &str = "LCMScheduler";
const TRAINING_STEPS: u64 = 1000;

static ENCODER_POOL: NetworkPool<ClipText> = NetworkPool::new();
pub static AUTOENCODER_POOL: NetworkPool<Autoencoder> = NetworkPool::new();

/// A model's folder, opened: headers were read, weights were not.
pub struct DiffusersFolder {
    token_folders: Vec<PathBuf>,
    encoders: Vec<Component<ClipSpec>>,
    unet: Component<UnetSpec>,
    autoencoder: Component<AutoencoderSpec>,
    sample_size: Option<[usize; 2]>,
    prediction: Prediction,
    table: NoiseTable,
}

impl DiffusersFolder {
    /// `replacements` replace components of the folder.
    pub fn open(path: &Path, replacements: &ComponentFolders) -> Result<Self, CheckpointError> {
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
        let folder = |name: &str| component_folder(path, replacements, name);
        let scheduler_path = folder("scheduler").join("scheduler_config.json");
        let scheduler = read_description(&scheduler_path)?;
        let in_file = |flaw: Flaw| flaw.in_file(&scheduler_path);
        let (mut encoders, mut token_folders) = (Vec::new(), Vec::new());
        for suffix in ["", "_2"] {
            let name = format!("text_encoder{suffix}");
            if present.contains(&name.as_str()) {
                encoders.push(Component::open(&folder(&name), ClipSpec::read)?);
                token_folders.push(folder(&format!("tokenizer{suffix}")));
            }
        }
        let unet = Component::open(&folder("unet"), UnetSpec::read)?;
        let specs: Vec<&ClipSpec> = encoders.iter().map(|encoder| &encoder.spec).collect();
        unet.check(|spec| check_fits(spec, &specs))?;
        let autoencoder = Component::open(&folder("vae"), AutoencoderSpec::read)?;
        autoencoder.check(|spec| check_latents(spec, &unet.spec))?;
        Ok(Self {
            sample_size: sample_size(unet.config()?),
            token_folders,
            encoders,
            unet,
            autoencoder,
            prediction: prediction(&scheduler).map_err(in_file)?,
            table: table(&scheduler).map_err(in_file)?,
        })
    }

    /// The memory that the model takes on a device.
    pub fn footprint(&self, defaults: &ImageDefaults) -> ImageFootprint {
        let encoders = self.encoders.iter().map(Component::bytes);
        let size = own_size(defaults, self.sample_size, &self.autoencoder.spec);
        ImageFootprint {
            weight_bytes: encoders.sum::<u64>() + self.unet.bytes() + self.autoencoder.bytes(),
            drawing_bytes: drawing_bytes(&self.unet.spec, &self.autoencoder.spec, size, 2),
            size,
        }
    }

    /// The weights that other models in memory may hold, too.
    pub fn shared(&self) -> Vec<SharedWeights> {
        let encoders = self.encoders.iter().map(Component::shared);
        encoders.chain([self.autoencoder.shared()]).collect()
    }

    /// The networks on a device.
    pub fn load(
        self,
        device: &Device,
        quantize: Option<Quantize>,
    ) -> Result<DiffusionNetworks, LoadError> {
        let load = ComponentLoad { device, quantize };
        let mut encoders = Vec::new();
        for (component, tokenizer) in self.encoders.into_iter().zip(&self.token_folders) {
            encoders.push(TextEncoder {
                clip: load.read_shared(component, &ENCODER_POOL, ClipText::load)?,
                tokenizer: ClipTokenizer::open(tokenizer)?,
            });
        }
        Ok(DiffusionNetworks {
            encoders,
            unet: load.read(self.unet, Unet::load)?,
            autoencoder: load.read_shared(
                self.autoencoder,
                &AUTOENCODER_POOL,
                Autoencoder::load,
            )?,
            sample_size: self.sample_size,
            prediction: self.prediction,
            table: self.table,
            device: device.clone(),
            colors: OnceLock::new(),
            adapters: AdapterCaches::default(),
        })
    }
}

/// The components in the folder. Unknown classes are refused by name.
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
    if !scheduler["trained_betas"].is_null() {
        return Err(Flaw::unsupported("trained_betas", "a list", "null"));
    }
    let steps = &scheduler["num_train_timesteps"];
    if !steps.is_null() && steps.as_f64() != Some(TRAINING_STEPS as f64) {
        let known = TRAINING_STEPS.to_string();
        return Err(Flaw::unsupported("num_train_timesteps", steps, known));
    }
    let betas = betas(scheduler)?;
    Ok(match scheduler["rescale_betas_zero_snr"] == true {
        true => NoiseTable::zero_terminal(betas),
        false => NoiseTable::new(betas),
    })
}

/// A missing setting has the value of diffusers' class of the scheduler.
fn betas(scheduler: &Value) -> Result<Betas, Flaw> {
    let class = scheduler["_class_name"].as_str().unwrap_or_default();
    let (first, last) = match STABLE_DIFFUSION_SCHEDULERS.contains(&class) {
        true => (0.00085, 0.012),
        false => (0.0001, 0.02),
    };
    let beta = |name: &'static str, usual: f64| match &scheduler[name] {
        Value::Null => Ok(usual),
        found => {
            let within = found.as_f64().filter(|beta| *beta > 0.0 && *beta < 1.0);
            within.ok_or_else(|| Flaw::broken(name, found, "a number between 0 and 1"))
        }
    };
    let betas = Betas {
        first: beta("beta_start", first)?,
        last: beta("beta_end", last)?,
        spacing: match &scheduler["beta_schedule"] {
            Value::Null if class == LCM => BetaSpacing::ScaledLinear,
            Value::Null => BetaSpacing::Linear,
            found => match found.as_str() {
                Some("linear") => BetaSpacing::Linear,
                Some("scaled_linear") => BetaSpacing::ScaledLinear,
                _ => {
                    let known = "linear, scaled_linear";
                    return Err(Flaw::unsupported("beta_schedule", found, known));
                }
            },
        },
    };
    match betas.first <= betas.last {
        true => Ok(betas),
        false => {
            let wanted = format!("{} or more, as beta_start", betas.first);
            Err(Flaw::broken("beta_end", betas.last, wanted))
        }
    }
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

/// Checks that the autoencoder has the latent channels of the U-Net.
pub fn check_latents(spec: &AutoencoderSpec, unet: &UnetSpec) -> Result<(), Flaw> {
    let (found, wanted) = (spec.latent_channels, unet.outputs);
    match found == wanted {
        true => Ok(()),
        false => {
            let wanted = format!("{wanted}, as the U-Net has");
            Err(Flaw::broken("latent_channels", found, wanted))
        }
    }
}

/// Checks that the text encoders' outputs fit the U-Net.
pub fn check_fits(spec: &UnetSpec, encoders: &[&ClipSpec]) -> Result<(), Flaw> {
    let painting = 2 * spec.outputs + 1;
    if spec.inputs != spec.outputs && spec.inputs != painting {
        let known = format!(
            "{}, or {painting} with a mask and the rest of an image",
            spec.outputs
        );
        return Err(Flaw::unsupported("in_channels", spec.inputs, known));
    }
    let width: usize = encoders.iter().map(|it| it.hidden_size).sum();
    if width != spec.context {
        let wanted = format!("{width}, the width of the text encoders");
        return Err(Flaw::broken("cross_attention_dim", spec.context, wanted));
    }
    if let Some(odd) = encoders.iter().find(|it| it.positions < 3) {
        let found = odd.positions;
        return Err(Flaw::broken("max_position_embeddings", found, "3 or more"));
    }
    let pooled = encoders.last().and_then(|it| it.projection);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BetaSpacing, Betas, NoiseTable, betas, table};

    const LINEAR: Betas = Betas {
        first: 0.0001,
        last: 0.02,
        spacing: BetaSpacing::Linear,
    };

    #[test]
    fn missing_betas_are_those_of_the_schedulers_class() {
        let class = |name: &str| betas(&json!({"_class_name": name})).unwrap();
        assert_eq!(class("EulerDiscreteScheduler"), LINEAR);
        assert_eq!(class("PNDMScheduler"), LINEAR);
        assert_eq!(class("LCMScheduler"), Betas::STABLE_DIFFUSION);
        let heun = Betas {
            spacing: BetaSpacing::Linear,
            ..Betas::STABLE_DIFFUSION
        };
        assert_eq!(class("HeunDiscreteScheduler"), heun);
        let scaled = json!({"_class_name": "DDIMScheduler", "beta_schedule": "scaled_linear", "beta_end": 0.012});
        let expected = Betas {
            first: 0.0001,
            ..Betas::STABLE_DIFFUSION
        };
        assert_eq!(betas(&scaled).unwrap(), expected);
    }

    #[test]
    fn the_table_is_that_of_the_betas() {
        // sqrt((1 - a) / a) of the first and the last product in diffusers' DDPMScheduler.
        let found = table(&json!({"_class_name": "DDPMScheduler"})).unwrap();
        assert!(
            (found.lowest() - 0.010_000_5).abs() < 1e-7,
            "{}",
            found.lowest()
        );
        assert!(
            (found.highest() - 157.407).abs() < 1e-2,
            "{}",
            found.highest()
        );
        let stable =
            json!({"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012});
        assert_eq!(table(&stable).unwrap(), NoiseTable::stable_diffusion());
    }

    #[test]
    fn betas_beyond_their_range_are_refused_by_name() {
        for (scheduler, named) in [
            (json!({"beta_start": 0}), "beta_start"),
            (json!({"beta_end": 1.5}), "beta_end"),
            (json!({"beta_start": 0.5}), "beta_end"),
            (
                json!({"beta_schedule": "squaredcos_cap_v2"}),
                "beta_schedule",
            ),
            (json!({"num_train_timesteps": 500}), "num_train_timesteps"),
        ] {
            let error = format!("{:?}", table(&scheduler).unwrap_err());
            assert!(error.contains(named), "{error}");
        }
    }
}
