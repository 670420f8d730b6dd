//! Speculative decoding changes no text, however often the draft tokens are accepted.

use std::path::Path;
use std::sync::Arc;

use super::super::fake::{Fake, Rule};
use super::{limited, request, start, until_running};
use crate::runtime::grammar::{Answer, Grammar};
use crate::runtime::{
    DeviceChoice, EngineLimits, Event, Failure, FinishReason, Generation, ModelSource, Prompt,
    Runtime, Sampling, Speculation, StopRules, TextRequest, TokenInfo, Usage,
};

/// All that a client gets, but for how it was cut into events.
#[derive(Debug, PartialEq)]
struct RecordedReply {
    text: String,
    tokens: Vec<TokenInfo>,
    end: Result<(FinishReason, Usage), Failure>,
}

async fn collect(mut generation: Generation) -> RecordedReply {
    let (mut all, mut drawn) = (String::new(), Vec::new());
    loop {
        let end = match generation.next().await.unwrap() {
            Event::Started { .. } | Event::Prompt { .. } => continue,
            Event::Text { text, tokens } => {
                all.push_str(&text);
                drawn.extend(tokens);
                continue;
            }
            Event::Done { reason, usage } => Ok((reason, usage)),
            Event::Failed(failure) => Err(failure),
        };
        return RecordedReply {
            text: all,
            tokens: drawn,
            end,
        };
    }
}

async fn reply(runtime: &Runtime, request: TextRequest) -> RecordedReply {
    collect(runtime.generate(request).await.unwrap()).await
}

async fn together(runtime: &Runtime, requests: &[TextRequest]) -> Vec<RecordedReply> {
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

fn limits(speculation: Speculation) -> EngineLimits {
    EngineLimits {
        speculation,
        ..EngineLimits::default()
    }
}

fn sampled(seed: u64) -> Sampling {
    Sampling {
        temperature: Some(1.0),
        seed: Some(seed),
        ..Sampling::default()
    }
}

/// One request per feature that affects sampling.
fn requests(prompt: &str, tokens: usize) -> Vec<TextRequest> {
    let plain = || limited(prompt, tokens);
    let with = |sampling| TextRequest {
        sampling,
        ..plain()
    };
    let matching = |pattern: &str, sampling| TextRequest {
        grammar: Some(Arc::new(Grammar::answer(Answer::Regex(pattern.to_owned())))),
        sampling,
        ..plain()
    };
    vec![
        plain(),
        with(sampled(1)),
        with(Sampling {
            top_k: Some(3),
            top_p: Some(0.9),
            typical: Some(0.95),
            ..sampled(2)
        }),
        with(Sampling {
            repetition_penalty: Some(1.2),
            repetition_range: Some(9),
            frequency_penalty: Some(0.4),
            presence_penalty: Some(0.3),
            ..sampled(3)
        }),
        TextRequest {
            logprobs: Some(3),
            ..with(sampled(4))
        },
        TextRequest {
            stop: vec!["abab".to_owned(), "bbbab".to_owned()],
            ..with(sampled(5))
        },
        TextRequest {
            stop_rules: StopRules {
                min_tokens: 30,
                ignore_eos: true,
                // The letter b.
                stop_token_ids: vec![u32::from(b'b' - b'!')],
            },
            ..with(sampled(6))
        },
        TextRequest {
            choice: 5,
            ..with(sampled(1))
        },
        matching("(ab|ba|bb){10,60}", sampled(7)),
        matching("((abc|abd) is one of many )+", plain().sampling),
    ]
}

async fn check(rule: Rule, prompt: &str, tokens: usize) {
    let requests = requests(prompt, tokens);
    let alone = start(&Fake::new(rule.clone()), limits(Speculation::Off), 4096).await;
    let mut wanted = Vec::new();
    for request in &requests {
        wanted.push(reply(&alone, request.clone()).await);
    }
    for speculation in [Speculation::Always, Speculation::Auto] {
        let runtime = start(&Fake::new(rule.clone()), limits(speculation), 4096).await;
        for (request, wanted) in requests.iter().zip(&wanted) {
            let found = reply(&runtime, request.clone()).await;
            assert_eq!(found, *wanted, "{rule:?} {speculation:?} alone");
        }
        let found = together(&runtime, &requests).await;
        check_all(
            &found,
            &wanted,
            &format!("{rule:?} {speculation:?} together"),
        );
        let crowded = EngineLimits {
            prefill_chunk: 20,
            ..limits(speculation)
        };
        let tight = start(&Fake::new(rule.clone()), crowded, 17 * 32).await;
        let found = together(&tight, &requests).await;
        check_all(&found, &wanted, &format!("{rule:?} {speculation:?} tight"));
        until_running(&tight, 0).await;
        let status = &tight.status().models[0];
        assert_eq!(status.free_pages, status.pages, "no page is lost");
    }
}

/// How much of a prompt was cached depends on the requests before.
fn check_all(found: &[RecordedReply], wanted: &[RecordedReply], how: &str) {
    let uncached = |reply: &RecordedReply| {
        let end = reply.end.clone().map(|(reason, usage)| {
            let usage = Usage {
                cached_tokens: 0,
                ..usage
            };
            (reason, usage)
        });
        (reply.text.clone(), reply.tokens.clone(), end)
    };
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(uncached(found), uncached(wanted), "{how}: request {at}");
    }
}

#[tokio::test]
async fn proposals_that_are_often_wrong_change_no_text() {
    check(Rule::Stutters, "ab ba aab", 300).await;
}

#[tokio::test]
async fn proposals_that_are_mostly_right_change_no_text() {
    check(Rule::Echoes, "once more ", 300).await;
    check(
        Rule::Says("the same again, the same again, the same END"),
        "say it>",
        60,
    )
    .await;
}

#[tokio::test]
async fn proposals_change_no_text_that_hardly_repeats() {
    check(Rule::Rambles, "word after word ", 200).await;
    check(Rule::Scatters, "word after word ", 200).await;
}

/// Pages in the prefix cache contain keys and values of accepted tokens, not of rejected ones.
#[tokio::test]
async fn rejected_tokens_are_in_no_page_that_others_find() {
    let plain = start(&Fake::new(Rule::Stutters), limits(Speculation::Off), 4096).await;
    let speculating = start(
        &Fake::new(Rule::Stutters),
        limits(Speculation::Always),
        4096,
    )
    .await;
    let mut prompt = "a ".repeat(20);
    for round in 0..6 {
        let asked = || TextRequest {
            sampling: sampled(round),
            ..limited(&prompt, 50)
        };
        let (wanted, found) = (
            reply(&plain, asked()).await,
            reply(&speculating, asked()).await,
        );
        assert_eq!(found, wanted);
        let cached = found.end.unwrap().1.cached_tokens;
        assert!(
            round == 0 || cached > prompt.len() - 64,
            "{cached} of {}",
            prompt.len()
        );
        prompt += &found.text;
    }
}

#[tokio::test]
async fn a_repetitive_text_takes_a_fraction_of_the_steps() {
    let fake = Fake::new(Rule::Echoes);
    let runtime = start(&fake, limits(Speculation::Always), 4096).await;
    let found = reply(&runtime, limited("once more ", 600)).await;
    assert_eq!(found.tokens.len(), 600);
    assert!(fake.steps() < 250, "{} steps", fake.steps());
    let (_, usage) = found.end.unwrap();
    assert_eq!(usage.completion_tokens, 600);
}

/// The proposals of a failing sequence fail no other.
#[tokio::test]
async fn bad_logits_end_one_speculating_sequence_only() {
    let runtime = start(
        &Fake::new(Rule::ChokesOnX),
        limits(Speculation::Always),
        4096,
    )
    .await;
    let replies = together(&runtime, &[limited("good", 90), limited("X", 90)]).await;
    assert_eq!(replies[0].tokens.len(), 90);
    assert!(replies[1].end.is_err());
}

async fn decoder(folder: &str, speculation: Speculation) -> Runtime {
    let runtime = Runtime::start(DeviceChoice::Cpu, limits(speculation)).unwrap();
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let source = ModelSource::new(root.join(folder));
    runtime.load("fake", source, |_, _| ()).await.unwrap();
    runtime
}

/// Logits of real decoders are the same to the last bit, however many tokens are computed together.
#[tokio::test]
async fn real_decoders_say_the_same_with_and_without_proposals() {
    let prompt = "Repeat: one two three, one two three, one two three, one two";
    for (folder, tokens) in [("tests/fixtures/tiny-llama", 120), ("models/demo-text", 60)] {
        let endless = StopRules {
            ignore_eos: true,
            ..StopRules::default()
        };
        let requests: Vec<TextRequest> = requests(prompt, tokens)
            .into_iter()
            .filter(|request| request.grammar.is_none())
            .map(|request| TextRequest {
                stop_rules: endless.clone(),
                logprobs: Some(2),
                ..request
            })
            .collect();
        let plain = decoder(folder, Speculation::Off).await;
        let wanted = together(&plain, &requests).await;
        let speculating = decoder(folder, Speculation::Always).await;
        check_all(&together(&speculating, &requests).await, &wanted, folder);
        for (request, wanted) in requests.iter().zip(&wanted) {
            let found = reply(&speculating, request.clone()).await;
            check_all(&[found], std::slice::from_ref(wanted), folder);
        }
    }
}

#[tokio::test]
async fn tokens_are_not_drawn_past_the_most_that_were_asked_for() {
    let runtime = start(&Fake::new(Rule::Echoes), limits(Speculation::Always), 96).await;
    for tokens in 50..56 {
        let found = reply(&runtime, limited("once more ", tokens)).await;
        assert_eq!(found.tokens.len(), tokens);
        assert_eq!(found.end.unwrap().0, FinishReason::Length);
    }
    let whole = TextRequest {
        prompt: Prompt::Text("once more ".to_owned()),
        ..request("")
    };
    let found = reply(&runtime, whole).await;
    assert_eq!(
        found.tokens.len(),
        96 - 10,
        "the context is filled to its end"
    );
}
