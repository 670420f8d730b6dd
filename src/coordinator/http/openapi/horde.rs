//! Bodies and replies of `/api/v2`. The operations come from the Swagger document, the schemas from the contract;
//! additions of this coordinator are in [`schemas`].

use serde_json::{Map, Value, json};

use crate::http::legacy::swagger::{self, NOTHING, Operation};
use crate::http::route::Route;
use muster_protocol::legacy::contract;

use super::operation::{Content, RouteBodies, header, list_of, query, reference};

const EVENTS: &str = "text/event-stream";
const TEXT_STATUS: &str = "/api/v2/generate/text/status/{id}";

/// Routes that read a key without requiring one.
const READS_KEY: &[(&str, &str)] = &[
    ("GET", "/api/v2/find_user"),
    ("GET", "/api/v2/users/{id}"),
    ("GET", "/api/v2/status/modes"),
    ("GET", "/api/v2/teams"),
    ("GET", "/api/v2/teams/{id}"),
    ("GET", "/api/v2/workers"),
    ("GET", "/api/v2/workers/{id}"),
    ("GET", "/api/v2/workers/name/{name}"),
    ("GET", "/api/v2/styles/image"),
    ("GET", "/api/v2/styles/text"),
    ("GET", "/api/v2/styles/image/{id}"),
    ("GET", "/api/v2/styles/text/{id}"),
    ("GET", "/api/v2/styles/image_by_name/{name}"),
    ("GET", "/api/v2/styles/text_by_name/{name}"),
];

pub fn reads_key(route: &Route) -> bool {
    READS_KEY.contains(&(route.method, route.path))
}

pub fn takes_body(route: &Route) -> bool {
    swagger::operation_of(route).is_none_or(|operation| operation.takes != NOTHING)
}

/// `Worker id.`
pub fn path_parameter(route: &Route) -> Option<String> {
    let id = swagger::operation_of(route)?.id;
    let words = match id {
        "id" => "request id".to_owned(),
        "ipaddr" => "IP address".to_owned(),
        "sharedkey_id" => "shared key id".to_owned(),
        id => id.replace('_', " "),
    };
    let (first, rest) = words.split_at_checked(1)?;
    Some(format!("{}{rest}.", first.to_uppercase()))
}

pub fn shape(route: &Route) -> Option<RouteBodies> {
    let operation = swagger::operation_of(route)?;
    Some(RouteBodies {
        parameters: parameters(route, operation),
        body: body(operation),
        replies: replies(route, operation),
    })
}

fn parameters(route: &Route, operation: &Operation) -> Vec<Value> {
    let named = operation.query.iter();
    let mut parameters: Vec<Value> = named
        .map(|(name, kind, about)| query(name, kind, about))
        .collect();
    let submits = route.path.ends_with("/async");
    if submits || route.path.ends_with("/pop") || route.path.contains("/check/") {
        let about = "Name, version and contact of the client, as name:version:contact.";
        parameters.push(header("Client-Agent", about));
    }
    if submits {
        let about =
            "Address of the end user; for services, with their passkey in Proxy-Authorization.";
        parameters.push(header("Proxied-For", about));
    }
    if route.path.ends_with("/kudos/transfer") {
        let about = "Transfers with the same key happen once.";
        parameters.push(header("Idempotency-Key", about));
    }
    let about = "Fields of the reply to return, such as {id,kudos}.";
    parameters.push(header("X-Fields", about));
    parameters
}

fn body(operation: &Operation) -> Vec<Content> {
    if operation.takes == NOTHING {
        return Vec::new();
    }
    let mut content = Content::json(reference(operation.takes));
    content.example = example(operation.takes);
    vec![content]
}

fn example(name: &str) -> Option<Value> {
    match name {
        "GenerationInputText" => Some(json!({
            "prompt": "Name three rivers.",
            "params": {"max_length": 80},
        })),
        "GenerationInputImage" => Some(json!({
            "prompt": "a lighthouse at dawn",
            "params": {"width": 512, "height": 512, "steps": 20},
        })),
        "ModelInterrogationInputImage" => Some(json!({
            "forms": [{"name": "caption"}],
            "source_image": "https://example.com/image.webp",
        })),
        _ => None,
    }
}

fn replies(route: &Route, operation: &Operation) -> Vec<(u16, &'static str, Vec<Content>)> {
    let replies = operation.answers.iter().map(|(status, shape)| {
        let schema = match shape {
            swagger::Shape::One(NOTHING) => return (*status, "Success.", Vec::new()),
            swagger::Shape::One(name) => reference(name),
            swagger::Shape::Many(name) => list_of(name),
        };
        let mut contents = vec![Content::json(schema)];
        if (route.method, route.path) == ("GET", TEXT_STATUS) {
            let events = json!({"anyOf": [reference("RequestStatusText"), reference("TextToken")]});
            contents.push(Content::of(EVENTS, events));
        }
        let about = match status {
            202 => "Accepted.",
            201 => "Created.",
            _ => "Success.",
        };
        (*status, about, contents)
    });
    replies.collect()
}

/// Requests that this service sends to the `webhook` of a request.
pub fn webhooks() -> Value {
    let hook = |tag: &str, about: &str, schema: &str| {
        json!({"post": {
            "operationId": format!("webhook_{schema}"),
            "tags": [tag],
            "summary": about,
            "requestBody": {"content": {"application/json": {"schema": reference(schema)}}},
            "responses": {"200": {"description": "Received."}},
        }})
    };
    json!({
        "image": hook("AI Horde: images", "Receive an image of a request.", "WebhookImage"),
        "text": hook("AI Horde: text", "Receive a text of a request.", "WebhookText"),
        "interrogation": hook(
            "AI Horde: interrogation",
            "Receive a result of an interrogation request.",
            "WebhookAlchemy",
        ),
    })
}

/// The contract's schemas, with this coordinator's additions.
pub fn schemas() -> impl Iterator<Item = (String, Value)> {
    let contract = contract::schemas()["$defs"].as_object();
    let contract = contract.into_iter().flatten();
    let contract = contract.map(|(name, schema)| {
        let mut schema = converted(schema);
        for (_, field, own) in additions().into_iter().filter(|it| it.0 == name) {
            schema["properties"][field] = own;
        }
        (name.clone(), schema)
    });
    let own = [
        ("HordeError", error()),
        ("TextToken", text_token()),
        ("ResolvedRequest", resolved_request()),
    ];
    contract.chain(own.map(|(name, schema)| (name.to_owned(), schema)))
}

/// Fields missing in the contract, or with another type there.
fn additions() -> Vec<(&'static str, &'static str, Value)> {
    let count = || json!({"type": "integer", "minimum": 0});
    let percent = json!({"type": "integer", "minimum": 0, "maximum": 100});
    let mut additions = vec![
        ("RequestAsync", "resolved", reference("ResolvedRequest")),
        (
            "InterrogationFormStatus",
            "result",
            json!({"description": "JSON of any type."}),
        ),
        ("StyleText", "shared_key", reference("SharedKeyDetails")),
        (
            "ModelStyleInputText",
            "sharedkey",
            json!({"type": "string"}),
        ),
        (
            "ModelStylePatchText",
            "sharedkey",
            json!({"type": "string"}),
        ),
        ("ModelStyleInputParamsText", "max_length", count()),
        ("ModelStyleInputParamsText", "max_context_length", count()),
    ];
    for status in [
        "RequestStatusCheck",
        "RequestStatusImage",
        "RequestStatusText",
    ] {
        additions.push((status, "progress_percent", percent.clone()));
        additions.push((status, "current_step", count()));
        additions.push((status, "total_steps", count()));
    }
    additions
}

/// One schema for all errors, because a client reads all of them in the same way.
fn error() -> Value {
    let about = "Reasons by the dotted path of the field.";
    json!({
        "type": "object",
        "required": ["message"],
        "properties": {
            "message": {"type": "string"},
            "rc": {"type": "string", "description": "Stable code."},
            "errors": {
                "type": "object",
                "description": about,
                "additionalProperties": {"type": "string"},
            },
        },
    })
}

/// The event `token` of a streamed text status.
fn text_token() -> Value {
    json!({
        "type": "object",
        "required": ["index", "text"],
        "properties": {
            "index": {"type": "integer", "description": "Number of the output."},
            "text": {"type": "string"},
        },
    })
}

/// A dry run returns it for a request with a style.
fn resolved_request() -> Value {
    json!({
        "type": "object",
        "required": ["prompt", "params", "models", "style"],
        "properties": {
            "prompt": {"type": "string"},
            "negative_prompt": {"type": "string"},
            "params": {"type": "object"},
            "models": {"type": "array", "items": {"type": "string"}},
            "style": {
                "type": "object",
                "required": ["id", "name"],
                "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
            },
        },
    })
}

/// Converts a schema to OpenAPI: references into the document, null in every nullable enum, none of the contract's `x-`
/// keywords.
fn converted(schema: &Value) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(converted).collect(),
        Value::Object(entries) => {
            let kept = entries.iter().filter(|(name, _)| !name.starts_with("x-"));
            let mut converted: Map<String, Value> = kept
                .map(|(name, value)| (name.clone(), self::converted(value)))
                .collect();
            let local = converted.get("$ref").and_then(Value::as_str);
            let local = local.and_then(|path| path.strip_prefix("#/$defs/"));
            if let Some(name) = local.map(str::to_owned) {
                converted.insert("$ref".to_owned(), reference(&name)["$ref"].clone());
            }
            let is_nullable = converted
                .get("type")
                .and_then(Value::as_array)
                .is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"));
            if let Some(words) = converted.get_mut("enum").and_then(Value::as_array_mut)
                && is_nullable
                && !words.contains(&Value::Null)
            {
                words.push(Value::Null);
            }
            Value::Object(converted)
        }
        other => other.clone(),
    }
}
