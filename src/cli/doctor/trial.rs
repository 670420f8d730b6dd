//! Real generations: the proof that everything works together.

use std::path::Path;
use std::time::Instant;

use super::Check;
use crate::cli::place::Place;
use crate::cli::{Failure, load};
use crate::config::Config;
use crate::daemon::locate::{Located, LocatedSource};
use crate::daemon::media::MediaSource;
use crate::runtime::image::ImageRequest;
use crate::runtime::maker::{MakeEvent, Output};
use crate::runtime::{
    CacheScope, Event, Failure as Refused, Prompt, Sampling, StopRules, TextRequest, Usage,
};

const NAME: &str = "generation";
const DRAWING: &str = "drawing";

/// Tried where nothing is configured: models that come with the program, then one of its repository.
const TEXTS: [&str; 2] = ["demo-text", "./tests/fixtures/tiny-llama"];
const IMAGES: [&str; 1] = ["demo-image"];

const TOKENS: usize = 8;
/// Few, and of a small image: a large model takes seconds for each on a CPU.
const STEPS: u32 = 2;
const SIDE: u32 = 256;

/// A finished image.
struct TrialImage {
    size: [u32; 2],
    seconds: f64,
}

/// A kind of trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trial {
    Text,
    Image,
}

/// Generates a few tokens and one image, each with the first configured model of its kind, or a built-in one; with a
/// requested model, that model's output.
pub async fn generations(config: &Config, asked: Option<&str>) -> Vec<Check> {
    if let Some(name) = asked {
        let located = Place::open(config).and_then(|place| Ok(place.locate(name)?));
        return vec![match located {
            Ok(located) => match kind_of(&located) {
                Some(Trial::Image) => draw(config, located).await,
                _ => write(config, located).await,
            },
            Err(failure) => failed(NAME, &failure),
        }];
    }
    let text = match model(config, Trial::Text, &TEXTS) {
        Ok(Some(located)) => write(config, located).await,
        Ok(None) => Check::warn(
            NAME,
            "no model on disk for a test generation",
            "`worker models pull smollm2-135m-instruct` downloads a small one",
        ),
        Err(failure) => failed(NAME, &failure),
    };
    let image = match model(config, Trial::Image, &IMAGES) {
        Ok(Some(located)) => Some(draw(config, located).await),
        Ok(None) => None,
        Err(failure) => Some(failed(DRAWING, &failure)),
    };
    std::iter::once(text).chain(image).collect()
}

async fn write(config: &Config, located: Located) -> Check {
    let name = located.name.clone();
    match generate(config, located).await {
        Ok((usage, seconds)) => Check::ok(
            NAME,
            format!(
                "{name} generated {} tokens in {seconds:.2} s",
                usage.completion_tokens
            ),
        ),
        Err(failure) => failed(NAME, &failure),
    }
}

async fn draw(config: &Config, located: Located) -> Check {
    let name = located.name.clone();
    match image(config, located).await {
        Ok(TrialImage {
            size: [width, height],
            seconds,
        }) => Check::ok(
            DRAWING,
            format!("{name} drew {width}x{height} pixels in {STEPS} steps, {seconds:.2} s"),
        ),
        Err(failure) => failed(DRAWING, &failure),
    }
}

fn failed(trial: &'static str, failure: &Failure) -> Check {
    Check::fail(
        trial,
        failure,
        failure.advice().unwrap_or("try another model with --model"),
    )
}

fn kind_of(located: &Located) -> Option<Trial> {
    match &located.source {
        LocatedSource::Text(_) => Some(Trial::Text),
        LocatedSource::Media(MediaSource::Image(_)) => Some(Trial::Image),
        LocatedSource::Media(_) | LocatedSource::Adapter(_) => None,
    }
}

/// The first configured model of a kind; without one, a downloaded one.
fn model(config: &Config, kind: Trial, usual: &[&str]) -> Result<Option<Located>, Failure> {
    let place = Place::open(config)?;
    let configured = &config.models.serve.0;
    for wanted in configured {
        match place.locate(wanted) {
            Ok(located) if kind_of(&located) == Some(kind) => return Ok(Some(located)),
            Ok(_) => {}
            // A missing model is reported once.
            Err(error) if kind == Trial::Text => return Err(error.into()),
            Err(_) => {}
        }
    }
    let mut usual = usual
        .iter()
        .filter(|name| !name.starts_with('.') || Path::new(name).exists());
    Ok(usual.find_map(|name| place.locate(name).ok()))
}

async fn generate(config: &Config, located: Located) -> Result<(Usage, f64), Failure> {
    let (runtime, info) = load::load(config, located, false).await?;
    let started = Instant::now();
    let mut generation = runtime
        .generate(TextRequest {
            model: info.name.clone(),
            prompt: Prompt::Text("Once upon a time".to_owned()),
            generated: Vec::new(),
            sampling: Sampling {
                temperature: Some(0.0),
                ..Sampling::default()
            },
            max_tokens: Some(TOKENS),
            window: None,
            stop: Vec::new(),
            stop_rules: StopRules::default(),
            logprobs: None,
            prompt_logprobs: None,
            grammar: None,
            choice: 0,
            scope: CacheScope::default(),
        })
        .await?;
    while let Some(event) = generation.next().await {
        match event {
            Event::Done { usage, .. } => return Ok((usage, started.elapsed().as_secs_f64())),
            Event::Failed(failure) => return Err(failure.into()),
            Event::Started { .. } | Event::Prompt { .. } | Event::Text { .. } => {}
        }
    }
    Err(Refused::Stopped.into())
}

async fn image(config: &Config, located: Located) -> Result<TrialImage, Failure> {
    let name = located.name.clone();
    let maker = load::load_media(config, located).await?;
    let started = Instant::now();
    let request = ImageRequest {
        prompt: "a red circle on a white background".to_owned(),
        width: Some(SIDE),
        height: Some(SIDE),
        steps: Some(STEPS),
        seed: Some(1),
        ..ImageRequest::default()
    };
    let mut stream = maker.make(&name, request.into())?;
    while let Some(event) = stream.next().await {
        match event {
            MakeEvent::Made(Output::Image(pixels)) => {
                return Ok(TrialImage {
                    size: [pixels.width, pixels.height],
                    seconds: started.elapsed().as_secs_f64(),
                });
            }
            MakeEvent::Failed(failure) => return Err(failure.into()),
            MakeEvent::Step { .. } | MakeEvent::Made(_) | MakeEvent::Done => {}
        }
    }
    Err(Refused::Stopped.into())
}
