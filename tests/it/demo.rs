//! The built-in text model: unpacked, it gives the reference implementation's replies.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use candle_core::DType;
use muster::catalog::{Catalog, Embedded, Facts, Source};
use muster::cli::eval::{DEMO_PROMPTS, Scores, measure, read};
use muster::runtime::grammar::{Answer, Grammar};
use muster::runtime::{
    CacheScope, Chat, DeviceChoice, EngineLimits, Event, ModelInfo, ModelSource, Prompt, Runtime,
    Sampling, StopRules, TextRequest,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::worker::{Run, worker};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo-text");

/// The goal, in percent: over all prompts, and of each skill, which the card then calls held.
const OVERALL: usize = 95;
const HELD: usize = 85;

/// Processors differ in the last bits of a sum, which may turn a close answer.
const TOLERATED_PROMPTS: usize = 1;

/// A row of the card: `| skill | 28 of 30 | held |`.
struct Stated {
    skill: String,
    right: usize,
    is_held: bool,
}

fn stated(row: &str) -> Option<Stated> {
    let mut cells = row.split('|').map(str::trim).skip(1);
    let (skill, count, held) = (cells.next()?, cells.next()?, cells.next()?);
    let (right, _) = count.split_once(" of ")?;
    Some(Stated {
        skill: skill.to_owned(),
        right: right.parse().ok()?,
        is_held: held == "held",
    })
}

/// At most as many tokens as `export.py` asked the reference implementation for.
const REFERENCE_TOKENS: usize = 64;

/// A prompt and what transformers makes of it, as ids.
#[derive(Deserialize)]
struct Reference {
    prompt: Vec<u32>,
    greedy: Vec<u32>,
}

async fn loaded(dtype: Option<DType>) -> (Runtime, Arc<ModelInfo>) {
    let runtime = Runtime::start(DeviceChoice::Cpu, EngineLimits::default()).unwrap();
    let source = ModelSource {
        dtype,
        ..ModelSource::new(FOLDER)
    };
    let info = runtime.load("demo-text", source, |_, _| {}).await.unwrap();
    (runtime, info)
}

async fn greedy(runtime: &Runtime, reference: &Reference) -> Vec<u32> {
    let request = TextRequest {
        model: "demo-text".to_owned(),
        prompt: Prompt::Tokens(reference.prompt.clone()),
        generated: Vec::new(),
        sampling: Sampling {
            temperature: Some(0.0),
            ..Sampling::default()
        },
        max_tokens: Some(REFERENCE_TOKENS),
        window: None,
        stop: Vec::new(),
        stop_rules: StopRules::default(),
        logprobs: None,
        prompt_logprobs: None,
        grammar: None,
        choice: 0,
        scope: CacheScope::default(),
    };
    let mut generation = runtime.generate(request).await.unwrap();
    let mut ids = Vec::new();
    while let Some(event) = generation.next().await {
        match event {
            Event::Text { tokens, .. } => ids.extend(tokens.iter().map(|token| token.id)),
            Event::Failed(failure) => panic!("{failure}"),
            _ => {}
        }
    }
    ids
}

/// A request for a person as JSON, and what came of it: tokens and text.
async fn person(runtime: &Runtime, seed: u64, generated: &[u32]) -> (Vec<u32>, String) {
    let schema = json!({
        "type": "object",
        "properties": {
            "first_name": {"type": "string", "maxLength": 12},
            "age_in_years": {"type": "integer", "minimum": 0, "maximum": 150},
            "home": {"enum": ["Paris", "Rome", "Oslo"]},
        },
        "required": ["first_name", "age_in_years", "home"],
        "additionalProperties": false,
    });
    let chat = Chat {
        messages: vec![json!({"role": "user", "content": "Who are you?"})],
        ..Chat::default()
    };
    let request = TextRequest {
        model: "demo-text".to_owned(),
        prompt: Prompt::Chat(chat),
        generated: generated.to_vec(),
        sampling: Sampling {
            temperature: Some(1.2),
            seed: Some(seed),
            ..Sampling::default()
        },
        max_tokens: Some(200),
        window: None,
        stop: Vec::new(),
        stop_rules: StopRules::default(),
        logprobs: None,
        prompt_logprobs: None,
        grammar: Some(Arc::new(Grammar::answer(Answer::JsonSchema(schema)))),
        choice: 0,
        scope: CacheScope::default(),
    };
    let mut generation = runtime.generate(request).await.unwrap();
    let (mut ids, mut said) = (generated.to_vec(), String::new());
    while let Some(event) = generation.next().await {
        match event {
            Event::Text { text, tokens } => {
                ids.extend(tokens.iter().map(|token| token.id));
                said.push_str(&text);
            }
            Event::Failed(failure) => panic!("{failure}"),
            _ => {}
        }
    }
    (ids, said)
}

#[tokio::test]
async fn json_goes_on_from_every_token_as_it_would_have() {
    let (runtime, _) = loaded(None).await;
    for seed in 0..4 {
        let (ids, text) = person(&runtime, seed, &[]).await;
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(
            value["age_in_years"].as_u64().is_some_and(|age| age <= 150),
            "{text}"
        );
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["first_name", "age_in_years", "home"]);
        for cut in 0..ids.len() {
            let (_, rest) = person(&runtime, seed, &ids[..cut]).await;
            assert!(text.ends_with(&rest), "cut at {cut}: {rest:?} of {text:?}");
        }
    }
}

#[test]
fn the_catalog_knows_the_embedded_model() {
    let catalog = Catalog::builtin().unwrap();
    let entry = catalog.find("demo-text").unwrap();
    let (_, source) = entry.source(None).unwrap();
    assert_eq!(
        *source,
        Source::Embedded(Embedded::find("demo-text").unwrap())
    );
    let Facts::Text(facts) = &entry.facts else {
        panic!("{entry:?}")
    };
    assert_eq!(facts.defaults.temperature, Some(0.0));
}

#[tokio::test]
async fn the_demo_model_answers_as_well_as_its_card_says() {
    let (runtime, info) = loaded(None).await;
    let prompts = read(DEMO_PROMPTS).unwrap();
    let answers = measure(&runtime, &info.name, &prompts, 16).await.unwrap();
    let scores = Scores::of(&prompts, &answers);
    let card = fs::read_to_string(Path::new(FOLDER).join("README.md")).unwrap();
    let stated: Vec<Stated> = card.lines().filter_map(stated).collect();
    assert_eq!(stated.len(), scores.skills.len());
    for (stated, score) in stated.iter().zip(&scores.skills) {
        assert_eq!(stated.skill, score.skill);
        let difference = stated.right.abs_diff(score.right);
        assert!(
            difference <= TOLERATED_PROMPTS,
            "the card says {}, found {score:?}",
            stated.right
        );
        assert!(
            stated.is_held && 100 * stated.right >= HELD * score.asked,
            "{score:?}"
        );
    }
    let overall = scores.overall();
    assert!(
        100 * overall.right >= OVERALL * overall.asked,
        "{overall:?}"
    );
}

#[tokio::test]
async fn greedy_text_is_that_of_the_reference_implementation() {
    let (runtime, _) = loaded(Some(DType::F32)).await;
    let text = fs::read_to_string(Path::new(FOLDER).join("reference.jsonl")).unwrap();
    let references: Vec<Reference> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(references.len(), 100);
    for (index, reference) in references.iter().enumerate() {
        assert_eq!(
            greedy(&runtime, reference).await,
            reference.greedy,
            "prompt {index}"
        );
    }
}

#[test]
fn the_binary_alone_in_an_empty_folder_generates() {
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("worker");
    // By another process: a child that a neighbouring test starts would inherit our open copy, which then is busy.
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_worker")).arg(&binary);
    assert!(copy.status().unwrap().success());
    let run = || {
        let output = Command::new(&binary)
            .args(["generate", "demo-text", "Hello!"])
            .current_dir(folder.path())
            .env_clear()
            .env("HOME", folder.path())
            .output()
            .unwrap();
        Run::from(output).ok()
    };
    assert!(run().starts_with("Hello"));
    // The second start finds the model where the first one put it.
    assert!(run().starts_with("Hello"));
    let models = folder.path().join(".local/share/muster/models");
    assert_eq!(fs::read_dir(models).unwrap().count(), 1);
}

#[test]
fn a_demo_model_that_cannot_be_kept_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    worker(&["generate", "demo-text", "Hello!"])
        .env("HOME", home.path().to_str().unwrap())
        .with_files_up_to(64)
        .run()
        .fails(73, "File too large");
    let models = home.path().join(".local/share/muster/models");
    assert_eq!(fs::read_dir(models).unwrap().count(), 0);
}
