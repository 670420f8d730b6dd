//! The files of a Wan model: a diffusers folder, or a single-file transformer with components around it.

use std::path::{Path, PathBuf};

use candle_core::Device;
use serde_json::Value;

use super::beside;
use super::networks::{MOST_TEXT_TOKENS, VideoNetworks};
use super::plan::video_bytes;
use super::{VideoDefaults, VideoFootprint};
use crate::networks::text_encoder::{UmT5, UmT5Spec};
use crate::networks::video::{
    FactsOf, TransformerNames, VideoAutoencoder, VideoAutoencoderSpec, WanFacts, WanSpec,
    WanTransformer, autoencoder_config, text_config, transformer_config,
};
use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, Quantize, TensorSource, read_description,
};
use crate::runtime::LoadError;
use crate::runtime::component::{
    Component, ComponentFolders, ComponentLoad, INDEX, component_folder,
};
use crate::runtime::diffusion::FlowSchedule;
use crate::runtime::network_pool::{NetworkPool, SharedWeights};
use crate::runtime::text::Isolation;

/// The settings of a schedule, in the folder of the scheduler.
pub const SCHEDULE: &str = "scheduler_config.json";
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

/// Both transformers of Wan 2.2 A14B have the shape of Wan 2.1's; only their file names differ.
const HALVES: [&str; 2] = ["highnoise", "lownoise"];

/// A model's files, opened: headers were read, weights were not.
pub struct VideoFiles {
    tokens: PathBuf,
    text: Component<UmT5Spec>,
    transformer: Component<WanSpec>,
    autoencoder: Component<VideoAutoencoderSpec>,
    schedule: FlowSchedule,
    /// The network knows each frame's own time, so that a first frame can be given.
    takes_first_frame: bool,
}

/// Whether the index of a folder names a Wan, or a file holds its transformer.
pub fn is_at(path: &Path) -> bool {
    let index = path.join(INDEX);
    let is_wan = |index: Value| index["_class_name"].as_str() == Some(CLASS);
    match path.is_file() {
        true => Checkpoint::names_in_any(path).is_some_and(|it| TransformerNames::are_in(&it)),
        false => index.is_file() && read_description(&index).is_ok_and(is_wan),
    }
}

impl VideoFiles {
    /// `replacements` replace components of the folder or around the file.
    pub fn open(path: &Path, replacements: &ComponentFolders) -> Result<Self, CheckpointError> {
        match path.is_file() {
            true => Self::open_file(path, replacements, WanFacts::of),
            false => Self::open_folder(path, replacements),
        }
    }

    fn open_folder(path: &Path, replacements: &ComponentFolders) -> Result<Self, CheckpointError> {
        let index_path = path.join(INDEX);
        if !index_path.is_file() {
            return Err(CheckpointError::NotFound {
                path: index_path,
                found: "no such file".to_owned(),
                wanted: "the folder of a video model as diffusers keeps it, or the file of a transformer"
                    .to_owned(),
            });
        }
        let index = read_description(&index_path)?;
        check_index(&index).map_err(|flaw| flaw.in_file(&index_path))?;
        let place = |name: &str| component_folder(path, replacements, name);
        let transformer = open_transformer(&place("transformer"), WanFacts::of)?;
        let takes_first_frame = index["expand_timesteps"] == true;
        let schedule = read_schedule(&place("scheduler"))?;
        Self::around(
            (transformer, takes_first_frame),
            schedule,
            WanFacts::of,
            &|name| Ok(place(name)),
        )
    }

    /// Opens with facts for shapes of families other than those of [`WanFacts`].
    pub fn open_file(
        path: &Path,
        replacements: &ComponentFolders,
        facts: FactsOf,
    ) -> Result<Self, CheckpointError> {
        let transformer = open_transformer(path, facts)?;
        transformer.check(|_| refuse_half(path))?;
        let own = facts(transformer.spec.inputs).map_err(|flaw| flaw.in_file(path))?;
        let places = beside::find(path, &transformer.spec, facts, replacements);
        let schedule = match places.get("scheduler") {
            Some(folder) => read_schedule(folder)?,
            None => FlowSchedule::published(own.shift),
        };
        let place = |name: &str| match places.get(name) {
            Some(place) => Ok(place.clone()),
            None => Err(CheckpointError::NotFound {
                path: path.to_owned(),
                found: format!("a transformer without its {}", beside::label(name)),
                wanted: "its file beside the transformer's".to_owned(),
            }),
        };
        Self::around(
            (transformer, own.takes_first_frame),
            schedule,
            facts,
            &place,
        )
    }

    /// The components that a single-file transformer lacks.
    pub fn missing(
        path: &Path,
        replacements: &ComponentFolders,
        facts: FactsOf,
    ) -> Result<(WanSpec, Vec<&'static str>), CheckpointError> {
        let transformer = open_transformer(path, facts)?;
        let places = beside::find(path, &transformer.spec, facts, replacements);
        let missing = beside::NEEDED.into_iter();
        let missing = missing.filter(|name| !places.contains_key(*name)).collect();
        Ok((transformer.spec, missing))
    }

    fn around(
        (transformer, takes_first_frame): (Component<WanSpec>, bool),
        schedule: FlowSchedule,
        facts: FactsOf,
        place: &dyn Fn(&str) -> Result<PathBuf, CheckpointError>,
    ) -> Result<Self, CheckpointError> {
        let text = open_component(&place("text_encoder")?, text_config, UmT5Spec::read)?;
        let describe = |tensors: &dyn TensorSource| autoencoder_config(tensors, facts);
        let autoencoder = open_component(&place("vae")?, describe, VideoAutoencoderSpec::read)?;
        transformer.check(|spec| check_fits(spec, &text.spec, &autoencoder.spec))?;
        Ok(Self {
            tokens: place("tokenizer")?,
            text,
            transformer,
            autoencoder,
            schedule,
            takes_first_frame,
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
        isolation: Option<&Isolation>,
    ) -> Result<VideoNetworks, LoadError> {
        let load = ComponentLoad { device, quantize };
        Ok(VideoNetworks {
            tokenizer: beside::open_tokenizer(&self.tokens, MOST_TEXT_TOKENS, isolation)?,
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

/// A folder that describes its network, or a file that does not.
fn open_component<S>(
    path: &Path,
    describe: impl FnOnce(&dyn TensorSource) -> Result<Value, Flaw>,
    read: impl FnOnce(&Value) -> Result<S, Flaw>,
) -> Result<Component<S>, CheckpointError> {
    match path.is_file() {
        true => Component::open_file(path, describe, read),
        false => Component::open(path, read),
    }
}

fn open_transformer(path: &Path, facts: FactsOf) -> Result<Component<WanSpec>, CheckpointError> {
    let describe = |tensors: &dyn TensorSource| transformer_config(tensors, facts);
    open_component(path, describe, WanSpec::read)
}

fn read_schedule(folder: &Path) -> Result<FlowSchedule, CheckpointError> {
    let path = folder.join(SCHEDULE);
    FlowSchedule::read(&read_description(&path)?).map_err(|flaw| flaw.in_file(&path))
}

fn refuse_half(path: &Path) -> Result<(), Flaw> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let letters = name.to_lowercase().replace(['_', '-', ' '], "");
    match HALVES.iter().any(|half| letters.contains(half)) {
        true => Err(Flaw::unsupported(
            "the name of the file",
            "one of the two transformers of Wan 2.2 A14B",
            "models with one transformer",
        )),
        false => Ok(()),
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
