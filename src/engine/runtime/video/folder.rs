//! A folder of a Wan as diffusers keeps it.

use std::path::{Path, PathBuf};

use candle_core::Device;
use serde_json::Value;

use super::networks::{MOST_TEXT_TOKENS, VideoNetworks};
use super::plan::video_bytes;
use super::schedule::FlowSchedule;
use super::{VideoDefaults, VideoFootprint};
use crate::networks::video::{
    UmT5, UmT5Spec, VideoAutoencoder, VideoAutoencoderSpec, WanSpec, WanTransformer,
};
use crate::networks::weights::{CheckpointError, Flaw, Quantize, read_description};
use crate::runtime::LoadError;
use crate::runtime::component::{
    Component, ComponentFolders, ComponentLoad, INDEX, component_folder,
};
use crate::runtime::network_pool::{NetworkPool, SharedWeights};
use crate::runtime::text::PromptTokenizer;

/// The class of a whole model in its index.
pub const CLASS: &str = "WanPipeline";

/// Components and the class that is computed; of the others the class does not matter.
const COMPONENTS: &[(&str, Option<&str>)] = &[
    ("transformer", Some("WanTransformer3DModel")),
    ("vae", Some("AutoencoderKLWan")),
    ("text_encoder", Some("UMT5EncoderModel")),
    ("tokenizer", None),
    ("scheduler", None),
];

static ENCODER_POOL: NetworkPool<UmT5> = NetworkPool::new();
static AUTOENCODER_POOL: NetworkPool<VideoAutoencoder> = NetworkPool::new();

/// A model's folder, opened: headers were read, weights were not.
pub struct VideoFolder {
    tokens: PathBuf,
    text: Component<UmT5Spec>,
    transformer: Component<WanSpec>,
    autoencoder: Component<VideoAutoencoderSpec>,
    schedule: FlowSchedule,
    /// The network knows each frame's own time, so that a first frame can be given.
    takes_first_frame: bool,
}

/// Whether the index of a folder names a Wan.
pub fn is_at(path: &Path) -> bool {
    let index = path.join(INDEX);
    index.is_file()
        && read_description(&index).is_ok_and(|index| index["_class_name"].as_str() == Some(CLASS))
}

impl VideoFolder {
    /// `replacements` are folders of components that are used instead of those in the folder.
    pub fn open(path: &Path, replacements: &ComponentFolders) -> Result<Self, CheckpointError> {
        let index_path = path.join(INDEX);
        if !index_path.is_file() {
            return Err(CheckpointError::NotFound {
                path: index_path,
                found: "no such file".to_owned(),
                wanted: "the folder of a video model as diffusers keeps it".to_owned(),
            });
        }
        let index = read_description(&index_path)?;
        check_index(&index).map_err(|flaw| flaw.in_file(&index_path))?;
        let folder = |name: &str| component_folder(path, replacements, name);
        let scheduler_path = folder("scheduler").join("scheduler_config.json");
        let schedule = FlowSchedule::read(&read_description(&scheduler_path)?);
        let text = Component::open(&folder("text_encoder"), UmT5Spec::read)?;
        let transformer = Component::open(&folder("transformer"), WanSpec::read)?;
        let autoencoder = Component::open(&folder("vae"), VideoAutoencoderSpec::read)?;
        transformer.check(|spec| check_fits(spec, &text.spec, &autoencoder.spec))?;
        Ok(Self {
            tokens: folder("tokenizer"),
            text,
            transformer,
            autoencoder,
            schedule: schedule.map_err(|flaw| flaw.in_file(&scheduler_path))?,
            takes_first_frame: index["expand_timesteps"] == true,
        })
    }

    /// The memory that the model takes on a device.
    pub fn footprint(&self, defaults: &VideoDefaults) -> VideoFootprint {
        let (size, frames) = (defaults.size(), defaults.frames());
        let (transformer, autoencoder) = (&self.transformer.spec, &self.autoencoder.spec);
        VideoFootprint {
            weight_bytes: self.text.bytes() + self.transformer.bytes() + self.autoencoder.bytes(),
            video_bytes: video_bytes(transformer, autoencoder, size, frames),
            size,
            frames,
            rate: defaults.rate(),
        }
    }

    /// The weights that other models in memory may hold, too.
    pub fn shared(&self) -> Vec<SharedWeights> {
        vec![self.text.shared(), self.autoencoder.shared()]
    }

    /// The networks on a device.
    pub fn load(
        self,
        device: &Device,
        quantize: Option<Quantize>,
    ) -> Result<VideoNetworks, LoadError> {
        let load = ComponentLoad { device, quantize };
        Ok(VideoNetworks {
            tokenizer: PromptTokenizer::open(&self.tokens, MOST_TEXT_TOKENS)?,
            text: load.read_shared(self.text, &ENCODER_POOL, UmT5::load)?,
            transformer: load.read(self.transformer, WanTransformer::load)?,
            autoencoder: load.read_shared(
                self.autoencoder,
                &AUTOENCODER_POOL,
                VideoAutoencoder::load,
            )?,
            schedule: self.schedule,
            takes_first_frame: self.takes_first_frame,
            device: device.clone(),
        })
    }
}

fn check_index(index: &Value) -> Result<(), Flaw> {
    let class = index["_class_name"].as_str().unwrap_or_default();
    if class != CLASS {
        return Err(Flaw::unsupported("_class_name", class, CLASS));
    }
    if !index["transformer_2"][1].is_null() || !index["boundary_ratio"].is_null() {
        let known = "models with one transformer";
        return Err(Flaw::unsupported(
            "transformer_2",
            "a second transformer",
            known,
        ));
    }
    for (name, known) in COMPONENTS {
        let Some(class) = index[*name][1].as_str() else {
            let what = format!("the component {name}");
            return Err(Flaw::broken(what, "nothing", "one"));
        };
        if let Some(known) = known.filter(|known| *known != class) {
            let what = format!("the class of the component {name}");
            return Err(Flaw::unsupported(what, class, known));
        }
    }
    Ok(())
}

/// Whether the transformer takes the text encoder's states and the autoencoder's latents.
fn check_fits(
    spec: &WanSpec,
    text: &UmT5Spec,
    autoencoder: &VideoAutoencoderSpec,
) -> Result<(), Flaw> {
    if spec.text_width != text.width {
        let wanted = format!("{}, the width of the text encoder", text.width);
        return Err(Flaw::broken("text_dim", spec.text_width, wanted));
    }
    if spec.inputs != autoencoder.latent_channels {
        let wanted = format!("{}, as the autoencoder has", autoencoder.latent_channels);
        return Err(Flaw::broken("in_channels", spec.inputs, wanted));
    }
    match spec.patch[0] {
        1 => Ok(()),
        frames => Err(Flaw::unsupported("patch_size", frames, "1 frame a patch")),
    }
}
