//! KV caches that shrink and grow while texts are written.

use std::sync::mpsc;
use std::time::Duration;

use tokio::time::sleep;

use super::*;
use crate::runtime::PAGE_TOKENS;

const LONGEST: usize = 8 * PAGE_TOKENS;

/// With sequences of up to 8 pages in a cache of this many.
async fn loaded(fake: &Fake, pages: usize) -> Runtime {
    let limits = EngineLimits {
        max_running: 8,
        prefill_chunk: 100,
        ..EngineLimits::default()
    };
    let runtime = Runtime::start_with(fake.loader(), limits).unwrap();
    let source = ModelSource {
        cache: CacheRoom::Tokens(pages * PAGE_TOKENS),
        context: Some(LONGEST),
        ..ModelSource::new("nowhere")
    };
    runtime.load("fake", source, |_, _| ()).await.unwrap();
    runtime
}

/// Resizes the cache to so many pages between two steps. Steps are let through meanwhile.
async fn resized(
    runtime: &Runtime,
    gate: &mpsc::Sender<()>,
    pages: usize,
) -> Result<usize, Failure> {
    let resized = runtime.resize_cache("fake", pages * PAGE_TOKENS);
    tokio::pin!(resized);
    loop {
        tokio::select! {
            tokens = &mut resized => return tokens.map(|tokens| tokens / PAGE_TOKENS),
            () = sleep(Duration::from_millis(1)) => gate.send(()).unwrap(),
        }
    }
}

/// The cache of an earlier text is in the first pages, so that those of the running ones have to move.
#[tokio::test]
async fn a_smaller_and_a_larger_cache_change_no_text() {
    let prompts: Vec<String> = (0..6)
        .map(|i| "same beginning ".repeat(1 + i % 4) + &"x".repeat(i))
        .collect();
    let (fake, gate) = Fake::gated(Rule::Rambles);
    let runtime = loaded(&fake, 40).await;
    (0..201).for_each(|_| gate.send(()).unwrap());
    let early = text(&runtime, limited("early", 200)).await;
    let mut crowd = Vec::new();
    for prompt in &prompts {
        crowd.push(runtime.generate(limited(prompt, 100)).await.unwrap());
    }
    // Each of the texts has two or three pages, and more with each step.
    (0..20).for_each(|_| gate.send(()).unwrap());
    until_running(&runtime, 6).await;
    let steps = fake.steps();
    for (wanted, pages) in [(36, 36), (20, 20), (0, 8), (50, 50)] {
        assert_eq!(resized(&runtime, &gate, wanted).await, Ok(pages));
        assert_eq!(runtime.status().models[0].pages, pages);
        gate.send(()).unwrap();
    }
    assert!(fake.steps() < steps + 100, "the texts are not at their end");
    drop(gate);
    let alone = loaded(&Fake::new(Rule::Rambles), 40).await;
    for (prompt, generation) in prompts.iter().zip(crowd) {
        let (pieces, ids, end) = listen(generation).await;
        assert_eq!(ids.len(), 100, "{prompt}: {end:?}");
        assert_eq!(pieces.concat(), text(&alone, limited(prompt, 100)).await);
    }
    assert_eq!(text(&runtime, limited("early", 200)).await, early);
    until_running(&runtime, 0).await;
    assert_eq!(runtime.status().models[0].free_pages, 50);
}

#[tokio::test]
async fn a_cache_that_cannot_be_resized_fails_its_jobs_and_serves_the_next() {
    let (fake, gate) = Fake::gated(Rule::LosesPages);
    let runtime = loaded(&fake, 40).await;
    let mut running = runtime.generate(limited("a", 200)).await.unwrap();
    gate.send(()).unwrap();
    running.next().await.unwrap();
    let full = Failure::Internal(Arc::from("the device is full"));
    assert_eq!(resized(&runtime, &gate, 20).await, Err(full.clone()));
    assert_eq!(listen(running).await.2, Err(full));
    drop(gate);
    assert_eq!(run(&runtime, limited("b", 50)).await.1.len(), 50);
    until_running(&runtime, 0).await;
    assert_eq!(runtime.status().models[0].free_pages, 20);
    let unknown = runtime.resize_cache("other", PAGE_TOKENS).await;
    assert!(
        matches!(unknown, Err(Failure::NotLoaded { .. })),
        "{unknown:?}"
    );
}
