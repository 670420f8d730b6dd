//! Errors in OpenAI's shape, with the `detail` that clients of the public network parse.

use serde_json::{Value, json};

use crate::job::Failure;

use super::Problem;

/// `{"error":{"message","type","code","param"},"detail"}`
pub fn body(failure: &Failure, param: Option<&str>) -> Value {
    json!({
        "error": {
            "message": failure.message,
            "type": kind(failure.status()),
            "code": failure.code(),
            "param": param,
        },
        "detail": failure.message,
    })
}

/// The body as JSON Schema, for the OpenAPI document.
pub fn schema() -> Value {
    let text = json!({"type": "string"});
    let optional = json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "required": ["error", "detail"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "code", "param"],
                "properties": {
                    "message": text,
                    "type": text,
                    "code": {"type": "string", "description": "Stable code."},
                    "param": optional,
                    "console_url": {"type": "string", "description": "Where to get a key."},
                },
            },
            "detail": {"type": "string", "description": "The message again."},
        },
    })
}

impl Problem {
    pub fn body(&self) -> Value {
        body(&self.failure, self.param.as_deref())
    }
}

fn kind(status: u16) -> &'static str {
    match status {
        // Clients that go by the type (litellm) take every "invalid_request_error" for a bad request.
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        400..=498 => "invalid_request_error",
        501 => "not_implemented_error",
        502 | 504 => "upstream_error",
        _ => "server_error",
    }
}
