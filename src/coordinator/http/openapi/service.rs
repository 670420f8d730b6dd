//! Bodies and replies of `/v1` and of the service routes.

use serde_json::{Value, json};

use crate::http::paths::{COMPLETIONS, DESCRIBE};
use crate::http::pricing;
use crate::http::route::{Answers, Route};
use muster_protocol::anthropic::schema as messages;
use muster_protocol::anthropic::{COUNT_TOKENS, MESSAGES};
use muster_protocol::job::Kind;
use muster_protocol::openai::chat::schema as chat;
use muster_protocol::openai::completions::schema as completions;
use muster_protocol::openai::describe::schema as describe;
use muster_protocol::openai::encode::schema as encode;
use muster_protocol::openai::error;
use muster_protocol::openai::responses::RESPONSES;
use muster_protocol::openai::responses::schema as responses;
use muster_protocol::{anthropic, ollama};

use super::operation::{Content, RouteBodies, header, query, reference};
use super::{account, generation, statistics, workers};

const PAGES: &str = "text/html";
pub fn path_parameter(route: &Route) -> String {
    let about = match route.path {
        "/v1/models/{*id}" => "Model name; with /params after it, its parameters.",
        path if path.starts_with(RESPONSES) => "Response id.",
        path if path.starts_with("/v1/videos/") => "Video id.",
        "/v1/account/keys/{id}" => "Key id, as the list of keys shows it.",
        "/v1/jobs/{id}/cancel" => "Job id, from the header X-Job-Id.",
        _ => "Object id, from a signed link.",
    };
    about.to_owned()
}

pub fn shape(route: &Route) -> Option<RouteBodies> {
    let signed = |names: &[&str]| -> Vec<Value> {
        let about = "Part of the signed link.";
        names
            .iter()
            .map(|name| query(name, "string", about))
            .collect()
    };
    let success = |contents: Vec<Content>| vec![(200, "Success.", contents)];
    let json = |name: &str| success(vec![Content::json(reference(name))]);
    let either = |ours: &str, theirs: &str| {
        let schema = json!({"anyOf": [reference(ours), reference(theirs)]});
        success(vec![Content::json(schema)])
    };
    let mut replies = match (route.method, route.path) {
        ("GET", "/") => success(vec![
            Content::json(reference("ServiceDescription")),
            Content::of(PAGES, json!({"type": "string"})),
        ]),
        ("GET", "/.well-known/serviceinfo") => json("ServiceInfo"),
        ("GET", "/health") => json("Health"),
        ("GET", "/health/live") => json("Liveness"),
        ("GET", "/health/ready") => vec![
            (200, "Ready.", vec![Content::json(reference("Readiness"))]),
            (
                503,
                "Not ready.",
                vec![Content::json(reference("Readiness"))],
            ),
        ],
        ("GET", "/openapi.json" | "/api/swagger.json") => {
            success(vec![Content::json(json!({"type": "object"}))])
        }
        ("GET", "/v1/models") => either("ModelList", "MessageModelList"),
        ("GET", "/v1/models/{*id}") => {
            let shapes = ["Model", "ModelParams", "MessageModel"].map(reference);
            success(vec![Content::json(json!({"anyOf": shapes}))])
        }
        ("GET", "/v1/status") => json("ServiceStatus"),
        ("GET", "/v1/workers") => json("WorkerList"),
        ("GET", "/v1/workers/check") => json("WorkerCheck"),
        ("GET", "/v1/pricing") => json("PriceList"),
        ("POST", "/v1/chat/completions") => {
            let events = json!({"anyOf": [reference("ChatCompletionChunk"), reference("Error")]});
            success(vec![
                Content::json(reference("ChatCompletion")),
                Content::of("text/event-stream", events),
            ])
        }
        ("POST", COMPLETIONS) => {
            let events = json!({"anyOf": [reference("Completion"), reference("Error")]});
            success(vec![
                Content::json(reference("Completion")),
                Content::of("text/event-stream", events),
            ])
        }
        ("POST", MESSAGES) => success(vec![
            Content::json(reference("Message")),
            Content::of("text/event-stream", reference("MessageEvent")),
        ]),
        ("POST", DESCRIBE) => json("ImageDescription"),
        ("POST", COUNT_TOKENS) => json("TokenCount"),
        ("POST", RESPONSES) | ("GET", "/v1/responses/{id}") => success(vec![
            Content::json(reference("Response")),
            Content::of("text/event-stream", reference("ResponseEvent")),
        ]),
        ("POST", "/v1/responses/{id}/cancel") => json("Response"),
        ("DELETE", "/v1/responses/{id}") => json("ResponseDeleted"),
        ("GET", "/v1/responses/{id}/input_items") => json("ResponseItemList"),
        ("POST", "/v1/responses/input_tokens") => json("ResponseInputTokens"),
        ("POST", "/tokenize" | "/v1/tokenize") => json("Tokens"),
        ("POST", "/detokenize" | "/v1/detokenize") => json("TokenText"),
        ("POST", "/v1/embeddings") => json("Embeddings"),
        ("POST", "/rerank" | "/v1/rerank") => json("Reranking"),
        ("POST", "/api/v2/dev/test-user") => json("TestUser"),
        ("PUT", "/media/{*id}") => json("MediaUpload"),
        _ if generation::replies(route).is_some() => generation::replies(route)?,
        _ if account::reply(route).is_some() => account::reply(route).map(json)?,
        _ if statistics::reply(route).is_some() => statistics::reply(route).map(json)?,
        _ => match route.answers {
            Answers::Html => success(vec![Content::of(PAGES, json!({"type": "string"}))]),
            Answers::Text => success(vec![Content::of("text/plain", json!({"type": "string"}))]),
            Answers::Socket => vec![(101, "WebSocket opened.", Vec::new())],
            Answers::Object => {
                let part = "The part that the header Range asks for.";
                let mut answers = success(generation::objects());
                answers.push((206, part, generation::objects()));
                answers
            }
            _ => return None,
        },
    };
    if route.is_document() || route.answers == Answers::Object {
        replies.push((
            304,
            "The client has it, by its tag in If-None-Match.",
            Vec::new(),
        ));
    }
    let (mut parameters, mut body) = (statistics::parameters(route), Vec::new());
    parameters.extend(account::parameters(route));
    parameters.extend(generation::parameters(route));
    body.extend(generation::body(route));
    parameters.extend(idempotency(route));
    body.extend(account::body(route).map(|name| Content::json(reference(name))));
    match (route.method, route.path) {
        ("GET", "/v1/models") => {
            parameters.push(query("type", "string", "all: list models of every kind, as OpenAI's SDKs get them without it; the name of a kind, such as text, image, speech or transcription: models that do such work."));
        }
        ("GET", "/v1/workers/check") => {
            parameters.push(query("name", "string", "Worker name."));
        }
        ("POST", "/v1/chat/completions") => {
            let mut content = Content::json(reference("ChatCompletionRequest"));
            content.example = Some(chat::example());
            body.push(content);
            parameters.push(header(
                "X-Request-Id",
                "Id of the request in logs and in the reply.",
            ));
            let about =
                "Address of the end user; for services, with their passkey in Proxy-Authorization.";
            parameters.push(header("Proxied-For", about));
        }
        ("POST", COMPLETIONS) => body.push(Content::json(reference("CompletionRequest"))),
        ("POST", DESCRIBE) => body.extend(generation::form("DescribeRequest")),
        ("POST", MESSAGES | COUNT_TOKENS) => {
            let mut content = Content::json(reference("MessageRequest"));
            content.example = Some(messages::example());
            body.push(content);
        }
        ("POST", RESPONSES | "/v1/responses/input_tokens") => {
            let mut content = Content::json(reference("ResponseRequest"));
            content.example = Some(responses::example());
            body.push(content);
        }
        ("GET", "/v1/responses/{id}") => {
            let about = "true: stream the events of a background response.";
            parameters.push(query("stream", "boolean", about));
            let about = "Sequence number of the last event that you have.";
            parameters.push(query("starting_after", "integer", about));
        }
        ("GET", "/v1/responses/{id}/input_items") => {
            parameters.push(query("order", "string", "asc or desc; desc if absent."));
            parameters.push(query("limit", "integer", "1 to 100; 20 if absent."));
            parameters.push(query(
                "after",
                "string",
                "Id of the last item that you have.",
            ));
        }
        ("POST", "/tokenize" | "/v1/tokenize") => {
            body.push(Content::json(reference("TokenizeRequest")));
        }
        ("POST", "/detokenize" | "/v1/detokenize") => {
            body.push(Content::json(reference("DetokenizeRequest")));
        }
        ("POST", "/v1/embeddings") => {
            body.push(Content::json(reference("EmbeddingsRequest")));
        }
        ("POST", "/rerank" | "/v1/rerank") => {
            body.push(Content::json(reference("RerankRequest")));
        }
        ("POST", "/api/v2/dev/test-user") => {
            body.push(Content::json(reference("TestUserInput")));
        }
        ("GET", "/media/{*id}") => parameters = signed(&["until", "signature"]),
        ("PUT", "/media/{*id}") => {
            parameters = signed(&["until", "most", "signature"]);
            body = generation::media_files();
        }
        _ => {}
    }
    Some(RouteBodies {
        parameters,
        body,
        replies,
    })
}

/// The idempotency header of a route.
pub fn idempotency(route: &Route) -> Option<Value> {
    let about = "A second request with the same key and body within 24 hours gets the stored reply, with Idempotent-Replayed: true.";
    let header = || header("Idempotency-Key", about);
    route.takes_idempotency_key().then(header)
}

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let mut schemas = chat::schemas();
    schemas.extend(completions::schemas());
    schemas.extend(describe::schemas());
    schemas.extend(messages::schemas());
    schemas.extend(encode::schemas());
    schemas.extend(generation::schemas());
    schemas.extend(responses::schemas());
    schemas.extend(ollama::schema::schemas());
    schemas.extend([
        ("Error", error::schema()),
        ("AnthropicError", anthropic::error_schema()),
        ("ServiceDescription", description()),
        ("ServiceInfo", info()),
        ("Health", health()),
        ("HealthProblem", health_problem()),
        (
            "Liveness",
            object(json!({"status": word(&["live"])}), &["status"]),
        ),
        ("Readiness", readiness()),
        ("Model", model()),
        ("ModelList", model_list()),
        ("ServiceStatus", workers::status()),
        ("WorkerList", workers::worker_list()),
        ("Worker", workers::worker()),
        ("WorkerCheck", worker_check()),
        ("PriceList", price_list()),
        ("MediaUpload", object(json!({"bytes": count()}), &["bytes"])),
        ("TestUserInput", test_user_input()),
        ("TestUser", test_user()),
    ]);
    schemas.extend(statistics::schemas());
    schemas.extend(account::schemas());
    schemas
}

fn description() -> Value {
    let p2p = object(
        json!({
            "enabled": {"type": "boolean"},
            "peer_id": {"type": ["string", "null"]},
            "status": text(),
        }),
        &["enabled", "peer_id", "status"],
    );
    object(
        json!({
            "name": text(),
            "version": {"type": "string", "description": "Version of the API."},
            "endpoints": {
                "type": "object",
                "description": "Method and path of each endpoint that works.",
                "additionalProperties": text(),
            },
            "p2p": p2p,
            "console_url": {"type": "string", "description": "Where to get a key."},
        }),
        &["name", "version", "endpoints", "p2p"],
    )
}

fn info() -> Value {
    let api = object(
        json!({
            "name": text(),
            "version": text(),
            "base_url": text(),
            "rel_url": text(),
            "documentation": text(),
        }),
        &["name", "version", "base_url", "rel_url", "documentation"],
    );
    object(
        json!({
            "version": text(),
            "name": text(),
            "software": object(json!({"name": text(), "version": text()}), &["name", "version"]),
            "api": {"type": "object", "additionalProperties": api},
        }),
        &["version", "name", "software", "api"],
    )
}

fn health() -> Value {
    object(
        json!({
            "status": word(&["ok", "degraded"]),
            "build_commit": {"type": ["string", "null"]},
            "database": {"type": "boolean", "description": "Whether the database is reachable."},
            "redis": {"type": "boolean", "description": "Always false: this coordinator uses no Redis."},
            "workers_connected": count(),
            "models_available": texts(),
            "problems": list(&reference("HealthProblem")),
            "cluster": cluster(),
        }),
        &[
            "status",
            "build_commit",
            "database",
            "redis",
            "workers_connected",
            "models_available",
        ],
    )
}

fn cluster() -> Value {
    let node = object(
        json!({
            "address": text(),
            "role": word(&["leader", "follower"]),
            "status": word(&["ready", "cut_off"]),
        }),
        &["address", "role", "status"],
    );
    object(
        json!({
            "epoch": {"type": "integer", "description": "The number of the election."},
            "nodes": list(&node),
        }),
        &["epoch", "nodes"],
    )
}

fn health_problem() -> Value {
    object(json!({"part": text(), "cause": text()}), &["part", "cause"])
}

fn readiness() -> Value {
    object(
        json!({
            "status": word(&["ready", "starting", "draining", "degraded"]),
            "problems": list(&reference("HealthProblem")),
        }),
        &["status"],
    )
}

fn model() -> Value {
    object(
        json!({
            "id": {"type": "string", "description": "The name to use in requests."},
            "object": word(&["model"]),
            "created": {"type": "integer"},
            "owned_by": text(),
            "input_modalities": texts(),
            "output_modalities": texts(),
            "max_context_length": {"type": "integer", "description": "Tokens; of models that read texts."},
            "aliases": texts(),
            "parent": {"type": "string", "description": "The model that it is an adapter of."},
            "known_words": {"type": "array", "items": text(), "description": "Words of a small model, which understands no others; in the entry of one model alone."},
            "upstream": {"type": "string", "description": "The program behind its workers that serves it, such as vllm or ollama, where it is not their own engine."},
            "network": {"type": "string", "description": "The library whose network its workers run, where it is not their own engine's: candle-transformers. Each worker runs one request at a time, without a cache of prompts."},
            "limits": {
                "type": "object",
                "description": "What a request for media may ask of it at most, where its workers say it.",
                "properties": {
                    "pixels": {"type": "integer", "description": "Width times height."},
                    "steps": {"type": "integer"},
                    "frames": {"type": "integer"},
                    "seconds": {"type": "integer"},
                    "characters": {"type": "integer", "description": "Of a text to speak."},
                },
            },
        }),
        &[
            "id",
            "object",
            "created",
            "owned_by",
            "input_modalities",
            "output_modalities",
            "aliases",
        ],
    )
}

fn model_list() -> Value {
    object(
        json!({"object": word(&["list"]), "data": list(&reference("Model"))}),
        &["object", "data"],
    )
}

fn worker_check() -> Value {
    object(
        json!({
            "accepted": {"type": "boolean"},
            "known": {"type": "boolean", "description": "Whether the name is registered already."},
            "code": {"type": "string", "description": "Why the worker would be rejected."},
            "reason": text(),
        }),
        &["accepted"],
    )
}

fn price_list() -> Value {
    let rate = || json!({"type": ["number", "null"], "minimum": 0});
    let of_kinds = Kind::each().filter_map(|kind| Some(kind.facts().rate?.name));
    let names: Vec<&str> = ["input_per_mtok_usd", "output_per_mtok_usd"]
        .into_iter()
        .chain(of_kinds)
        .collect();
    let rates = names.iter().map(|name| ((*name).to_owned(), rate()));
    let rates = object(Value::Object(rates.collect()), &names);
    let model = object(
        json!({"model": text(), "rates": rates}),
        &["model", "rates"],
    );
    let book = object(
        json!({
            "version": {"type": "string", "description": "Changes with the prices."},
            "availability": text(),
            "models": list(&model),
            "aliases": {"type": "object", "additionalProperties": text()},
        }),
        &["version", "availability", "models", "aliases"],
    );
    let evidence = object(
        json!({
            "status": word(&["not_yet_valid", "current", "stale"]),
            "as_of": {"type": ["string", "null"]},
            "valid_until": {"type": ["string", "null"]},
            "items": list(&json!({"type": "object"})),
            "scope": text(),
        }),
        &["status", "as_of", "valid_until", "items", "scope"],
    );
    object(
        json!({
            "schema": word(&[pricing::SCHEMA]),
            "currency": word(&["USD"]),
            "ledger_unit": word(&["micro_usd"]),
            "price_book": book,
            "comparison_evidence": evidence,
        }),
        &[
            "schema",
            "currency",
            "ledger_unit",
            "price_book",
            "comparison_evidence",
        ],
    )
}

fn test_user_input() -> Value {
    object(
        json!({
            "username": {"type": "string", "minLength": 1, "maxLength": 100},
            "oauth_id": {"type": "string", "minLength": 1, "maxLength": 255, "description": "The same id gives the same user with a new key."},
            "moderator": {"type": "boolean", "default": false},
            "trusted": {"type": "boolean", "default": false},
            "kudos": {"type": "integer"},
        }),
        &["username", "oauth_id"],
    )
}

fn test_user() -> Value {
    let flag = || json!({"type": "boolean"});
    object(
        json!({
            "api_key": text(),
            "user_id": {"type": "integer"},
            "username": text(),
            "alias": text(),
            "kudos": {"type": "number"},
            "trusted": flag(),
            "moderator": flag(),
            "created": {"type": "boolean", "description": "Whether the user is new."},
        }),
        &[
            "api_key",
            "user_id",
            "username",
            "alias",
            "kudos",
            "trusted",
            "moderator",
            "created",
        ],
    )
}

pub(super) fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn texts() -> Value {
    list(&text())
}

pub(super) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

pub(super) fn word(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

pub(super) fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}
