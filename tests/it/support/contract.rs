//! The contract's schemas: what a route answers is held against them, down to which keys there may be.

use std::sync::LazyLock;

use serde_json::Value;

static CONTRACT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../fixtures/legacy/schemas.json")).unwrap()
});

/// Panics unless the reply is what the contract says.
pub fn assert_fits(name: &str, reply: &Value) {
    let mut wrong = Vec::new();
    check(named(name), reply, name, &mut wrong);
    assert!(wrong.is_empty(), "{wrong:?} in {reply}");
}

/// The same of every item of a list.
pub fn assert_all_fit(name: &str, reply: &Value) {
    let items = reply.as_array();
    let items = items.unwrap_or_else(|| panic!("no list: {reply}"));
    items.iter().for_each(|item| assert_fits(name, item));
}

fn named(name: &str) -> &'static Value {
    let schema = &CONTRACT["$defs"][name];
    assert!(schema.is_object(), "the contract has no {name}");
    schema
}

fn check(schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/$defs/").unwrap();
        return check(named(name), value, path, wrong);
    }
    let is_listed = match schema["enum"].as_array() {
        Some(words) => value.is_null() || words.contains(value),
        None => true,
    };
    if !is_listed || !has_type(&schema["type"], value) {
        return wrong.push(path.to_owned());
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], item, &format!("{path}.{index}"), wrong);
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
            (Value::Null, more @ Value::Object(_)) => check(more, entry, &path, wrong),
            (Value::Null, _) if is_free => {}
            (Value::Null, _) => wrong.push(path),
            (known, _) => check(known, entry, &path, wrong),
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
