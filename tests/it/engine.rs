//! The text engine on real decoders: whatever happens around a sequence, its text stays the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use muster::networks::text::{DecoderSpec, Synthetic, SyntheticQuant};
use muster::networks::weights::Quantize;
use muster::runtime::{
    CacheRoom, CacheScope, Chat, DeviceChoice, EngineLimits, Event, Failure, FinishReason,
    Generation, ModelSource, Prompt, Runtime, Sampling, StopRules, TextRequest, TokenInfo, Usage,
};
use muster_testing::eventually;
use serde_json::json;

const MODEL: &str = "tiny";

fn fixture() -> ModelSource {
    ModelSource::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/tiny-llama"
    ))
}

async fn runtime(limits: EngineLimits, source: ModelSource) -> Runtime {
    let runtime = Runtime::start(DeviceChoice::Cpu, limits).unwrap();
    runtime.load(MODEL, source, |_, _| ()).await.unwrap();
    runtime
}

async fn tiny() -> Runtime {
    runtime(EngineLimits::default(), fixture()).await
}

fn request(prompt: Prompt, max_tokens: usize) -> TextRequest {
    TextRequest {
        model: MODEL.to_owned(),
        prompt,
        generated: Vec::new(),
        sampling: Sampling {
            temperature: Some(0.0),
            // The tiny model likes to end; these tests do not.
            logit_bias: vec![(507, -1000.0), (510, -1000.0)],
            ..Sampling::default()
        },
        max_tokens: Some(max_tokens),
        window: None,
        stop: Vec::new(),
        stop_rules: StopRules::default(),
        logprobs: None,
        prompt_logprobs: None,
        grammar: None,
        choice: 0,
        scope: CacheScope::default(),
    }
}

fn text(prompt: &str, max_tokens: usize) -> TextRequest {
    request(Prompt::Text(prompt.to_owned()), max_tokens)
}

/// Everything a generation said.
#[derive(Debug, Clone, PartialEq)]
struct Reply {
    prompt: Vec<TokenInfo>,
    text: String,
    tokens: Vec<TokenInfo>,
    cached: usize,
    end: Result<(FinishReason, Usage), Failure>,
}

impl Reply {
    fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

async fn collect(mut generation: Generation) -> Reply {
    let (mut text, mut tokens, mut cached) = (String::new(), Vec::new(), 0);
    let mut prompt = Vec::new();
    loop {
        let end = match generation.next().await.unwrap() {
            Event::Started { cached_tokens, .. } => {
                cached = cached_tokens;
                continue;
            }
            Event::Prompt { start, tokens } => {
                assert_eq!(start, prompt.len());
                prompt.extend(tokens);
                continue;
            }
            Event::Text {
                text: more,
                tokens: drawn,
            } => {
                text.push_str(&more);
                tokens.extend(drawn);
                continue;
            }
            Event::Done { reason, usage } => Ok((reason, usage)),
            Event::Failed(failure) => Err(failure),
        };
        return Reply {
            prompt,
            text,
            tokens,
            cached,
            end,
        };
    }
}

async fn run(runtime: &Runtime, request: TextRequest) -> Reply {
    collect(runtime.generate(request).await.unwrap()).await
}

/// All at once, so that they share steps.
async fn run_together(runtime: &Runtime, requests: &[TextRequest]) -> Vec<Reply> {
    let mut generations = Vec::new();
    for request in requests {
        generations.push(runtime.generate(request.clone()).await.unwrap());
    }
    let mut replies = Vec::new();
    for generation in generations {
        replies.push(collect(generation).await);
    }
    replies
}

/// Sixteen prompts of many lengths, half of which begin alike.
fn prompts(max_tokens: usize) -> Vec<TextRequest> {
    let beginning = "Once upon a time there was a worker who had a long prompt to read. ".repeat(3);
    let prompt = |i: usize| match i % 2 {
        0 => format!("{beginning}{}", "And then? ".repeat(i)),
        _ => "How are you today? ".repeat(i),
    };
    let request = |i| TextRequest {
        logprobs: Some(2),
        ..text(&prompt(i), max_tokens)
    };
    (0..16).map(request).collect()
}

/// Compares two runs of the same request; where the model itself hardly prefers its token, a quantized run may
/// turn another way and is not followed further.
fn check_same(alone: &Reply, other: &Reply, near_tie: f32, how: &str) {
    assert_eq!(alone.tokens.len(), other.tokens.len(), "{how}");
    for (index, (wanted, found)) in alone.tokens.iter().zip(&other.tokens).enumerate() {
        if wanted.id != found.id {
            let gap = wanted.top[0].1 - wanted.top[1].1;
            assert!(
                gap < near_tie,
                "{how}: token {index} is {} and not {}, {gap} behind",
                found.id,
                wanted.id
            );
            return;
        }
    }
    assert_eq!(alone.text, other.text, "{how}");
}

async fn check_text_is_the_same_in_company(source: ModelSource, near_tie: f32) {
    let requests = prompts(40);
    let whole = runtime(EngineLimits::default(), source.clone()).await;
    let mut alone = Vec::new();
    for request in &requests {
        // A fresh engine each time would share nothing; the first of each beginning shares nothing here.
        alone.push(run(&whole, request.clone()).await);
    }
    assert!(
        alone.iter().any(|reply| reply.cached > 0),
        "some prompts share their beginning"
    );

    let chunked = EngineLimits {
        max_running: 16,
        max_waiting: 0,
        prefill_chunk: 7,
        ..EngineLimits::default()
    };
    let chunked = runtime(chunked, source.clone()).await;
    let tight = EngineLimits {
        max_running: 16,
        ..EngineLimits::default()
    };
    let tight = runtime(
        tight,
        ModelSource {
            cache: CacheRoom::Tokens(640),
            ..source.clone()
        },
    )
    .await;
    for (runtime, how) in [
        (&whole, "together"),
        (&chunked, "in chunks"),
        (&tight, "with few pages"),
    ] {
        for (wanted, found) in alone.iter().zip(run_together(runtime, &requests).await) {
            check_same(wanted, &found, near_tie, how);
        }
    }
    for (request, wanted) in requests.iter().zip(&alone).take(4) {
        let fresh = runtime_of_its_own(source.clone()).await;
        let unshared = run(&fresh, request.clone()).await;
        assert_eq!(unshared.cached, 0);
        check_same(wanted, &unshared, near_tie, "without sharing");
    }
}

async fn runtime_of_its_own(source: ModelSource) -> Runtime {
    runtime(EngineLimits::default(), source).await
}

#[tokio::test]
async fn greedy_text_is_the_same_alone_and_in_company_in_f32() {
    check_text_is_the_same_in_company(fixture(), 0.0).await;
}

#[tokio::test]
async fn greedy_text_is_the_same_alone_and_in_company_when_quantized() {
    let source = ModelSource {
        quantize: Some(Quantize::Q8_0),
        ..fixture()
    };
    check_text_is_the_same_in_company(source, 1e-3).await;
}

#[tokio::test]
async fn a_continued_run_equals_an_uninterrupted_one() {
    let runtime = tiny().await;
    let sampled = Sampling {
        temperature: Some(1.0),
        seed: Some(7),
        repetition_penalty: Some(1.1),
        frequency_penalty: Some(0.3),
        ..text("", 1).sampling
    };
    let shaped = Sampling {
        repetition_range: Some(6),
        smoothing_factor: Some(0.3),
        dynatemp_range: Some(0.5),
        typical: Some(0.95),
        ..sampled.clone()
    };
    for sampling in [text("", 1).sampling, sampled, shaped] {
        let whole = TextRequest {
            sampling,
            choice: 3,
            ..text("The worker said", 60)
        };
        let mut generation = runtime.generate(whole.clone()).await.unwrap();
        let (mut delivered, mut ids, mut cuts) = (String::new(), Vec::new(), Vec::new());
        while let Some(event) = generation.next().await {
            if let Event::Text { text, tokens } = event {
                delivered.push_str(&text);
                ids.extend(tokens.iter().map(|token| token.id));
                cuts.push((delivered.clone(), ids.clone()));
            }
        }
        for (before, generated) in cuts.into_iter().step_by(9) {
            let rest = run(
                &runtime,
                TextRequest {
                    generated: generated.clone(),
                    ..whole.clone()
                },
            )
            .await;
            assert_eq!([generated, rest.ids()].concat(), ids);
            assert_eq!(before + &rest.text, delivered);
            let usage = rest.end.unwrap().1;
            assert_eq!(usage.completion_tokens, 60);
        }
    }
}

#[tokio::test]
async fn a_seed_and_a_choice_decide_every_draw() {
    let runtime = tiny().await;
    let seeded = |seed, choice| TextRequest {
        sampling: Sampling {
            temperature: Some(1.0),
            seed: Some(seed),
            ..Sampling::default()
        },
        choice,
        ..text("Say something", 30)
    };
    let requests = [seeded(1, 0), seeded(1, 0), seeded(1, 1), seeded(2, 0)];
    let replies = run_together(&runtime, &requests).await;
    assert_eq!(replies[0].ids(), replies[1].ids());
    assert_ne!(replies[0].ids(), replies[2].ids());
    assert_ne!(replies[0].ids(), replies[3].ids());
}

#[tokio::test]
async fn a_stop_string_across_token_borders_ends_the_text_before_it() {
    let runtime = tiny().await;
    let whole = run(&runtime, text("hello", 40)).await;
    let letters: Vec<char> = whole.text.chars().collect();
    let stop: String = letters[letters.len() / 2..letters.len() / 2 + 6]
        .iter()
        .collect();
    let cut = run(
        &runtime,
        TextRequest {
            stop: vec![stop.clone()],
            ..text("hello", 40)
        },
    )
    .await;
    assert_eq!(cut.text, whole.text.split(&stop).next().unwrap());
    assert_eq!(cut.end.unwrap().0, FinishReason::Stop(stop));
}

#[tokio::test]
async fn a_chat_goes_through_the_models_template() {
    let runtime = tiny().await;
    let chat = Chat {
        messages: vec![json!({"role": "user", "content": "hi"})],
        ..Chat::default()
    };
    let reply = run(&runtime, request(Prompt::Chat(chat), 5)).await;
    let (reason, usage) = reply.end.unwrap();
    assert_eq!((reason, usage.completion_tokens), (FinishReason::Length, 5));
    assert!(
        usage.prompt_tokens > 8,
        "roles and turns are part of the prompt"
    );
}

#[tokio::test]
async fn log_probabilities_come_with_each_token() {
    let runtime = tiny().await;
    let reply = run(
        &runtime,
        TextRequest {
            logprobs: Some(3),
            ..text("hello", 10)
        },
    )
    .await;
    for token in &reply.tokens {
        assert_eq!(
            (token.top.len(), token.top[0].0),
            (3, token.id),
            "greedy takes the best"
        );
        assert_eq!(token.logprob, Some(token.top[0].1));
        assert!(token.top.is_sorted_by(|a, b| a.1 >= b.1) && token.top[0].1 < 0.0);
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_refused_with_both_numbers() {
    let runtime = tiny().await;
    let refusal = runtime
        .generate(request(Prompt::Tokens(vec![5; 3000]), 1))
        .await
        .err()
        .unwrap();
    assert_eq!(
        refusal.to_string(),
        "the prompt has 3000 tokens, but the model takes at most 2047"
    );
    let source = ModelSource {
        context: Some(100),
        ..fixture()
    };
    let runtime = runtime_of_its_own(source).await;
    let refusal = runtime
        .generate(request(Prompt::Tokens(vec![5; 100]), 1))
        .await
        .err()
        .unwrap();
    assert_eq!(
        refusal,
        Failure::PromptTooLong {
            found: 100,
            limit: 99
        }
    );
}

#[tokio::test]
async fn cancelling_gives_every_page_back() {
    let runtime = tiny().await;
    let mut generation = runtime.generate(text("hello", 2000)).await.unwrap();
    generation.next().await.unwrap();
    drop(generation);
    eventually("a free engine", async || runtime.status().running == 0).await;
    let model = &runtime.status().models[0];
    assert_eq!(model.free_pages, model.pages);
}

#[tokio::test]
async fn a_missing_and_a_broken_model_are_told_apart() {
    let runtime = Runtime::start(DeviceChoice::Cpu, EngineLimits::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let load = async |path: &Path| {
        runtime
            .load("x", ModelSource::new(path), |_, _| ())
            .await
            .unwrap_err()
    };
    let missing = load(&folder.path().join("none.gguf")).await.to_string();
    assert!(missing.contains("none.gguf"), "{missing}");
    let broken = folder.path().join("broken.gguf");
    std::fs::write(&broken, "GGUF and then nothing").unwrap();
    let broken = load(&broken).await.to_string();
    assert!(broken.contains("broken.gguf"), "{broken}");
    assert!(runtime.status().models.is_empty());
}

/// A GGUF file of random weights, with its own vocabulary.
fn synthetic(folder: &Path, scale: usize) -> PathBuf {
    let mut spec = DecoderSpec::named("llama-3.2-1b").unwrap();
    (spec.vocab_size, spec.layers, spec.context) = (2048, 2, 512);
    (spec.hidden_size, spec.intermediate_size) = (256 * scale, 1024 * scale);
    (spec.heads, spec.kv_heads) = (4 * scale, 2 * scale);
    let path = folder.join("synthetic.gguf");
    Synthetic::new(spec, SyntheticQuant::Q8_0)
        .write_gguf(std::fs::File::create(&path).unwrap())
        .unwrap();
    path
}

#[tokio::test]
async fn a_gguf_file_brings_its_own_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime_of_its_own(ModelSource::new(synthetic(folder.path(), 1))).await;
    let info = &runtime.status().models[0].info;
    assert_eq!(
        (info.vocabulary, info.context, info.can_chat),
        (2048, 512, true)
    );
    let reply = run(&runtime, text("hello", 10)).await;
    assert_eq!(reply.end.unwrap().1.completion_tokens, 10);
}

#[tokio::test]
async fn a_gguf_file_without_a_chat_template_completes_texts_and_refuses_chats() {
    let folder = tempfile::tempdir().unwrap();
    let path = synthetic(folder.path(), 1);
    // Another key of the same length.
    let (known, other) = (b"tokenizer.chat_template", b"tokenizer.chat_nonsense");
    let mut file = std::fs::read(&path).unwrap();
    let place = file
        .windows(known.len())
        .position(|window| window == known)
        .unwrap();
    file[place..place + other.len()].copy_from_slice(other);
    std::fs::write(&path, file).unwrap();
    let runtime = runtime_of_its_own(ModelSource::new(path)).await;
    assert!(!runtime.status().models[0].info.can_chat);
    let reply = run(&runtime, text("hello", 10)).await;
    assert_eq!(reply.end.unwrap().1.completion_tokens, 10);
    let chat = runtime
        .generate(request(Prompt::Chat(Chat::default()), 5))
        .await
        .err()
        .unwrap();
    assert_eq!(chat.to_string(), "the model's chat template was not found");
}

/// In a process of its own, because other tests take and give memory at the same time.
#[test]
fn unloading_returns_the_memory() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "engine::memory_before_with_and_after_a_model",
            "--ignored",
            "--nocapture",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let line = said
        .lines()
        .find_map(|line| line.split_once("resident KiB: "))
        .map(|(_, numbers)| numbers);
    let numbers =
        line.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&child.stderr)));
    let numbers: Vec<u64> = numbers
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let (before, with, after) = (numbers[0], numbers[1], numbers[2]);
    assert!(
        with > before + 30_000,
        "the model takes memory: {before} then {with} KiB"
    );
    assert!(
        after < before + (with - before) / 10,
        "it is given back: {before}, {with}, {after} KiB"
    );
}

#[tokio::test]
#[ignore = "run by unloading_returns_the_memory"]
#[expect(clippy::print_stdout, reason = "its parent reads the numbers")]
async fn memory_before_with_and_after_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let small = synthetic(folder.path(), 1);
    let runtime = runtime_of_its_own(ModelSource::new(small)).await;
    // Threads and their first buffers are there from now on.
    run(&runtime, text("hello", 5)).await;
    runtime.unload(MODEL).await.unwrap();
    // Large in comparison to the allocator's reserve for the heaps of threads: up to 28 MB on a busy machine.
    let large = synthetic(folder.path(), 16);
    let before = resident_kib();
    runtime
        .load(MODEL, ModelSource::new(large), |_, _| ())
        .await
        .unwrap();
    run(&runtime, text("hello", 100)).await;
    let with = resident_kib();
    runtime.unload(MODEL).await.unwrap();
    println!("resident KiB: {before} {with} {}", resident_kib());
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A prompt of which nothing but its log probabilities is wanted.
fn scored(prompt: Prompt, alternatives: usize) -> TextRequest {
    TextRequest {
        prompt_logprobs: Some(alternatives),
        ..request(prompt, 0)
    }
}

/// The reference computes in f32, with the logits' sums in another order.
const LOGPROB_TOLERANCE: f32 = 2e-4;

#[tokio::test]
async fn prompts_have_the_log_probabilities_of_the_reference() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/golden/prompt-logprobs.json"
    );
    let golden: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let limits = EngineLimits {
        prefill_chunk: 24,
        ..EngineLimits::default()
    };
    let runtime = runtime(limits, fixture()).await;
    // Beside texts that are written meanwhile.
    let mut writing = Vec::new();
    for request in prompts(200).into_iter().take(4) {
        writing.push(runtime.generate(request).await.unwrap());
    }
    for wanted in &golden {
        let ids: Vec<u32> = serde_json::from_value(wanted["ids"].clone()).unwrap();
        let text = wanted["prompt"].as_str().unwrap().to_owned();
        let same = [Prompt::Tokens(ids.clone()), Prompt::Text(text)];
        // The second time its rows would be in the cache.
        for prompt in same {
            let reply = run(&runtime, scored(prompt, 3)).await;
            let found: Vec<u32> = reply.prompt.iter().map(|token| token.id).collect();
            assert_eq!(found, ids);
            let (reason, usage) = reply.end.unwrap();
            assert_eq!(reason, FinishReason::Length);
            assert_eq!(
                (usage.prompt_tokens, usage.completion_tokens),
                (ids.len(), 0)
            );
            assert_eq!((usage.cached_tokens, reply.tokens.len()), (0, 0));
            check_scores(&reply.prompt, wanted);
        }
    }
    for generation in writing {
        assert_eq!(collect(generation).await.tokens.len(), 200);
    }
}

fn check_scores(found: &[TokenInfo], wanted: &serde_json::Value) {
    let near = |one: f32, other: f32| (one - other).abs() < LOGPROB_TOLERANCE;
    let logprobs: Vec<Option<f32>> = serde_json::from_value(wanted["logprobs"].clone()).unwrap();
    let top: Vec<Vec<(u32, f32)>> = serde_json::from_value(wanted["top"].clone()).unwrap();
    for (token, (logprob, top)) in found.iter().zip(logprobs.iter().zip(top)) {
        match (token.logprob, logprob) {
            (Some(found), Some(wanted)) => assert!(near(found, *wanted), "{found} {wanted}"),
            (found, wanted) => assert_eq!(found, *wanted),
        }
        let ids = |top: &[(u32, f32)]| top.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(&token.top), ids(&top));
        let gaps = token.top.iter().zip(&top);
        assert!(gaps.clone().all(|(found, wanted)| near(found.1, wanted.1)));
    }
}

#[tokio::test]
async fn a_continuation_is_scored_as_it_was_when_it_was_written() {
    let runtime = tiny().await;
    for request in prompts(40).into_iter().take(6) {
        let prompt = runtime.language(MODEL).unwrap();
        let prompt = prompt.prompt_tokens(&request.prompt).unwrap();
        let written = run(&runtime, request).await;
        let whole = [prompt.clone(), written.ids()].concat();
        let reply = run(&runtime, scored(Prompt::Tokens(whole), 2)).await;
        let sum =
            |tokens: &[TokenInfo]| -> f32 { tokens.iter().filter_map(|token| token.logprob).sum() };
        let (found, wanted) = (sum(&reply.prompt[prompt.len()..]), sum(&written.tokens));
        assert!((found - wanted).abs() < 1e-3, "{found} {wanted}");
        for (scored, written) in reply.prompt[prompt.len()..].iter().zip(&written.tokens) {
            assert_eq!((scored.id, scored.top.len()), (written.id, 2));
            let gap = scored.logprob.unwrap() - written.logprob.unwrap();
            assert!(gap.abs() < LOGPROB_TOLERANCE, "{gap}");
        }
    }
}

#[tokio::test]
async fn a_prompt_that_fills_the_context_is_scored_and_a_longer_one_refused() {
    let runtime = tiny().await;
    let tokens = |count: usize| Prompt::Tokens((0..count as u32).map(|at| at % 250).collect());
    let reply = run(&runtime, scored(tokens(2048), 0)).await;
    assert_eq!(reply.prompt.len(), 2048);
    assert!(
        reply.prompt[1..]
            .iter()
            .all(|token| token.logprob.is_some())
    );
    let refused = runtime.generate(scored(tokens(2049), 0)).await;
    let Err(Failure::PromptTooLong { found, limit }) = refused else {
        panic!("a prompt that is too long is refused");
    };
    assert_eq!((found, limit), (2049, 2048));
    let unscored = runtime.generate(text("hi", 0)).await;
    assert!(matches!(unscored, Err(Failure::BadRequest(_))));
}
