//! Tones. A kind for tests of the list of kinds: its model is a folder with a file `tone.json`, and has no weights.

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

use super::MediaFiles;
use crate::daemon::MediaModel;
use crate::daemon::fit::Needs;
use muster_engine::runtime::maker::{
    Advance, Cost, MakeRequest, Making, MediaRequest, Output, PassJob, Pcm, Pipeline, Refusal,
};
use muster_engine::runtime::{DeviceChoice, Failure, LoadError};
use muster_protocol::job::{Kind, ToneRequest};

const RATE: u32 = 24_000;

#[derive(Debug, Clone, PartialEq)]
pub struct ToneSource {
    path: PathBuf,
}

struct TonePipeline;

/// A tone as the maker takes it.
#[derive(Debug, Clone)]
pub struct Tone {
    hertz: f64,
}

impl MediaRequest for Tone {
    const MAKES: &'static str = "a tone";
}

pub fn read(request: &ToneRequest) -> Tone {
    Tone {
        hertz: request.hertz,
    }
}

impl ToneSource {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn is_at(path: &Path) -> bool {
        path.join("tone.json").is_file()
    }
}

impl MediaFiles for ToneSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        Ok(Needs::beside(0, 1 << 20))
    }

    fn describe(&mut self, name: &str, _: u64) -> Result<MediaModel, LoadError> {
        Ok(MediaModel::new(name, Kind::Tone))
    }

    fn load(&self, _: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(TonePipeline))
    }
}

impl Pipeline for TonePipeline {
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal> {
        request.of::<Tone>().map(|_| Cost {
            steps: 1,
            blocks: 1,
            memory_bytes: 1 << 20,
        })
    }

    fn begin(&self, request: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        let tone: Tone = request.take()?;
        Ok(Box::new(PassJob::new(|news| async move {
            news.put(Advance::Made(Output::Sound(sound(&tone))));
            Ok::<_, Failure>(())
        })))
    }
}

fn sound(tone: &Tone) -> Pcm {
    let count = (ToneRequest::SECONDS * f64::from(RATE)) as u32;
    let wave = |at: u32| (f64::from(at) / f64::from(RATE) * tone.hertz * TAU).sin() * 0.5;
    Pcm {
        rate: RATE,
        channels: 1,
        samples: (0..count).map(|at| wave(at) as f32).collect(),
    }
}
