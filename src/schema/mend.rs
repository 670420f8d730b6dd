//! Converts schemas of common generators to a form that the library compiles and that allows no further values.
//!
//! - An unknown `format` is an annotation, by the standard.
//! - `oneOf` with disjoint branches is `anyOf`.
//! - `minProperties` that the required ones satisfy, and `maxProperties` that the known ones cannot exceed, are
//!   dropped.
//! - `propertyNames` of strings is dropped: names are strings.
//! - Look-ahead patterns of well-known generators are replaced.

use serde_json::{Map, Value};

use super::NAMED;

/// Formats that the library enforces.
const FORMATS: [&str; 10] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "time",
    "uri",
    "uuid",
];
const LISTED: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const SINGLE: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
const LOOKS_AROUND: [&str; 4] = ["(?=", "(?!", "(?<=", "(?<!"];
/// Limit of references that are followed for the values of a branch.
const MOST_STEPS: usize = 16;

/// Types of JSON, a bit each.
mod kinds {
    pub const NULL: u8 = 1;
    pub const FLAG: u8 = 2;
    pub const NUMBER: u8 = 4;
    pub const TEXT: u8 = 8;
    pub const LIST: u8 = 16;
    pub const OBJECT: u8 = 32;
    pub const ALL: u8 = 63;
}

/// Whether `propertyNames` forbids nothing.
pub fn allows_every_name(names: &Value) -> bool {
    match names {
        Value::Bool(allows) => *allows,
        Value::Object(entries) => entries
            .iter()
            .all(|(key, value)| key == "type" && value == "string"),
        _ => false,
    }
}

pub fn mend(schema: &mut Value) {
    let root = schema.clone();
    mend_at(schema, &root);
}

fn mend_at(schema: &mut Value, root: &Value) {
    let Value::Object(entries) = schema else {
        return;
    };
    mend_text(entries);
    mend_counts(entries);
    if entries.get("propertyNames").is_some_and(allows_every_name) {
        entries.shift_remove("propertyNames");
    }
    if !entries.contains_key("anyOf")
        && let Some(Value::Array(branches)) = entries.get("oneOf")
        && are_apart(branches, root)
        && let Some(branches) = entries.shift_remove("oneOf")
    {
        entries.insert("anyOf".to_owned(), branches);
    }
    for (key, value) in entries.iter_mut() {
        let key = key.as_str();
        match value {
            Value::Object(named) if NAMED.contains(&key) => {
                named.values_mut().for_each(|value| mend_at(value, root));
            }
            Value::Array(list) if LISTED.contains(&key) || key == "items" => {
                list.iter_mut().for_each(|value| mend_at(value, root));
            }
            value if SINGLE.contains(&key) => mend_at(value, root),
            _ => {}
        }
    }
}

fn mend_text(entries: &mut Map<String, Value>) {
    let format = entries.get("format").and_then(Value::as_str);
    let is_known = format.is_some_and(|format| FORMATS.contains(&format));
    if !is_known {
        entries.shift_remove("format");
    }
    let Some(pattern) = entries.get("pattern").and_then(Value::as_str) else {
        return;
    };
    if !LOOKS_AROUND.iter().any(|sign| pattern.contains(sign)) {
        return;
    }
    if is_known {
        // The format and its pattern have the same meaning.
        entries.shift_remove("pattern");
    } else if let Some(plain) = decimal(pattern) {
        entries.insert("pattern".to_owned(), plain.into());
    }
}

/// The pattern of a decimal in pydantic's schemas, without look-ahead.
fn decimal(pattern: &str) -> Option<String> {
    let rest = pattern.strip_prefix(r"^(?!^[-+.]*$)[+-]?0*")?;
    let digits = |most: &str| format!(r"^[+-]?([0-9]+(\.[0-9]{most})?|\.[0-9]{{1,}})$");
    if rest == r"\d*\.?\d*$" {
        return Some(digits("*"));
    }
    let bound = |text: &str, before: &str| -> Option<u32> {
        let (_, behind) = text.split_once(before)?;
        behind.split_once('}')?.0.parse().ok()
    };
    if let Some(rest) = rest.strip_prefix(r"\d*\.?") {
        let most = bound(rest, r"\d{0,")?;
        return Some(format!(
            r"^[+-]?([0-9]+(\.[0-9]{{0,{most}}})?|\.[0-9]{{1,{}}})$",
            most.max(1)
        ));
    }
    let (whole, rest) = rest.strip_prefix("(?:")?.split_once('|')?;
    let whole = bound(whole, r"\d{0,")?;
    let decimals = bound(rest, r"\.\d{0,")?;
    Some(format!(
        r"^[+-]?0*([0-9]{{1,{}}}(\.[0-9]{{0,{decimals}}})?|\.[0-9]{{1,{}}})$",
        whole.max(1),
        decimals.max(1)
    ))
}

fn mend_counts(entries: &mut Map<String, Value>) {
    let count = |key: &str| entries.get(key).and_then(Value::as_u64);
    let (least, most) = (count("minProperties"), count("maxProperties"));
    if least.is_none() && most.is_none() {
        return;
    }
    let properties = entries.get("properties").and_then(Value::as_object);
    let required = entries.get("required").and_then(Value::as_array);
    let required = required.map_or(0, Vec::len) as u64;
    let is_closed = entries.get("additionalProperties") == Some(&Value::Bool(false))
        && !entries.contains_key("patternProperties");
    let known = properties.map_or(0, Map::len) as u64;
    if least.is_some_and(|least| least <= required) {
        entries.shift_remove("minProperties");
    }
    if most.is_some_and(|most| is_closed && most >= known) {
        entries.shift_remove("maxProperties");
    }
}

/// Whether no value satisfies two of the branches.
fn are_apart(branches: &[Value], root: &Value) -> bool {
    let pairs = branches.iter().enumerate();
    let mut pairs =
        pairs.flat_map(|(at, one)| branches[at + 1..].iter().map(move |two| (one, two)));
    branches.len() <= 64 && pairs.all(|(one, two)| is_apart(one, two, root))
}

fn is_apart(one: &Value, two: &Value, root: &Value) -> bool {
    let (one, two) = (followed(one, root), followed(two, root));
    let common = types(one, root, MOST_STEPS) & types(two, root, MOST_STEPS);
    if common == 0 {
        return true;
    }
    if let (Some(one), Some(two)) = (constants(one), constants(two)) {
        return !one.iter().any(|value| two.contains(value));
    }
    common == kinds::OBJECT && are_told_apart(one, two, root)
}

/// Whether a property that both require has other values in each.
fn are_told_apart(one: &Value, two: &Value, root: &Value) -> bool {
    let required = |schema: &Value, name: &str| {
        let names = schema["required"].as_array();
        names.is_some_and(|names| names.iter().any(|one| one == name))
    };
    let Some(properties) = one["properties"].as_object() else {
        return false;
    };
    properties.iter().any(|(name, property)| {
        let other = &two["properties"][name];
        let values = (
            constants(followed(property, root)),
            constants(followed(other, root)),
        );
        match values {
            (Some(here), Some(there)) => {
                required(one, name)
                    && required(two, name)
                    && !here.iter().any(|value| there.contains(value))
            }
            _ => false,
        }
    })
}

/// The values that a schema lists.
fn constants(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(values))) => Some(values.iter().collect()),
        _ => None,
    }
}

/// A schema in place of a reference to it.
fn followed<'v>(schema: &'v Value, root: &'v Value) -> &'v Value {
    let mut schema = schema;
    for _ in 0..MOST_STEPS {
        let Some(target) = schema.get("$ref").and_then(Value::as_str) else {
            return schema;
        };
        match target.strip_prefix('#').and_then(|path| root.pointer(path)) {
            Some(found) => schema = found,
            None => return schema,
        }
    }
    schema
}

/// The types that a value of the schema may have.
fn types(schema: &Value, root: &Value, steps: usize) -> u8 {
    if steps == 0 {
        return kinds::ALL;
    }
    let schema = followed(schema, root);
    let Value::Object(entries) = schema else {
        return kinds::ALL;
    };
    let mut found = kinds::ALL;
    match entries.get("type") {
        Some(Value::String(name)) => found &= named(name),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            found &= names.map(named).fold(0, |all, one| all | one);
        }
        _ => {}
    }
    if let Some(values) = constants(schema) {
        found &= values.into_iter().map(of).fold(0, |all, one| all | one);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(branches)) = entries.get(key) {
            let branches = branches.iter().map(|branch| types(branch, root, steps - 1));
            found &= branches.fold(0, |all, one| all | one);
        }
    }
    if let Some(Value::Array(parts)) = entries.get("allOf") {
        let parts = parts.iter().map(|part| types(part, root, steps - 1));
        found = parts.fold(found, |all, one| all & one);
    }
    found
}

fn named(name: &str) -> u8 {
    match name {
        "null" => kinds::NULL,
        "boolean" => kinds::FLAG,
        "number" | "integer" => kinds::NUMBER,
        "string" => kinds::TEXT,
        "array" => kinds::LIST,
        "object" => kinds::OBJECT,
        _ => kinds::ALL,
    }
}

fn of(value: &Value) -> u8 {
    match value {
        Value::Null => kinds::NULL,
        Value::Bool(_) => kinds::FLAG,
        Value::Number(_) => kinds::NUMBER,
        Value::String(_) => kinds::TEXT,
        Value::Array(_) => kinds::LIST,
        Value::Object(_) => kinds::OBJECT,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{decimal, mend};

    #[track_caller]
    fn check(mut schema: Value, wanted: &Value) {
        mend(&mut schema);
        assert_eq!(schema, *wanted);
    }

    #[test]
    fn unknown_formats_are_notes() {
        let wanted = json!({"properties": {"format": {"type": "string"}, "b": {"format": "uuid"}}});
        let schema = json!({"properties": {"format": {"type": "string", "format": "binary"}, "b": {"format": "uuid"}}});
        check(schema, &wanted);
    }

    #[test]
    fn branches_that_share_no_value_need_no_count() {
        let defs = json!({"A": {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
            "B": {"type": "object", "properties": {"k": {"enum": ["b", "c"]}}, "required": ["k"]},
            "Loop": {"oneOf": [{"$ref": "#/$defs/Loop"}, {"type": "null"}]}});
        let of = |key: &str, branches: Value| json!({"$defs": defs, key: branches});
        let apart = [
            json!([{"$ref": "#/$defs/A"}, {"type": "null"}]),
            json!([{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]),
            json!([{"type": "string"}, {"type": ["integer", "null"]}]),
            json!([{"const": 1}, {"const": 2}]),
        ];
        for branches in apart {
            let mut mended = of("oneOf", branches.clone());
            mend(&mut mended);
            assert_eq!(mended["anyOf"], branches);
        }
        let together = [
            json!([{"$ref": "#/$defs/A"}, {"type": "object"}]),
            json!([{"type": "number"}, {"type": "integer"}]),
            json!([{"$ref": "#/$defs/Loop"}, {"type": "null"}]),
            json!([{"const": 1}, {"enum": [1, 2]}]),
            json!([{}, {"type": "null"}]),
        ];
        for branches in together {
            let mut mended = of("oneOf", branches.clone());
            mend(&mut mended);
            assert_eq!(mended["oneOf"], branches);
        }
    }

    #[test]
    fn counts_that_say_nothing_are_left_out() {
        let object = |more: Value| {
            let mut schema = json!({"properties": {"a": {}, "b": {}}, "required": ["a"], "additionalProperties": false});
            for (key, value) in more.as_object().unwrap() {
                schema[key] = value.clone();
            }
            schema
        };
        check(
            object(json!({"minProperties": 1, "maxProperties": 2})),
            &object(json!({})),
        );
        let bounded = object(json!({"minProperties": 2, "maxProperties": 1}));
        check(bounded.clone(), &bounded);
        let names = json!({"propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}});
        check(names, &json!({"additionalProperties": {"type": "number"}}));
        let names = json!({"propertyNames": {"enum": ["a"]}});
        check(names.clone(), &names);
    }

    #[test]
    fn patterns_of_decimals_have_a_form_without_look_ahead() {
        let check = |rest: &str, wanted: &str| {
            let pattern = format!(r"^(?!^[-+.]*$)[+-]?0*{rest}");
            assert_eq!(decimal(&pattern).as_deref(), Some(wanted), "{rest}");
        };
        check(r"\d*\.?\d*$", r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]{1,})$");
        check(
            r"\d*\.?\d{0,2}0*$",
            r"^[+-]?([0-9]+(\.[0-9]{0,2})?|\.[0-9]{1,2})$",
        );
        check(
            r"(?:\d{0,3}|(?=[\d.]{1,6}0*$)\d{0,3}\.\d{0,2}0*$)",
            r"^[+-]?0*([0-9]{1,3}(\.[0-9]{0,2})?|\.[0-9]{1,2})$",
        );
        assert_eq!(decimal("^(?!a)b$"), None);
    }
}
