//! Prompts asked of a loaded model, greedily.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::prompts::Prompt;
use crate::runtime::{self, Chat, Event, Failure, Runtime, Sampling, StopRules, TextRequest};

/// An answer that has not ended by then is wrong anyhow.
const MAX_TOKENS: usize = 192;

/// The answers in the order of the prompts; `jobs` run concurrently.
pub async fn measure(
    runtime: &Runtime,
    model: &str,
    prompts: &[Prompt],
    at_once: usize,
) -> Result<Vec<String>, Failure> {
    stream::iter(prompts)
        .map(|prompt| answer(runtime, request(model, prompt)))
        .buffered(at_once)
        .try_collect()
        .await
}

fn request(model: &str, prompt: &Prompt) -> TextRequest {
    TextRequest {
        model: model.to_owned(),
        prompt: runtime::Prompt::Chat(Chat {
            messages: prompt.messages.clone(),
            tools: prompt.tools.clone(),
            ..Chat::default()
        }),
        generated: Vec::new(),
        sampling: Sampling {
            temperature: Some(0.0),
            ..Sampling::default()
        },
        max_tokens: Some(MAX_TOKENS),
        window: None,
        stop: Vec::new(),
        stop_rules: StopRules::default(),
        logprobs: None,
        prompt_logprobs: None,
        grammar: None,
        choice: 0,
        scope: runtime::CacheScope::default(),
    }
}

async fn answer(runtime: &Runtime, request: TextRequest) -> Result<String, Failure> {
    let mut generation = runtime.generate(request).await?;
    let mut answer = String::new();
    while let Some(event) = generation.next().await {
        match event {
            Event::Started { .. } | Event::Prompt { .. } => {}
            Event::Text { text, .. } => answer.push_str(&text),
            Event::Done { .. } => return Ok(answer),
            Event::Failed(failure) => return Err(failure),
        }
    }
    Err(Failure::Stopped)
}
