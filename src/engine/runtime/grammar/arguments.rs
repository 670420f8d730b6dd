//! Separate arguments of a function, for markups with tags or names.

use serde_json::{Map, Value};

use crate::runtime::text::JsonTypes;

/// Keywords of a schema besides its properties that do not affect the set of arguments.
const SILENT: [&str; 12] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "default",
    "examples",
    "$schema",
    "$comment",
    "$defs",
    "definitions",
];
/// Keywords of definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Texts with a shorter bound are held to it, others to none.
const LONGEST_BOUND: u64 = 1000;

#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    pub name: String,
    pub is_required: bool,
    pub written: ArgumentForm,
}

/// How its value is written.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgumentForm {
    /// Verbatim text.
    Text { least: u64, most: Option<u64> },
    /// A choice of verbatim texts.
    OneOf(Vec<String>),
    /// JSON of this schema.
    Json(Value),
}

/// `None` if a list of arguments cannot express the schema, or if its constraints on texts cannot be enforced without
/// quotes. With `is_json` all values are written as JSON.
pub fn one_by_one(parameters: &Value, strict: bool, is_json: bool) -> Option<Vec<Argument>> {
    let entries = parameters.as_object()?;
    if !entries.keys().all(|key| SILENT.contains(&key.as_str())) {
        return None;
    }
    let properties = entries.get("properties")?.as_object()?;
    let required: Vec<&str> = match entries.get("required") {
        Some(names) => {
            let names = names.as_array()?.iter();
            names.map(Value::as_str).collect::<Option<_>>()?
        }
        None => Vec::new(),
    };
    if !required.iter().all(|name| properties.contains_key(*name)) {
        return None;
    }
    let argument = |(name, schema): (&String, &Value)| {
        let written = match is_json {
            true => with_definitions(schema, entries).map(ArgumentForm::Json),
            false => written(schema, entries, parameters, strict),
        };
        Some(Argument {
            name: name.clone(),
            is_required: required.contains(&name.as_str()),
            written: written?,
        })
    };
    properties.iter().map(argument).collect()
}

fn written(
    schema: &Value,
    root: &Map<String, Value>,
    parameters: &Value,
    strict: bool,
) -> Option<ArgumentForm> {
    let types = JsonTypes::of(schema, parameters);
    if let Some(values) = schema["enum"].as_array() {
        return one_of(values, types);
    }
    if let Some(value) = schema.get("const") {
        return one_of(std::slice::from_ref(value), types);
    }
    if !types.string {
        return with_definitions(schema, root).map(ArgumentForm::Json);
    }
    let free = ArgumentForm::Text {
        least: 0,
        most: None,
    };
    if !strict && !types.is_string() {
        return Some(free);
    }
    let said = schema.as_object()?;
    let is_plain = |key: &str| {
        let bounds = ["minLength", "maxLength"];
        bounds.contains(&key) || (SILENT.contains(&key) && !DEFINITIONS.contains(&key))
    };
    let is_plain = types.is_string() && said.keys().all(|key| is_plain(key));
    if !is_plain {
        return (!strict).then_some(free);
    }
    let bound = |key: &str| said.get(key).and_then(Value::as_u64);
    let (least, most) = (bound("minLength").unwrap_or(0), bound("maxLength"));
    let is_short = least <= LONGEST_BOUND && most.is_none_or(|most| most <= LONGEST_BOUND);
    match is_short {
        true => Some(ArgumentForm::Text { least, most }),
        false => (!strict).then_some(free),
    }
}

/// `None` if any value would be parsed as another type.
fn one_of(values: &[Value], types: JsonTypes) -> Option<ArgumentForm> {
    let text = |value: &Value| {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let json = value.to_string();
        let is_read = types.json_of(&text) == json && text.trim() == text;
        (is_read && !text.is_empty() && !text.contains('<')).then_some(text)
    };
    let texts = values.iter().map(text).collect::<Option<Vec<_>>>()?;
    (!texts.is_empty()).then_some(ArgumentForm::OneOf(texts))
}

/// A property as a standalone schema, with the definitions of its references.
fn with_definitions(schema: &Value, root: &Map<String, Value>) -> Option<Value> {
    let mut schema = schema.clone();
    let entries = match &mut schema {
        Value::Object(entries) => entries,
        Value::Bool(true) => return Some(schema),
        _ => return None,
    };
    for key in DEFINITIONS {
        if let (Some(definitions), false) = (root.get(key), entries.contains_key(key)) {
            entries.insert(key.to_owned(), definitions.clone());
        }
    }
    Some(schema)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ArgumentForm, one_by_one};

    fn written(schema: Value, strict: bool) -> Option<ArgumentForm> {
        let parameters = json!({"type": "object", "properties": {"a": schema}});
        one_by_one(&parameters, strict, false).map(|mut it| it.remove(0).written)
    }

    fn text(least: u64, most: Option<u64>) -> Option<ArgumentForm> {
        Some(ArgumentForm::Text { least, most })
    }

    #[test]
    fn values_are_written_as_their_schema_allows() {
        for strict in [true, false] {
            assert_eq!(
                written(json!({"type": "string", "title": "A"}), strict),
                text(0, None)
            );
            let short = json!({"type": "string", "minLength": 1, "maxLength": 8});
            assert_eq!(written(short, strict), text(1, Some(8)));
            let count = json!({"type": "integer", "minimum": 3});
            assert_eq!(
                written(count.clone(), strict),
                Some(ArgumentForm::Json(count))
            );
            let moods = json!({"enum": ["calm", null]});
            let calm = ArgumentForm::OneOf(vec!["calm".to_owned(), "null".to_owned()]);
            assert_eq!(written(moods, strict), Some(calm));
            // A text that reads as null, and one that would end its tag.
            assert_eq!(written(json!({"enum": ["null", null]}), strict), None);
            assert_eq!(written(json!({"enum": ["a</parameter>"]}), strict), None);
        }
        for schema in [
            json!({"type": "string", "pattern": "^a"}),
            json!({"type": ["string", "null"]}),
            json!({"type": "string", "maxLength": 100_000}),
            json!({}),
        ] {
            assert_eq!(written(schema.clone(), true), None, "{schema}");
            assert_eq!(written(schema, false), text(0, None));
        }
    }

    #[test]
    fn a_schema_that_says_more_than_a_list_has_none() {
        let properties = json!({"a": {"type": "string"}});
        let with = |key: &str, value: Value| {
            let mut parameters = json!({"type": "object", "properties": properties});
            parameters[key] = value;
            one_by_one(&parameters, false, false).is_some()
        };
        assert!(with("description", json!("Looks.")));
        assert!(with("required", json!(["a"])));
        assert!(!with("required", json!(["b"])));
        assert!(!with("anyOf", json!([{"required": ["a"]}])));
        assert!(!with("minProperties", json!(1)));
        assert_eq!(one_by_one(&json!({"type": "object"}), false, false), None);
        let none = json!({"type": "object", "properties": {}});
        assert_eq!(one_by_one(&none, true, false), Some(Vec::new()));
    }

    #[test]
    fn references_lead_to_the_definitions_of_the_whole() {
        let point = json!({"type": "array", "items": {"type": "number"}});
        let parameters = json!({
            "type": "object", "$defs": {"point": point}, "properties": {"at": {"$ref": "#/$defs/point"}},
        });
        let arguments = one_by_one(&parameters, true, false).unwrap();
        let wanted = json!({"$ref": "#/$defs/point", "$defs": {"point": point}});
        assert_eq!(arguments[0].written, ArgumentForm::Json(wanted));
    }
}
