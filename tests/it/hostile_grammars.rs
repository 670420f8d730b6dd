//! Grammars that are made to break the library that compiles them: each costs its own request, and no worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster::runtime::grammar::{Answer, Grammar, Grammars, Prover, ProverProgram};
use muster::runtime::text::{Begins, Language, TextSource};
use muster::runtime::{CacheScope, Failure, StopRules};
use serde_json::{Value, json};

use crate::hostile_texts::send;
use crate::killed::serve;

const CHAT: &str = "/v1/chat/completions";
const LEAST: &str = "-9223372036854775808";

fn asked(fields: Value) -> Value {
    let mut body = json!({
        "model": "demo-text", "max_tokens": 20,
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn schema(schema: Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
}

fn strict_tool(parameters: Value) -> Value {
    let function = json!({"name": "f", "strict": true, "parameters": parameters});
    json!({"tools": [{"type": "function", "function": function}], "tool_choice": "required"})
}

#[test]
fn grammars_that_end_their_prover_cost_their_requests_and_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let mut worker = service.worker(folder.path(), "first");
    let least: Value = serde_json::from_str(LEAST).unwrap();
    let object = |value: Value| json!({"type": "object", "properties": {"a": value}, "required": ["a"], "additionalProperties": false});
    let lark = |json: &str| json!({"guided_grammar": format!("start: %json {json}")});
    let attacks = [
        (
            "a constant",
            schema(object(json!({"const": least}))),
            "properties.a.const",
        ),
        (
            "an enumeration",
            schema(object(json!({"enum": [1, least]}))),
            "properties.a.enum",
        ),
        (
            "a constant of a tool",
            strict_tool(object(json!({"const": least}))),
            "properties.a.const",
        ),
        (
            "a divisor",
            schema(object(
                json!({"type": "integer", "multipleOf": 2_147_483_648_u64}),
            )),
            "properties.a.multipleOf",
        ),
        (
            "a constant in Lark",
            lark(&format!("{{\"const\": {LEAST}}}")),
            "%json.const",
        ),
        (
            "a divisor in Lark",
            lark("{\"type\": \"integer\", \"multipleOf\": 2147483648}"),
            "%json.multipleOf",
        ),
        (
            "a lower bound that would be drawn down",
            schema(object(json!({"type": "integer", "minimum": 1e20}))),
            "properties.a.minimum",
        ),
        // The door sees values there, no schemas: these reach the prover.
        (
            "a constant behind a reference",
            schema(json!({"$ref": "#/default", "default": object(json!({"const": least}))})),
            "cannot be compiled",
        ),
        (
            "a divisor behind a reference",
            schema(json!({"$ref": "#/default", "default": object(
                json!({"type": "integer", "multipleOf": 2_147_483_648_u64}))})),
            "cannot be compiled",
        ),
    ];
    // The second time, from memory.
    for round in 0..2 {
        for (name, fields, reason) in &attacks {
            let (status, refused) = send(&service, CHAT, &asked(fields.clone()));
            assert_eq!(status, 400, "{name}, round {round}: {refused}");
            let message = refused["error"]["message"].as_str().unwrap();
            assert!(message.contains(reason), "{name}: {message}");
        }
    }
    let bounds = json!({"type": "integer", "minimum": least, "maximum": i64::MAX});
    let (status, reply) = send(&service, CHAT, &asked(schema(object(bounds.clone()))));
    assert_eq!(status, 200, "{reply}");
    let (status, reply) = send(&service, CHAT, &asked(lark(&bounds.to_string())));
    assert_eq!(status, 200, "{reply}");
    let (status, reply) = send(&service, CHAT, &asked(json!({})));
    assert_eq!(status, 200, "{reply}");
    let ended = worker.0.try_wait().unwrap();
    assert_eq!(ended, None, "the worker is the one that began");
}

fn fixture() -> Arc<Language> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-llama");
    let source = TextSource {
        folder: Some(Path::new(folder)),
        ..TextSource::default()
    };
    Arc::new(Language::open(source).unwrap())
}

fn grammars(language: &Arc<Language>) -> Grammars {
    let prover = Prover::new(ProverProgram {
        program: PathBuf::from(env!("CARGO_BIN_EXE_worker")),
        arguments: vec!["text-process".to_owned(), "--grammars".to_owned()],
    });
    let vocabulary = language.pieces().len();
    Grammars::new(Arc::clone(language), vocabulary, Some(Arc::new(prover)))
}

/// Compiles an answer's grammar and follows it for some tokens.
fn follow(
    grammars: &Grammars,
    answer: Answer,
    scope: u128,
    random: &mut Random,
) -> Result<(), Failure> {
    let mut guide = grammars.guide(
        &Grammar::answer(answer),
        CacheScope(scope),
        Begins::AfterPrompt,
        &StopRules::default(),
        &[],
    )?;
    for _ in 0..40 {
        let Ok(mask) = guide.mask() else {
            return Ok(());
        };
        let allowed: Vec<u32> = (0..32_000).filter(|&id| mask.allows(id)).collect();
        if allowed.is_empty() || guide.is_finished() {
            return Ok(());
        }
        let token = allowed[random.below(allowed.len())];
        if guide.take(token).is_err() || guide.take_forced().is_err() {
            return Ok(());
        }
    }
    Ok(())
}

#[test]
fn small_schemas_of_others_compile_beside_three_large_ones_of_one_account() {
    let language = fixture();
    let grammars = Arc::new(grammars(&language));
    let large = |seed: usize| {
        let names =
            (0..6000).map(|number| (format!("p{seed}_{number}"), json!({"type": "string"})));
        let properties: serde_json::Map<String, Value> = names.collect();
        Answer::JsonSchema(json!({"type": "object", "properties": properties}))
    };
    std::thread::scope(|threads| {
        for seed in 0..3 {
            let grammars = Arc::clone(&grammars);
            threads.spawn(move || {
                let _ = follow(&grammars, large(seed), 1, &mut Random(1));
            });
        }
        for number in 0..5 {
            let name = format!("n{number}");
            let small = json!({"type": "object", "properties": {name: {"type": "integer"}}});
            let compiled = follow(&grammars, Answer::JsonSchema(small), 2, &mut Random(2));
            assert_eq!(compiled, Ok(()));
        }
    });
}

/// Every source is compiled or refused within its limits, and the process that follows it lives.
#[test]
fn fuzz_sources_of_grammars() {
    let seconds = std::env::var("MUSTER_FUZZ_SECONDS").ok();
    let seconds = seconds.map_or(20, |text| {
        text.parse().expect("MUSTER_FUZZ_SECONDS is a number")
    });
    let until = Instant::now() + Duration::from_secs(seconds);
    let language = fixture();
    let grammars = grammars(&language);
    let (before, mut sources, mut refused) = (resident_bytes(), 0_u64, 0_u64);
    while Instant::now() < until {
        let mut random = Random(sources + 1);
        let answer = match random.below(3) {
            0 => Answer::JsonSchema(random_schema(&mut random, 0)),
            1 => Answer::Regex(random_pattern(&mut random, 0)),
            _ => Answer::Lark(random_lark(&mut random)),
        };
        let source = format!("{answer:?}");
        let outcome = follow(&grammars, answer, sources.into(), &mut random);
        match outcome {
            Ok(()) => {}
            Err(Failure::BadRequest(_) | Failure::Busy { .. }) => refused += 1,
            Err(other) => panic!("source {sources}: {other}: {source}"),
        }
        sources += 1;
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 2 << 30, "{grown} bytes more after {source}");
    }
    assert!(refused < sources, "nothing was compiled of {sources}");
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// A sequence that is the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

fn random_number(random: &mut Random) -> Value {
    let numbers = [
        json!(0),
        json!(1),
        json!(-1),
        json!(7),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(2_147_483_648_u64),
        json!(9_007_199_254_740_992_u64),
        json!(1e308),
        json!(0.1),
        json!(1e-9),
        json!(12.75),
    ];
    random.pick(&numbers).clone()
}

fn random_schema(random: &mut Random, depth: usize) -> Value {
    let length = [0, 1, 3, 100, 5000, 1_000_000_000];
    let mut schema = json!({});
    match random.below(if depth > 3 { 6 } else { 11 }) {
        0 => {
            schema["type"] = json!("integer");
            for bound in [
                "minimum",
                "maximum",
                "exclusiveMinimum",
                "exclusiveMaximum",
                "multipleOf",
            ] {
                if random.below(3) == 0 {
                    schema[bound] = random_number(random);
                }
            }
        }
        1 => schema = json!({"type": "number", "minimum": random_number(random)}),
        2 => {
            schema = json!({"type": "string", "minLength": random.pick(&length), "maxLength": random.pick(&length)})
        }
        3 => schema = json!({"type": "string", "pattern": random_pattern(random, 0)}),
        4 => {
            schema =
                json!({"enum": [random_number(random), "a", null, {"b": random_number(random)}]})
        }
        5 => schema = json!({"const": random_number(random)}),
        6 => {
            schema = json!({"type": "array", "items": random_schema(random, depth + 1)});
            schema["minItems"] = json!(random.pick(&length));
            schema["maxItems"] = json!(random.pick(&length));
        }
        7 | 8 => {
            let count = *random.pick(&[0, 1, 3, 20, 300]);
            let fields = (0..count).map(|at| (format!("p{at}"), random_schema(random, depth + 2)));
            let fields: serde_json::Map<String, Value> = fields.collect();
            let required: Vec<String> = fields
                .keys()
                .filter(|_| random.below(2) == 0)
                .cloned()
                .collect();
            schema = json!({"type": "object", "properties": fields, "required": required});
        }
        9 => {
            let many = (0..random.below(6) + 1).map(|_| random_schema(random, depth + 1));
            let many: Vec<Value> = many.collect();
            schema[*random.pick(&["anyOf", "oneOf", "allOf"])] = json!(many);
        }
        _ => {
            let target = random.pick(&["#", "#/$defs/a", "#/$defs/missing"]);
            schema = json!({"$ref": target, "$defs": {"a": random_schema(random, depth + 1)}});
        }
    }
    schema
}

fn random_pattern(random: &mut Random, depth: usize) -> String {
    let mut pattern = String::new();
    for _ in 0..random.below(5) + 1 {
        let atom = match random.below(if depth > 3 { 6 } else { 8 }) {
            0 => "a".to_owned(),
            1 => "[a-z]".to_owned(),
            2 => ".".to_owned(),
            3 => r"\w".to_owned(),
            4 => r"\p{L}".to_owned(),
            5 => r"(a|b|ab)".to_owned(),
            6 => format!("({})", random_pattern(random, depth + 1)),
            _ => format!(
                "({}|{})",
                random_pattern(random, depth + 1),
                random_pattern(random, depth + 1)
            ),
        };
        let repeat = ["", "", "*", "+", "?", "{3}", "{0,50}", "{1000}", "{2000,}"];
        pattern.push_str(&atom);
        pattern.push_str(random.pick::<&str>(&repeat));
    }
    pattern
}

fn random_lark(random: &mut Random) -> String {
    let mut rules = Vec::new();
    for rule in ["start", "x", "y", "z"] {
        let mut choices = Vec::new();
        for _ in 0..random.below(3) + 1 {
            let mut parts = Vec::new();
            for _ in 0..random.below(4) + 1 {
                let part = match random.below(9) {
                    0 => "\"a\"".to_owned(),
                    1 => "\"a\" \"a\"".to_owned(),
                    2 => "\"a\"?".to_owned(),
                    3 => format!("/{}/", random_pattern(random, 2)),
                    4 => "x".to_owned(),
                    5 => "y*".to_owned(),
                    6 => format!("z{{{}}}", random.pick(&[2, 20, 1000])),
                    7 => format!("%json {}", random_schema(random, 3)),
                    _ => "(x | y | \"b\")".to_owned(),
                };
                parts.push(part);
            }
            choices.push(parts.join(" "));
        }
        rules.push(format!("{rule}: {}", choices.join(" | ")));
    }
    rules.join("\n")
}
