//! Models with recurrent layers through the whole engine: the small ones of `tests/fixtures/golden`.

use candle_core::{DType, Device};

use super::{limited, listen, run};
use crate::networks::golden::fixtures;
use crate::networks::text::golden::Golden;
use crate::runtime::load::loader;
use crate::runtime::{
    CacheRoom, EngineLimits, KvDtype, ModelSource, Prompt, Runtime, Speculation, StopRules,
    TextRequest,
};

use muster_kernels::PAGE_TOKENS;

const MODEL: &str = "recurrent";
/// Not more, because one of the answers contains an end token after that.
const TOKENS: usize = 16;

async fn loaded(name: &str, limits: EngineLimits, cache_tokens: usize) -> Runtime {
    let runtime = Runtime::start_with(loader(Device::Cpu), limits).unwrap();
    let source = ModelSource {
        cache: CacheRoom::Tokens(cache_tokens),
        dtype: Some(DType::F32),
        kv: Some(KvDtype::F32),
        tokenizer: Some(fixtures().join("golden/qwen3-vl/tokenizer.json")),
        ..ModelSource::new(fixtures().join("golden").join(name))
    };
    runtime.load(MODEL, source, |_, _| ()).await.unwrap();
    runtime
}

fn request(prompt: &[u32], generated: &[u32]) -> TextRequest {
    TextRequest {
        model: MODEL.to_owned(),
        prompt: Prompt::Tokens(prompt.to_vec()),
        generated: generated.to_vec(),
        stop_rules: StopRules {
            ignore_eos: true,
            ..StopRules::default()
        },
        ..limited("", TOKENS)
    }
}

async fn written(runtime: &Runtime, request: TextRequest) -> Vec<u32> {
    let (_, ids, end) = run(runtime, request).await;
    end.unwrap();
    ids
}

/// Prompts with a common prefix and different lengths, each answered alone.
async fn alone(name: &str, prompt: &[u32]) -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut answers = Vec::new();
    for length in [93, 60, 31, 64, 5] {
        let runtime = loaded(name, EngineLimits::default(), 512).await;
        let prompt = prompt[..length].to_vec();
        let answer = written(&runtime, request(&prompt, &[])).await;
        answers.push((prompt, answer));
    }
    answers
}

#[tokio::test]
async fn sequences_that_are_sent_back_to_wait_say_what_they_say_alone() {
    for name in ["qwen3-next", "qwen3.5"] {
        let golden = Golden::open(name);
        let prompt = golden.tokens("prompt");
        let runtime = loaded(name, EngineLimits::default(), 512).await;
        let whole = written(&runtime, request(&prompt, &[])).await;
        assert_eq!(whole, golden.tokens("greedy")[..TOKENS], "{name}");
        let answers = alone(name, &prompt).await;
        let limits = EngineLimits {
            max_running: 3,
            prefill_chunk: 29,
            speculation: Speculation::Always,
            ..EngineLimits::default()
        };
        // The first three begin with six pages and end with nine.
        let runtime = loaded(name, limits, 8 * PAGE_TOKENS).await;
        for _ in 0..2 {
            let mut generations = Vec::new();
            for (prompt, _) in &answers {
                generations.push(runtime.generate(request(prompt, &[])).await.unwrap());
            }
            for (generation, (prompt, wanted)) in generations.into_iter().zip(&answers) {
                let (_, found, end) = listen(generation).await;
                end.unwrap();
                assert_eq!(&found, wanted, "{name}: {} tokens", prompt.len());
            }
        }
    }
}

#[tokio::test]
async fn a_generation_resumes_elsewhere_with_the_tokens_that_it_has() {
    let golden = Golden::open("qwen3.5");
    let (prompt, greedy) = (golden.tokens("prompt"), golden.tokens("greedy"));
    let runtime = loaded("qwen3.5", EngineLimits::default(), 512).await;
    let rest = written(&runtime, request(&prompt, &greedy[..9])).await;
    assert_eq!(rest, greedy[9..TOKENS]);
}

#[tokio::test]
async fn a_prompt_that_was_read_is_gone_on_with() {
    for name in ["qwen3.5", "qwen3-next", "lfm2"] {
        let golden = Golden::open(name);
        let prompt = golden.tokens("prompt");
        let runtime = loaded(name, EngineLimits::default(), 512).await;
        let mut cached = Vec::new();
        for _ in 0..2 {
            let (_, found, end) = run(&runtime, request(&prompt, &[])).await;
            assert_eq!(found, golden.tokens("greedy")[..TOKENS], "{name}");
            cached.push(end.unwrap().1.cached_tokens);
        }
        let pages = (prompt.len() - 1) / PAGE_TOKENS;
        assert_eq!(cached, [0, pages * PAGE_TOKENS], "{name}");
    }
}
