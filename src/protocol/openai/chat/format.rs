//! The form the answer must have.

use serde_json::{Map, Value};

use crate::job::OutputFormat;
use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, Strictness, field};

use super::keywords;

/// None for plain text, which is no wish at all.
pub fn read(value: Value, strictness: Strictness) -> Result<Option<OutputFormat>, Problem> {
    let Value::Object(mut format) = value else {
        return Ok(None);
    };
    let word = format.remove("type").unwrap_or_default();
    let known: &[&str] = match word.as_str() {
        Some("json_schema") => &["json_schema"],
        _ => &[],
    };
    if let Some(name) = format.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(field::unknown(
            "response_format.",
            name,
            known.iter().copied(),
        ));
    }
    match word.as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(OutputFormat::JsonObject)),
        Some("json_schema") => {
            schema(format.remove("json_schema").unwrap_or_default(), strictness).map(Some)
        }
        _ => Err(unknown_type(&word)),
    }
}

fn unknown_type(word: &Value) -> Problem {
    let found = match word {
        Value::String(word) => format!("{:?}", shortened(word)),
        other => kind(other),
    };
    let message = format!(
        "response_format.type must be \"text\", \"json_object\" or \"json_schema\", found {found}"
    );
    Problem::invalid("response_format.type", message)
}

fn schema(value: Value, strictness: Strictness) -> Result<OutputFormat, Problem> {
    const PLACE: &str = "response_format.json_schema";
    Shape::Object.check(PLACE, &value)?;
    let Value::Object(mut entries) = value else {
        return Ok(OutputFormat::JsonSchema(Value::Object(Map::new())));
    };
    for (name, value) in &entries {
        let shape = match name.as_str() {
            "name" | "description" => Shape::Text,
            "strict" => Shape::Flag,
            "schema" => Shape::Object,
            _ => {
                let known = ["name", "description", "strict", "schema"];
                return Err(field::unknown(&format!("{PLACE}."), name, known));
            }
        };
        if !value.is_null() {
            shape.check(&format!("{PLACE}.{name}"), value)?;
        }
    }
    if !entries.get("name").is_some_and(Value::is_string) {
        let param = "response_format.json_schema.name";
        return Err(Problem::invalid(param, format!("{param} is missing")));
    }
    let schema = entries.remove("schema").filter(|schema| !schema.is_null());
    let schema = schema.unwrap_or_else(|| Value::Object(Map::new()));
    if strictness == Strictness::Refuse {
        keywords::check(&schema, &format!("{PLACE}.schema"))?;
    }
    Ok(OutputFormat::JsonSchema(schema))
}

/// A schema, or the text of one.
pub fn guided_json(
    place: &str,
    value: Value,
    strictness: Strictness,
) -> Result<OutputFormat, Problem> {
    let schema = match value {
        Value::String(text) => crate::openai::json::parse(text.as_bytes())
            .map_err(|_| Problem::invalid(place.to_owned(), format!("{place} must be JSON")))?,
        schema => schema,
    };
    Shape::Object.check(place, &schema)?;
    if strictness == Strictness::Refuse {
        keywords::check(&schema, place)?;
    }
    Ok(OutputFormat::JsonSchema(schema))
}

pub fn guided_choice(place: &str, value: Value) -> Result<OutputFormat, Problem> {
    let list = match value {
        Value::Array(list) if !list.is_empty() => list,
        _ => {
            let message = format!("{place} must hold at least one string");
            return Err(Problem::invalid(place.to_owned(), message));
        }
    };
    let mut choices = Vec::with_capacity(list.len());
    for (index, choice) in list.into_iter().enumerate() {
        let place = format!("{place}[{index}]");
        Shape::Text.check(&place, &choice)?;
        match choice {
            Value::String(choice) if !choice.is_empty() => choices.push(choice),
            _ => {
                let message = format!("{place} must not be empty");
                return Err(Problem::invalid(place, message));
            }
        }
    }
    Ok(OutputFormat::Choice(choices))
}

/// The one field for all of them that newer inference servers have.
pub fn structured_outputs(
    value: Value,
    strictness: Strictness,
) -> Result<Option<OutputFormat>, Problem> {
    const PLACE: &str = "structured_outputs";
    let mut found = None;
    let Value::Object(entries) = value else {
        return Ok(None);
    };
    for (name, value) in entries {
        let place = format!("{PLACE}.{name}");
        let format = match (name.as_str(), value) {
            (_, Value::Null) | ("json_object", Value::Bool(false)) => continue,
            ("json", value) => guided_json(&place, value, strictness)?,
            ("json_object", Value::Bool(true)) => OutputFormat::JsonObject,
            ("choice", value) => guided_choice(&place, value)?,
            ("regex", Value::String(pattern)) => OutputFormat::Regex(pattern),
            ("grammar", Value::String(grammar)) => OutputFormat::Lark(grammar),
            ("json_object" | "regex" | "grammar", value) => {
                let shape = match name.as_str() {
                    "json_object" => Shape::Flag,
                    _ => Shape::Text,
                };
                shape.check(&place, &value)?;
                continue;
            }
            _ if strictness == Strictness::Tolerate => continue,
            _ => {
                let known = ["json", "json_object", "regex", "choice", "grammar"];
                return Err(field::unknown(&format!("{PLACE}."), &name, known));
            }
        };
        if found.replace(format).is_some() {
            let message = format!("{PLACE} may hold one form, found several");
            return Err(Problem::invalid(PLACE, message));
        }
    }
    Ok(found)
}
