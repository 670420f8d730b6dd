//! A pipeline without weights, for tests and benchmarks: generates a gradient, a tone, or a video of a moving square.
//! No configuration loads it.

mod image;
mod sound;
mod transcript;
mod video;

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use candle_core::{Device, Tensor};

use super::{
    Advance, Cost, MakeRequest, Making, MediaRequest, Output, Pipeline, Pixels, Refusal,
    SideBySide, SoundRequest, in_range,
};
use crate::runtime::hearing::TranscriptRequest;
use crate::runtime::image::ImageRequest;
use crate::runtime::video::VideoRequest;
use crate::runtime::{Failure, model};

/// A request as the sample takes it.
pub trait SampleRequest: Send {
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn steps(&self) -> Option<u32> {
        None
    }

    fn output(&self) -> Output;

    fn preview(&self, _at: u32, _of: u32) -> Option<Pixels> {
        None
    }
}

type SampleReader = fn(&MakeRequest) -> Option<&dyn SampleRequest>;

/// The kinds of requests that the sample takes.
const REQUESTS: [SampleReader; 4] = [
    as_sample::<ImageRequest>,
    as_sample::<SoundRequest>,
    as_sample::<VideoRequest>,
    as_sample::<TranscriptRequest>,
];

fn as_sample<R: MediaRequest + SampleRequest>(request: &MakeRequest) -> Option<&dyn SampleRequest> {
    let request: &R = request.of().ok()?;
    Some(request)
}

const LEAST_SIDE: u32 = 8;
const MOST_SIDE: u32 = 4096;
const MOST_STEPS: u32 = 1000;
const DEFAULT_SIZE: u32 = 64;
const DEFAULT_STEPS: u32 = 4;

/// The work of a sample's blocks besides progress reports.
#[derive(Debug, Clone)]
pub struct SamplePipeline {
    /// If set, the only supported output of a [`MediaRequest`].
    pub makes: Option<&'static str>,
    pub blocks_per_step: u32,
    /// Each block multiplies two square matrices of this size; 0 computes nothing.
    pub matrix: usize,
    pub fault: Option<SampleFault>,
    pub side_by_side: SideBySide,
    /// Declared memory of each job.
    pub job_bytes: u64,
    /// When set, each block waits for one message here, until the other end is dropped.
    pub gate: Option<Arc<Mutex<mpsc::Receiver<()>>>>,
}

/// Injected faults.
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
            makes: None,
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
    /// Makes each block wait for a signal.
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
        let wanted = request.makes();
        if let Some(makes) = self.makes.filter(|makes| *makes != wanted) {
            return Err(Refusal::Kind { wanted, makes });
        }
        let sample = sample_of(request)?;
        sample.check()?;
        let steps = steps(sample);
        in_range("steps", steps, 1, MOST_STEPS)?;
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
            steps: steps(sample_of(&request)?),
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
                false => Advance::Made(sample_of(&self.request)?.output()),
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
                let preview = sample_of(&self.request)?.preview(at, of);
                Ok(Advance::Step { at, of, preview })
            }
            false => Ok(Advance::Busy),
        }
    }
}

fn sample_of(request: &MakeRequest) -> Result<&dyn SampleRequest, Refusal> {
    let mut read = REQUESTS.iter().filter_map(|read| read(request));
    read.next().ok_or(Refusal::Kind {
        wanted: request.makes(),
        makes: "samples",
    })
}

fn steps(request: &dyn SampleRequest) -> u32 {
    request.steps().unwrap_or(DEFAULT_STEPS)
}

fn check_size(width: Option<u32>, height: Option<u32>) -> Result<(), Refusal> {
    for (setting, pixels) in [("width", width), ("height", height)] {
        in_range(
            setting,
            pixels.unwrap_or(DEFAULT_SIZE),
            LEAST_SIDE,
            MOST_SIDE,
        )?;
    }
    Ok(())
}
