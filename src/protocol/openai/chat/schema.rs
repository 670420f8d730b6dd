//! The chat API as JSON Schema, for the OpenAPI document: requests, replies and chunks.

use serde_json::{Value, json};

use super::fields;

/// Schemas by the name they have under `#/components/schemas`.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("ChatCompletionRequest", request()),
        ("ChatMessage", message()),
        ("ContentPart", content_part()),
        ("Tool", tool()),
        ("ToolFunction", tool_function()),
        ("ToolCall", tool_call()),
        ("FunctionCall", function_call()),
        ("StreamOptions", stream_options()),
        ("ResponseFormat", response_format()),
        ("ChatCompletion", completion()),
        ("ChatChoice", choice()),
        ("AssistantMessage", assistant_message()),
        ("ChatCompletionChunk", chunk()),
        ("ChatChunkChoice", chunk_choice()),
        ("ChatDelta", delta()),
        ("ToolCallDelta", tool_call_delta()),
        ("Logprobs", logprobs()),
        ("TokenLogprob", token_logprob()),
        ("Usage", usage()),
        ("Generation", generation()),
    ]
}

/// A request that works with any model, for documentation.
pub fn example() -> Value {
    json!({
        "model": "auto",
        "messages": [{"role": "user", "content": "Name three rivers."}],
        "max_tokens": 100,
    })
}

fn request() -> Value {
    let mut schema = fields::schema();
    let fields = &mut schema["properties"];
    fields["messages"]["items"] = reference("ChatMessage");
    fields["tools"]["items"] = reference("Tool");
    fields["functions"]["items"] = reference("ToolFunction");
    fields["stop_token_ids"]["items"] = json!({"type": "integer", "minimum": 0});
    fields["modalities"]["items"] = json!({"type": "string"});
    fields["stream_options"]["$ref"] = "#/components/schemas/StreamOptions".into();
    fields["response_format"]["$ref"] = "#/components/schemas/ResponseFormat".into();
    schema
}

fn message() -> Value {
    object(
        json!({
            "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool", "function"]},
            "content": {"anyOf": [
                {"type": "string"},
                list(&reference("ContentPart")),
                {"type": "null"},
            ]},
            "name": {"type": "string"},
            "tool_call_id": {"type": "string", "description": "Required with the role tool."},
            "tool_calls": list(&reference("ToolCall")),
            "function_call": reference("FunctionCall"),
            "refusal": {"type": ["string", "null"]},
            "reasoning_content": {"type": "string"},
        }),
        &["role"],
    )
}

fn content_part() -> Value {
    let link = object(
        json!({
            "url": {"type": "string", "description": "An http, https or data URL."},
            "detail": {"type": "string", "enum": ["auto", "low", "high", "original"]},
        }),
        &["url"],
    );
    let file = object(
        json!({
            "file_data": {"type": "string", "description": "A PDF or text as a data URL or base64, or an http or https URL of one."},
            "filename": {"type": "string"},
            "detail": {"type": "string", "enum": ["auto", "low", "high"]},
        }),
        &["file_data"],
    );
    object(
        json!({
            "type": {"type": "string", "enum": ["text", "image_url", "video_url", "file", "refusal"]},
            "text": {"type": "string"},
            "refusal": {"type": "string"},
            "image_url": link,
            "video_url": link,
            "file": file,
        }),
        &["type"],
    )
}

fn tool() -> Value {
    object(
        json!({
            "type": {"type": "string", "enum": ["function"]},
            "function": reference("ToolFunction"),
        }),
        &["type", "function"],
    )
}

fn tool_function() -> Value {
    object(
        json!({
            "name": {"type": "string", "minLength": 1, "maxLength": 64},
            "description": {"type": "string"},
            "parameters": {"type": "object", "description": "A JSON Schema."},
            "strict": {"type": "boolean"},
        }),
        &["name"],
    )
}

fn tool_call() -> Value {
    object(
        json!({
            "id": {"type": "string"},
            "type": {"type": "string", "enum": ["function"]},
            "function": reference("FunctionCall"),
            "index": {"type": "integer"},
        }),
        &["id", "function"],
    )
}

fn function_call() -> Value {
    object(
        json!({
            "name": {"type": "string"},
            "arguments": {"type": "string", "description": "JSON."},
        }),
        &["name", "arguments"],
    )
}

fn stream_options() -> Value {
    object(
        json!({
            "include_usage": {"type": "boolean", "description": "Send the token usage in a last chunk of its own."},
            "include_obfuscation": {"type": "boolean", "description": "Pad chunks to a multiple of 64 bytes."},
            "continuous_usage_stats": {"type": "boolean", "description": "Say in every chunk what its choice has used so far; brings include_usage."},
        }),
        &[],
    )
}

fn response_format() -> Value {
    let schema = object(
        json!({
            "name": {"type": "string"},
            "description": {"type": "string"},
            "strict": {"type": "boolean"},
            "schema": {"type": "object", "description": "A JSON Schema."},
        }),
        &["name"],
    );
    object(
        json!({
            "type": {"type": "string", "enum": ["text", "json_object", "json_schema"]},
            "json_schema": schema,
        }),
        &["type"],
    )
}

fn completion() -> Value {
    object(
        json!({
            "id": {"type": "string"},
            "object": {"type": "string", "enum": ["chat.completion"]},
            "created": {"type": "integer", "description": "Unix time in seconds."},
            "model": {"type": "string"},
            "system_fingerprint": {"type": "string"},
            "service_tier": {"type": "string"},
            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
            "choices": list(&reference("ChatChoice")),
            "usage": reference("Usage"),
            "grid": reference("Generation"),
        }),
        &[
            "id",
            "object",
            "created",
            "model",
            "system_fingerprint",
            "choices",
            "usage",
            "grid",
        ],
    )
}

fn choice() -> Value {
    object(
        json!({
            "index": {"type": "integer"},
            "message": reference("AssistantMessage"),
            "logprobs": nullable("Logprobs"),
            "finish_reason": finish_reason(),
        }),
        &["index", "message", "logprobs", "finish_reason"],
    )
}

fn assistant_message() -> Value {
    object(
        json!({
            "role": {"type": "string", "enum": ["assistant"]},
            "content": {"type": ["string", "null"]},
            "refusal": {"type": ["string", "null"]},
            "reasoning_content": {"type": "string"},
            "tool_calls": list(&reference("ToolCall")),
            "function_call": reference("FunctionCall"),
            "images": media_list("image_url"),
            "videos": media_list("video_url"),
        }),
        &["role", "content", "refusal"],
    )
}

/// In answers of models that make media.
fn media_list(kind: &str) -> Value {
    let url = object(json!({"url": {"type": "string"}}), &["url"]);
    let entry = object(
        json!({"type": {"type": "string", "enum": [kind]}, kind: url}),
        &["type", kind],
    );
    list(&entry)
}

fn chunk() -> Value {
    object(
        json!({
            "id": {"type": "string"},
            "object": {"type": "string", "enum": ["chat.completion.chunk"]},
            "created": {"type": "integer", "description": "Unix time in seconds."},
            "model": {"type": "string"},
            "system_fingerprint": {"type": "string"},
            "service_tier": {"type": "string"},
            "choices": list(&reference("ChatChunkChoice")),
            "obfuscation": {"type": "string", "description": "Padding; ignore it."},
            "usage": nullable("Usage"),
            "grid": reference("Generation"),
        }),
        &[
            "id",
            "object",
            "created",
            "model",
            "system_fingerprint",
            "choices",
        ],
    )
}

fn chunk_choice() -> Value {
    let mut finish = finish_reason();
    finish["type"] = json!(["string", "null"]);
    if let Some(words) = finish["enum"].as_array_mut() {
        words.push(Value::Null);
    }
    object(
        json!({
            "index": {"type": "integer"},
            "delta": reference("ChatDelta"),
            "logprobs": nullable("Logprobs"),
            "finish_reason": finish,
        }),
        &["index", "delta", "logprobs", "finish_reason"],
    )
}

fn delta() -> Value {
    let call = object(
        json!({"name": {"type": "string"}, "arguments": {"type": "string"}}),
        &["arguments"],
    );
    object(
        json!({
            "role": {"type": "string", "enum": ["assistant"]},
            "content": {"type": "string"},
            "refusal": {"type": ["string", "null"]},
            "reasoning_content": {"type": "string"},
            "tool_calls": list(&reference("ToolCallDelta")),
            "function_call": call,
            "images": media_list("image_url"),
            "videos": media_list("video_url"),
        }),
        &[],
    )
}

fn tool_call_delta() -> Value {
    let function = object(
        json!({"name": {"type": "string"}, "arguments": {"type": "string"}}),
        &["arguments"],
    );
    object(
        json!({
            "index": {"type": "integer"},
            "id": {"type": "string", "description": "In the first delta of a call."},
            "type": {"type": "string", "enum": ["function"]},
            "function": function,
        }),
        &["index", "function"],
    )
}

fn logprobs() -> Value {
    let tokens = json!({"type": ["array", "null"], "items": reference("TokenLogprob")});
    object(
        json!({"content": tokens, "refusal": tokens}),
        &["content", "refusal"],
    )
}

fn token_logprob() -> Value {
    let bytes = list(&json!({"type": "integer", "minimum": 0, "maximum": 255}));
    let alternative = object(
        json!({"token": {"type": "string"}, "logprob": {"type": "number"}, "bytes": bytes}),
        &["token", "logprob", "bytes"],
    );
    let mut token = alternative.clone();
    token["properties"]["top_logprobs"] = list(&alternative);
    token["required"] = json!(["token", "logprob", "bytes", "top_logprobs"]);
    token
}

fn usage() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let prompt = object(
        json!({"cached_tokens": count(), "audio_tokens": count()}),
        &["cached_tokens", "audio_tokens"],
    );
    let completion = object(
        json!({
            "reasoning_tokens": count(),
            "audio_tokens": count(),
            "accepted_prediction_tokens": count(),
            "rejected_prediction_tokens": count(),
        }),
        &[
            "reasoning_tokens",
            "audio_tokens",
            "accepted_prediction_tokens",
            "rejected_prediction_tokens",
        ],
    );
    object(
        json!({
            "prompt_tokens": count(),
            "completion_tokens": count(),
            "total_tokens": count(),
            "prompt_tokens_details": prompt,
            "completion_tokens_details": completion,
        }),
        &[
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "prompt_tokens_details",
            "completion_tokens_details",
        ],
    )
}

fn generation() -> Value {
    let routing = object(
        json!({
            "auto": {"type": "boolean"},
            "requested": {"type": "string"},
            "resolved_model": {"type": "string"},
        }),
        &["auto", "requested", "resolved_model"],
    );
    object(
        json!({
            "worker": {"type": ["string", "null"], "description": "Name of the worker."},
            "gen_time": {"type": "number", "description": "Seconds until the last token."},
            "ttft": {"type": ["number", "null"], "description": "Seconds until the first token."},
            "tokens_per_s": {"type": ["number", "null"]},
            "seed": {"type": "integer"},
            "routing": routing,
            "translated": {
                "type": "string",
                "enum": ["anthropic", "openai-responses"],
                "description": "The API of the request, if a worker of the public network got it as a chat request.",
            },
            "upstream": {
                "type": "string",
                "description": "The program behind the worker that served the model, such as vllm or ollama, if it was not its own engine.",
            },
        }),
        &["worker", "gen_time", "ttft", "tokens_per_s", "seed"],
    )
}

fn finish_reason() -> Value {
    json!({
        "type": "string",
        "enum": ["stop", "length", "tool_calls", "function_call", "content_filter", "cancelled"],
    })
}

fn object(properties: Value, required: &[&str]) -> Value {
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn nullable(name: &str) -> Value {
    json!({"anyOf": [reference(name), {"type": "null"}]})
}
