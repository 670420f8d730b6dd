//! Replies are checked against JSON Schemas: those of the AI Horde contract, and those of the OpenAPI document. A key
//! that a schema does not name is an error.

use std::sync::LazyLock;

use axum::http::StatusCode;
use muster::protocol::legacy::Code;
use serde_json::Value;

/// Codes that some routes send with a status of their own.
const ELSEWHERE: [(&str, u16); 4] = [
    // A shared key that is shown.
    ("InvalidAPIKey", 404),
    // A shared key that has to pay for a style, or receives kudos.
    ("SharedKeyEmpty", 400),
    ("SharedKeyExpired", 400),
    // Kudos from or to a user who is being deleted.
    ("DeletedUser", 400),
];

static CONTRACT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../src/protocol/legacy/schemas.json")).unwrap()
});

/// Panics unless the reply fits the contract.
pub fn assert_fits(name: &str, reply: &Value) {
    let mut wrong = Vec::new();
    check(&CONTRACT, named(name), reply, name, &mut wrong);
    assert!(wrong.is_empty(), "{wrong:?} in {reply}");
}

/// The paths of a value that do not fit a schema of a document.
pub fn misfits(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    check(document, schema, value, "body", &mut wrong);
    wrong
}

/// The same of every item of a list.
pub fn assert_all_fit(name: &str, reply: &Value) {
    let items = reply.as_array();
    let items = items.unwrap_or_else(|| panic!("no list: {reply}"));
    items.iter().for_each(|item| assert_fits(name, item));
}

/// Panics where a code is sent that is not documented, or with a status that is not.
#[track_caller]
pub fn assert_documented(status: StatusCode, reply: &Value) {
    let Some(rc) = reply["rc"].as_str() else {
        return;
    };
    let code = Code::ALL.iter().find(|code| code.row().rc == rc);
    let row = code
        .unwrap_or_else(|| panic!("{rc} is not documented"))
        .row();
    let status = status.as_u16();
    assert!(
        row.status == status || ELSEWHERE.contains(&(rc, status)),
        "found {rc} with {status}, wanted {}",
        row.status
    );
}

fn named(name: &str) -> &'static Value {
    let schema = &CONTRACT["$defs"][name];
    assert!(schema.is_object(), "the contract has no {name}");
    schema
}

fn check(root: &Value, schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    if let Some(pointer) = schema["$ref"].as_str() {
        let found = root.pointer(pointer.strip_prefix('#').unwrap());
        let found = found.unwrap_or_else(|| panic!("nothing at {pointer}"));
        return check(root, found, value, path, wrong);
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let fits = |schema: &Value| {
            let mut wrong = Vec::new();
            check(root, schema, value, path, &mut wrong);
            wrong.is_empty()
        };
        if !alternatives.iter().any(fits) {
            wrong.push(format!("{path} fits no alternative"));
        }
        return;
    }
    let is_listed = match schema["enum"].as_array() {
        Some(words) => value.is_null() || words.contains(value),
        None => true,
    };
    if !is_listed || !has_type(&schema["type"], value) {
        return wrong.push(path.to_owned());
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.{index}");
        check(root, &schema["items"], item, &path, wrong);
    }
    let Some(entries) = value.as_object() else {
        return;
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !entries.contains_key(name.as_str().unwrap()) {
            wrong.push(format!("{path} without {name}"));
        }
    }
    let is_free = schema.get("properties").is_none();
    for (name, entry) in entries {
        let path = format!("{path}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, more @ Value::Object(_)) => check(root, more, entry, &path, wrong),
            (Value::Null, _) if is_free => {}
            (Value::Null, _) => wrong.push(path),
            (known, _) => check(root, known, entry, &path, wrong),
        }
    }
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type is called {other}"),
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        _ => true,
    }
}
