//! Networks with the cache of one sequence through the whole engine.

use candle_core::{DType, Device};
use muster_testing::eventually;

use super::{limited, listen, run};
use crate::networks::golden::fixtures;
use crate::networks::text::golden::Golden;
use crate::runtime::load::loader;
use crate::runtime::{
    CacheRoom, DeviceChoice, EngineLimits, Event, Footprint, KvDtype, ModelSource, Prompt, Runtime,
    Speculation, StopRules, TextRequest,
};
use muster_kernels::PAGE_TOKENS;

const MODEL: &str = "single";
/// Not more, because one of the answers contains an end token after that.
const TOKENS: usize = 16;

fn source(name: &str) -> ModelSource {
    ModelSource {
        cache: CacheRoom::Tokens(4096),
        tokenizer: Some(fixtures().join("golden/qwen3-vl/tokenizer.json")),
        ..ModelSource::new(fixtures().join("golden/single-sequence").join(name))
    }
}

async fn loaded(name: &str, limits: EngineLimits) -> Runtime {
    let runtime = Runtime::start_with(loader(Device::Cpu), limits).unwrap();
    let info = runtime.load(MODEL, source(name), |_, _| ()).await.unwrap();
    assert!(info.runs_one_job, "{name}");
    runtime
}

/// Limits that would let jobs run side by side, and cut prompts.
fn together() -> EngineLimits {
    EngineLimits {
        max_running: 4,
        prefill_chunk: 7,
        speculation: Speculation::Always,
        ..EngineLimits::default()
    }
}

fn request(prompt: &[u32], generated: &[u32], tokens: usize) -> TextRequest {
    TextRequest {
        model: MODEL.to_owned(),
        prompt: Prompt::Tokens(prompt.to_vec()),
        generated: generated.to_vec(),
        stop_rules: StopRules {
            ignore_eos: true,
            ..StopRules::default()
        },
        ..limited("", tokens)
    }
}

#[tokio::test]
async fn jobs_run_one_after_the_other_and_say_what_the_reference_says() {
    for name in ["gemma", "glm4-biased", "mamba", "olmo", "phi", "stablelm"] {
        let golden = Golden::open(&format!("single-sequence/{name}"));
        let (prompt, greedy) = (golden.tokens("prompt.0"), golden.tokens("greedy"));
        let runtime = loaded(name, together()).await;
        let mut generations = Vec::new();
        for _ in 0..3 {
            let request = request(&prompt, &[], TOKENS);
            generations.push(runtime.generate(request).await.unwrap());
        }
        let first = generations[0].next().await;
        assert!(matches!(first, Some(Event::Started { .. })), "{first:?}");
        assert!(runtime.status().running <= 1, "{name}");
        for generation in generations {
            let (_, ids, end) = listen(generation).await;
            assert_eq!(ids, greedy[..TOKENS], "{name}");
            assert_eq!(end.unwrap().1.cached_tokens, 0, "{name}");
        }
    }
}

#[tokio::test]
async fn a_continued_text_says_the_rest() {
    for name in ["helium", "mamba", "phi", "stablelm-biased", "starcoder2"] {
        let golden = Golden::open(&format!("single-sequence/{name}"));
        let (prompt, greedy) = (golden.tokens("prompt.0"), golden.tokens("greedy"));
        let runtime = loaded(name, together()).await;
        let (_, whole, _) = run(&runtime, request(&prompt, &[], greedy.len())).await;
        assert_eq!(whole, greedy, "{name}");
        let half = greedy.len() / 2;
        let rest = request(&prompt, &greedy[..half], greedy.len());
        let (_, ids, _) = run(&runtime, rest).await;
        assert_eq!(ids, greedy[half..], "{name}");
    }
}

#[tokio::test]
async fn a_cancelled_job_leaves_no_trace_in_the_next_one() {
    for name in ["mamba", "phi", "stablelm"] {
        let golden = Golden::open(&format!("single-sequence/{name}"));
        let runtime = loaded(name, together()).await;
        let long = request(&golden.tokens("long"), &[], 300);
        let mut cancelled = runtime.generate(long).await.unwrap();
        let prompt = golden.tokens("prompt.0");
        let next = request(&prompt, &[], 16);
        let next = runtime.generate(next).await.unwrap();
        let first = cancelled.next().await;
        assert!(matches!(first, Some(Event::Started { .. })), "{first:?}");
        let status = runtime.status();
        assert_eq!((status.running, status.waiting), (1, 1), "{name}");
        drop(cancelled);
        let (_, ids, _) = listen(next).await;
        assert_eq!(ids, golden.tokens("greedy")[..16], "{name}");
        eventually("an idle engine", async || match runtime.status().running {
            0 => Ok(()),
            running => Err(running),
        })
        .await;
    }
}

#[tokio::test]
async fn log_probabilities_of_a_prompt_are_those_of_the_reference() {
    for name in ["glm4", "mamba", "phi"] {
        let golden = Golden::open(&format!("single-sequence/{name}"));
        let prompt = golden.tokens("prompt.0");
        let logits = golden.tensor("logits.0").to_vec2::<f32>().unwrap();
        let runtime = loaded(name, together()).await;
        let request = TextRequest {
            prompt_logprobs: Some(1),
            ..request(&prompt, &[], 2)
        };
        let mut generation = runtime.generate(request).await.unwrap();
        let mut found = Vec::new();
        while let Some(event) = generation.next().await {
            if let Event::Prompt { tokens, .. } = event {
                found.extend(tokens.into_iter().map(|token| token.logprob));
            }
        }
        assert_eq!(found.len(), prompt.len(), "{name}");
        for (at, row) in logits[..prompt.len() - 1].iter().enumerate() {
            let sum: f32 = row.iter().map(|logit| logit.exp()).sum();
            let wanted = row[prompt[at + 1] as usize] - sum.ln();
            let found = found[at + 1].unwrap();
            assert!((found - wanted).abs() < 1e-3, "{name}: {found} {wanted}");
        }
    }
}

#[tokio::test]
async fn the_cache_is_that_of_one_job_and_keeps_its_size() {
    let runtime = loaded("gemma", together()).await;
    let info = runtime.info(MODEL).unwrap();
    let limits = EngineLimits::default();
    let counted = Footprint::measure(&source("gemma"), DeviceChoice::Cpu, &limits).unwrap();
    assert!(counted.runs_one_job);
    // The context of 1,024 tokens, not the 4,096 that there is memory for.
    assert_eq!((info.context, info.cache_tokens), (1024, 1024));
    assert_eq!(info.cache_bytes, counted.kv_bytes_per_token * 1024);
    assert_eq!(info.weight_bytes, counted.weight_bytes);
    for tokens in [PAGE_TOKENS, 4096] {
        assert_eq!(runtime.resize_cache(MODEL, tokens).await, Ok(1024));
    }
    let golden = Golden::open("single-sequence/gemma");
    let (_, ids, _) = run(&runtime, request(&golden.tokens("prompt.0"), &[], 8)).await;
    assert_eq!(ids, golden.tokens("greedy")[..8]);
}

#[tokio::test]
async fn settings_that_these_networks_cannot_follow_are_refused() {
    let runtime = Runtime::start_with(loader(Device::Cpu), together()).unwrap();
    for (source, expected) in [
        (
            ModelSource {
                dtype: Some(DType::F16),
                ..source("olmo")
            },
            "another type of weights does not apply",
        ),
        (
            ModelSource {
                kv: Some(KvDtype::Q8_0),
                ..source("olmo")
            },
            "the setting kv_cache does not apply",
        ),
    ] {
        let measured = Footprint::measure(&source, DeviceChoice::Cpu, &together());
        let loaded = runtime.load(MODEL, source, |_, _| ()).await;
        for error in [measured.unwrap_err(), loaded.unwrap_err()] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
    let info = runtime.load(MODEL, source("olmo"), |_, _| ()).await;
    assert!(info.unwrap().runs_one_job);
    let path = fixtures().join("golden/adapters");
    let refused = runtime.load_adapter("adapter", MODEL, path).await;
    assert!(refused.is_err());
}
