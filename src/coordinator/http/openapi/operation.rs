//! A route as an OpenAPI operation.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::http::route::{Answers, Route, Who};
use muster_protocol::anthropic::{COUNT_TOKENS, MESSAGES};
use muster_protocol::ollama::ROUTES as OLLAMA;

use super::{failures, horde, mcp, ollama, service};

const NOT_IMPLEMENTED: &str = "Not implemented";

#[rustfmt::skip]
pub const TAGS: &[(&str, &str)] = &[
    ("OpenAI API", "Chat completions, images, music, embeddings, reranking, tokens and models, for OpenAI libraries."),
    ("Ollama API", "Chat, prompts, vectors and models, for programs that speak to Ollama."),
    ("Account", "The account of a key: its keys, workers and jobs."),
    ("Workers", "Connected workers and the WebSocket of workers."),
    ("AI Horde: text", "Text requests and text jobs."),
    ("AI Horde: images", "Image requests and image jobs."),
    ("AI Horde: interrogation", "Interrogation and post-processing of images."),
    ("AI Horde: accounts", "Users, kudos and shared keys."),
    ("AI Horde: workers", "Workers, their messages, and teams."),
    ("AI Horde: styles", "Styles and collections."),
    ("AI Horde: service", "Modes, statistics, news and documents."),
    ("AI Horde: moderation", "Filters and blocked addresses; for moderators."),
    ("Media", "Objects behind signed links."),
    ("Service", "Health, metrics and the description of the API."),
    (NOT_IMPLEMENTED, "Routes that answer 501."),
];

/// The first prefix that fits decides.
#[rustfmt::skip]
const TAG_OF: &[(&str, &str)] = &[
    ("/v1/account", "Account"),
    ("/v1/status", "Service"),
    ("/v1/stats", "Service"),
    ("/v1/jobs", "Service"),
    ("/v1/progress", "Service"),
    ("/v1/styles", "Service"),
    ("/v1/workers", "Workers"),
    ("/v1/", "OpenAI API"),
    ("/tokenize", "OpenAI API"),
    ("/detokenize", "OpenAI API"),
    ("/rerank", "OpenAI API"),
    ("/mcp", "OpenAI API"),
    ("/api/v2/generate/text/", "AI Horde: text"),
    ("/api/v2/generate/", "AI Horde: images"),
    ("/api/v2/interrogate/", "AI Horde: interrogation"),
    ("/api/v2/find_user", "AI Horde: accounts"),
    ("/api/v2/users", "AI Horde: accounts"),
    ("/api/v2/kudos", "AI Horde: accounts"),
    ("/api/v2/sharedkeys", "AI Horde: accounts"),
    ("/api/v2/dev/", "AI Horde: accounts"),
    ("/api/v2/workers", "AI Horde: workers"),
    ("/api/v2/teams", "AI Horde: workers"),
    ("/api/v2/styles", "AI Horde: styles"),
    ("/api/v2/collection", "AI Horde: styles"),
    ("/api/v2/filters", "AI Horde: moderation"),
    ("/api/v2/operations", "AI Horde: moderation"),
    ("/api/v2/", "AI Horde: service"),
    ("/api/swagger.json", "Service"),
    ("/api/", "Ollama API"),
    ("/media/", "Media"),
    ("/", "Service"),
];

/// A body or reply of one content type.
#[derive(Debug, Clone)]
pub struct Content {
    pub kind: &'static str,
    pub schema: Value,
    pub example: Option<Value>,
}

/// The schemas of a route's request body and successful reply.
#[derive(Debug, Clone, Default)]
pub struct RouteBodies {
    /// Query and header parameters.
    pub parameters: Vec<Value>,
    /// Alternatives.
    pub body: Vec<Content>,
    pub replies: Vec<(u16, &'static str, Vec<Content>)>,
}

impl Content {
    pub fn json(schema: Value) -> Self {
        Self {
            kind: "application/json",
            schema,
            example: None,
        }
    }

    pub fn of(kind: &'static str, schema: Value) -> Self {
        Self {
            kind,
            schema,
            example: None,
        }
    }
}

pub fn describe(route: &Route) -> Value {
    if route.answers == Answers::Unbuilt {
        return not_implemented(route);
    }
    let RouteBodies {
        parameters,
        body,
        replies,
    } = horde::shape(route)
        .or_else(|| ollama::shape(route))
        .or_else(|| mcp::shape(route))
        .or_else(|| service::shape(route))
        .unwrap_or_default();
    let mut operation = head(route, tag(route));
    let parameters: Vec<Value> = path_parameters(route)
        .into_iter()
        .chain(parameters)
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if !body.is_empty() {
        operation["requestBody"] = json!({"required": true, "content": contents(body)});
    }
    let mut responses = Map::new();
    for (status, about, kinds) in replies {
        let mut reply = json!({"description": about});
        if !kinds.is_empty() {
            reply["content"] = contents(kinds);
        }
        responses.insert(status.to_string(), reply);
    }
    for (status, codes) in failures::of(route) {
        let failure = failure(route, status, &codes);
        // A status may mean success and failure, such as 503 of /health/ready.
        responses.entry(status.to_string()).or_insert(failure);
    }
    operation["responses"] = responses.into();
    operation
}

fn not_implemented(route: &Route) -> Value {
    let mut operation = head(route, NOT_IMPLEMENTED);
    let parameters = path_parameters(route);
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    operation["x-not-implemented"] = true.into();
    let codes = BTreeSet::from(["not_implemented"]);
    operation["responses"] = json!({"501": failure(route, 501, &codes)});
    operation
}

fn head(route: &Route, tag: &str) -> Value {
    let mut head = json!({
        "operationId": operation_id(route),
        "tags": [tag],
        "summary": route.about,
    });
    let description = [requirement(route), limits(route)];
    let description: Vec<String> = description.into_iter().flatten().collect();
    if !description.is_empty() {
        head["description"] = description.join(" ").into();
    }
    let schemes = || {
        vec![
            json!({"bearer": []}),
            json!({"apikey": []}),
            json!({"x-api-key": []}),
        ]
    };
    if route.who.key().is_some() {
        head["security"] = schemes().into();
    } else if horde::reads_key(route) {
        let none = std::iter::once(json!({}));
        head["security"] = none.chain(schemes()).collect();
    }
    head
}

/// `Requires scope inference.submit.`
fn requirement(route: &Route) -> Option<String> {
    let Some(scopes) = route.who.key() else {
        return horde::reads_key(route)
            .then(|| "The key is optional; the reply depends on it.".to_owned());
    };
    let names: Vec<&str> = scopes.names().collect();
    let needed = match names.as_slice() {
        [] => "Requires a key.".to_owned(),
        [one] => format!("Requires scope {one}."),
        several => format!("Requires scopes {}.", several.join(" and ")),
    };
    let roles: Vec<&str> = match route.who {
        Who::Role(_, roles) => roles.names().collect(),
        _ => Vec::new(),
    };
    Some(match roles.is_empty() {
        true => needed,
        false => format!("{needed} Requires role {}.", roles.join(" and ")),
    })
}

/// `At most 90 requests per minute for each address.`
fn limits(route: &Route) -> Option<String> {
    let limits: Vec<String> = route.rates().iter().map(ToString::to_string).collect();
    let is_limited = route.is_legacy() && !limits.is_empty();
    is_limited.then(|| format!("Rate limit: {}.", limits.join(", ")))
}

pub fn tag(route: &Route) -> &'static str {
    let found = TAG_OF
        .iter()
        .find(|(prefix, _)| route.path.starts_with(prefix));
    found.map_or("Service", |(_, tag)| tag)
}

/// `get_api_v2_users_id`
fn operation_id(route: &Route) -> String {
    let mut id = route.method.to_lowercase();
    let parts = route.path.split(|sign: char| !sign.is_alphanumeric());
    for part in parts.filter(|part| !part.is_empty()) {
        id.push('_');
        id.push_str(part);
    }
    match route.path {
        "/" => id.push_str("_root"),
        path if path.ends_with('/') => id.push_str("_slash"),
        _ => {}
    }
    id
}

fn path_parameters(route: &Route) -> Vec<Value> {
    let parts = route.path.split('/');
    let names = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters = names.map(|name| {
        let (name, is_long) = match name.strip_prefix('*') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let mut about = match name {
            "example" => "Example id.".to_owned(),
            "token" => "Progress token.".to_owned(),
            _ => horde::path_parameter(route).unwrap_or_else(|| service::path_parameter(route)),
        };
        if is_long {
            about.push_str(" May contain slashes.");
        }
        json!({
            "name": name,
            "in": "path",
            "required": true,
            "description": about,
            "schema": {"type": "string"},
        })
    });
    parameters.collect()
}

fn contents(all: Vec<Content>) -> Value {
    let mut contents = Map::new();
    for Content {
        kind,
        schema,
        example,
    } in all
    {
        let mut content = json!({"schema": schema});
        if let Some(example) = example {
            content["example"] = example;
        }
        contents.insert(kind.to_owned(), content);
    }
    contents.into()
}

fn failure(route: &Route, status: u16, codes: &BTreeSet<&'static str>) -> Value {
    let schema = match route.path {
        _ if route.is_legacy() => "HordeError",
        MESSAGES | COUNT_TOKENS => "AnthropicError",
        path if OLLAMA.contains(&path) => "OllamaError",
        _ => "Error",
    };
    let mut failure = json!({
        "description": failures::about(status),
        "content": {"application/json": {"schema": reference(schema)}},
    });
    if !codes.is_empty() {
        failure["x-codes"] = codes.iter().copied().collect();
    }
    if matches!(status, 429 | 503) {
        failure["headers"] = json!({
            "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
        });
    }
    failure
}

pub fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

pub fn list_of(name: &str) -> Value {
    json!({"type": "array", "items": reference(name)})
}

pub fn query(name: &str, kind: &str, about: &str) -> Value {
    json!({"name": name, "in": "query", "description": about, "schema": {"type": kind}})
}

pub fn header(name: &str, about: &str) -> Value {
    json!({"name": name, "in": "header", "description": about, "schema": {"type": "string"}})
}
