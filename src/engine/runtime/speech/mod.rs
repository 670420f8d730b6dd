//! Text-to-speech: [`SpeechPipeline`] is a loaded Kokoro of the [`maker`](super::maker).
//!
//! `english` turns text into phonemes, `passages` splits them for the network, `voices` mixes voices, `job` synthesizes
//! one passage after the other, so that audio is available after the first sentence.

mod english;
mod job;
mod passages;
mod voices;

pub use crate::networks::sound::SPEECH_RATE;
pub use muster_characters::{MOST_SPOKEN, unreadable};

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::english::English;
use self::job::{SpeechTask, speak};
use self::passages::{Passage, passages};
use self::voices::{VOICES_FILE, Voices};
use super::component::{Component, ComponentLoad};
use super::maker::{Cost, MakeRequest, Making, PassJob, Pipeline, Refusal, SoundRequest};
use super::{DeviceChoice, Failure, LoadError};
use crate::networks::sound::{Kokoro, KokoroSpec};
use crate::networks::weights::read_description;

/// Location of a Kokoro model.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeechSource {
    /// A folder with the weights in a `.safetensors` or `.gguf` file, `config.json` and voices; or the file of the weights.
    pub path: PathBuf,
}

/// A model that speaks.
pub struct SpeechPipeline {
    model: Arc<SpeechModel>,
}

/// State shared by the jobs of one model.
pub struct SpeechModel {
    network: Kokoro,
    voices: Voices,
    english: English,
}

const SPEEDS: std::ops::RangeInclusive<f32> = 0.25..=4.0;

impl SpeechSource {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The folder of the files, where `path` names the one with the weights.
    fn folder(&self) -> &Path {
        match self.path.is_file() {
            true => self.path.parent().unwrap_or(&self.path),
            false => &self.path,
        }
    }

    /// Whether a folder holds a Kokoro, or a file in it the weights of one.
    pub fn is_at(path: &Path) -> bool {
        let config = Self::new(path).folder().join("config.json");
        let is_described = config.is_file()
            && read_description(&config).is_ok_and(|config| KokoroSpec::is_in(&config));
        is_described && (!path.is_file() || Kokoro::is_named_in(path))
    }

    /// Bytes of the weights, from the headers of the files.
    pub fn weight_bytes(&self) -> Result<u64, LoadError> {
        Ok(self.open()?.bytes())
    }

    /// The weights; voices may be in a separate file of the same folder.
    fn open(&self) -> Result<Component<KokoroSpec>, LoadError> {
        let entries = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        let weights = entries.map(|entry| entry.path()).filter(|path| {
            let is_weights =
                (path.extension()).is_some_and(|end| end == "safetensors" || end == "gguf");
            is_weights && path.file_name().is_some_and(|name| name != VOICES_FILE)
        });
        let weights: Vec<PathBuf> = weights.collect();
        let path = match (self.path.is_file(), weights.as_slice()) {
            (false, [only]) => only,
            _ => &self.path,
        };
        Ok(Component::open(path, KokoroSpec::read)?)
    }

    /// Names of the voices, before the model is loaded.
    pub fn voices(&self) -> Result<Vec<String>, LoadError> {
        let spec = self.open()?.spec;
        let voices = Voices::open(self.folder(), 2 * spec.style)?;
        Ok(voices.names().map(str::to_owned).collect())
    }

    pub fn load(&self, device: DeviceChoice) -> Result<SpeechPipeline, LoadError> {
        let device = device.open()?;
        let component = self.open()?;
        let voices = Voices::open(self.folder(), 2 * component.spec.style)?;
        let english = English::open().map_err(|flaw| flaw.in_file(&self.path))?;
        let load = ComponentLoad {
            device: &device,
            quantize: None,
        };
        let model = SpeechModel {
            network: load.read(component, Kokoro::load)?,
            voices,
            english,
        };
        Ok(SpeechPipeline {
            model: Arc::new(model),
        })
    }
}

impl SpeechPipeline {
    /// Names of the voices, in their order.
    pub fn voices(&self) -> Vec<String> {
        self.model.voices.names().map(str::to_owned).collect()
    }

    fn task(&self, request: &SoundRequest) -> Result<SpeechTask, Refusal> {
        refuse_settings(request)?;
        let speed = request.speed.unwrap_or(1.0);
        if !SPEEDS.contains(&speed) {
            let (least, most) = (SPEEDS.start(), SPEEDS.end());
            return Err(Refusal::Unsupported(format!(
                "speed is {speed}, but the model takes {least} to {most}"
            )));
        }
        let model = &self.model;
        let voice = model.voices.mix(request.voice.as_deref());
        let voice = voice.map_err(Refusal::Unsupported)?;
        Ok(SpeechTask {
            passages: self.passages(&request.prompt)?,
            voice,
            speed,
            seed: request.seed.unwrap_or(0),
            index: request.index,
            wants_words: request.wants_words,
        })
    }

    fn passages(&self, text: &str) -> Result<Vec<Passage>, Refusal> {
        let characters = text.chars().count() as u64;
        if characters > u64::from(MOST_SPOKEN) {
            return Err(Refusal::OutOfRange {
                setting: "the text's length in characters",
                found: characters,
                least: 1,
                most: MOST_SPOKEN.into(),
            });
        }
        let model = &self.model;
        if text.trim().is_empty() {
            return Err(Refusal::Unsupported("the text is empty".to_owned()));
        }
        let sentences = model.english.sentences(text);
        let vocabulary = &model.network.spec().vocabulary;
        Ok(passages(
            &sentences,
            vocabulary,
            model.network.longest_text(),
        ))
    }
}

/// Names a setting that a model that speaks does not have.
fn refuse_settings(request: &SoundRequest) -> Result<(), Refusal> {
    let set = [
        ("negative_prompt", request.negative_prompt.is_some()),
        ("seconds", request.seconds.is_some()),
        ("steps", request.steps.is_some()),
        ("cfg_scale", request.cfg_scale.is_some()),
    ];
    let found = set.iter().find(|(_, is_set)| *is_set);
    match found.map(|(name, _)| *name).or(request.setting_of_music()) {
        Some(name) => Err(Refusal::Unsupported(format!(
            "{name} is not for models that speak; remove it"
        ))),
        None => Ok(()),
    }
}

/// Frames that a phoneme takes at speed 1, about.
const FRAMES_PER_PHONEME: f32 = 3.0;
/// Memory of a frame: the widest maps of the generator, 120 rows of 128 channels, a handful at once.
const BYTES_PER_FRAME: f32 = 120.0 * 128.0 * 4.0 * 6.0;
/// Blocks of the networks per passage.
const BLOCKS_PER_PASSAGE: u64 = 90;

impl Pipeline for SpeechPipeline {
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal> {
        let task = self.task(request.of()?)?;
        let longest = task.passages.iter().map(|passage| passage.tokens.len());
        let longest = longest.max().unwrap_or(0);
        let frames = longest as f32 * FRAMES_PER_PHONEME / task.speed;
        Ok(Cost {
            steps: u32::try_from(task.passages.len().max(1)).unwrap_or(u32::MAX),
            blocks: task.passages.len() as u64 * BLOCKS_PER_PASSAGE,
            memory_bytes: (frames * BYTES_PER_FRAME) as u64,
        })
    }

    fn begin(&self, request: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        let task = self.task(request.of()?)?;
        let model = Arc::clone(&self.model);
        Ok(Box::new(PassJob::new(|news| speak(model, task, news))))
    }
}

#[cfg(test)]
mod tests;
