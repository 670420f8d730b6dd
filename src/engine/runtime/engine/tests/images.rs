//! Chats with images through the whole engine: the small models of `tests/fixtures/golden`.

use candle_core::{DType, Device};
use serde_json::{Value, json};

use super::{limited, listen, run, started};
use crate::networks::golden::fixtures;
use crate::networks::text::golden::Golden;
use crate::networks::vision::golden::{FOLDERS, PICTURES, content, image};
use crate::runtime::engine::fake::Rule;
use crate::runtime::load::loader;
use crate::runtime::{
    CacheRoom, CacheScope, Chat, ChatImage, EngineLimits, Failure, ImageDetail, KvDtype,
    ModelSource, Prompt, Runtime, TextRequest, Usage,
};

use muster_kernels::PAGE_TOKENS;

const MODEL: &str = "eyes";
const TOKENS: usize = 32;

/// A model without recurrent states, whose prefixes are shared page by page.
const PAGED: &str = "qwen3-vl";

async fn seeing(folder: &str, limits: EngineLimits, cache_tokens: usize) -> Runtime {
    let runtime = Runtime::start_with(loader(Device::Cpu), limits).unwrap();
    let source = ModelSource {
        cache: CacheRoom::Tokens(cache_tokens),
        dtype: Some(DType::F32),
        kv: Some(KvDtype::F32),
        ..ModelSource::new(fixtures().join("golden").join(folder))
    };
    let info = runtime.load(MODEL, source, |_, _| ()).await.unwrap();
    assert!(info.reads_images);
    runtime
}

fn read(runtime: &Runtime, size: [usize; 2], bytes: &[u8]) -> ChatImage {
    let input = runtime.image_input(MODEL).unwrap().unwrap();
    input.process(bytes, size, ImageDetail::Full).unwrap()
}

fn pictures(runtime: &Runtime) -> Vec<ChatImage> {
    let read = |size| read(runtime, size, &image(size));
    PICTURES[..2].iter().copied().map(read).collect()
}

fn asked(content: Value, images: Vec<ChatImage>) -> TextRequest {
    asked_for(TOKENS, content, images)
}

fn asked_for(tokens: usize, content: Value, images: Vec<ChatImage>) -> TextRequest {
    let chat = Chat {
        messages: vec![json!({"role": "user", "content": content})],
        images,
        ..Chat::default()
    };
    TextRequest {
        model: MODEL.to_owned(),
        prompt: Prompt::Chat(chat),
        ..limited("", tokens)
    }
}

/// The prompt of the golden `both`.
fn both(images: Vec<ChatImage>) -> TextRequest {
    asked(content(2), images)
}

fn plain() -> TextRequest {
    asked(content(0), Vec::new())
}

/// With as many tokens as the golden output.
fn as_long(request: TextRequest, golden: &Golden) -> TextRequest {
    let max_tokens = Some(golden.tokens("both.greedy").len());
    TextRequest {
        max_tokens,
        ..request
    }
}

/// Tokens and usage.
async fn written(runtime: &Runtime, request: TextRequest) -> (Vec<u32>, Usage) {
    let (_, ids, end) = run(runtime, request).await;
    (ids, end.unwrap().1)
}

#[tokio::test]
async fn a_chat_with_images_is_answered_as_by_the_reference_and_counted() {
    for folder in FOLDERS {
        let runtime = seeing(folder, EngineLimits::default(), 1024).await;
        let golden = Golden::open(folder);
        let request = as_long(both(pictures(&runtime)), &golden);
        let (ids, usage) = written(&runtime, request).await;
        assert_eq!(ids, golden.tokens("both.greedy"), "{folder}");
        assert_eq!(usage.prompt_tokens, golden.tokens("both.prompt").len());
        let (ids, usage) = written(&runtime, as_long(plain(), &golden)).await;
        assert_eq!(ids, golden.tokens("plain.greedy"), "{folder}");
        assert_eq!(usage.prompt_tokens, golden.tokens("plain.prompt").len());
    }
}

/// Includes prefill chunks that split images.
#[tokio::test]
async fn chats_with_images_and_without_run_side_by_side_as_alone() {
    for folder in FOLDERS {
        let golden = Golden::open(folder);
        for prefill_chunk in [7, 512] {
            let limits = EngineLimits {
                prefill_chunk,
                ..EngineLimits::default()
            };
            let runtime = seeing(folder, limits, 2048).await;
            let private = |request: TextRequest, scope| TextRequest {
                scope: CacheScope(scope),
                ..as_long(request, &golden)
            };
            let requests = (0..3).flat_map(|round| {
                [
                    private(both(pictures(&runtime)), 2 * round),
                    private(plain(), 2 * round + 1),
                ]
            });
            let mut running = Vec::new();
            for request in requests {
                running.push(runtime.generate(request).await.unwrap());
            }
            for (at, generation) in running.into_iter().enumerate() {
                let (_, ids, end) = listen(generation).await;
                let name = ["both", "plain"][at % 2];
                let wanted = golden.tokens(&format!("{name}.greedy"));
                assert_eq!(ids, wanted, "{folder} {name} {at}");
                assert_eq!(end.unwrap().1.cached_tokens, 0);
            }
        }
    }
}

#[tokio::test]
async fn equal_images_share_computed_pages_and_others_do_not() {
    let runtime = seeing(PAGED, EngineLimits::default(), 1024).await;
    let (first, usage) = written(&runtime, both(pictures(&runtime))).await;
    assert_eq!(usage.cached_tokens, 0);
    let (again, usage) = written(&runtime, both(pictures(&runtime))).await;
    assert_eq!((&again, usage.cached_tokens), (&first, PAGE_TOKENS));
    let mut later = pictures(&runtime);
    let dark: Vec<u8> = image(PICTURES[1]).iter().map(|byte| byte / 2).collect();
    later[1] = read(&runtime, PICTURES[1], &dark);
    let (_, usage) = written(&runtime, both(later)).await;
    assert_eq!(usage.cached_tokens, PAGE_TOKENS, "before the second image");

    let mut others = pictures(&runtime);
    let dark: Vec<u8> = image(PICTURES[0]).iter().map(|byte| byte / 2).collect();
    others[0] = read(&runtime, PICTURES[0], &dark);
    let (found, usage) = written(&runtime, both(others.clone())).await;
    assert_ne!(found, first);
    assert_eq!(usage.cached_tokens, 0, "the first page has the first image");
    let fresh = seeing(PAGED, EngineLimits::default(), 1024).await;
    let (alone, _) = written(&fresh, both(others)).await;
    assert_eq!(found, alone);
}

#[tokio::test]
async fn an_interrupted_text_about_images_goes_on_elsewhere() {
    for folder in FOLDERS {
        let golden = Golden::open(folder);
        let wanted = golden.tokens("both.greedy");
        let runtime = seeing(folder, EngineLimits::default(), 1024).await;
        let resumed = TextRequest {
            generated: wanted[..10].to_vec(),
            ..as_long(both(pictures(&runtime)), &golden)
        };
        let (ids, usage) = written(&runtime, resumed).await;
        assert_eq!(ids, wanted[10..], "{folder}");
        assert_eq!(usage.completion_tokens, wanted.len());
    }
}

/// Pages run out, so that the younger text is sent back to wait and sees its images again.
#[tokio::test]
async fn texts_that_are_sent_back_see_their_images_again() {
    for folder in FOLDERS {
        let golden = Golden::open(folder);
        let prompt = golden.tokens("both.prompt").len().div_ceil(PAGE_TOKENS);
        let cache_tokens = (2 * prompt + 1) * PAGE_TOKENS;
        let runtime = seeing(folder, EngineLimits::default(), cache_tokens).await;
        let mut running = Vec::new();
        for scope in 0..2 {
            let request = TextRequest {
                scope: CacheScope(scope),
                ..as_long(both(pictures(&runtime)), &golden)
            };
            running.push(runtime.generate(request).await.unwrap());
        }
        for generation in running {
            let (_, ids, _) = listen(generation).await;
            assert_eq!(ids, golden.tokens("both.greedy"), "{folder}");
        }
    }
}

#[tokio::test]
async fn images_without_a_place_and_models_without_eyes_are_refused() {
    let runtime = seeing(PAGED, EngineLimits::default(), 512).await;
    let images = pictures(&runtime);
    let no_place = asked(json!("What is this?"), images.clone());
    let refused = runtime.generate(no_place).await.err().unwrap();
    assert!(matches!(refused, Failure::BadRequest(_)), "{refused}");

    let blind = started(Rule::Says("hello")).await;
    assert_eq!(blind.image_input("fake"), Ok(None));
}

#[tokio::test]
async fn an_image_token_in_a_text_without_images_is_a_token_like_others() {
    let runtime = seeing(PAGED, EngineLimits::default(), 512).await;
    let (_, usage) = written(&runtime, asked(json!("<|image_pad|>"), Vec::new())).await;
    assert_eq!(usage.completion_tokens, TOKENS);
}
