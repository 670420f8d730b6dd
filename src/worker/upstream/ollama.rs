//! Ollama's own API, which unlike its copy of OpenAI's lets a request set the context.

use serde_json::{Map, Value, json};

use super::UpstreamError;
use super::answer::{AnswerEvent, small};
use super::error::shortened;
use super::openai::{finish, logprobs, vector, whole};
use muster_protocol::job::{
    Channel, EmbeddingRequest, OutputFormat, Sampling, TextInput, TextRequest, ToolCallEvent,
    ToolChoice, Usage, Vector,
};

/// Path and body of a request for a text.
pub fn text_body(
    model: &str,
    request: &TextRequest,
    context: u32,
) -> Result<(&'static str, Value), UpstreamError> {
    if let Some(name) = unknown_setting(request) {
        return Err(UpstreamError::Unsupported(name));
    }
    let mut body = json!({"model": model, "stream": true, "options": options(request, context)});
    let path = match &request.input {
        TextInput::Chat(chat) => {
            let messages = chat.messages.iter().map(message);
            body["messages"] = Value::Array(messages.collect::<Result<_, _>>()?);
            if !chat.tools.is_empty() && request.tool_choice != Some(ToolChoice::None) {
                body["tools"] = json!(chat.tools);
            }
            if let Some(think) = think(&chat.variables) {
                body["think"] = think;
            }
            "api/chat"
        }
        TextInput::Prompt(text) => {
            body["prompt"] = json!(text);
            body["raw"] = json!(true);
            "api/generate"
        }
        TextInput::Tokens(_) => return Err(UpstreamError::Unsupported("a prompt of token ids")),
    };
    match &request.format {
        None | Some(OutputFormat::Text) => {}
        Some(OutputFormat::JsonObject) => body["format"] = json!("json"),
        Some(OutputFormat::JsonSchema(schema)) => body["format"] = schema.clone(),
        Some(OutputFormat::Regex(_)) => return Err(UpstreamError::Unsupported("guided_regex")),
        // A schema of texts would put quotation marks around them.
        Some(OutputFormat::Choice(_)) => return Err(UpstreamError::Unsupported("guided_choice")),
        Some(OutputFormat::Lark(_)) => return Err(UpstreamError::Unsupported("guided_grammar")),
    }
    if let Some(top) = request.logprobs {
        body["logprobs"] = json!(true);
        body["top_logprobs"] = json!(top);
    }
    Ok((path, body))
}

/// A setting that Ollama would ignore.
fn unknown_setting(request: &TextRequest) -> Option<&'static str> {
    let rules = &request.stop_rules;
    let unknown = [
        ("prompt_logprobs", request.prompt_logprobs.is_some()),
        (
            "min_tokens",
            rules.min_tokens.is_some_and(|least| least > 0),
        ),
        ("ignore_eos", rules.ignore_eos),
        ("stop_token_ids", !rules.stop_token_ids.is_empty()),
        ("logit_bias", !request.sampling.logit_bias.is_empty()),
        (
            "tool_choice",
            matches!(
                request.tool_choice,
                Some(ToolChoice::Required | ToolChoice::Named(_))
            ),
        ),
    ];
    let mut unknown = unknown.into_iter().filter(|(_, is_set)| *is_set);
    unknown.next().map(|(name, _)| name)
}

fn options(request: &TextRequest, context: u32) -> Value {
    let Sampling {
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        seed,
        ..
    } = &request.sampling;
    let mut options = Map::new();
    options.insert("num_ctx".to_owned(), json!(context));
    // Seeds have 32 bits there.
    let seed =
        seed.map(|seed| seed.wrapping_add(u64::from(request.choice)) & u64::from(u32::MAX >> 1));
    let settings = [
        ("temperature", temperature.map(|one| json!(one))),
        ("top_k", top_k.map(|one| json!(one))),
        ("top_p", top_p.map(|one| json!(one))),
        ("min_p", min_p.map(|one| json!(one))),
        ("repeat_penalty", repetition_penalty.map(|one| json!(one))),
        ("presence_penalty", presence_penalty.map(|one| json!(one))),
        ("frequency_penalty", frequency_penalty.map(|one| json!(one))),
        ("seed", seed.map(|one| json!(one))),
        ("num_predict", request.max_tokens.map(|one| json!(one))),
        (
            "stop",
            (!request.stop.is_empty()).then(|| json!(request.stop)),
        ),
    ];
    let set = settings
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    options.extend(set);
    Value::Object(options)
}

fn think(variables: &Map<String, Value>) -> Option<Value> {
    match (
        variables.get("reasoning_effort").and_then(Value::as_str),
        variables.get("enable_thinking"),
    ) {
        (Some("none" | "minimal"), _) => Some(json!(false)),
        (Some(effort @ ("low" | "medium" | "high")), _) => Some(json!(effort)),
        (Some(_), _) => Some(json!(true)),
        (None, Some(Value::Bool(is_on))) => Some(json!(is_on)),
        (None, _) => None,
    }
}

/// Merges text parts, collects images, and parses the arguments of tool calls to objects.
fn message(message: &Value) -> Result<Value, UpstreamError> {
    let mut out = json!({"role": message["role"]});
    let (mut text, mut images) = (String::new(), Vec::new());
    match &message["content"] {
        Value::String(content) => text.push_str(content),
        content => {
            for part in content.as_array().into_iter().flatten() {
                match part["type"].as_str() {
                    Some("image_url") => images.push(image(part)?),
                    _ => text.push_str(part["text"].as_str().unwrap_or_default()),
                }
            }
        }
    }
    out["content"] = json!(text);
    if !images.is_empty() {
        out["images"] = json!(images);
    }
    if let Some(thought) = message["reasoning_content"].as_str() {
        out["thinking"] = json!(thought);
    }
    if let Some(calls) = message["tool_calls"].as_array() {
        let calls = calls.iter().map(|call| {
            let arguments = match &call["function"]["arguments"] {
                Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| json!({})),
                arguments => arguments.clone(),
            };
            json!({"function": {"name": call["function"]["name"], "arguments": arguments}})
        });
        out["tool_calls"] = calls.collect();
    }
    for (theirs, ours) in [("tool_name", "name"), ("tool_call_id", "tool_call_id")] {
        if let Some(value) = message.get(ours).filter(|value| value.is_string()) {
            out[theirs] = value.clone();
        }
    }
    Ok(out)
}

/// The base64 of a data URL.
fn image(part: &Value) -> Result<&str, UpstreamError> {
    let url = part["image_url"]["url"].as_str().unwrap_or_default();
    let data = url
        .strip_prefix("data:")
        .and_then(|data| data.split_once(";base64,"));
    data.map(|(_, base64)| base64)
        .ok_or(UpstreamError::Unsupported(
            "an image that is not a data URL",
        ))
}

/// The events of a line.
pub fn events(line: &Value) -> Result<Vec<AnswerEvent>, UpstreamError> {
    if let Some(words) = line["error"].as_str() {
        return Err(UpstreamError::Failed(shortened(words)));
    }
    let message = &line["message"];
    if !line["done"].is_boolean() && !message.is_object() {
        return Err(UpstreamError::Failed(
            "its reply is not that of Ollama: check api".to_owned(),
        ));
    }
    let mut events = Vec::new();
    for (channel, text) in [
        (Channel::Reasoning, &message["thinking"]),
        (Channel::Reasoning, &line["thinking"]),
        (Channel::Content, &message["content"]),
        (Channel::Content, &line["response"]),
    ] {
        if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
            events.push(AnswerEvent::Text {
                channel,
                text: text.to_owned(),
                logprobs: match channel {
                    Channel::Content => logprobs(&line["logprobs"]),
                    _ => Vec::new(),
                },
            });
        }
    }
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    events.extend(
        calls
            .enumerate()
            .map(|(at, call)| AnswerEvent::Call(tool_call(at, call))),
    );
    if line["done"] == true {
        events.push(AnswerEvent::Finish(finish(
            line["done_reason"].as_str().unwrap_or("stop"),
        )));
        let count = |name: &str| line[name].as_u64().map_or(0, |count| small(count as usize));
        events.push(AnswerEvent::Usage(Usage {
            prompt_tokens: count("prompt_eval_count"),
            completion_tokens: count("eval_count"),
            ..Usage::default()
        }));
    }
    Ok(events)
}

/// Each line has complete tool calls.
fn tool_call(at: usize, call: &Value) -> ToolCallEvent {
    let function = &call["function"];
    ToolCallEvent {
        index: function["index"]
            .as_u64()
            .map_or(small(at), |index| small(index as usize)),
        id: call["id"].as_str().map(str::to_owned),
        name: function["name"].as_str().map(str::to_owned),
        arguments: match &function["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => "{}".to_owned(),
            object => object.to_string(),
        },
        ids: Vec::new(),
    }
}

/// A request for vectors.
pub fn embedding_body(model: &str, request: &EmbeddingRequest) -> Result<Value, UpstreamError> {
    let inputs = request.inputs.iter().map(|input| match input {
        TextInput::Prompt(text) => Ok(json!(text)),
        TextInput::Tokens(_) | TextInput::Chat(_) => {
            Err(UpstreamError::Unsupported("an input of token ids"))
        }
    });
    let inputs: Vec<Value> = inputs.collect::<Result<_, _>>()?;
    // No text is cut in silence: its vector would be that of another text.
    let mut body = json!({"model": model, "input": inputs, "truncate": false});
    if let Some(dimensions) = request.dimensions {
        body["dimensions"] = json!(dimensions);
    }
    Ok(body)
}

/// The vectors in the order of the inputs, and the tokens read.
pub fn vectors(reply: &Value, inputs: usize) -> Result<(Vec<Vector>, usize), UpstreamError> {
    let list = reply["embeddings"].as_array().into_iter().flatten();
    let mut found: Vec<Option<Vector>> = list.map(vector).collect();
    found.resize(inputs, None);
    let tokens = reply["prompt_eval_count"].as_u64().unwrap_or(0) as usize;
    whole(found).map(|vectors| (vectors, tokens))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AnswerEvent, events, text_body};
    use crate::upstream::UpstreamError;
    use muster_protocol::job::TextRequest;

    fn body(fields: Value) -> Result<(&'static str, Value), UpstreamError> {
        let request: TextRequest = serde_json::from_value(fields).unwrap();
        text_body("m", &request, 8192)
    }

    #[test]
    fn a_chat_has_its_images_beside_its_text_and_its_context_in_its_options() {
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        let content = json!([{"type": "text", "text": "what is this?"}, image]);
        let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}});
        let chat = json!({"messages": [{"role": "user", "content": content},
            {"role": "assistant", "content": "", "tool_calls": [call]}],
            "variables": {"enable_thinking": false}});
        let (path, body) =
            body(json!({"input": {"chat": chat}, "max_tokens": 9, "stop": ["x"]})).unwrap();
        assert_eq!((path, &body["think"]), ("api/chat", &json!(false)));
        assert_eq!(body["messages"][0]["images"], json!(["AAAA"]));
        assert_eq!(body["messages"][0]["content"], "what is this?");
        assert_eq!(
            body["messages"][1]["tool_calls"][0]["function"]["arguments"],
            json!({"a": 1})
        );
        assert_eq!(
            body["options"],
            json!({"num_ctx": 8192, "num_predict": 9, "stop": ["x"]})
        );
    }

    #[test]
    fn what_it_would_ignore_is_refused_by_name() {
        for (field, name) in [
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"stop_rules": {"ignore_eos": true}}), "ignore_eos"),
            (json!({"format": {"regex": "a"}}), "guided_regex"),
        ] {
            let mut fields = json!({"input": {"prompt": "a"}});
            fields
                .as_object_mut()
                .unwrap()
                .extend(field.as_object().unwrap().clone());
            assert_eq!(body(fields), Err(UpstreamError::Unsupported(name)));
        }
    }

    #[test]
    fn lines_become_events() {
        let line = json!({"message": {"role": "assistant", "content": "hi", "thinking": "hm"}, "done": false});
        assert_eq!(events(&line).unwrap().len(), 2);
        let last = json!({"message": {"content": ""}, "done": true, "done_reason": "length",
            "prompt_eval_count": 3, "eval_count": 4});
        let found = events(&last).unwrap();
        assert!(matches!(found[0], AnswerEvent::Finish(_)), "{found:?}");
        assert!(matches!(found[1], AnswerEvent::Usage(usage) if usage.completion_tokens == 4));
        assert!(events(&json!({"error": "model not found"})).is_err());
        assert!(events(&json!([1])).is_err());
    }
}
