//! The form the answer must have.

use serde_json::{Map, Value};

use crate::job::OutputFormat;
use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

/// None for plain text, which is no wish at all.
pub fn read(value: Value) -> Result<Option<OutputFormat>, Problem> {
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
        Some("json_schema") => schema(format.remove("json_schema").unwrap_or_default()).map(Some),
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

fn schema(value: Value) -> Result<OutputFormat, Problem> {
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
    Ok(OutputFormat::JsonSchema(
        schema.unwrap_or_else(|| Value::Object(Map::new())),
    ))
}
