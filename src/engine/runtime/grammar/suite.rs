//! The public test suite of JSON Schema, on grammars that are compiled from its schemas.

use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs};

use serde_json::Value;

use super::{Answer, Grammar, Grammars};
use crate::runtime::text::{
    Begins, Language, Markup, Reader, TextError, Tokenizer, Vocabulary, VocabularyKind,
};
use crate::runtime::{CacheScope, Sampling, StopRules};

const END: u32 = 256;

/// One token per byte, spelled as in byte-level vocabularies.
fn bytes() -> Grammars {
    let is_plain = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let shifted = |byte: u32| 0x100 + (0..byte).filter(|other| !is_plain(other)).count() as u32;
    let letter = |byte: u32| match is_plain(&byte) {
        true => byte,
        false => shifted(byte),
    };
    let mut tokens: Vec<String> = (0..256)
        .map(|byte| char::from_u32(letter(byte)).unwrap().to_string())
        .collect();
    tokens.push("<|end|>".to_owned());
    let mut types = vec![1; tokens.len()];
    types[END as usize] = 3;
    let vocabulary = Vocabulary {
        kind: VocabularyKind::BytePairs {
            pre: "default".to_owned(),
            merges: Vec::new(),
        },
        tokens,
        types,
        ..Vocabulary::default()
    };
    let tokenizer = vocabulary.tokenizer().and_then(Tokenizer::new).unwrap();
    let template = TextError::Missing {
        what: "the model's chat template".to_owned(),
    };
    let language = Language {
        reader: Reader::local(tokenizer, Err(template)),
        ends: vec![END],
        defaults: Sampling::default(),
        markup: Markup::default(),
    };
    Grammars::new(Arc::new(language), 257, None)
}

/// Whether the grammar allows this text; `None` where it is refused or not compiled.
fn allows(grammars: &Grammars, schema: &Value, text: &str) -> Option<bool> {
    let grammar = Grammar::answer(Answer::JsonSchema(schema.clone()));
    let rules = StopRules::default();
    let mut guide = grammars
        .guide(
            &grammar,
            CacheScope::default(),
            Begins::AfterPrompt,
            &rules,
            &[],
        )
        .ok()?;
    let is_taken = text.bytes().all(|byte| guide.take(byte.into()).is_ok());
    Some(is_taken && guide.is_accepting())
}

/// `value` as grammars write it: as `json.dumps` does, properties in the schema's order where it names them.
fn written(value: &Value, schema: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::Array(items) => {
            let items = items.iter().map(|item| written(item, &Value::Null));
            format!("[{}]", list(items.collect()))
        }
        Value::Object(entries) => {
            let order: Vec<&String> = schema["properties"]
                .as_object()
                .map(|named| named.keys().collect())
                .unwrap_or_default();
            let place = |name: &String| order.iter().position(|known| *known == name);
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
            let entry = |(name, value): (&String, &Value)| {
                let inner = &schema["properties"][name];
                format!("{}: {}", Value::from(name.as_str()), written(value, inner))
            };
            format!("{{{}}}", list(entries.into_iter().map(entry).collect()))
        }
        plain => plain.to_string(),
    }
}

/// Values that a schema forbids are never written. (Numbers such as 1.0 for an integer, another order of properties and
/// exotic escapes are values that a schema allows and a grammar does not write.)
#[test]
fn what_a_schema_of_the_public_suite_forbids_is_not_written() {
    let folder = env::var_os("MUSTER_TEST_JSON_SCHEMA").map(PathBuf::from);
    let folder = folder.expect("MUSTER_TEST_JSON_SCHEMA is not set: run this through ./test");
    let grammars = bytes();
    let (mut schemas, mut compiled, mut kept, mut missed) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    let mut files: Vec<_> = fs::read_dir(folder.join("draft2020-12"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    files.sort();
    for file in files {
        let groups: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for group in groups.as_array().unwrap() {
            schemas += 1;
            let schema = &group["schema"];
            let mut counts = false;
            for case in group["tests"].as_array().unwrap() {
                let text = written(&case["data"], schema);
                let Some(is_allowed) = allows(&grammars, schema, &text) else {
                    break;
                };
                counts = true;
                match (is_allowed, case["valid"] == true) {
                    (true, false) => wrong.push(format!(
                        "{}: {}: {}: {text}",
                        file.file_name().unwrap().display(),
                        group["description"],
                        case["description"]
                    )),
                    (false, true) => missed += 1,
                    _ => kept += 1,
                }
            }
            compiled += usize::from(counts);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // The others use keywords that no grammar enforces, or refer to other documents.
    assert!(compiled >= 160, "{compiled} of {schemas}");
    assert!(kept >= 20 * missed, "{kept} kept, {missed} missed");
}

/// Schemas as pydantic and zod write them.
#[test]
fn schemas_of_generators_are_kept_to() {
    let grammars = bytes();
    for text in [
        include_str!("../../../../tests/fixtures/schemas/pydantic.json"),
        include_str!("../../../../tests/fixtures/schemas/zod.json"),
    ] {
        let read: Value = serde_json::from_str(text).unwrap();
        let (schema, value) = (&read["schema"], &read["value"]);
        let right = written(value, schema);
        assert_eq!(allows(&grammars, schema, &right), Some(true), "{right}");
        for change in read["wrong"].as_array().unwrap() {
            let mut wrong = value.clone();
            wrong[change[0].as_str().unwrap()] = change[1].clone();
            let wrong = written(&wrong, schema);
            assert_eq!(allows(&grammars, schema, &wrong), Some(false), "{wrong}");
        }
    }
}
