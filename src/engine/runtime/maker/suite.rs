//! Tests for every pipeline: cancel, pause, panic, refuse, two concurrent jobs.

use std::any::Any;
use std::sync::{Arc, Mutex, mpsc};

use muster_testing::eventually;

use super::tests::{is_idle, listen, loader};
use super::{
    Advance, Cost, MakeRequest, MakeStream, Maker, MakerLimits, Making, MediaRequest, Output,
    Pipeline, Pixels, Refusal, SamplePipeline, SideBySide,
};
use crate::networks::blocks::BLOCK_END_PANICS;
use crate::runtime::Failure;

/// A loaded pipeline and requests for it.
pub struct PipelineFixture {
    pub pipeline: Arc<dyn Pipeline>,
    /// Referenced by the pipeline and by each of its jobs.
    pub networks: Arc<dyn Any + Send + Sync>,
    pub request: MakeRequest,
    /// Has another output.
    pub other: MakeRequest,
    /// A request beyond a limit, and words of its refusal.
    pub refused: (MakeRequest, &'static str),
}

/// A job that ran to its end without a maker.
pub struct FinishedJob {
    pub cost: Cost,
    pub blocks: u64,
    pub steps: Vec<ReportedStep>,
    pub outputs: Vec<Output>,
}

/// Step, number of steps, preview.
pub type ReportedStep = (u32, u32, Option<Pixels>);

/// Runs the suite on the fixture that a function makes.
macro_rules! pipeline_suite {
    ($fixture:expr) => {
        mod every_pipeline {
            use super::*;
            use crate::runtime::maker::suite;

            #[tokio::test]
            async fn a_cancelled_job_ends_within_one_pass_and_frees_its_memory() {
                suite::cancel($fixture()).await;
            }

            #[tokio::test]
            async fn a_paused_job_goes_on_as_if_it_had_not_been_paused() {
                suite::pause($fixture()).await;
            }

            #[tokio::test]
            async fn a_panic_in_a_pass_fails_its_job_alone() {
                suite::panic($fixture()).await;
            }

            #[tokio::test]
            async fn a_request_is_refused_before_its_first_pass() {
                suite::refuse($fixture()).await;
            }

            #[tokio::test]
            async fn jobs_side_by_side_give_what_each_gives_alone() {
                suite::side_by_side($fixture()).await;
            }
        }
    };
}
pub(in crate::runtime) use pipeline_suite;

/// A request that no pipeline takes.
#[derive(Debug, Clone)]
struct OtherRequest;

impl MediaRequest for OtherRequest {
    const MAKES: &'static str = "something else";
}

const NAME: &str = "pipeline";
/// Passes of a job before it is cancelled, paused or made to panic.
const PASSES: usize = 3;

pub async fn cancel(fixture: PipelineFixture) {
    let idle = fixture.holders();
    let mut served = fixture.serve(1, None).await;
    let stream = served.make(&fixture.request);
    let next = served.make(&fixture.other);
    served.run_passes(PASSES).await;
    assert!(fixture.holders() > idle);
    drop(stream);
    served.gate = None;
    assert_eq!(listen(next).await, fixture.alone(&fixture.other));
    let passes = served.passes().into_iter().filter(|&job| job == 0).count();
    // The pass that had begun.
    assert!((PASSES..=PASSES + 1).contains(&passes), "{passes}");
    is_idle(&served.maker).await;
    assert_eq!(fixture.holders(), idle);
}

pub async fn pause(fixture: PipelineFixture) {
    let mut served = fixture.serve(1, None).await;
    let stream = served.make(&fixture.request);
    served.run_passes(PASSES).await;
    // The pass that waits may end.
    let end_pass = async { served.gate.as_ref().map(|gate| gate.send(())) };
    let (paused, _) = tokio::join!(served.maker.pause(), end_pass);
    assert_eq!(paused, Ok(()));
    served.gate = None;
    let before = served.passes();
    // The thread executes commands between passes.
    for _ in 0..3 {
        let sample = loader(SamplePipeline::default());
        served.maker.load("other", sample).await.unwrap();
        served.maker.unload("other").await.unwrap();
    }
    assert_eq!(served.passes(), before);
    served.maker.resume().await.unwrap();
    assert_eq!(listen(stream).await, fixture.alone(&fixture.request));
}

pub async fn panic(fixture: PipelineFixture) {
    let idle = fixture.holders();
    let mut served = fixture.serve(2, Some(PASSES)).await;
    let (first, beside) = (served.make(&fixture.request), served.make(&fixture.other));
    served.gate = None;
    let ((_, first), beside) = tokio::join!(listen(first), listen(beside));
    let model = NAME.to_owned();
    assert_eq!(first, Err(Failure::Crashed { model }));
    assert_eq!(beside, fixture.alone(&fixture.other));
    let next = served.make(&fixture.request);
    assert_eq!(listen(next).await, fixture.alone(&fixture.request));
    is_idle(&served.maker).await;
    assert_eq!(fixture.holders(), idle);
}

pub async fn refuse(fixture: PipelineFixture) {
    let served = fixture.serve(1, None).await;
    let refused = |request: MakeRequest, words: &str| match served.maker.make(NAME, request) {
        Err(Failure::BadRequest(refusal)) => assert!(refusal.contains(words), "{refusal}"),
        other => panic!("expected a refusal with {words:?}, found {:?}", other.err()),
    };
    let (request, words) = &fixture.refused;
    refused(request.clone(), words);
    let (wanted, makes) = (OtherRequest::MAKES, fixture.request.makes());
    let refusal = Refusal::Kind { wanted, makes }.to_string();
    refused(OtherRequest.into(), &refusal);
    assert_eq!(*served.watch.begun.lock().unwrap(), 0);
}

pub async fn side_by_side(fixture: PipelineFixture) {
    let mut served = fixture.serve(2, None).await;
    let streams = (served.make(&fixture.request), served.make(&fixture.other));
    served.gate = None;
    let (one, other) = tokio::join!(listen(streams.0), listen(streams.1));
    assert!(served.passes().windows(3).any(|jobs| jobs == [0, 1, 0]));
    assert_ne!(one, other);
    assert_eq!(one, fixture.alone(&fixture.request));
    assert_eq!(other, fixture.alone(&fixture.other));
}

/// Runs a job to its end.
pub fn follow(pipeline: &dyn Pipeline, request: MakeRequest) -> FinishedJob {
    let mut followed = FinishedJob {
        cost: pipeline.check(&request).unwrap(),
        blocks: 0,
        steps: Vec::new(),
        outputs: Vec::new(),
    };
    let mut job = pipeline.begin(request).unwrap();
    loop {
        match job.advance().unwrap() {
            Advance::Busy => {}
            Advance::Step { at, of, preview } => followed.steps.push((at, of, preview)),
            Advance::Made(output) => followed.outputs.push(output),
            Advance::Done => return followed,
        }
        followed.blocks += 1;
    }
}

impl PipelineFixture {
    fn alone(&self, request: &MakeRequest) -> (Vec<Output>, Result<(), Failure>) {
        let job = follow(&*self.pipeline, request.clone());
        (job.outputs, Ok(()))
    }

    fn holders(&self) -> usize {
        Arc::strong_count(&self.networks)
    }

    /// A maker with the pipeline and up to `jobs` concurrent jobs. Each pass waits for the gate; one of the first job's
    /// panics.
    async fn serve(&self, jobs: usize, panics_at: Option<usize>) -> ServedPipeline {
        let maker = Maker::start(MakerLimits::default()).unwrap();
        let (gate, opened) = mpsc::channel();
        let watch = Arc::new(PassWatch {
            gate: Mutex::new(opened),
            begun: Mutex::new(0),
            passes: Mutex::default(),
            panics_at,
        });
        let pipeline = WatchedPipeline {
            inner: Arc::clone(&self.pipeline),
            jobs,
            watch: Arc::clone(&watch),
        };
        maker.load(NAME, loader(pipeline)).await.unwrap();
        let gate = Some(gate);
        ServedPipeline { maker, gate, watch }
    }
}

struct ServedPipeline {
    maker: Maker,
    /// Releases passes one by one, and all once it is dropped.
    gate: Option<mpsc::Sender<()>>,
    watch: Arc<PassWatch>,
}

impl ServedPipeline {
    fn make(&self, request: &MakeRequest) -> MakeStream {
        self.maker.make(NAME, request.clone()).unwrap()
    }

    fn passes(&self) -> Vec<usize> {
        self.watch.passes.lock().unwrap().clone()
    }

    async fn run_passes(&self, count: usize) {
        for _ in 0..count {
            self.gate.as_ref().unwrap().send(()).unwrap();
        }
        eventually("passes", async || self.passes().len() == count).await;
    }
}

struct PassWatch {
    gate: Mutex<mpsc::Receiver<()>>,
    /// Jobs.
    begun: Mutex<usize>,
    /// The job of each pass, in their order.
    passes: Mutex<Vec<usize>>,
    panics_at: Option<usize>,
}

struct WatchedPipeline {
    inner: Arc<dyn Pipeline>,
    jobs: usize,
    watch: Arc<PassWatch>,
}

struct WatchedJob {
    inner: Box<dyn Making>,
    index: usize,
    watch: Arc<PassWatch>,
}

impl Pipeline for WatchedPipeline {
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal> {
        self.inner.check(request)
    }

    fn begin(&self, request: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        let mut begun = self.watch.begun.lock().unwrap();
        let index = *begun;
        *begun += 1;
        Ok(Box::new(WatchedJob {
            inner: self.inner.begin(request)?,
            index,
            watch: Arc::clone(&self.watch),
        }))
    }

    fn side_by_side(&self) -> SideBySide {
        SideBySide {
            jobs: self.jobs,
            memory_bytes: u64::MAX,
        }
    }
}

impl Making for WatchedJob {
    fn advance(&mut self) -> Result<Advance, Failure> {
        let _ = self.watch.gate.lock().unwrap().recv();
        let passes = {
            let mut passes = self.watch.passes.lock().unwrap();
            passes.push(self.index);
            passes.len()
        };
        // A call that delivers a report ends no block: the next one panics.
        let is_due = self.watch.panics_at.is_some_and(|at| passes >= at);
        BLOCK_END_PANICS.set(is_due && self.index == 0);
        let advance = self.inner.advance();
        BLOCK_END_PANICS.set(false);
        advance
    }
}
