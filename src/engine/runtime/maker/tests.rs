//! Tests of the maker with a pipeline of known results.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use muster_testing::eventually;

use super::{
    Advance, Cost, MakeEvent, MakeRequest, MakeStream, Maker, MakerLimits, Making, MediaRequest,
    Output, Pipeline, PipelineLoader, Pixels, Refusal, SampleFault, SamplePipeline, SideBySide,
    SoundRequest, UNREAD_FRAMES,
};
use crate::runtime::image::ImageRequest;
use crate::runtime::video::VideoRequest;
use crate::runtime::{Failure, LoadError};

/// Blocks per step of a job that does not end within a test.
const ENDLESS: u32 = 1 << 20;

fn start() -> Maker {
    Maker::start(MakerLimits::default()).unwrap()
}

pub fn loader(pipeline: impl Pipeline + 'static) -> PipelineLoader {
    Box::new(move || Ok(Box::new(pipeline)))
}

async fn serving(pipeline: impl Pipeline + 'static) -> Maker {
    let maker = start();
    maker.load("sample", loader(pipeline)).await.unwrap();
    maker
}

fn image(steps: u32) -> MakeRequest {
    MakeRequest::from(ImageRequest {
        prompt: "a gradient".to_owned(),
        steps: Some(steps),
        ..ImageRequest::default()
    })
}

fn endless() -> SamplePipeline {
    SamplePipeline {
        blocks_per_step: ENDLESS,
        ..SamplePipeline::default()
    }
}

fn faulty(fault: SampleFault) -> SamplePipeline {
    SamplePipeline {
        fault: Some(fault),
        ..SamplePipeline::default()
    }
}

fn crashed() -> Failure {
    Failure::Crashed {
        model: "sample".to_owned(),
    }
}

/// Results and the end.
pub async fn listen(mut stream: MakeStream) -> (Vec<Output>, Result<(), Failure>) {
    let mut outputs = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            MakeEvent::Step { .. } => {}
            MakeEvent::Made(output) => outputs.push(output),
            MakeEvent::Done => return (outputs, Ok(())),
            MakeEvent::Failed(failure) => return (outputs, Err(failure)),
        }
    }
    panic!("a stream ends with a last event");
}

pub async fn is_idle(maker: &Maker) {
    eventually("no job", async || {
        let status = maker.status();
        (status.running, status.waiting) == (0, 0)
    })
    .await;
}

async fn is_running(maker: &Maker, count: usize) {
    eventually("running jobs", async || maker.status().running == count).await;
}

#[tokio::test]
async fn steps_previews_the_image_and_the_end_arrive_in_order() {
    let (pipeline, open) = SamplePipeline::default().gated();
    let maker = serving(pipeline).await;
    let request = MakeRequest::from(ImageRequest {
        width: Some(32),
        height: Some(16),
        steps: Some(2),
        seed: Some(7),
        wants_previews: true,
        ..ImageRequest::default()
    });
    let mut stream = maker.make("sample", request).unwrap();
    for expected in 1..=2 {
        open.send(()).unwrap();
        let Some(MakeEvent::Step { at, of, preview }) = stream.next().await else {
            panic!("a step is reported");
        };
        let preview = preview.unwrap();
        assert_eq!((at, of), (expected, 2));
        assert_eq!((preview.width, preview.height), (4, 2));
        assert!(preview.is_whole());
    }
    open.send(()).unwrap();
    let Some(MakeEvent::Made(Output::Image(pixels))) = stream.next().await else {
        panic!("an image is made");
    };
    assert!(pixels.is_whole());
    assert_eq!((pixels.width, pixels.height), (32, 16));
    assert_eq!(pixels.bytes[..3], [0, 0, 7]);
    assert_eq!(pixels.bytes[pixels.bytes.len() - 3..], [255, 255, 7]);
    open.send(()).unwrap();
    assert_eq!(stream.next().await, Some(MakeEvent::Done));
    assert_eq!(stream.next().await, None);
    is_idle(&maker).await;
    let status = maker.status();
    assert!(status.models[0].block_time.is_some());
}

#[tokio::test]
async fn jobs_that_have_room_take_turns_and_the_next_waits() {
    let side_by_side = SideBySide {
        jobs: 3,
        memory_bytes: 20,
    };
    let sample = SamplePipeline {
        side_by_side,
        job_bytes: 10,
        ..SamplePipeline::default()
    };
    let (pipeline, open) = sample.gated();
    let maker = serving(pipeline).await;
    let mut streams = [1, 1, 1].map(|steps| maker.make("sample", image(steps)).unwrap());
    let step = Some(MakeEvent::Step {
        at: 1,
        of: 1,
        preview: None,
    });
    for stream in &mut streams[..2] {
        open.send(()).unwrap();
        assert_eq!(stream.next().await, step);
    }
    is_running(&maker, 2).await;
    assert_eq!(maker.status().models[0].waiting, 1);
    drop(open);
    for stream in streams {
        let (outputs, ended) = listen(stream).await;
        assert_eq!((outputs.len(), ended), (1, Ok(())));
    }
    is_idle(&maker).await;
}

#[tokio::test]
async fn a_job_that_is_dropped_leaves_the_others_running() {
    let sample = SamplePipeline {
        side_by_side: SideBySide {
            jobs: 2,
            memory_bytes: 0,
        },
        ..endless()
    };
    let maker = serving(sample).await;
    let [gone, stays, third] = [1, 1, 1].map(|steps| maker.make("sample", image(steps)).unwrap());
    is_running(&maker, 2).await;
    drop(gone);
    eventually("the third begins", async || {
        let status = maker.status();
        (status.running, status.waiting) == (2, 0)
    })
    .await;
    drop((stays, third));
    is_idle(&maker).await;
}

#[tokio::test]
async fn a_tone_and_a_moving_square_are_made() {
    let maker = serving(SamplePipeline::default()).await;
    let sound = MakeRequest::from(SoundRequest {
        seconds: Some(0.5),
        ..SoundRequest::default()
    });
    let (outputs, end) = listen(maker.make("sample", sound).unwrap()).await;
    let [Output::Sound(pcm)] = &outputs[..] else {
        panic!("found {outputs:?}");
    };
    assert_eq!((pcm.samples.len() as u32 * 2, end), (pcm.rate, Ok(())));
    let rises = pcm.samples.windows(2);
    let rises = rises.filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
    assert!((219..=220).contains(&rises), "440 Hz, found {rises} rises");

    let video = MakeRequest::from(VideoRequest {
        frames: Some(3),
        ..VideoRequest::default()
    });
    let (outputs, _) = listen(maker.make("sample", video).unwrap()).await;
    let [Output::Frames { frames, .. }] = &outputs[..] else {
        panic!("found {outputs:?}");
    };
    let left = |at: usize| frames[at].bytes.iter().position(|&byte| byte == 255);
    assert!(frames.len() == 3 && left(0) < left(1) && left(1) < left(2));
}

/// A model whose videos have this many frames, generated at once.
#[derive(Clone)]
struct FrameFlood {
    frames: u32,
    made: Arc<AtomicU32>,
}

impl Pipeline for FrameFlood {
    fn check(&self, _: &MakeRequest) -> Result<Cost, Refusal> {
        Ok(Cost::default())
    }

    fn begin(&self, _: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        Ok(Box::new(self.clone()))
    }
}

impl Making for FrameFlood {
    fn advance(&mut self) -> Result<Advance, Failure> {
        let at = self.made.load(Ordering::SeqCst);
        if at == self.frames {
            return Ok(Advance::Done);
        }
        self.made.store(at + 1, Ordering::SeqCst);
        let frames = vec![Pixels::rgb(2, 2, |_, _| [at as u8; 3])];
        Ok(Advance::Made(Output::Frames { frames, rate: 8.0 }))
    }
}

#[tokio::test]
async fn a_video_rests_until_its_frames_are_read() {
    let flood = FrameFlood {
        frames: 200,
        made: Arc::default(),
    };
    let made = Arc::clone(&flood.made);
    let maker = serving(flood).await;
    let video = || VideoRequest::default().into();
    let mut stream = maker.make("sample", video()).unwrap();
    let resting = UNREAD_FRAMES as u32;
    eventually("the job to rest", async || {
        match made.load(Ordering::SeqCst) {
            found if found == resting => Ok(()),
            found => Err(found),
        }
    })
    .await;
    let mut count = 0;
    while let Some(event) = stream.next().await {
        match event {
            MakeEvent::Made(Output::Frames { frames, .. }) => {
                assert_eq!(frames[0].bytes[0], count as u8);
                count += 1;
                assert!(made.load(Ordering::SeqCst) <= count + resting);
            }
            MakeEvent::Done => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(count, 200);
    // A job that rests is cancelled as any other.
    made.store(0, Ordering::SeqCst);
    let stream = maker.make("sample", video()).unwrap();
    eventually("the job to rest", async || {
        match made.load(Ordering::SeqCst) {
            found if found == resting => Ok(()),
            found => Err(found),
        }
    })
    .await;
    drop(stream);
    is_idle(&maker).await;
    // Without its maker a job does not rest, since nothing could wake it.
    made.store(0, Ordering::SeqCst);
    let stream = maker.make("sample", video()).unwrap();
    drop(maker);
    let (outputs, end) = listen(stream).await;
    assert_eq!((outputs.len(), end), (200, Ok(())));
}

#[tokio::test]
async fn a_waiting_job_that_is_cancelled_frees_its_place() {
    let limits = MakerLimits { max_waiting: 1 };
    let (pipeline, open) = SamplePipeline::default().gated();
    let maker = Maker::start(limits).unwrap();
    maker.load("sample", loader(pipeline)).await.unwrap();
    let running = maker.make("sample", image(100)).unwrap();
    is_running(&maker, 1).await;
    let waiting = eventually("a place", async || maker.make("sample", image(100)).ok()).await;
    let busy = maker.make("sample", image(100)).err();
    let full = Failure::Busy {
        running: 1,
        waiting: 1,
    };
    assert_eq!(busy, Some(full));
    drop(waiting);
    open.send(()).unwrap();
    eventually("a place", async || maker.make("sample", image(1)).ok()).await;
    drop((running, open));
    is_idle(&maker).await;
}

#[tokio::test]
async fn pipelines_take_turns() {
    let maker = start();
    let long = SamplePipeline {
        matrix: 16,
        ..endless()
    };
    maker.load("long", loader(long)).await.unwrap();
    let short = SamplePipeline {
        matrix: 16,
        ..SamplePipeline::default()
    };
    maker.load("short", loader(short)).await.unwrap();
    let endless = maker.make("long", image(100)).unwrap();
    is_running(&maker, 1).await;
    let (outputs, end) = listen(maker.make("short", image(50)).unwrap()).await;
    assert_eq!((outputs.len(), end), (1, Ok(())));
    is_running(&maker, 1).await;
    drop(endless);
    is_idle(&maker).await;
}

#[tokio::test]
async fn jobs_of_one_pipeline_run_one_after_another() {
    let (pipeline, open) = SamplePipeline::default().gated();
    let maker = serving(pipeline).await;
    let first = maker.make("sample", image(1)).unwrap();
    let second = maker.make("sample", image(1)).unwrap();
    eventually("one running, one waiting", async || {
        let models = maker.status().models;
        (models[0].running, models[0].waiting) == (1, 1)
    })
    .await;
    drop(open);
    assert_eq!(listen(first).await.1, Ok(()));
    assert_eq!(listen(second).await.1, Ok(()));
}

#[tokio::test]
async fn panics_outside_of_blocks_are_caught_too() {
    let maker = serving(faulty(SampleFault::PanicInBegin)).await;
    let (_, end) = listen(maker.make("sample", image(1)).unwrap()).await;
    assert_eq!(end, Err(crashed()));
    assert_eq!(crashed().to_string(), "a job of the model sample crashed");
    assert_eq!(maker.unload("sample").await, Ok(()));

    let checked = loader(faulty(SampleFault::PanicInCheck));
    maker.load("sample", checked).await.unwrap();
    assert!(maker.make("sample", image(1)).is_err());
    assert_eq!(maker.unload("sample").await, Ok(()));

    let loaded = maker.load("sample", Box::new(|| panic!("a bug"))).await;
    assert!(matches!(loaded, Err(LoadError::Panicked { .. })));
    let sample = loader(SamplePipeline::default());
    assert!(maker.load("sample", sample).await.is_ok());
}

#[tokio::test]
async fn a_failed_block_ends_its_job_alone() {
    let maker = serving(faulty(SampleFault::FailAt(3))).await;
    let (_, end) = listen(maker.make("sample", image(5)).unwrap()).await;
    assert!(matches!(end, Err(Failure::Internal(_))), "{end:?}");
    let (outputs, end) = listen(maker.make("sample", image(2)).unwrap()).await;
    assert_eq!((outputs.len(), end), (1, Ok(())));
}

#[tokio::test]
async fn requests_that_cannot_succeed_are_refused_at_once() {
    let images = SamplePipeline {
        makes: Some(ImageRequest::MAKES),
        ..SamplePipeline::default()
    };
    let maker = serving(images).await;
    let check = |request, expected: &str| {
        let refused = maker.make("sample", request).err().unwrap().to_string();
        assert_eq!(refused, expected);
    };
    check(image(0), "steps is 0, but the model takes 1 to 1000");
    let sound = SoundRequest::default().into();
    check(
        sound,
        "the request asks for sound, but the model makes an image",
    );
    let unknown = maker.make("unknown", image(1)).err().unwrap().to_string();
    assert_eq!(unknown, "the model unknown is not loaded; loaded: sample");
    assert_eq!(maker.check("sample", &image(3)).unwrap().steps, 3);
}

#[tokio::test]
async fn pause_keeps_jobs_refuses_new_ones_and_lets_cancelled_ones_go() {
    let (pipeline, open) = SamplePipeline::default().gated();
    let maker = serving(pipeline).await;
    let mut stream = maker.make("sample", image(50)).unwrap();
    open.send(()).unwrap();
    assert!(stream.next().await.is_some());
    let (paused, _) = tokio::join!(maker.pause(), async { open.send(()) });
    assert_eq!(paused, Ok(()));
    drop(open);
    let refused = maker.make("sample", image(1)).err();
    assert_eq!(refused, Some(Failure::Paused));
    assert!(maker.status().is_paused);
    assert_eq!(maker.status().running, 1);
    maker.resume().await.unwrap();
    assert_eq!(listen(stream).await.1, Ok(()));

    maker.load("endless", loader(endless())).await.unwrap();
    let stream = maker.make("endless", image(100)).unwrap();
    maker.pause().await.unwrap();
    drop(stream);
    is_idle(&maker).await;
}

#[tokio::test]
async fn blocks_wait_for_a_load_and_go_on() {
    let maker = serving(endless()).await;
    let stream = maker.make("sample", image(100)).unwrap();
    is_running(&maker, 1).await;
    let (release, released) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel::<()>();
    let slow: PipelineLoader = Box::new(move || {
        begin.send(()).unwrap();
        released.recv().unwrap();
        Ok(Box::new(SamplePipeline::default()))
    });
    let released = async {
        eventually("the load", async || begun.try_recv()).await;
        release.send(()).unwrap();
    };
    let (loaded, ()) = tokio::join!(maker.load("late", slow), released);
    loaded.unwrap();
    assert_eq!(
        listen(maker.make("late", image(1)).unwrap()).await.1,
        Ok(())
    );
    is_running(&maker, 1).await;
    drop(stream);
    let twice = maker.load("late", loader(SamplePipeline::default())).await;
    assert!(matches!(twice, Err(LoadError::AlreadyLoaded { .. })));
}

#[tokio::test]
async fn a_slow_reader_finds_the_latest_step_and_the_end() {
    let maker = serving(SamplePipeline::default()).await;
    let mut stream = maker.make("sample", image(200)).unwrap();
    // The thread continues without a reader.
    is_idle(&maker).await;
    let step = stream.next().await;
    assert!(
        matches!(
            step,
            Some(MakeEvent::Step {
                at: 200,
                of: 200,
                ..
            })
        ),
        "{step:?}"
    );
    assert!(matches!(stream.next().await, Some(MakeEvent::Made(_))));
    assert_eq!(stream.next().await, Some(MakeEvent::Done));
}

#[tokio::test]
async fn unloading_fails_jobs() {
    let maker = serving(endless()).await;
    let running = maker.make("sample", image(100)).unwrap();
    let waiting = maker.make("sample", image(100)).unwrap();
    is_running(&maker, 1).await;
    maker.unload("sample").await.unwrap();
    let gone = Failure::NotLoaded {
        model: "sample".to_owned(),
        loaded: Vec::new(),
    };
    assert_eq!(listen(running).await.1, Err(gone.clone()));
    assert_eq!(listen(waiting).await.1, Err(gone.clone()));
    assert_eq!(maker.unload("sample").await, Err(gone));
    assert!(maker.status().models.is_empty());
}

#[tokio::test]
async fn draining_finishes_jobs_unless_the_maker_is_paused() {
    let maker = serving(SamplePipeline::default()).await;
    let stream = maker.make("sample", image(20)).unwrap();
    maker.drain().await;
    assert_eq!(listen(stream).await.1, Ok(()));

    let maker = serving(endless()).await;
    let stream = maker.make("sample", image(20)).unwrap();
    is_running(&maker, 1).await;
    maker.pause().await.unwrap();
    maker.drain().await;
    assert_eq!(listen(stream).await.1, Err(Failure::Stopped));
}

/// Fails with the nice values of the threads that it computes on.
#[cfg(target_os = "linux")]
#[derive(Clone)]
struct NiceValues;

#[cfg(target_os = "linux")]
impl Pipeline for NiceValues {
    fn check(&self, _: &MakeRequest) -> Result<Cost, Refusal> {
        Ok(Cost::default())
    }

    fn begin(&self, _: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        Ok(Box::new(self.clone()))
    }
}

#[cfg(target_os = "linux")]
impl Making for NiceValues {
    fn advance(&mut self) -> Result<Advance, Failure> {
        let mut found = rayon::broadcast(|_| nice());
        found.push(nice());
        Err(Failure::internal(format!("{found:?}")))
    }
}

#[cfg(target_os = "linux")]
fn nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn every_thread_of_the_maker_has_a_lower_priority() {
    let maker = serving(NiceValues).await;
    let (_, end) = listen(maker.make("sample", image(1)).unwrap()).await;
    let lowered = (nice() + 10).min(19);
    let threads = muster_kernels::cpu::threads() + 1;
    let expected = Failure::internal(format!("{:?}", vec![lowered; threads]));
    assert_eq!(end, Err(expected));
}
