//! The cost of structured output in a step, with a vocabulary of Llama 3's size: the mask of one token, and the
//! compilation of a schema, which happens before the first step and off the inference thread.

use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use muster_engine::runtime::grammar::{Answer, Grammar, Grammars, Guide};
use muster_engine::runtime::sampling::uniform;
use muster_engine::runtime::text::{
    Begins, Language, Markup, Reader, TextError, Tokenizer, Vocabulary, VocabularyKind,
};
use muster_engine::runtime::{CacheScope, Sampling, StopRules};
use serde_json::{Map, Value, json};

const VOCABULARY: usize = 128_256;
const END: u32 = VOCABULARY as u32 - 1;

/// Bytes, punctuation as it stands in JSON, and words of syllables, half of them after a space.
fn tokens() -> Vec<String> {
    let printable = ('!'..='~')
        .chain('\u{a1}'..='\u{ac}')
        .chain('\u{ae}'..='\u{ff}');
    let mut tokens: Vec<String> = printable
        .chain('\u{100}'..='\u{143}')
        .map(String::from)
        .collect();
    let space = '\u{120}';
    for mark in [
        "\":", "\",", "{\"", "\"}", "},", "[\"", "\"]", "\":\"", "\\\"", "[]",
    ] {
        tokens.push(mark.to_owned());
        tokens.push(format!("{mark}{space}"));
        tokens.push(format!("{mark}{space}\""));
    }
    let syllables = [
        "a", "ba", "con", "de", "er", "fi", "ing", "ka", "lo", "me", "na", "or", "pre", "re", "st",
        "ter", "un", "ve", "wi", "ya", "1", "2", "3", "4", "é",
    ];
    let mut known: HashSet<String> = tokens.iter().cloned().collect();
    let mut number = 0_usize;
    while tokens.len() < VOCABULARY - 1 {
        let (mut rest, mut word) = (number / 2 + syllables.len(), String::new());
        while rest > 0 {
            word.push_str(syllables[rest % syllables.len()]);
            rest /= syllables.len();
        }
        let before = if number.is_multiple_of(2) {
            ""
        } else {
            "\u{120}"
        };
        number += 1;
        let token = format!("{before}{word}");
        if known.insert(token.clone()) {
            tokens.push(token);
        }
    }
    tokens.push("<|end|>".to_owned());
    tokens
}

fn grammars() -> Grammars {
    let mut types = vec![1; VOCABULARY];
    types[END as usize] = 3;
    let vocabulary = Vocabulary {
        kind: VocabularyKind::BytePairs {
            pre: "default".to_owned(),
            merges: Vec::new(),
        },
        tokens: tokens(),
        types,
        ..Vocabulary::default()
    };
    let tokenizer = vocabulary.tokenizer().and_then(Tokenizer::new);
    let tokenizer = tokenizer.expect("the vocabulary is a tokenizer's");
    let template = TextError::Missing {
        what: "the model's chat template".to_owned(),
    };
    let language = Language {
        reader: Reader::local(tokenizer, Err(template)),
        ends: vec![END],
        defaults: Sampling::default(),
        markup: Markup::default(),
    };
    Grammars::new(Arc::new(language), VOCABULARY, None)
}

/// Fields of every kind.
fn schema(fields: usize) -> Value {
    let field = |index: usize| match index % 5 {
        0 => json!({"type": "string"}),
        1 => json!({"type": "integer", "minimum": 0, "maximum": 10_000}),
        2 => json!({"enum": ["one", "two", "three"]}),
        3 => json!({"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 4}),
        _ => {
            json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}},
            "required": ["a", "b"], "additionalProperties": false})
        }
    };
    let properties: Map<String, Value> = (0..fields)
        .map(|index| (format!("field_{index}"), field(index)))
        .collect();
    let required: Vec<&String> = properties.keys().collect();
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false})
}

fn guide(grammars: &Grammars, answer: Answer) -> Guide {
    let guide = grammars.guide(
        &Grammar::answer(answer),
        CacheScope::default(),
        Begins::AfterPrompt,
        &StopRules::default(),
        &[],
    );
    guide.expect("the schema compiles")
}

/// A random text within the masks, and the time of its masks.
fn follow(mut guide: Guide, seed: u64) -> (Duration, u64) {
    let (mut spent, mut drawn) = (Duration::ZERO, 0);
    while !guide.is_finished() && drawn < 400 {
        let began = Instant::now();
        let mask = guide.mask().expect("the grammar goes on");
        spent += began.elapsed();
        let first = (uniform(seed, 0, drawn) * VOCABULARY as f64) as u32;
        let mut ids = (first..VOCABULARY as u32).chain(0..first);
        let Some(id) = ids.find(|&id| mask.allows(id)) else {
            break;
        };
        drawn += 1;
        let began = Instant::now();
        guide.take(id).expect("the mask allowed it");
        spent += began.elapsed();
        if id == END {
            break;
        }
    }
    (spent, drawn)
}

fn masks(criterion: &mut Criterion) {
    let grammars = grammars();
    let cases = [
        ("10 fields", Answer::JsonSchema(schema(10))),
        ("200 fields", Answer::JsonSchema(schema(200))),
        ("any object", Answer::JsonObject),
        ("a regex", Answer::Regex("([a-z]{1,12} ){20,40}".to_owned())),
    ];
    for (name, answer) in cases {
        criterion.bench_function(&format!("mask of a token, {name}"), |bencher| {
            bencher.iter_custom(|tokens| {
                let (mut spent, mut counted, mut seed) = (Duration::ZERO, 0, 0);
                while counted < tokens {
                    let (more, drawn) = follow(guide(&grammars, answer.clone()), seed);
                    (spent, counted, seed) = (spent + more, counted + drawn.max(1), seed + 1);
                }
                spent.mul_f64(tokens as f64 / counted as f64)
            });
        });
    }
}

fn compilation(criterion: &mut Criterion) {
    let grammars = grammars();
    let mut schema = schema(200);
    // The first grammar of a model makes the tree of its tokens.
    black_box(guide(&grammars, Answer::JsonObject));
    let mut number = 0;
    criterion.bench_function("compile a schema of 200 fields", |bencher| {
        bencher.iter(|| {
            number += 1;
            schema["title"] = json!(number);
            black_box(guide(&grammars, Answer::JsonSchema(schema.clone())));
        });
    });
    criterion.bench_function("find a schema of 200 fields", |bencher| {
        bencher.iter(|| black_box(guide(&grammars, Answer::JsonSchema(schema.clone()))));
    });
}

criterion_group!(benches, masks, compilation);
criterion_main!(benches);
