//! Keywords of JSON Schema that no grammar can enforce, found before a request is queued.

use serde_json::Value;

use crate::openai::Problem;

/// As in the engine, which checks again.
const UNSUPPORTED: &[&str] = &[
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// The deepest nesting of a schema.
const MOST_DEPTH: usize = 64;

/// Refuses the first of them by its path.
pub fn check(schema: &Value, place: &str) -> Result<(), Problem> {
    check_at(schema, &mut place.to_owned(), 0)
}

fn check_at(schema: &Value, place: &mut String, depth: usize) -> Result<(), Problem> {
    if depth > MOST_DEPTH {
        let message = format!("{place} is nested more than {MOST_DEPTH} levels deep");
        return Err(Problem::invalid(place.clone(), message));
    }
    let Value::Object(entries) = schema else {
        return Ok(());
    };
    for (key, value) in entries {
        let length = place.len();
        place.push('.');
        place.extend(key.chars().take(64));
        let is_unique = key == "uniqueItems" && *value == Value::Bool(true);
        let is_idle = key == "propertyNames" && allows_every_name(value);
        if UNSUPPORTED.contains(&key.as_str()) && !is_idle || is_unique {
            let message =
                format!("{place} cannot be enforced: leave it out, and check it yourself");
            return Err(Problem::unsupported(place.clone(), message));
        }
        match (key.as_str(), value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions",
                Value::Object(named),
            ) => {
                for (name, value) in named {
                    let length = place.len();
                    place.push('.');
                    place.extend(name.chars().take(64));
                    check_at(value, place, depth + 1)?;
                    place.truncate(length);
                }
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(list)) => {
                for (index, value) in list.iter().enumerate() {
                    let length = place.len();
                    place.push_str(&format!("[{index}]"));
                    check_at(value, place, depth + 1)?;
                    place.truncate(length);
                }
            }
            ("items" | "additionalItems" | "additionalProperties", value) => {
                check_at(value, place, depth + 1)?;
            }
            _ => {}
        }
        place.truncate(length);
    }
    Ok(())
}

/// Names are strings in any case.
fn allows_every_name(names: &Value) -> bool {
    match names {
        Value::Bool(allows) => *allows,
        Value::Object(entries) => entries
            .iter()
            .all(|(key, value)| key == "type" && value == "string"),
        _ => false,
    }
}
