//! Whether text keeps its speed beside a pipeline that computes all the time: tokens per second and the wait for the first
//! token of a prompt, alone and beside it, and how long the pipeline's blocks take then.
//!
//! ```text
//! cargo bench -p muster-engine --bench maker       random weights in the shape of llama-3.2-1b, Q4_K_M
//! ```
//!
//! Run as a test, a tiny network is served and everything is done once and briefly.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on says so, and prints what it found"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_engine::networks::text::{DecoderSpec, Synthetic, SyntheticQuant};
use muster_engine::runtime::image::ImageRequest;
use muster_engine::runtime::maker::{
    MakeEvent, MakeRequest, MakeStream, Maker, MakerLimits, SamplePipeline,
};
use muster_engine::runtime::{
    CacheScope, DeviceChoice, EngineLimits, Event, ModelSource, Prompt, Runtime, Sampling,
    Speculation, StopRules, TextRequest,
};

#[derive(Clone, Copy)]
struct Effort {
    is_tiny: bool,
    prompt_tokens: usize,
    tokens: usize,
    rounds: usize,
    /// Rows of the pipeline's products: 2048 take a tenth of a second on two cores.
    matrix: usize,
    blocks_per_step: u32,
}

const WHOLE: Effort = Effort {
    is_tiny: false,
    prompt_tokens: 64,
    tokens: 96,
    rounds: 3,
    matrix: 2048,
    blocks_per_step: 1,
};

const SMOKE: Effort = Effort {
    is_tiny: true,
    prompt_tokens: 16,
    tokens: 16,
    rounds: 1,
    matrix: 128,
    blocks_per_step: 64,
};

fn main() {
    let is_whole = std::env::args().any(|argument| argument == "--bench");
    let effort = if is_whole { WHOLE } else { SMOKE };
    let folder = tempfile::tempdir().unwrap();
    let model = write_model(effort.is_tiny, folder.path());
    let tokio = tokio::runtime::Builder::new_multi_thread();
    let tokio = { tokio }.worker_threads(1).enable_all().build().unwrap();
    tokio.block_on(measure(effort, ModelSource::new(model)));
}

async fn measure(effort: Effort, source: ModelSource) {
    let limits = EngineLimits {
        speculation: Speculation::Off,
        ..EngineLimits::default()
    };
    let text = Runtime::start(DeviceChoice::Cpu, limits).unwrap();
    text.load("text", source, |_, _| ()).await.unwrap();
    let maker = Maker::start(MakerLimits::default()).unwrap();
    let pipeline = SamplePipeline {
        matrix: effort.matrix,
        blocks_per_step: effort.blocks_per_step,
        ..SamplePipeline::default()
    };
    let loader = move || Ok(Box::new(pipeline) as Box<_>);
    maker.load("computing", Box::new(loader)).await.unwrap();
    // The engine measures its own pace in the first steps; they do not count.
    run(&text, effort, 0).await;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut undisturbed, mut shared) = (Duration::MAX, Duration::ZERO);
    for round in 0..effort.rounds as u32 {
        alone.push(run(&text, effort, 2 * round + 1).await);
        let mut computing = Computing::start(&maker).await;
        undisturbed = undisturbed.min(computing.block_time().await);
        beside.push(run(&text, effort, 2 * round + 2).await);
        shared = shared.max(computing.block_time().await);
    }
    println!("                  text  first token  block");
    print("text alone", &alone, None);
    print("beside pipeline", &beside, Some(shared));
    println!(
        "text keeps {:.0} %, the first token comes {:.0} ms later, an undisturbed block takes {:.0} ms",
        100.0 * speed(&beside) / speed(&alone),
        milliseconds(first_token(&beside)) - milliseconds(first_token(&alone)),
        milliseconds(undisturbed),
    );
}

fn print(name: &str, runs: &[TextRun], block: Option<Duration>) {
    let block = block.map_or_else(String::new, |time| format!("{:.0} ms", milliseconds(time)));
    println!(
        "{name:<16} {:>6.1}/s {:>9.0} ms  {block}",
        speed(runs),
        milliseconds(first_token(runs)),
    );
}

/// The pipeline at work, and how many blocks it had run when.
struct Computing {
    stream: MakeStream,
    blocks: u32,
    seen: Instant,
}

impl Computing {
    async fn start(maker: &Maker) -> Self {
        let request = MakeRequest::from(ImageRequest {
            steps: Some(1000),
            ..ImageRequest::default()
        });
        let mut computing = Self {
            stream: maker.make("computing", request).unwrap(),
            blocks: 0,
            seen: Instant::now(),
        };
        computing.block_time().await;
        computing
    }

    /// The mean since the last call, of one block at least.
    async fn block_time(&mut self) -> Duration {
        let (blocks, seen) = (self.blocks, self.seen);
        while self.blocks == blocks {
            match self.stream.next().await {
                Some(MakeEvent::Step { at, .. }) => self.blocks = at,
                event => panic!("the pipeline computes as long as text is measured: {event:?}"),
            }
        }
        self.seen = Instant::now();
        (self.seen - seen) / (self.blocks - blocks)
    }
}

struct TextRun {
    first_token: Duration,
    /// Tokens per second after the first.
    speed: f64,
}

async fn run(text: &Runtime, effort: Effort, seed: u32) -> TextRun {
    let asked = Instant::now();
    let mut generation = text.generate(request(effort, seed)).await.unwrap();
    let mut first_token = None;
    while let Some(event) = generation.next().await {
        match event {
            // Comes with the first token. Texts may lag behind their tokens.
            Event::Started { .. } => first_token = Some(asked.elapsed()),
            Event::Prompt { .. } | Event::Text { .. } => {}
            Event::Done { .. } => break,
            Event::Failed(failure) => panic!("{failure}"),
        }
    }
    let first_token = first_token.unwrap();
    let rest = asked.elapsed() - first_token;
    TextRun {
        first_token,
        speed: (effort.tokens - 1) as f64 / rest.as_secs_f64(),
    }
}

/// No prompt shares its beginning with another, so that nothing of it is cached.
fn request(effort: Effort, seed: u32) -> TextRequest {
    let prompt = (0..effort.prompt_tokens as u32).map(|at| 100 + (seed * 131 + at * 7) % 1000);
    TextRequest {
        model: "text".to_owned(),
        prompt: Prompt::Tokens(prompt.collect()),
        generated: Vec::new(),
        sampling: Sampling {
            temperature: Some(0.0),
            ..Sampling::default()
        },
        max_tokens: Some(effort.tokens),
        window: None,
        stop: Vec::new(),
        stop_rules: StopRules {
            ignore_eos: true,
            ..StopRules::default()
        },
        logprobs: None,
        prompt_logprobs: None,
        grammar: None,
        choice: 0,
        scope: CacheScope::default(),
    }
}

fn write_model(is_tiny: bool, folder: &Path) -> PathBuf {
    let mut spec = DecoderSpec::named("llama-3.2-1b").unwrap();
    if is_tiny {
        (spec.vocab_size, spec.layers, spec.context) = (2048, 2, 512);
        (spec.hidden_size, spec.intermediate_size) = (256, 1024);
        (spec.heads, spec.kv_heads) = (4, 2);
    }
    let path = folder.join("model.gguf");
    Synthetic::new(spec, SyntheticQuant::Q4KM)
        .write_gguf(File::create(&path).unwrap())
        .unwrap();
    path
}

/// The median.
fn speed(runs: &[TextRun]) -> f64 {
    let mut speeds: Vec<f64> = runs.iter().map(|run| run.speed).collect();
    speeds.sort_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}

/// The median.
fn first_token(runs: &[TextRun]) -> Duration {
    let mut waits: Vec<Duration> = runs.iter().map(|run| run.first_token).collect();
    waits.sort();
    waits[waits.len() / 2]
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
