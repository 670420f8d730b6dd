//! Bodies and replies of Ollama's routes.

use crate::http::route::Route;
use muster_protocol::ollama;

use super::operation::{Content, RouteBodies, reference};
use super::service::idempotency;

pub fn shape(route: &Route) -> Option<RouteBodies> {
    let without_reply = match (route.method, route.path) {
        ("DELETE", ollama::DELETE) => Some(("OllamaDeleteRequest", "Deleted.")),
        ("POST", ollama::COPY) => Some(("OllamaCopyRequest", "Copied.")),
        _ => None,
    };
    if let Some((body, about)) = without_reply {
        return Some(RouteBodies {
            parameters: Vec::new(),
            body: vec![Content::json(reference(body))],
            replies: vec![(200, about, Vec::new())],
        });
    }
    let (body, reply, has_lines) = match (route.method, route.path) {
        ("POST", ollama::CHAT) => (Some("OllamaChatRequest"), "OllamaChat", true),
        ("POST", ollama::GENERATE) => (Some("OllamaGenerateRequest"), "OllamaGeneration", true),
        ("POST", ollama::EMBED) => (Some("OllamaEmbedRequest"), "OllamaEmbeddings", false),
        ("POST", ollama::EMBEDDINGS) => {
            let body = Some("OllamaOldEmbeddingRequest");
            (body, "OllamaOldEmbedding", false)
        }
        ("POST", ollama::SHOW) => (Some("OllamaShowRequest"), "OllamaModel", false),
        ("POST", ollama::PULL) => (Some("OllamaPullRequest"), "OllamaPull", true),
        ("GET", ollama::TAGS | ollama::PS) => (None, "OllamaModels", false),
        ("GET", ollama::VERSION) => (None, "OllamaVersion", false),
        _ => return None,
    };
    let mut replies = vec![Content::json(reference(reply))];
    if has_lines {
        replies.push(Content::of("application/x-ndjson", reference(reply)));
    }
    let body = body.map(|name| Content {
        example: (route.path == ollama::CHAT).then(ollama::schema::example),
        ..Content::json(reference(name))
    });
    Some(RouteBodies {
        parameters: idempotency(route).into_iter().collect(),
        body: body.into_iter().collect(),
        replies: vec![(200, "Success.", replies)],
    })
}
