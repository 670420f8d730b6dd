//! A folder of an ACE-Step as diffusers keeps it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use candle_core::Device;
use serde_json::Value;

use super::networks::MusicNetworks;
use super::plan::{MOST_LYRICS_TOKENS, MOST_TEXT_TOKENS, frames, song_bytes};
use super::{MusicDefaults, MusicFootprint};
use crate::networks::sound::{
    AceStep, AceStepSpec, Oobleck, OobleckSpec, SongConditionSpec, SongConditions,
};
use crate::networks::text::{Decoder, DecoderSpec, LoadOptions};
use crate::networks::weights::{Checkpoint, CheckpointError, Flaw, Quantize, read_description};
use crate::runtime::LoadError;
use crate::runtime::component::{
    Component, ComponentFolders, ComponentLoad, INDEX, component_folder,
};
use crate::runtime::text::{Isolation, PromptTokenizer};

/// The class of a whole model in its index.
const CLASS: &str = "AceStepPipeline";

/// Components and the class that is computed; of the others the class does not matter.
const COMPONENTS: &[(&str, Option<&str>)] = &[
    ("transformer", Some("AceStepTransformer1DModel")),
    ("condition_encoder", Some("AceStepConditionEncoder")),
    ("vae", Some("AutoencoderOobleck")),
    ("text_encoder", None),
    ("tokenizer", None),
];

/// Assumed number of lyrics tokens in memory estimates.
const USUAL_LYRICS: usize = 512;

/// A model's folder, opened: headers were read, weights were not.
pub struct MusicFolder {
    tokens: PathBuf,
    text: Checkpoint,
    conditions: Component<SongConditionSpec>,
    transformer: Component<AceStepSpec>,
    autoencoder: Component<OobleckSpec>,
}

/// Whether the index of a folder names an ACE-Step.
pub fn is_at(path: &Path) -> bool {
    let index = path.join(INDEX);
    index.is_file()
        && read_description(&index).is_ok_and(|index| index["_class_name"].as_str() == Some(CLASS))
}

impl MusicFolder {
    /// `replacements` replace components of the folder.
    pub fn open(path: &Path, replacements: &ComponentFolders) -> Result<Self, CheckpointError> {
        let index_path = path.join(INDEX);
        if !index_path.is_file() {
            return Err(CheckpointError::NotFound {
                path: index_path,
                found: "no such file".to_owned(),
                wanted: "the folder of a model that makes music as diffusers keeps it".to_owned(),
            });
        }
        let index = read_description(&index_path)?;
        check_index(&index).map_err(|flaw| flaw.in_file(&index_path))?;
        let folder = |name: &str| component_folder(path, replacements, name);
        let text = Checkpoint::open(&folder("text_encoder"))?;
        let conditions = Component::open(&folder("condition_encoder"), SongConditionSpec::read)?;
        let transformer = Component::open(&folder("transformer"), AceStepSpec::read)?;
        let autoencoder = Component::open(&folder("vae"), OobleckSpec::read)?;
        let text_spec = text.spec()?;
        conditions.check(|spec| check_conditions(spec, &text_spec, &autoencoder.spec))?;
        transformer.check(|spec| check_transformer(spec, &conditions.spec, &autoencoder.spec))?;
        Ok(Self {
            tokens: folder("tokenizer"),
            text,
            conditions,
            transformer,
            autoencoder,
        })
    }

    /// The memory that the model takes on a device.
    pub fn footprint(&self, defaults: &MusicDefaults) -> MusicFootprint {
        let seconds = defaults.seconds();
        let specs = (
            &self.transformer.spec,
            &self.conditions.spec,
            &self.autoencoder.spec,
        );
        let text = self.text.tensors().iter();
        let text: u64 = text
            .map(|header| self.text.bytes(header).len() as u64)
            .sum();
        MusicFootprint {
            weight_bytes: text
                + self.conditions.bytes()
                + self.transformer.bytes()
                + self.autoencoder.bytes(),
            song_bytes: song_bytes(
                specs,
                frames(specs.2, seconds),
                MOST_TEXT_TOKENS + USUAL_LYRICS,
            ),
            seconds,
        }
    }

    /// The networks on a device.
    pub fn load(
        self,
        device: &Device,
        quantize: Option<Quantize>,
        isolation: Option<&Isolation>,
    ) -> Result<MusicNetworks, LoadError> {
        let load = ComponentLoad { device, quantize };
        let options = LoadOptions {
            quantize,
            context: Some(MOST_LYRICS_TOKENS),
            is_headless: true,
            ..LoadOptions::default()
        };
        Ok(MusicNetworks {
            // One more token than the limit, so that longer texts are detected.
            tokenizer: PromptTokenizer::open(&self.tokens, MOST_LYRICS_TOKENS + 1, isolation)?,
            text: Decoder::load(&self.text, device, &options, &mut |_, _| {})?,
            conditions: load.read(self.conditions, SongConditions::load)?,
            transformer: load.read(self.transformer, AceStep::load)?,
            autoencoder: load.read(self.autoencoder, Oobleck::load)?,
            device: device.clone(),
            timbre: Mutex::default(),
        })
    }
}

fn check_index(index: &Value) -> Result<(), Flaw> {
    let class = index["_class_name"].as_str().unwrap_or_default();
    if class != CLASS {
        return Err(Flaw::unsupported("_class_name", class, CLASS));
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

/// Whether the encoders take the text encoder's states and the autoencoder's latents.
fn check_conditions(
    spec: &SongConditionSpec,
    text: &DecoderSpec,
    autoencoder: &OobleckSpec,
) -> Result<(), Flaw> {
    if spec.text != text.hidden_size {
        let wanted = format!("{}, the width of the text encoder", text.hidden_size);
        return Err(Flaw::broken("text_hidden_dim", spec.text, wanted));
    }
    if spec.latent != autoencoder.latent_channels {
        let wanted = format!("{}, as the autoencoder has", autoencoder.latent_channels);
        return Err(Flaw::broken("timbre_hidden_dim", spec.latent, wanted));
    }
    Ok(())
}

/// Whether the transformer takes the conditions and the autoencoder's latents.
fn check_transformer(
    spec: &AceStepSpec,
    conditions: &SongConditionSpec,
    autoencoder: &OobleckSpec,
) -> Result<(), Flaw> {
    if spec.conditions != conditions.layer.width {
        let wanted = format!("{}, the width of the conditions", conditions.layer.width);
        return Err(Flaw::broken("encoder_hidden_size", spec.conditions, wanted));
    }
    if spec.latent != autoencoder.latent_channels {
        let wanted = format!("{}, as the autoencoder has", autoencoder.latent_channels);
        return Err(Flaw::broken(
            "audio_acoustic_hidden_dim",
            spec.latent,
            wanted,
        ));
    }
    Ok(())
}
