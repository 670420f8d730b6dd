//! A job as its worker's frames carry it: the neutral request for our own, the client's dialect for public ones, with
//! the defaults public coordinators fill in.

use serde_json::{Map, Value, json};

use super::agreement::Peer;
use super::flat;
use crate::coordinator::dispatch::Offer;
use crate::protocol::job::{
    Body, Chat, Failure, FailureKind, Formats, Job, Original, OutputFormat, TextInput, TextRequest,
    ToolChoice,
};
use crate::protocol::link::Payload;

const TEMPERATURE: f64 = 0.7;
const TOP_P: f64 = 0.9;
const MAX_TOKENS: u32 = 32_768;
/// What a worker that names no context is taken to have.
const UNNAMED_CONTEXT: u32 = 2048;
/// An output is given at least so much room.
const LEAST_TOKENS: u32 = 16;

/// In the first format both sides know.
pub fn of(offer: &Offer, peer: &Peer) -> Result<Payload, Failure> {
    let job = &*offer.job;
    let Body::Text(request) = &job.body;
    let both = |format| peer.formats.meets(format) && job.limits.formats.meets(format);
    if both(Formats::NEUTRAL) {
        return Ok(Payload::Neutral(request.clone()));
    }
    chat(job, request, peer.context).map(Payload::Public)
}

/// `openai-chat`, for public peers.
pub fn chat(job: &Job, request: &TextRequest, context: u32) -> Result<Map<String, Value>, Failure> {
    let mut wanted = match &job.original {
        Some(original) if original.format.meets(Formats::OPENAI_CHAT) => from_original(original),
        _ => from_neutral(request)?,
    };
    fill_in(&mut wanted, job, request, context);
    let max_length = wanted["max_tokens"].clone();
    let (temperature, top_p) = (wanted["temperature"].clone(), wanted["top_p"].clone());
    let prompt = flat::transcript(&wanted["messages"]);
    let mut payload = Map::new();
    payload.insert("request".into(), Value::Object(wanted));
    payload.insert("api_format".into(), json!("openai-chat"));
    payload.insert("prompt".into(), Value::String(prompt));
    payload.insert("max_length".into(), max_length);
    payload.insert("temperature".into(), temperature);
    payload.insert("top_p".into(), top_p);
    Ok(payload)
}

/// The client's own words, without its nulls.
fn from_original(original: &Original) -> Map<String, Value> {
    let mut wanted = original.body.as_object().cloned().unwrap_or_default();
    wanted.retain(|_, value| !value.is_null());
    if let Some(Value::Array(messages)) = wanted.get_mut("messages") {
        for message in messages.iter_mut().filter_map(Value::as_object_mut) {
            message.retain(|_, value| !value.is_null());
        }
    }
    wanted
}

/// What is always there, whoever asked. A job is one output, whatever the request had.
fn fill_in(wanted: &mut Map<String, Value>, job: &Job, request: &TextRequest, context: u32) {
    let model = job.model.0.first().map_or("", |name| name);
    let max_tokens = request
        .max_tokens
        .unwrap_or_else(|| room(context, job.limits.prompt_tokens));
    let fixed = [("n", json!(1)), ("max_tokens", json!(max_tokens))];
    for (key, value) in fixed {
        wanted.insert(key.into(), value);
    }
    let defaults = [
        ("model", json!(model)),
        ("temperature", json!(TEMPERATURE)),
        ("top_p", json!(TOP_P)),
        ("stream", json!(false)),
        ("messages", json!([])),
    ];
    for (key, value) in defaults {
        wanted.entry(key).or_insert(value);
    }
    wanted.insert("seed".into(), json!(seed(job, request)));
}

/// The whole context where the worker named one, as far as the prompt leaves it.
fn room(context: u32, prompt_tokens: u32) -> u32 {
    if context == UNNAMED_CONTEXT {
        return MAX_TOKENS;
    }
    let left = context.saturating_sub(prompt_tokens);
    left.clamp(LEAST_TOKENS, MAX_TOKENS)
}

/// The client's, moved on for its further choices; or one of ours, kept within what every backend reads.
fn seed(job: &Job, request: &TextRequest) -> u64 {
    let (random, _) = job.id.0.as_u64_pair();
    match request.sampling.seed {
        Some(seed) => seed.wrapping_add(u64::from(request.choice)),
        None => random & 0x7fff_ffff,
    }
}

fn from_neutral(request: &TextRequest) -> Result<Map<String, Value>, Failure> {
    let mut wanted = Map::new();
    match &request.input {
        TextInput::Chat(chat) => add_chat(&mut wanted, chat),
        TextInput::Prompt(text) => {
            let message = json!([{"role": "user", "content": text}]);
            wanted.insert("messages".into(), message);
        }
        TextInput::Tokens(_) => {
            let message = "the worker takes text, and this prompt is token ids";
            return Err(Failure::new(FailureKind::UnsupportedValue, message));
        }
    }
    add_sampling(&mut wanted, request);
    add_form(&mut wanted, request);
    Ok(wanted)
}

fn add_chat(wanted: &mut Map<String, Value>, chat: &Chat) {
    wanted.insert("messages".into(), Value::Array(chat.messages.clone()));
    if !chat.tools.is_empty() {
        wanted.insert("tools".into(), Value::Array(chat.tools.clone()));
    }
    if !chat.variables.is_empty() {
        let variables = Value::Object(chat.variables.clone());
        wanted.insert("chat_template_kwargs".into(), variables);
    }
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
        wanted.insert("response_format".into(), response_format(format));
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

fn response_format(format: &OutputFormat) -> Value {
    match format {
        OutputFormat::Text => json!({"type": "text"}),
        OutputFormat::JsonObject => json!({"type": "json_object"}),
        OutputFormat::JsonSchema(schema) => json!({"type": "json_schema", "json_schema": schema}),
    }
}
