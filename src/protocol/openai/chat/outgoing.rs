//! A neutral request as a body of this API, for inference servers that others wrote.

use serde_json::{Map, Value, json};

use crate::job::{Chat, Failure, FailureKind, OutputFormat, TextInput, TextRequest, ToolChoice};

/// The fields of a request but its model. Token ids are no chat.
pub fn outgoing_fields(request: &TextRequest) -> Result<Map<String, Value>, Failure> {
    let mut wanted = Map::new();
    match &request.input {
        TextInput::Chat(chat) => add_chat(&mut wanted, chat),
        TextInput::Prompt(text) => {
            let message = json!([{"role": "user", "content": text}]);
            wanted.insert("messages".into(), message);
        }
        TextInput::Tokens(_) => {
            let message = "the worker accepts text prompts, not token ids";
            return Err(Failure::new(FailureKind::UnsupportedValue, message));
        }
    }
    add_sampling(&mut wanted, request);
    add_form(&mut wanted, request);
    Ok(wanted)
}

fn add_chat(wanted: &mut Map<String, Value>, chat: &Chat) {
    let messages = chat.messages.iter().cloned().map(outgoing_message);
    wanted.insert("messages".into(), messages.collect());
    if !chat.tools.is_empty() {
        wanted.insert("tools".into(), Value::Array(chat.tools.clone()));
    }
    if !chat.variables.is_empty() {
        let variables = Value::Object(chat.variables.clone());
        wanted.insert("chat_template_kwargs".into(), variables);
    }
}

/// Templates have the arguments of a call as an object, this API as a text.
fn outgoing_message(mut message: Value) -> Value {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let arguments = call.pointer_mut("/function/arguments");
        if let Some(arguments) = arguments.filter(|arguments| !arguments.is_string()) {
            *arguments = Value::String(arguments.to_string());
        }
    }
    message
}

fn add_sampling(wanted: &mut Map<String, Value>, request: &TextRequest) {
    // Field by field as its serde form names them, which are OpenAI's names and the usual ones beyond.
    if let Ok(Value::Object(sampling)) = serde_json::to_value(&request.sampling) {
        wanted.extend(sampling);
    }
    let bias = &request.sampling.logit_bias;
    if !bias.is_empty() {
        let pairs = bias.iter().map(|(id, bias)| (id.to_string(), json!(bias)));
        wanted.insert("logit_bias".into(), Value::Object(pairs.collect()));
    }
}

fn add_form(wanted: &mut Map<String, Value>, request: &TextRequest) {
    if !request.stop.is_empty() {
        wanted.insert("stop".into(), json!(request.stop));
    }
    // With the field names of the inference servers behind public workers.
    if let Ok(Value::Object(rules)) = serde_json::to_value(&request.stop_rules) {
        wanted.extend(rules);
    }
    if let Some(top) = request.logprobs {
        wanted.insert("logprobs".into(), json!(true));
        wanted.insert("top_logprobs".into(), json!(top));
    }
    if let Some(choice) = &request.tool_choice {
        wanted.insert("tool_choice".into(), tool_choice(choice));
    }
    if let Some(parallel) = request.parallel_tool_calls {
        wanted.insert("parallel_tool_calls".into(), json!(parallel));
    }
    if let Some(format) = &request.format {
        let (name, value) = format_field(format);
        wanted.insert(name.into(), value);
    }
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

/// OpenAI has a field for JSON; other formats use those of the inference servers behind public workers.
fn format_field(format: &OutputFormat) -> (&'static str, Value) {
    let openai = |value| ("response_format", value);
    match format {
        OutputFormat::Text => openai(json!({"type": "text"})),
        OutputFormat::JsonObject => openai(json!({"type": "json_object"})),
        OutputFormat::JsonSchema(schema) => {
            let schema = json!({"name": "answer", "schema": schema});
            openai(json!({"type": "json_schema", "json_schema": schema}))
        }
        OutputFormat::Regex(pattern) => ("guided_regex", json!(pattern)),
        OutputFormat::Choice(choices) => ("guided_choice", json!(choices)),
        OutputFormat::Lark(grammar) => ("guided_grammar", json!(grammar)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::outgoing_fields;
    use crate::openai::Strictness;
    use crate::openai::chat::ChatRequest;

    #[test]
    fn arguments_of_calls_are_texts_again() {
        let call = json!({"id": "a", "type": "function",
            "function": {"name": "look_up", "arguments": "{\"city\": \"Bern\"}"}});
        let body = json!({"model": "m", "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "rain"},
        ]});
        let request = ChatRequest::read(body, Strictness::Refuse).unwrap();
        let fields = outgoing_fields(&request.text).unwrap();
        let arguments = &fields["messages"][1]["tool_calls"][0]["function"]["arguments"];
        assert_eq!(arguments, "{\"city\":\"Bern\"}");
    }
}
