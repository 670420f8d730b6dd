//! A pipeline without weights, for tests and measurements: draws a gradient, plays a tone, films a moving square.
//! Nothing loads one by itself.

use std::f32::consts::TAU;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use candle_core::{Device, Tensor};

use super::{
    Advance, Cost, ImageRequest, MakeRequest, Making, MediaKind, Output, Pcm, Pipeline, Pixels,
    Refusal, SideBySide, SoundRequest, TranscriptPart, TranscriptRequest, VideoRequest,
};
use crate::runtime::hearing::{TimedWord, TranscriptSegment};
use crate::runtime::{Failure, model};

const SIZES: (u32, u32) = (8, 4096);
const MOST_STEPS: u32 = 1000;
const MOST_SECONDS: f32 = 600.0;
const MOST_FRAMES: u32 = 1000;
const DEFAULT_SIZE: u32 = 64;
const DEFAULT_STEPS: u32 = 4;
const DEFAULT_FRAMES: u32 = 8;
/// A preview's side is this part of the image's.
const PREVIEW: u32 = 8;
const SAMPLE_RATE: u32 = 24_000;
const FRAME_RATE: f32 = 8.0;

/// What the blocks of a sample do besides reporting.
#[derive(Debug, Clone)]
pub struct SamplePipeline {
    /// Makes only this kind, where one is given.
    pub kind: Option<MediaKind>,
    pub blocks_per_step: u32,
    /// Each block multiplies two matrices of so many rows and columns; 0 computes nothing.
    pub matrix: usize,
    pub fault: Option<SampleFault>,
    pub side_by_side: SideBySide,
    /// Memory of each job, as it says.
    pub job_bytes: u64,
    /// When set, each block waits for one message here, until the other end is dropped.
    pub gate: Option<Arc<Mutex<mpsc::Receiver<()>>>>,
}

/// What goes wrong, on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleFault {
    PanicInCheck,
    PanicInBegin,
    /// In the block of this step.
    PanicAt(u32),
    /// The block of this step fails.
    FailAt(u32),
}

struct SampleMaking {
    sample: SamplePipeline,
    request: MakeRequest,
    block: u32,
    steps: u32,
    is_made: bool,
    factors: Option<Tensor>,
}

impl Default for SamplePipeline {
    fn default() -> Self {
        Self {
            kind: None,
            blocks_per_step: 1,
            matrix: 0,
            fault: None,
            side_by_side: SideBySide::default(),
            job_bytes: 0,
            gate: None,
        }
    }
}

impl SamplePipeline {
    /// With blocks that are let through one by one.
    #[must_use]
    pub fn gated(self) -> (Self, mpsc::Sender<()>) {
        let (open, gate) = mpsc::channel();
        let gate = Some(Arc::new(Mutex::new(gate)));
        (Self { gate, ..self }, open)
    }
}

impl Pipeline for SamplePipeline {
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal> {
        assert_ne!(self.fault, Some(SampleFault::PanicInCheck), "a bug");
        let wanted = request.kind();
        match self.kind {
            Some(makes) if makes != wanted => return Err(Refusal::Kind { wanted, makes }),
            _ => {}
        }
        match request {
            MakeRequest::Image(image) => {
                size("width", image.width)?;
                size("height", image.height)?;
            }
            MakeRequest::Sound(sound) => {
                let setting = sound.setting_of_music().filter(|name| *name != "lyrics");
                if let Some(name) = setting {
                    let what = format!("{name} is not supported by the model; remove it");
                    return Err(Refusal::Unsupported(what));
                }
                let seconds = sound.seconds.unwrap_or(1.0);
                if !(0.0..=MOST_SECONDS).contains(&seconds) {
                    let limit = format!("the model plays up to {MOST_SECONDS} s, not {seconds} s");
                    return Err(Refusal::Unsupported(limit));
                }
            }
            MakeRequest::Video(video) => {
                size("width", video.width)?;
                size("height", video.height)?;
                in_range("frames", video.frames.unwrap_or(1), (1, MOST_FRAMES))?;
            }
            MakeRequest::Transcript(_) => {}
        }
        let steps = steps(request);
        in_range("steps", steps, (1, MOST_STEPS))?;
        Ok(Cost {
            steps,
            blocks: u64::from(steps) * u64::from(self.blocks_per_step) + 2,
            memory_bytes: self.job_bytes,
        })
    }

    fn side_by_side(&self) -> SideBySide {
        self.side_by_side
    }

    fn begin(&self, request: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        assert_ne!(self.fault, Some(SampleFault::PanicInBegin), "a bug");
        let shape = (self.matrix, self.matrix);
        let ones = |_| Tensor::ones(shape, candle_core::DType::F32, &Device::Cpu);
        let factors = (self.matrix > 0).then_some(()).map(ones).transpose();
        Ok(Box::new(SampleMaking {
            sample: self.clone(),
            steps: steps(&request),
            request,
            block: 0,
            is_made: false,
            factors: factors.map_err(|error| Failure::internal(model::plain(&error)))?,
        }))
    }
}

impl Making for SampleMaking {
    fn advance(&mut self) -> Result<Advance, Failure> {
        if let Some(gate) = &self.sample.gate {
            let _ = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        let blocks_per_step = self.sample.blocks_per_step.max(1);
        if self.block >= self.steps * blocks_per_step {
            return Ok(match std::mem::replace(&mut self.is_made, true) {
                true => Advance::Done,
                false => Advance::Made(output(&self.request)),
            });
        }
        if let Some(factors) = &self.factors {
            let product = factors.matmul(factors);
            product.map_err(|error| Failure::internal(model::plain(&error)))?;
        }
        self.block += 1;
        let (at, of) = (self.block.div_ceil(blocks_per_step), self.steps);
        match self.sample.fault {
            Some(SampleFault::PanicAt(step)) if step == at => panic!("a bug"),
            Some(SampleFault::FailAt(step)) if step == at => {
                return Err(Failure::internal("the sample fails on purpose"));
            }
            _ => {}
        }
        match self.block.is_multiple_of(blocks_per_step) {
            true => {
                let preview = preview(&self.request, at, of);
                Ok(Advance::Step { at, of, preview })
            }
            false => Ok(Advance::Busy),
        }
    }
}

fn size(setting: &'static str, pixels: Option<u32>) -> Result<(), Refusal> {
    in_range(setting, pixels.unwrap_or(DEFAULT_SIZE), SIZES)
}

fn in_range(setting: &'static str, found: u32, (least, most): (u32, u32)) -> Result<(), Refusal> {
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(Refusal::OutOfRange {
            setting,
            found: found.into(),
            least: least.into(),
            most: most.into(),
        }),
    }
}

fn steps(request: &MakeRequest) -> u32 {
    let steps = match request {
        MakeRequest::Image(image) => image.steps,
        MakeRequest::Sound(sound) => sound.steps,
        MakeRequest::Video(video) => video.steps,
        MakeRequest::Transcript(_) => None,
    };
    steps.unwrap_or(DEFAULT_STEPS)
}

fn output(request: &MakeRequest) -> Output {
    match request {
        MakeRequest::Image(image) => Output::Image(gradient(image, 1, 1.0)),
        MakeRequest::Sound(sound) => Output::Sound(tone(sound)),
        MakeRequest::Video(video) => Output::Frames {
            frames: film(video),
            rate: video.rate.unwrap_or(FRAME_RATE),
        },
        MakeRequest::Transcript(transcript) => Output::Transcript(ticks(transcript)),
    }
}

/// A segment for each second of the sound that has begun, which says how loud its loudest sample is, in hundredths.
fn ticks(transcript: &TranscriptRequest) -> TranscriptPart {
    let sound = &transcript.sound;
    let seconds = sound.samples.chunks(sound.rate.max(1) as usize).enumerate();
    let segments = seconds.map(|(at, samples)| {
        let loudest = samples
            .iter()
            .fold(0.0f32, |most, sample| most.max(sample.abs()));
        let text = format!(" {}", (loudest * 100.0).round());
        let (from, to) = (
            at as f64,
            at as f64 + samples.len() as f64 / f64::from(sound.rate),
        );
        let word = TimedWord {
            word: text.clone(),
            from,
            to,
            probability: 1.0,
        };
        TranscriptSegment {
            from,
            to,
            text,
            words: if transcript.wants_words {
                vec![word]
            } else {
                Vec::new()
            },
            ..TranscriptSegment::default()
        }
    });
    TranscriptPart {
        language: transcript
            .language
            .clone()
            .unwrap_or_else(|| "en".to_owned()),
        segments: segments.collect(),
    }
}

fn preview(request: &MakeRequest, at: u32, of: u32) -> Option<Pixels> {
    match request {
        MakeRequest::Image(image) => {
            let light = at as f32 / of as f32;
            let preview = || gradient(image, PREVIEW, light);
            image.wants_previews.then(preview)
        }
        MakeRequest::Video(video) => video.wants_previews.then(|| square(video, 0, 1)),
        MakeRequest::Sound(_) | MakeRequest::Transcript(_) => None,
    }
}

/// Red grows to the right, green downwards, blue is the seed.
fn gradient(image: &ImageRequest, part: u32, light: f32) -> Pixels {
    let width = (image.width.unwrap_or(DEFAULT_SIZE) / part).max(1);
    let height = (image.height.unwrap_or(DEFAULT_SIZE) / part).max(1);
    let blue = image.seed.unwrap_or(0).wrapping_add(image.index.into()) as u8;
    let level = |at: u32, size: u32| at as f32 * 255.0 / (size - 1).max(1) as f32;
    Pixels::rgb(width, height, |x, y| {
        let color = [level(x, width), level(y, height), blue.into()];
        color.map(|level| (level * light).round() as u8)
    })
}

/// Concert pitch, or a half tone higher for each seed up to an octave.
fn tone(sound: &SoundRequest) -> Pcm {
    let half_tones = (sound.seed.unwrap_or(0) % 12) as f32;
    let pitch = 440.0 * (half_tones / 12.0).exp2();
    let count = (sound.seconds.unwrap_or(1.0) * SAMPLE_RATE as f32) as u32;
    let wave = |at: u32| (at as f32 / SAMPLE_RATE as f32 * pitch * TAU).sin() * 0.5;
    Pcm {
        rate: SAMPLE_RATE,
        channels: 1,
        samples: (0..count).map(wave).collect(),
    }
}

fn film(video: &VideoRequest) -> Vec<Pixels> {
    let count = video.frames.unwrap_or(DEFAULT_FRAMES);
    (0..count).map(|at| square(video, at, count)).collect()
}

/// A white square that moves from the left edge to the right.
fn square(video: &VideoRequest, at: u32, of: u32) -> Pixels {
    let width = video.width.unwrap_or(DEFAULT_SIZE);
    let height = video.height.unwrap_or(DEFAULT_SIZE);
    let side = (width.min(height) / 4).max(1);
    let left = (width - side) * at / (of - 1).max(1);
    let top = (height - side) / 2;
    Pixels::rgb(width, height, |x, y| {
        let is_inside = (left..left + side).contains(&x) && (top..top + side).contains(&y);
        [if is_inside { 255 } else { 0 }; 3]
    })
}
