//! The contract's schemas, for tests of rendered replies and of parsers. Supports only the keywords of JSON Schema that
//! occur in the file.

#![expect(
    clippy::unwrap_used,
    reason = "test support: a broken assumption fails the test"
)]

use std::collections::BTreeSet;
use std::fmt::Debug;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Body, Refusal, contract};

pub fn schema(name: &str) -> &'static Value {
    let schema = &contract::schemas()["$defs"][name];
    assert!(schema.is_object(), "the contract has no {name}");
    schema
}

/// Every `rc` the contract has seen, documented or sent.
pub fn known_codes() -> BTreeSet<String> {
    let lists = contract::schemas()["x-rc"].as_object().unwrap().values();
    let codes = lists.flat_map(|list| list.as_array().unwrap());
    codes
        .map(|code| code.as_str().unwrap().to_owned())
        .collect()
}

/// Panics unless the reply matches the contract exactly, without additional keys.
pub fn assert_fits(name: &str, reply: &impl Serialize) {
    let reply = serde_json::to_value(reply).unwrap();
    let mut wrong = Vec::new();
    check(schema(name), &reply, "", Extra::Refused, &mut wrong);
    assert!(wrong.is_empty(), "{name}: {wrong:?} in {reply}");
}

/// The paths of a body that the contract refuses.
pub fn refused(name: &str, body: &Value) -> BTreeSet<String> {
    let mut wrong = Vec::new();
    check(schema(name), body, "", Extra::Ignored, &mut wrong);
    wrong.into_iter().collect()
}

/// Whether keys the schema does not name are an error: in replies they are.
#[derive(Clone, Copy, PartialEq)]
enum Extra {
    Refused,
    Ignored,
}

fn check(schema: &Value, value: &Value, path: &str, extra: Extra, wrong: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/$defs/").unwrap();
        return check(self::schema(name), value, path, extra, wrong);
    }
    if !(has_type(schema, value) && within_limits(schema, value)) {
        wrong.push(path.to_owned());
        return;
    }
    let at = |part: &str| match path {
        "" => part.to_owned(),
        path => format!("{path}.{part}"),
    };
    if let Value::Array(items) = value {
        for (index, item) in items.iter().enumerate() {
            check(
                &schema["items"],
                item,
                &at(&index.to_string()),
                extra,
                wrong,
            );
        }
    }
    let Value::Object(entries) = value else {
        return;
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        if !entries.contains_key(name) {
            wrong.push(at(name));
        }
    }
    let free = schema.get("properties").is_none();
    for (name, entry) in entries {
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Object(more)) => {
                check(&Value::Object(more.clone()), entry, &at(name), extra, wrong);
            }
            (Value::Null, _) if free || extra == Extra::Ignored => {}
            (Value::Null, _) => wrong.push(at(name)),
            (known, _) => check(known, entry, &at(name), extra, wrong),
        }
    }
}

fn has_type(schema: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    };
    match &schema["type"] {
        Value::Null => true,
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        other => panic!("invalid type: {other}"),
    }
}

fn within_limits(schema: &Value, value: &Value) -> bool {
    let length = value.as_str().map(|text| text.chars().count() as f64);
    let at_least = |found: Option<f64>, limit: &str| match (found, schema[limit].as_f64()) {
        (Some(found), Some(limit)) => found >= limit,
        _ => true,
    };
    let at_most = |found: Option<f64>, limit: &str| match (found, schema[limit].as_f64()) {
        (Some(found), Some(limit)) => found <= limit,
        _ => true,
    };
    let in_steps = match (value.as_f64(), schema["multipleOf"].as_f64()) {
        (Some(found), Some(step)) => found % step == 0.0,
        _ => true,
    };
    let listed = match schema["enum"].as_array() {
        Some(words) if !value.is_null() => words.contains(value),
        _ => true,
    };
    let unique = match (value.as_array(), &schema["uniqueItems"]) {
        (Some(items), Value::Bool(true)) => {
            let texts: BTreeSet<_> = items.iter().map(Value::to_string).collect();
            texts.len() == items.len()
        }
        _ => true,
    };
    at_least(value.as_f64(), "minimum")
        && at_most(value.as_f64(), "maximum")
        && at_least(length, "minLength")
        && at_most(length, "maxLength")
        && in_steps
        && listed
        && unique
}

/// Compares a parser with the contract's schema of the same name: both accept or both refuse every interesting value of
/// every field, under the same path; missing fields get the contract's defaults; and a parsed body can be written and
/// parsed again.
pub fn assert_reads<B: Body + Serialize + PartialEq + Debug>(name: &str) {
    assert_reads_but::<B>(name, &[]);
}

/// The same, but for fields that are meant to be read in another way.
pub fn assert_reads_but<B: Body + Serialize + PartialEq + Debug>(name: &str, but: &[&str]) {
    let least = least_body(schema(name));
    for (body, field) in bodies_to_try(schema(name), &least) {
        if but.contains(&field.as_str()) {
            continue;
        }
        let expected = refused(name, &body);
        let found = match B::read(body.clone()) {
            Ok(read) => {
                let again = B::read(serde_json::to_value(&read).unwrap());
                assert_eq!(
                    again.as_ref(),
                    Ok(&read),
                    "{name}.{field} written and read again"
                );
                BTreeSet::new()
            }
            Err(Refusal::Invalid(errors)) => errors.into_iter().map(|(path, _)| path).collect(),
            Err(other) => panic!("{name}.{field}: {other}"),
        };
        assert_eq!(found, expected, "{name} read from {body}");
    }
    assert_defaults(name, &B::read(least).unwrap());
}

fn assert_defaults(name: &str, read: &impl Serialize) {
    let written = serde_json::to_value(read).unwrap();
    for (field, property) in schema(name)["properties"].as_object().unwrap() {
        if let (Some(found), Some(expected)) = (written.get(field), property.get("default")) {
            assert_eq!(found, expected, "the default of {name}.{field}");
        }
    }
}

/// The shortest body that is taken.
fn least_body(schema: &Value) -> Value {
    let required = schema["required"].as_array().into_iter().flatten();
    let entries = required.map(|name| {
        let name = name.as_str().unwrap();
        (name.to_owned(), taken(&schema["properties"][name]))
    });
    Value::Object(entries.collect())
}

/// A value the property takes.
fn taken(property: &Value) -> Value {
    if let Some(name) = property["$ref"].as_str() {
        return least_body(schema(name.strip_prefix("#/$defs/").unwrap()));
    }
    if let Some(words) = property["enum"].as_array() {
        return words[0].clone();
    }
    match property["type"].as_str() {
        Some("boolean") => json!(true),
        Some("integer" | "number") => property.get("minimum").cloned().unwrap_or(json!(1)),
        Some("string") => json!("x".repeat(property["minLength"].as_u64().unwrap_or(1) as usize)),
        Some("array") => json!([taken(&property["items"])]),
        _ => json!({}),
    }
}

/// The least body with one field changed, or one missing, or something else altogether.
fn bodies_to_try(schema: &Value, least: &Value) -> Vec<(Value, String)> {
    let with = |field: &str, value: Value| {
        let mut body = least.clone();
        body[field] = value;
        (body, field.to_owned())
    };
    let mut bodies = vec![
        (least.clone(), "nothing".to_owned()),
        (json!([]), "everything".to_owned()),
        (Value::Null, "everything".to_owned()),
        with("an unknown key", Value::Null),
    ];
    for (field, property) in schema["properties"].as_object().unwrap() {
        bodies.extend(
            values_to_try(property)
                .into_iter()
                .map(|value| with(field, value)),
        );
        let mut without = least.as_object().cloned().unwrap_or_default();
        if without.remove(field).is_some() {
            bodies.push((Value::Object(without), field.clone()));
        }
    }
    bodies
}

fn values_to_try(property: &Value) -> Vec<Value> {
    if let Some(name) = property["$ref"].as_str() {
        let inner = schema(name.strip_prefix("#/$defs/").unwrap());
        let least = least_body(inner);
        return bodies_to_try(inner, &least)
            .into_iter()
            .map(|(body, _)| body)
            .collect();
    }
    let mut values = vec![
        Value::Null,
        json!(true),
        json!("true"),
        json!(""),
        json!("5"),
        json!(5),
        json!(20.5),
        json!(512.0),
        json!(-1),
        json!(0),
        json!([]),
        json!({}),
        taken(property),
    ];
    for limit in ["minimum", "maximum"]
        .map(|limit| property[limit].as_f64())
        .into_iter()
        .flatten()
    {
        let step = property["multipleOf"].as_f64().unwrap_or(1.0);
        values.extend([limit - step, limit, limit + step, limit + 0.5].map(|near| json!(near)));
    }
    for limit in ["minLength", "maxLength"]
        .map(|limit| property[limit].as_u64())
        .into_iter()
        .flatten()
    {
        let near = [limit.saturating_sub(1), limit, limit + 1];
        values.extend(near.map(|length| json!("ä".repeat(length as usize))));
    }
    values.extend(property["enum"].as_array().into_iter().flatten().cloned());
    if property["type"] == "array" {
        let one = taken(&property["items"]);
        values.push(json!([one.clone(), one]));
        values.extend(
            values_to_try(&property["items"])
                .into_iter()
                .map(|item| json!([item])),
        );
    }
    values
}

#[test]
fn the_checker_sees_what_is_wrong_with_a_reply() {
    let mut wrong = Vec::new();
    let reply = json!({"id": 5, "message": "m", "extra": 1});
    check(
        schema("RequestInterrogationResponse"),
        &reply,
        "",
        Extra::Refused,
        &mut wrong,
    );
    assert_eq!(wrong, ["id", "extra"]);
    let missing: serde_json::Map<String, Value> = serde_json::Map::new();
    assert_eq!(
        refused("InterrogationStatus", &Value::Object(missing)),
        BTreeSet::from(["forms".to_owned(), "state".to_owned()])
    );
}
