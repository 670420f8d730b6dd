//! One real generation: the proof that everything works together.

use std::path::Path;
use std::time::Instant;

use super::Check;
use crate::cli::place::Place;
use crate::cli::{Failure, load};
use crate::config::Config;
use crate::daemon::locate::Located;
use crate::runtime::{
    CacheScope, Event, Failure as Refused, Prompt, Sampling, StopRules, TextRequest, Usage,
};

const NAME: &str = "generation";

/// Tried where nothing is configured: what comes with the program, then what lies in its repository.
const USUAL: [&str; 2] = ["demo-text", "./tests/fixtures/tiny-llama"];

const TOKENS: usize = 8;

/// Generates a few tokens with the model asked for, the first configured one, or one that is always here.
pub async fn generation(config: &Config, asked: Option<&str>) -> Check {
    let located = match model(config, asked) {
        Ok(Some(located)) => located,
        Ok(None) => {
            return Check::warn(
                NAME,
                "no model on disk for a test generation",
                "`worker models pull smollm2-135m-instruct` downloads a small one",
            );
        }
        Err(failure) => return failed(&failure),
    };
    let name = located.name.clone();
    match generate(config, located).await {
        Ok((usage, seconds)) => Check::ok(
            NAME,
            format!(
                "{name} generated {} tokens in {seconds:.2} s",
                usage.completion_tokens
            ),
        ),
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> Check {
    Check::fail(
        NAME,
        failure,
        failure.advice().unwrap_or("try another model with --model"),
    )
}

fn model(config: &Config, asked: Option<&str>) -> Result<Option<Located>, Failure> {
    let place = Place::open(config)?;
    match asked.or(config.models.serve.0.first().map(String::as_str)) {
        Some(wanted) => Ok(Some(place.locate(wanted)?)),
        None => Ok(USUAL
            .iter()
            .filter(|name| !name.starts_with('.') || Path::new(name).exists())
            .find_map(|name| place.locate(name).ok())),
    }
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
