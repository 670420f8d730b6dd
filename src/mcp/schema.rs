//! Input schemas of tools, from the OpenAPI document of the service: the same fields, bounds and words.

use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use crate::tools::ToolRoute;

const SCHEMAS: &str = "#/components/schemas/";
/// No schema of the document refers to more schemas within each other.
const MOST_DEPTH: usize = 8;

/// The fields of a tool. Fields that the service does not have are left out: it may be of another version.
pub fn input(document: &Value, tool: &ToolRoute, has_folder: bool) -> JsonObject {
    let body = body(document, tool);
    let mut properties = Map::new();
    for field in tool.fields {
        let Some(schema) = body["properties"].get(field) else {
            continue;
        };
        let mut schema = resolved(document, schema, MOST_DEPTH);
        if tool.files.contains(field) {
            schema = file(has_folder, &schema);
        }
        properties.insert((*field).to_owned(), schema);
    }
    let names = body["required"].as_array().into_iter().flatten();
    let mut required: Vec<&str> = names.filter_map(Value::as_str).collect();
    // The route accepts the image in either of two fields; `edit_image` has one of them.
    if tool.name == "edit_image" && !required.contains(&"image") {
        required.push("image");
    }
    required.retain(|name| properties.contains_key(*name) && *name != "model");
    if let Some(model) = properties.get_mut("model") {
        let otherwise = match tool.models {
            Some(_) => "the first that can do it",
            None => "the one with the most workers",
        };
        let about = format!("Model name as listed by list_models; if absent, {otherwise}.");
        model["description"] = about.into();
    }
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::default(),
    }
}

fn body(document: &Value, tool: &ToolRoute) -> Value {
    let method = tool.method.as_str().to_lowercase();
    let body = &document["paths"][tool.path][&method]["requestBody"]["content"];
    let first = body.as_object().and_then(|types| types.values().next());
    let schema = first.map_or(&Value::Null, |content| &content["schema"]);
    target(document, schema).clone()
}

/// The target of a reference.
fn target<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let name = schema["$ref"].as_str();
    match name.and_then(|name| name.strip_prefix(SCHEMAS)) {
        Some(name) => &document["components"]["schemas"][name],
        None => schema,
    }
}

/// Clients of the protocol see no other document, so references are replaced.
fn resolved(document: &Value, schema: &Value, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else {
        return json!({});
    };
    match target(document, schema) {
        Value::Object(entries) => {
            let inner = entries.iter();
            let inner = inner.filter(|(name, _)| !name.starts_with("x-"));
            inner
                .map(|(name, value)| (name.clone(), resolved(document, value, depth)))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(items) => {
            let items = items.iter();
            items.map(|item| resolved(document, item, depth)).collect()
        }
        other => other.clone(),
    }
}

fn file(has_folder: bool, schema: &Value) -> Value {
    let about = schema["description"].as_str().unwrap_or_default();
    let from_folder = match has_folder {
        true => "The path of a file in the shared folder, base64 or a data URL.",
        false => "Base64 or a data URL.",
    };
    json!({"type": "string", "description": format!("{from_folder} {about}")})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::input;
    use crate::tools::TOOLS;

    #[test]
    fn a_tool_has_the_fields_of_its_route_that_the_service_knows() {
        let document = json!({
            "paths": {"/v1/images/edits": {"post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Edit"}}}}}}},
            "components": {"schemas": {
                "Edit": {"required": ["prompt", "model"], "properties": {
                    "prompt": {"type": "string", "maxLength": 9, "x-since": 1},
                    "image": {"anyOf": [{"type": "string"}], "description": "Image to begin with."},
                    "size": {"$ref": "#/components/schemas/Size"},
                    "user": {"type": "string"},
                }},
                "Size": {"enum": ["1x1"]},
            }},
        });
        let tool = TOOLS.iter().find(|tool| tool.name == "edit_image").unwrap();
        assert_eq!(
            json!(input(&document, tool, true)),
            json!({
                "type": "object",
                "properties": {
                    "prompt": {"type": "string", "maxLength": 9},
                    "image": {"type": "string", "description": "The path of a file in the shared folder, base64 or a data URL. Image to begin with."},
                    "size": {"enum": ["1x1"]},
                },
                "required": ["prompt", "image"],
                "additionalProperties": false,
            })
        );
    }
}
