//! Tests of the engine with a fake network.

use std::sync::Arc;

use muster_testing::eventually;

use super::fake::{CONTEXT, END, Fake, Rule};
use crate::runtime::{
    CacheRoom, CacheScope, EngineLimits, Event, Failure, FinishReason, Generation, ModelSource,
    Prompt, Runtime, SLOW_READER_TOKENS, Sampling, StopRules, TextRequest, Usage,
};

mod adapters;
mod encoding;
mod images;
#[cfg(feature = "cuda")]
mod launches;
mod recurrent;
mod resizing;
mod single_sequence;
mod speculation;

async fn start(fake: &Fake, limits: EngineLimits, cache_tokens: usize) -> Runtime {
    let runtime = Runtime::start_with(fake.loader(), limits).unwrap();
    let source = ModelSource {
        cache: CacheRoom::Tokens(cache_tokens),
        ..ModelSource::new("nowhere")
    };
    runtime.load("fake", source, |_, _| ()).await.unwrap();
    runtime
}

async fn started(rule: Rule) -> Runtime {
    start(&Fake::new(rule), EngineLimits::default(), CONTEXT).await
}

fn request(prompt: &str) -> TextRequest {
    TextRequest {
        model: "fake".to_owned(),
        prompt: Prompt::Text(prompt.to_owned()),
        generated: Vec::new(),
        sampling: Sampling {
            temperature: Some(0.0),
            ..Sampling::default()
        },
        max_tokens: None,
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

fn limited(prompt: &str, max_tokens: usize) -> TextRequest {
    TextRequest {
        max_tokens: Some(max_tokens),
        ..request(prompt)
    }
}

type End = Result<(FinishReason, Usage), Failure>;

/// The pieces of text in the order they came, the tokens, and the end.
async fn listen(mut generation: Generation) -> (Vec<String>, Vec<u32>, End) {
    let (mut pieces, mut ids) = (Vec::new(), Vec::new());
    while let Some(event) = generation.next().await {
        match event {
            Event::Started { .. } | Event::Prompt { .. } => {}
            Event::Text { text, tokens } => {
                pieces.push(text);
                ids.extend(tokens.iter().map(|token| token.id));
            }
            Event::Done { reason, usage } => return (pieces, ids, Ok((reason, usage))),
            Event::Failed(failure) => return (pieces, ids, Err(failure)),
        }
    }
    panic!("a generation ends with a last word");
}

async fn run(runtime: &Runtime, request: TextRequest) -> (Vec<String>, Vec<u32>, End) {
    listen(runtime.generate(request).await.unwrap()).await
}

async fn text(runtime: &Runtime, request: TextRequest) -> String {
    run(runtime, request).await.0.concat()
}

#[tokio::test]
async fn a_reply_ends_where_the_model_ends_it_and_is_counted_exactly() {
    let runtime = started(Rule::Says("hello")).await;
    let (pieces, ids, end) = run(&runtime, request("hi>")).await;
    assert_eq!(pieces, ["h", "e", "l", "l", "o", ""]);
    assert_eq!(ids.last(), Some(&END));
    let usage = Usage {
        prompt_tokens: 3,
        cached_tokens: 0,
        completion_tokens: 6,
    };
    assert_eq!(end, Ok((FinishReason::EndOfTurn, usage)));
    let (_, ids, end) = run(&runtime, limited("hi>", 2)).await;
    assert_eq!((ids.len(), end.unwrap().0), (2, FinishReason::Length));
}

#[tokio::test]
async fn a_multi_byte_character_across_token_borders_leaves_whole() {
    let runtime = started(Rule::Says("é€😀!")).await;
    let (pieces, ids, _) = run(&runtime, request(">")).await;
    assert_eq!(pieces, ["é", "€", "😀", "!", ""]);
    assert_eq!(ids.len(), 11);
    let (pieces, ids, _) = run(&runtime, limited(">", 4)).await;
    assert_eq!(
        (pieces.concat().as_str(), ids.len()),
        ("é", 4),
        "half a character is no text"
    );
}

#[tokio::test]
async fn stop_strings_across_token_borders_never_leave() {
    let runtime = started(Rule::Says("one STOP two")).await;
    let stopping = |stop: &str| TextRequest {
        stop: vec![stop.to_owned()],
        ..request(">")
    };
    let (pieces, ids, end) = run(&runtime, stopping("STOP")).await;
    assert_eq!(pieces.concat(), "one ");
    assert_eq!(ids.len(), 8, "the tokens of the stop are told");
    assert_eq!(end.unwrap().0, FinishReason::Stop("STOP".to_owned()));
    assert_eq!(
        text(&runtime, stopping("STOPS")).await,
        "one STOP two",
        "what was held back comes after all"
    );
    assert_eq!(
        text(&runtime, stopping("two!")).await,
        "one STOP two",
        "also at the end"
    );
}

#[tokio::test]
async fn stop_rules_say_which_tokens_end_a_text_and_from_when_on() {
    let runtime = started(Rule::Says("one STOP two")).await;
    let ruled = |rules: StopRules| TextRequest {
        stop: vec!["STOP".to_owned()],
        stop_rules: rules,
        ..limited(">", 20)
    };
    let at_least = |min_tokens| StopRules {
        min_tokens,
        ..StopRules::default()
    };
    assert_eq!(text(&runtime, ruled(at_least(0))).await, "one ");
    assert_eq!(text(&runtime, ruled(at_least(10))).await, "one STOP two");
    let (_, ids, _) = run(&runtime, ruled(at_least(15))).await;
    assert!(ids.len() >= 15 && !ids[..15].contains(&END), "{ids:?}");
    let endless = StopRules {
        ignore_eos: true,
        ..at_least(10)
    };
    let (_, ids, end) = run(&runtime, ruled(endless)).await;
    assert_eq!((ids.len(), end.unwrap().0), (20, FinishReason::Length));
    assert!(!ids.contains(&END));
    let (_, ids, _) = run(&runtime, limited(">", 20)).await;
    let at_first_s = StopRules {
        stop_token_ids: vec![ids[4]],
        ..StopRules::default()
    };
    let (pieces, ids, end) = run(&runtime, ruled(at_first_s)).await;
    assert_eq!((pieces.concat().as_str(), ids.len()), ("one ", 5));
    assert_eq!(end.unwrap().0, FinishReason::EndOfTurn);
}

#[tokio::test]
async fn a_continued_run_says_the_rest_and_nothing_twice() {
    let runtime = started(Rule::Says("a é STOP b")).await;
    for stop in [Vec::new(), vec!["STOP".to_owned()]] {
        let whole = TextRequest {
            stop,
            ..request(">")
        };
        let mut generation = runtime.generate(whole.clone()).await.unwrap();
        let mut delivered = vec![(String::new(), Vec::new())];
        let mut end = None;
        while let Some(event) = generation.next().await {
            match event {
                Event::Text { text, tokens } => {
                    let (mut all, mut ids) = delivered.last().unwrap().clone();
                    all.push_str(&text);
                    ids.extend(tokens.iter().map(|token| token.id));
                    delivered.push((all, ids));
                }
                Event::Done { reason, usage } => end = Some((reason, usage.completion_tokens)),
                _ => {}
            }
        }
        let wanted = delivered.last().unwrap().0.clone();
        for (before, generated) in delivered {
            let (rest, _, ended) = run(
                &runtime,
                TextRequest {
                    generated,
                    ..whole.clone()
                },
            )
            .await;
            assert_eq!(before + &rest.concat(), wanted);
            let (reason, usage) = ended.unwrap();
            assert_eq!(Some((reason, usage.completion_tokens)), end);
        }
    }
}

#[tokio::test]
async fn few_pages_and_many_sequences_change_no_text() {
    let roomy = started(Rule::Rambles).await;
    let limits = EngineLimits {
        max_running: 6,
        prefill_chunk: 20,
        ..EngineLimits::default()
    };
    let tight = start(&Fake::new(Rule::Rambles), limits, 7 * 32).await;
    let prompts: Vec<String> = (0..12)
        .map(|i| "same beginning ".repeat(1 + i % 4) + &"x".repeat(i))
        .collect();
    let mut crowd = Vec::new();
    for prompt in &prompts {
        crowd.push(tight.generate(limited(prompt, 60)).await.unwrap());
    }
    for (prompt, generation) in prompts.iter().zip(crowd) {
        let alone = text(&roomy, limited(prompt, 60)).await;
        let (pieces, ids, _) = listen(generation).await;
        assert_eq!((pieces.concat(), ids.len()), (alone, 60), "{prompt}");
    }
    tight.drain().await;
}

#[tokio::test]
async fn cancelling_frees_the_place_within_one_step() {
    let (fake, gate) = Fake::gated(Rule::Rambles);
    let runtime = start(&fake, EngineLimits::default(), CONTEXT).await;
    let mut generation = runtime.generate(limited("a", 1000)).await.unwrap();
    for _ in 0..3 {
        gate.send(()).unwrap();
        generation.next().await.unwrap();
    }
    let before = fake.steps();
    drop(generation);
    drop(gate);
    until_running(&runtime, 0).await;
    assert!(
        fake.steps() <= before + 1,
        "{} steps after {before}",
        fake.steps()
    );
    let status = runtime.status();
    assert_eq!((status.running, status.waiting), (0, 0));
    assert_eq!(status.models[0].free_pages, status.models[0].pages);
}

/// Waits until this many sequences are running.
async fn until_running(runtime: &Runtime, count: usize) {
    eventually("the wanted sequences", async || {
        match runtime.status().running {
            running if running == count => Ok(()),
            running => Err(running),
        }
    })
    .await;
}

#[tokio::test]
async fn a_full_engine_answers_busy_at_once() {
    let (fake, gate) = Fake::gated(Rule::Rambles);
    let limits = EngineLimits {
        max_running: 1,
        max_waiting: 1,
        ..EngineLimits::default()
    };
    let runtime = start(&fake, limits, CONTEXT).await;
    let running = runtime.generate(limited("a", 5)).await.unwrap();
    let waiting = runtime.generate(limited("b", 5)).await.unwrap();
    let refusal = runtime.generate(limited("c", 5)).await.err();
    assert!(matches!(refusal, Some(Failure::Busy { .. })), "{refusal:?}");
    drop(gate);
    assert_eq!(listen(running).await.1.len(), 5);
    assert_eq!(listen(waiting).await.1.len(), 5);
    assert_eq!(
        run(&runtime, limited("c", 5)).await.1.len(),
        5,
        "places are free again"
    );
}

#[tokio::test]
async fn a_reader_that_does_not_read_delays_nobody_and_is_given_up() {
    let fake = Fake::new(Rule::Rambles);
    let runtime = start(&fake, EngineLimits::default(), 4 * SLOW_READER_TOKENS).await;
    let sleeper = runtime.generate(request("a")).await.unwrap();
    let reader = runtime.generate(limited("b", 3000)).await.unwrap();
    assert_eq!(listen(reader).await.1.len(), 3000);
    until_running(&runtime, 0).await;
    let (pieces, ids, end) = listen(sleeper).await;
    assert_eq!(
        pieces.concat().len(),
        ids.len(),
        "everything before the end arrives"
    );
    match end {
        // The context may end before the slow reader's timeout.
        Ok((reason, _)) => assert_eq!(
            (reason, CONTEXT < SLOW_READER_TOKENS + 100),
            (FinishReason::Length, true)
        ),
        Err(failure) => assert_eq!(
            failure,
            Failure::SlowReader {
                unread: SLOW_READER_TOKENS
            }
        ),
    }
}

#[tokio::test]
async fn a_paused_engine_keeps_what_runs_and_refuses_what_is_new() {
    let (fake, gate) = Fake::gated(Rule::Rambles);
    let runtime = start(&fake, EngineLimits::default(), CONTEXT).await;
    let mut running = runtime.generate(limited("a", 4000)).await.unwrap();
    let cancelled = runtime.generate(limited("a", 4000)).await.unwrap();
    gate.send(()).unwrap();
    running.next().await.unwrap();
    drop(gate);
    runtime.pause().await.unwrap();
    let steps = fake.steps();
    assert_eq!(
        runtime.generate(limited("a", 4000)).await.err(),
        Some(Failure::Paused)
    );
    drop(cancelled);
    until_running(&runtime, 1).await;
    assert!(runtime.status().is_paused, "cancelling works meanwhile");
    assert_eq!(fake.steps(), steps);
    runtime.resume().await.unwrap();
    assert_eq!(listen(running).await.2.unwrap().0, FinishReason::Length);
}

#[tokio::test]
async fn bad_logits_end_one_sequence_only() {
    let runtime = started(Rule::ChokesOnX).await;
    let good = runtime.generate(limited("good", 50)).await.unwrap();
    let bad = runtime.generate(limited("X", 50)).await.unwrap();
    let failure = Failure::Internal(Arc::from("the model's logits contain NaN"));
    assert_eq!(listen(bad).await.2, Err(failure));
    assert_eq!(listen(good).await.1.len(), 50);
}

#[tokio::test]
async fn a_failing_device_fails_what_ran_on_it_and_not_the_thread() {
    let runtime = started(Rule::Breaks).await;
    for _ in 0..2 {
        let (_, _, end) = run(&runtime, request("a")).await;
        assert_eq!(
            end,
            Err(Failure::Internal(Arc::from("the device fell off")))
        );
    }
}

#[tokio::test]
async fn a_panic_ends_the_jobs_and_is_noticed() {
    let runtime = started(Rule::Panics).await;
    let running = runtime.generate(request("a")).await.unwrap();
    let ((), (_, _, end)) = tokio::join!(runtime.ended(), listen(running));
    assert_eq!(end, Err(Failure::Stopped));
    let refused = runtime.generate(request("a")).await.err();
    assert_eq!(refused, Some(Failure::Stopped));
}

#[tokio::test]
async fn draining_lets_what_runs_finish() {
    let runtime = started(Rule::Rambles).await;
    let running = runtime.generate(limited("a", 500)).await.unwrap();
    let drained = tokio::join!(runtime.drain(), listen(running)).1;
    assert_eq!(drained.1.len(), 500);
}

#[tokio::test]
async fn a_paused_engine_that_is_left_says_so() {
    let (fake, gate) = Fake::gated(Rule::Rambles);
    let runtime = start(&fake, EngineLimits::default(), CONTEXT).await;
    let running = runtime.generate(limited("a", 500)).await.unwrap();
    drop(gate);
    runtime.pause().await.unwrap();
    let (_, (_, _, end)) = tokio::join!(runtime.drain(), listen(running));
    assert_eq!(end, Err(Failure::Stopped));
}

#[tokio::test]
async fn several_models_share_the_thread_and_leave_it() {
    let runtime = started(Rule::Rambles).await;
    let second = runtime
        .load("other", ModelSource::new("nowhere"), |_, _| ())
        .await
        .unwrap();
    assert_eq!(second.name, "other");
    let twice = runtime
        .load("other", ModelSource::new("nowhere"), |_, _| ())
        .await;
    assert_eq!(twice.unwrap_err().to_string(), "other is already loaded");
    let both = ["fake", "other"].map(|model| TextRequest {
        model: model.to_owned(),
        ..limited("a", 30)
    });
    let [first, second] = both.map(|request| run(&runtime, request));
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first, second);

    let mut on_first = runtime.generate(limited("a", 4000)).await.unwrap();
    on_first.next().await.unwrap();
    runtime.unload("fake").await.unwrap();
    let gone = Failure::NotLoaded {
        model: "fake".to_owned(),
        loaded: vec!["other".to_owned()],
    };
    assert_eq!(listen(on_first).await.2, Err(gone.clone()));
    assert_eq!(runtime.generate(request("a")).await.err(), Some(gone));
    assert_eq!(runtime.status().models.len(), 1);
}

#[tokio::test]
async fn what_cannot_run_is_refused_before_it_takes_a_place() {
    let runtime = start(&Fake::new(Rule::Rambles), EngineLimits::default(), 64).await;
    let check = |request: TextRequest, wanted: &'static str| {
        let runtime = &runtime;
        async move {
            let refusal = runtime.generate(request).await.err().unwrap();
            assert_eq!(refusal.to_string(), wanted);
        }
    };
    check(
        request(&"x".repeat(64)),
        "the prompt has 64 tokens, but the model takes at most 63",
    )
    .await;
    check(request(""), "the prompt is empty").await;
    check(limited("x", 0), "max_tokens must be at least 1, found 0").await;
    let foreign = TextRequest {
        generated: vec![999],
        ..request("x")
    };
    check(
        foreign,
        "generated has token 999, but the vocabulary has 257 tokens",
    )
    .await;
    let curious = TextRequest {
        logprobs: Some(21),
        ..request("x")
    };
    check(curious, "logprobs must be at most 20, found 21").await;
    assert_eq!(
        run(&runtime, request(&"x".repeat(63))).await.1.len(),
        1,
        "the last free token is used"
    );
}

/// The log probabilities of a prompt's tokens, and the text after it.
async fn scores(mut generation: Generation) -> (Vec<Option<f32>>, String) {
    let (mut scores, mut text) = (Vec::new(), String::new());
    while let Some(event) = generation.next().await {
        match event {
            Event::Prompt { start, tokens } => {
                assert_eq!((start, text.as_str()), (scores.len(), ""));
                scores.extend(tokens.iter().map(|token| token.logprob));
            }
            Event::Text { text: more, .. } => text.push_str(&more),
            Event::Started { cached_tokens, .. } => assert_eq!(cached_tokens, 0),
            Event::Done { .. } => return (scores, text),
            Event::Failed(failure) => panic!("{failure}"),
        }
    }
    panic!("a generation ends with a last word");
}

fn scored(prompt: &str, max_tokens: usize) -> TextRequest {
    TextRequest {
        prompt_logprobs: Some(2),
        ..limited(prompt, max_tokens)
    }
}

#[tokio::test]
async fn scores_of_a_prompt_do_not_depend_on_steps_company_or_lost_pages() {
    let long = "a prompt of many tokens, ".repeat(20);
    let alone = started(Rule::Scatters).await;
    let (wanted, _) = scores(alone.generate(scored(&long, 0)).await.unwrap()).await;
    assert_eq!(wanted.len(), long.len());
    assert!(wanted[0].is_none() && wanted[1..].iter().all(Option::is_some));
    let (after, text) = scores(alone.generate(scored(&long, 5)).await.unwrap()).await;
    assert_eq!((&after, text.is_empty()), (&wanted, false));
    let limits = EngineLimits {
        prefill_chunk: 16,
        ..EngineLimits::default()
    };
    // Room for two and a half of them: the youngest loses its pages and reads its prompt again.
    let crowded = start(&Fake::new(Rule::Scatters), limits, 1280).await;
    let mut generations = Vec::new();
    for _ in 0..3 {
        let request = scored(&long, 200);
        generations.push(crowded.generate(request).await.unwrap());
    }
    for generation in generations {
        assert_eq!(scores(generation).await.0, wanted);
    }
}

#[tokio::test]
async fn logits_that_are_no_numbers_end_a_scored_prompt_alone() {
    let runtime = started(Rule::ChokesOnX).await;
    let bad = runtime.generate(scored("aXbc", 0)).await.unwrap();
    let good = runtime.generate(scored("abc", 0)).await.unwrap();
    let (_, _, end) = listen(bad).await;
    assert!(matches!(end, Err(Failure::Internal(_))), "{end:?}");
    assert_eq!(scores(good).await.0.len(), 3);
}
