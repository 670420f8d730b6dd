//! Failures in Anthropic's envelope.

use serde_json::{Value, json};

/// The field that continues a conversation which the service keeps.
pub const THREAD: &str = "thread";

/// Converts an error body of OpenAI's shape to Anthropic's:
/// `{"type":"error","error":{"type","message",...},"request_id"}`. Other keys stay for clients of the public network.
pub fn error_body(mut body: Value, status: u16, request_id: &str) -> Value {
    body["type"] = json!("error");
    body["error"]["type"] = json!(error_type(status));
    if body["error"]["param"] == THREAD {
        // Anthropic's clients then send the whole conversation.
        body["error"]["details"] = json!({"error_code": "thread_unsupported_request"});
    }
    body["request_id"] = json!(request_id);
    body
}

/// The error body as JSON Schema, for the OpenAPI document.
pub fn error_schema() -> Value {
    let mut schema = crate::openai::error::schema();
    schema["properties"]["type"] = json!({"type": "string", "enum": ["error"]});
    schema["properties"]["request_id"] = json!({"type": "string"});
    schema["properties"]["error"]["properties"]["details"] = json!({
        "type": "object",
        "properties": {"error_code": {"type": "string"}},
        "description": "Only where a client can act on it.",
    });
    schema["required"] = json!(["type", "error", "request_id"]);
    schema
}

fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::error_body;

    #[test]
    fn an_error_has_the_envelope_that_anthropics_clients_read() {
        let check = |status, expected: &str| {
            let body = json!({"error": {"message": "no", "type": "other"}, "detail": "no"});
            let wanted = json!({
                "type": "error", "error": {"message": "no", "type": expected}, "detail": "no", "request_id": "r",
            });
            assert_eq!(error_body(body, status, "r"), wanted);
        };
        check(400, "invalid_request_error");
        check(401, "authentication_error");
        check(404, "not_found_error");
        check(405, "invalid_request_error");
        check(413, "request_too_large");
        check(429, "rate_limit_error");
        check(501, "api_error");
        check(503, "overloaded_error");
        let body = json!({"error": {"param": "thread"}});
        let details = &error_body(body, 400, "r")["error"]["details"];
        assert_eq!(details["error_code"], "thread_unsupported_request");
    }
}
