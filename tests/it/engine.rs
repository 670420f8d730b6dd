//! The text engine on a real, tiny decoder: whatever happens around a sequence, its text stays the same.

use std::path::PathBuf;

use muster::runtime::{
    DeviceChoice, EngineLimits, Event, Failure, FinishReason, Generation, ModelSource, Prompt,
    Runtime, Sampling, TextRequest, TokenInfo, Usage,
};

fn fixture() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/tiny-llama"
    ))
}

async fn runtime(limits: EngineLimits, source: ModelSource) -> Runtime {
    let runtime = Runtime::start(DeviceChoice::Cpu, limits).unwrap();
    runtime.load("tiny", source, |_, _| ()).await.unwrap();
    runtime
}

async fn tiny() -> Runtime {
    runtime(EngineLimits::default(), ModelSource::new(fixture())).await
}

fn greedy() -> Sampling {
    Sampling {
        temperature: Some(0.0),
        ..Sampling::default()
    }
}

fn request(prompt: &str, max_tokens: usize) -> TextRequest {
    TextRequest {
        model: "tiny".to_owned(),
        prompt: Prompt::Text(prompt.to_owned()),
        generated: Vec::new(),
        sampling: greedy(),
        max_tokens: Some(max_tokens),
        stop: Vec::new(),
        logprobs: None,
        choice: 0,
    }
}

/// Everything a generation said.
#[derive(Debug, Clone, PartialEq)]
struct Reply {
    text: String,
    tokens: Vec<TokenInfo>,
    cached: usize,
    end: Result<(FinishReason, Usage), Failure>,
}

async fn collect(mut generation: Generation) -> Reply {
    let (mut text, mut tokens, mut cached) = (String::new(), Vec::new(), 0);
    loop {
        match generation.next().await.unwrap() {
            Event::Started { cached_tokens, .. } => cached = cached_tokens,
            Event::Text {
                text: more,
                tokens: drawn,
            } => {
                text.push_str(&more);
                tokens.extend(drawn);
            }
            Event::Done { reason, usage } => {
                return Reply {
                    text,
                    tokens,
                    cached,
                    end: Ok((reason, usage)),
                };
            }
            Event::Failed(failure) => {
                return Reply {
                    text,
                    tokens,
                    cached,
                    end: Err(failure),
                };
            }
        }
    }
}

async fn run(runtime: &Runtime, request: TextRequest) -> Reply {
    collect(runtime.generate(request).await.unwrap()).await
}

#[tokio::test]
async fn a_prompt_is_continued() {
    let runtime = tiny().await;
    let reply = run(&runtime, request("hello", 20)).await;
    assert!(reply.end.is_ok());
    runtime.drain().await;
}
