//! Transcription: [`HearingPipeline`] is a loaded Whisper of the [`maker`](super::maker).
//!
//! `vocabulary` has the special tokens, `rules` the constraints on the next token, `window` decodes one window,
//! optionally by beam search (`beams`), `segments` splits it at timestamps, `words` aligns words, `job` processes a
//! recording of any length. Jobs take turns, and `together` batches their decoder passes.
//!
//! The algorithm is that of the reference implementation, so that texts and timestamps agree.

mod beams;
mod job;
mod request;
mod rules;
mod segments;
mod together;
mod vocabulary;
mod whisper_cpp;
mod window;
mod words;

pub use self::request::TranscriptRequest;
pub use self::segments::{HeardToken, TranscriptSegment};
pub use self::words::TimedWord;
pub use crate::networks::sound::SAMPLE_RATE;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;

use self::job::hear;
use self::together::{SharedReading, TextAhead, TextScores};
use self::vocabulary::HearingVocabulary;
use self::window::CANDIDATES;
use super::component::{Component, ComponentLoad};
use super::maker::{Cost, MakeRequest, Making, PassJob, Pipeline, Refusal, SideBySide};
use super::text::Isolation;
use super::{DeviceChoice, Failure, LoadError};
use crate::networks::sound::{Features, LONGEST_WINDOW, Whisper, WhisperSpec, WindowKeys};
use crate::networks::weights::{Checkpoint, Flaw, Quantize, read_description};

/// Location and memory limits of a Whisper model.
#[derive(Debug, Clone, PartialEq)]
pub struct HearingSource {
    /// A folder with `config.json`, `tokenizer.json` and the weights, as safetensors or as GGUF with the same names of
    /// tensors; or the file of the weights in such a folder; or a file of whisper.cpp, which holds all of it.
    pub path: PathBuf,
    /// Quantize the matrices of linear layers while loading.
    pub quantize: Option<Quantize>,
    /// Memory for jobs besides the weights: as many as fit take turns, up to [`MOST_JOBS`]. `None` allows one job.
    pub memory_bytes: Option<u64>,
    /// Parses `tokenizer.json` in a separate process, because the files are untrusted.
    pub isolation: Option<Box<Isolation>>,
}

/// Memory, from the headers of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HearingFootprint {
    pub weight_bytes: u64,
    /// A job, apart from its sound.
    pub job_bytes: u64,
}

/// A loaded transcription model.
pub struct HearingPipeline {
    model: Arc<HearingModel>,
    memory_bytes: u64,
}

/// State shared by the jobs of one model.
pub struct HearingModel {
    network: Whisper,
    features: Features,
    vocabulary: HearingVocabulary,
    /// Layer and head of the attention that follows the sound.
    alignment: Vec<(usize, usize)>,
    device: Device,
    reading: SharedReading,
}

/// The longest sound of one job.
pub const MOST_SECONDS: u64 = 4 * 3600;
/// Beams of one search, at most: as many texts as are sampled at once.
pub const MOST_BEAMS: usize = CANDIDATES;
/// Limit of concurrent jobs per model.
pub const MOST_JOBS: usize = 4;

impl HearingSource {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            quantize: None,
            memory_bytes: None,
            isolation: None,
        }
    }

    /// The folder of the files, where `path` names the one with the weights.
    fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// Whether a folder holds a Whisper, or a file in it the weights of one.
    pub fn is_at(path: &Path) -> bool {
        if Checkpoint::is_of_whisper_cpp(path) {
            return true;
        }
        let config = folder_of(path).join("config.json");
        let is_described = config.is_file()
            && read_description(&config).is_ok_and(|config| WhisperSpec::is_in(&config));
        is_described && (!path.is_file() || holds_whisper(path))
    }

    pub fn footprint(&self) -> Result<HearingFootprint, LoadError> {
        let component = Component::open(&self.path, WhisperSpec::read)?;
        Ok(HearingFootprint {
            weight_bytes: component.bytes(),
            job_bytes: job_bytes(&component.spec),
        })
    }

    pub fn load(&self, device: DeviceChoice) -> Result<HearingPipeline, LoadError> {
        let device = device.open()?;
        let component = Component::open(&self.path, WhisperSpec::read)?;
        component.check(check_window)?;
        let spec = &component.spec;
        let vocabulary = match component.checkpoint().text_tokens() {
            Some(tokens) => HearingVocabulary::of_text_tokens(tokens, spec.vocab_size)?,
            None => {
                let path = self.folder().join("tokenizer.json");
                let isolation = self.isolation.as_deref();
                HearingVocabulary::open(&path, spec.vocab_size, isolation)?
            }
        };
        let alignment = self.alignment(spec)?;
        let features = Features::new(spec.bands);
        let load = ComponentLoad {
            device: &device,
            quantize: self.quantize,
        };
        let model = HearingModel {
            network: load.read(component, Whisper::load)?,
            features,
            vocabulary,
            alignment,
            device,
            reading: SharedReading::default(),
        };
        Ok(HearingPipeline {
            model: Arc::new(model),
            memory_bytes: self.memory_bytes.unwrap_or(0),
        })
    }

    /// The alignment heads that the model's files list, or all heads of the upper half of the decoder.
    fn alignment(&self, spec: &WhisperSpec) -> Result<Vec<(usize, usize)>, LoadError> {
        let path = self.folder().join("generation_config.json");
        let json = match path.is_file() {
            true => read_description(&path)?,
            false => serde_json::Value::Null,
        };
        let pairs = json["alignment_heads"].as_array().into_iter().flatten();
        let number = |value: &serde_json::Value| usize::try_from(value.as_u64()?).ok();
        let named = pairs.map(|pair| Some((number(&pair[0])?, number(&pair[1])?)));
        let named: Vec<(usize, usize)> = named.collect::<Option<_>>().unwrap_or_default();
        let (layers, heads) = (spec.decoder.layers, spec.decoder.heads);
        let is_known = |&(layer, head): &(usize, usize)| layer < layers && head < heads;
        if !named.is_empty() && named.iter().all(is_known) {
            return Ok(named);
        }
        let upper = layers / 2..layers;
        Ok(upper
            .flat_map(|layer| (0..heads).map(move |head| (layer, head)))
            .collect())
    }
}

impl HearingModel {
    /// Scores the next tokens of a window's texts, batched with those of other jobs.
    async fn read(
        &self,
        window: &Arc<WindowKeys>,
        texts: Vec<TextAhead>,
    ) -> candle_core::Result<Vec<TextScores>> {
        self.reading.read(&self.network, window, texts).await
    }

    async fn read_one(
        &self,
        window: &Arc<WindowKeys>,
        text: TextAhead,
    ) -> candle_core::Result<TextScores> {
        let read = self.read(window, vec![text]).await?.pop();
        read.ok_or_else(|| candle_core::Error::msg("a text was left, but not read"))
    }
}

fn check_window(spec: &WhisperSpec) -> Result<(), Flaw> {
    let (found, most) = (spec.positions, LONGEST_WINDOW / 2);
    match (1..=most).contains(&found) {
        true => Ok(()),
        false => {
            let wanted = format!("1 to {most}");
            Err(Flaw::unsupported("max_source_positions", found, wanted))
        }
    }
}

/// Memory of a job: activations of a window, its keys and values, and those of the candidate texts.
fn job_bytes(spec: &WhisperSpec) -> u64 {
    let row = (spec.width * size_of::<f32>()) as u64;
    let pairs = 2 * spec.decoder.layers as u64;
    let window = spec.positions as u64 * (pairs + 10);
    let texts = (CANDIDATES * spec.context) as u64 * pairs;
    row * (window + texts)
}

fn folder_of(path: &Path) -> &Path {
    match path.is_file() {
        true => path.parent().unwrap_or(path),
        false => path,
    }
}

/// A folder may have files of other models, too.
fn holds_whisper(path: &Path) -> bool {
    Checkpoint::open(path).is_ok_and(|checkpoint| Whisper::is_in(&checkpoint))
}

impl Pipeline for HearingPipeline {
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal> {
        let request: &TranscriptRequest = request.of()?;
        let sound = &request.sound;
        if sound.rate != SAMPLE_RATE || sound.channels != 1 {
            return Err(Refusal::Unsupported(format!(
                "the sound has {} samples a second in {} channels, but the model hears {SAMPLE_RATE} in one",
                sound.rate, sound.channels
            )));
        }
        let seconds = (sound.samples.len() as u64).div_ceil(SAMPLE_RATE.into());
        if sound.samples.is_empty() || seconds > MOST_SECONDS {
            return Err(Refusal::OutOfRange {
                setting: "the sound's length in seconds",
                found: seconds,
                least: 1,
                most: MOST_SECONDS,
            });
        }
        let vocabulary = &self.model.vocabulary;
        for language in &request.languages {
            vocabulary
                .language(language)
                .map_err(Refusal::Unsupported)?;
        }
        if request.is_translated && !vocabulary.is_multilingual() {
            return Err(Refusal::Unsupported(
                "the model knows English alone and does not translate".to_owned(),
            ));
        }
        let temperature = request.temperature.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&temperature) {
            return Err(Refusal::Unsupported(format!(
                "temperature is {temperature}, but the model takes 0 to 1"
            )));
        }
        let beams = request.beams.unwrap_or(1);
        if !(1..=MOST_BEAMS).contains(&beams) {
            return Err(Refusal::OutOfRange {
                setting: "beam_size",
                found: beams as u64,
                least: 1,
                most: MOST_BEAMS as u64,
            });
        }
        if beams > 1 && temperature > 0.0 {
            return Err(Refusal::Unsupported(
                "a beam search goes with temperature 0".to_owned(),
            ));
        }
        let spec = self.model.network.spec();
        let frames = Features::frames(sound.samples.len()) as u64;
        let windows = frames.div_ceil(spec.window_frames() as u64);
        Ok(Cost {
            steps: u32::try_from(seconds).unwrap_or(u32::MAX),
            blocks: windows * (spec.encoder.layers as u64 + 100),
            memory_bytes: job_bytes(spec) + sound.samples.len() as u64 * 4,
        })
    }

    fn side_by_side(&self) -> SideBySide {
        SideBySide {
            jobs: MOST_JOBS,
            memory_bytes: self.memory_bytes,
        }
    }

    fn begin(&self, request: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        let request = request.take()?;
        let model = Arc::clone(&self.model);
        Ok(Box::new(PassJob::new(|news| hear(model, request, news))))
    }
}

#[cfg(test)]
mod tests;
