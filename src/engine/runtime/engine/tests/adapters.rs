//! LoRA adapters through the whole engine: those of `tests/fixtures/golden/text-adapters`.

use candle_core::{DType, Device};

use super::{limited, listen, run};
use crate::networks::golden::fixtures;
use crate::networks::text::golden::Golden;
use crate::runtime::load::loader;
use crate::runtime::{
    CacheRoom, EngineLimits, Event, Failure, KvDtype, ModelSource, Prompt, Runtime, Speculation,
    StopRules, TextRequest,
};
use muster_kernels::PAGE_TOKENS;

const TOKENS: usize = 32;
const NAMES: [&str; 3] = ["all", "one", "patterns"];

async fn loaded(base: &str, speculation: Speculation) -> Runtime {
    let limits = EngineLimits {
        speculation,
        ..EngineLimits::default()
    };
    let runtime = Runtime::start_with(loader(Device::Cpu), limits).unwrap();
    let source = ModelSource {
        cache: CacheRoom::Tokens(2048),
        dtype: Some(DType::F32),
        kv: Some(KvDtype::F32),
        tokenizer: Some(fixtures().join("golden/qwen3-vl/tokenizer.json")),
        ..ModelSource::new(fixtures().join("golden").join(base))
    };
    runtime.load("base", source, |_, _| ()).await.unwrap();
    runtime
}

async fn load_adapter(runtime: &Runtime, base: &str, name: &str) {
    let path = fixtures()
        .join("golden/text-adapters")
        .join(base)
        .join(name);
    let full = format!("base:{name}");
    let info = runtime.load_adapter(&full, "base", path).await.unwrap();
    assert_eq!(info.parent.as_deref(), Some("base"));
    assert!(info.weight_bytes > 0 && info.name == full);
}

fn request(model: &str, prompt: &[u32]) -> TextRequest {
    TextRequest {
        model: model.to_owned(),
        prompt: Prompt::Tokens(prompt.to_vec()),
        stop_rules: StopRules {
            ignore_eos: true,
            ..StopRules::default()
        },
        ..limited("", TOKENS)
    }
}

async fn written(runtime: &Runtime, model: &str, prompt: &[u32]) -> Vec<u32> {
    let (_, ids, end) = run(runtime, request(model, prompt)).await;
    end.unwrap();
    ids
}

fn golden(base: &str, name: &str) -> Golden {
    Golden::open(&format!("text-adapters/{base}/{name}"))
}

#[tokio::test]
async fn jobs_with_three_adapters_and_none_run_in_one_batch() {
    for speculation in [Speculation::Off, Speculation::Always] {
        let runtime = loaded("llama-3", speculation).await;
        let prompts = NAMES.map(|name| golden("llama-3", name).tokens("prompt"));
        let plain = written(&runtime, "base", &prompts[0]).await;
        for name in NAMES {
            load_adapter(&runtime, "llama-3", name).await;
        }
        let with = |at: usize| {
            let model = format!("base:{}", NAMES[at]);
            let (runtime, prompt) = (&runtime, &prompts[at]);
            async move { written(runtime, &model, prompt).await }
        };
        let (all, one, patterns, none) = tokio::join!(
            with(0),
            with(1),
            with(2),
            written(&runtime, "base", &prompts[0])
        );
        for (found, name) in [all, one, patterns].iter().zip(NAMES) {
            assert_eq!(*found, golden("llama-3", name).tokens("greedy"), "{name}");
        }
        assert_eq!(none, plain);
    }
}

/// The same prompt with the base model, with two adapters, and with one of them again: pages and states belong to an
/// adapter.
#[tokio::test]
async fn a_computed_prompt_is_found_with_the_same_adapter_alone() {
    for (base, names) in [
        ("llama-3", ["all", "one"]),
        ("qwen3-next", ["attention"; 2]),
    ] {
        let prompt: Vec<u32> = (0..3 * PAGE_TOKENS as u32).map(|at| at * 7 % 120).collect();
        let mut alone = Vec::new();
        for name in [None, Some(names[0]), Some(names[1])] {
            let runtime = loaded(base, Speculation::Off).await;
            let model = name.map_or("base".to_owned(), |name| format!("base:{name}"));
            if let Some(name) = name {
                load_adapter(&runtime, base, name).await;
            }
            alone.push((model.clone(), written(&runtime, &model, &prompt).await));
        }
        assert!(alone[0].1 != alone[1].1);
        let runtime = loaded(base, Speculation::Off).await;
        load_adapter(&runtime, base, names[0]).await;
        if names[0] != names[1] {
            load_adapter(&runtime, base, names[1]).await;
        }
        let mut cached = Vec::new();
        for (model, wanted) in alone.iter().chain(&alone) {
            let (_, ids, end) = run(&runtime, request(model, &prompt)).await;
            assert_eq!(ids, *wanted, "{base}: {model}");
            cached.push(end.unwrap().1.cached_tokens);
        }
        assert_eq!(cached[..2], [0, 0], "{base}");
        assert!(cached[3..].iter().all(|&tokens| tokens > 0), "{base}");
    }
}

#[tokio::test]
async fn adapters_come_and_go_while_others_run() {
    let runtime = loaded("llama-3", Speculation::Auto).await;
    let path = fixtures().join("golden/text-adapters/llama-3/one");
    let early = runtime.load_adapter("x:one", "x", path.clone()).await;
    let early = early.unwrap_err().to_string();
    assert!(early.contains("x is not loaded"), "{early}");
    load_adapter(&runtime, "llama-3", "one").await;
    let twice = runtime.load_adapter("base:one", "base", path).await;
    assert!(twice.unwrap_err().to_string().contains("already loaded"));
    let other = fixtures().join("golden/text-adapters/phi3/fused");
    let foreign = runtime.load_adapter("base:all", "base", other).await;
    let foreign = foreign.unwrap_err().to_string();
    assert!(foreign.contains("made for another model"), "{foreign}");

    let prompt = golden("llama-3", "one").tokens("prompt");
    let long = |model: &str| TextRequest {
        max_tokens: Some(400),
        ..request(model, &prompt)
    };
    let mut with = runtime.generate(long("base:one")).await.unwrap();
    let without = runtime.generate(long("base")).await.unwrap();
    assert!(matches!(with.next().await, Some(Event::Started { .. })));
    runtime.unload("base:one").await.unwrap();
    let gone = listen(with).await.2.unwrap_err();
    assert!(matches!(gone, Failure::NotLoaded { .. }), "{gone}");
    assert_eq!(listen(without).await.1.len(), 400);
    assert!(runtime.generate(long("base:one")).await.is_err());

    load_adapter(&runtime, "llama-3", "one").await;
    let again = written(&runtime, "base:one", &prompt).await;
    assert_eq!(again, golden("llama-3", "one").tokens("greedy"));
    runtime.unload("base").await.unwrap();
    assert!(runtime.info("base:one").is_err(), "it goes with its model");
}
