//! The body of a job for a worker's frame: the neutral request for our own workers, chat or the client's own API for
//! public ones, with the defaults of public coordinators.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::agreement::Peer;
use super::{flat, native, public_keys};
use crate::dispatch::Offer;
use muster_protocol::job::{Body, Failure, FailureKind, Formats, Job, Original, TextRequest};
use muster_protocol::link::Payload;
use muster_protocol::openai::chat::outgoing_fields;

const TEMPERATURE: f64 = 0.7;
const TOP_P: f64 = 0.9;
const MAX_TOKENS: u32 = 32_768;
/// Context of a worker that states none.
const UNNAMED_CONTEXT: u32 = 2048;
/// Minimum of output tokens.
const LEAST_TOKENS: u32 = 16;

/// In the format of the offer.
pub fn of(offer: &Offer, body: Cow<'_, Body>, peer: &Peer) -> Result<Payload, Failure> {
    let job = &*offer.job;
    let is_neutral = offer.format == Formats::NEUTRAL;
    match &*body {
        Body::Text(request) if is_neutral => Ok(Payload::Neutral(neutral(job, request).into())),
        Body::Text(request) => {
            let model = peer.own_name(&offer.model);
            public(job, request, offer.format, model, peer.context).map(Payload::Public)
        }
        _ if is_neutral => Ok(Payload::Neutral(body.into_owned())),
        file if file.file().is_some() => public_keys::of(file, &offer.model).map(Payload::Public),
        _ => Err(unsupported()),
    }
}

fn unsupported() -> Failure {
    let message = "the worker accepts only text jobs";
    Failure::new(FailureKind::UnsupportedValue, message)
}

/// For public peers, in this format, with the peer's model name.
pub fn public(
    job: &Job,
    request: &TextRequest,
    format: Formats,
    model: &str,
    context: u32,
) -> Result<Map<String, Value>, Failure> {
    match job.native().filter(|native| native.format == format) {
        Some(native) => {
            let most = max_tokens(job, request, context);
            Ok(native::payload(native, model, most))
        }
        None => chat(job, request, model, context),
    }
}

/// Adds a seed: every attempt must use the same one, so that another worker can continue.
fn neutral(job: &Job, request: &TextRequest) -> TextRequest {
    let mut request = request.clone();
    request.sampling.seed.get_or_insert(random_seed(job));
    request
}

/// `openai-chat`.
fn chat(
    job: &Job,
    request: &TextRequest,
    model: &str,
    context: u32,
) -> Result<Map<String, Value>, Failure> {
    let mut wanted = match &job.original {
        Some(original) if original.format.meets(Formats::OPENAI_CHAT) => from_original(original),
        _ => outgoing_fields(request)?,
    };
    wanted.insert("model".into(), json!(model));
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

/// The client's own fields, without nulls.
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

/// Sets the fields of every job, whatever the request. A job is one output, whatever `n` the request had.
fn fill_in(wanted: &mut Map<String, Value>, job: &Job, request: &TextRequest, context: u32) {
    let most = max_tokens(job, request, context);
    let fixed = [("n", json!(1)), ("max_tokens", json!(most))];
    for (key, value) in fixed {
        wanted.insert(key.into(), value);
    }
    let defaults = [
        ("temperature", json!(TEMPERATURE)),
        ("top_p", json!(TOP_P)),
        ("stream", json!(false)),
        ("messages", json!([])),
    ];
    for (key, value) in defaults {
        wanted.entry(key).or_insert(value);
    }
    // A negative seed is sent as it was: backends read signed 64-bit numbers.
    let seed = seed(job, request).cast_signed();
    wanted.insert("seed".into(), json!(seed));
}

fn max_tokens(job: &Job, request: &TextRequest, context: u32) -> u32 {
    let most = output_room(context, job.limits.prompt_tokens);
    match request.max_tokens {
        // The backend may refuse an output limit beyond its context.
        Some(asked) if context != UNNAMED_CONTEXT => asked.min(most),
        Some(asked) => asked,
        None => most,
    }
}

/// The output limit of a job without its own: the context minus the prompt, if the worker reported a context.
pub fn output_room(context: u32, prompt_tokens: u32) -> u32 {
    if context == UNNAMED_CONTEXT {
        return MAX_TOKENS;
    }
    let left = context.saturating_sub(prompt_tokens);
    left.clamp(LEAST_TOKENS, MAX_TOKENS)
}

/// The client's seed plus the number of the choice, or a random one.
fn seed(job: &Job, request: &TextRequest) -> u64 {
    match request.sampling.seed {
        Some(seed) => seed.wrapping_add(u64::from(request.choice)),
        None => random_seed(job),
    }
}

/// The same in all attempts at a job, within the range of every backend.
fn random_seed(job: &Job) -> u64 {
    job.id.drawn() >> 31
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{chat, neutral, random_seed};
    use muster_protocol::job::{
        AccountId, Body, Formats, Job, JobId, Kind, Limits, ModelChoice, Original, Privacy,
        RequestId, TextRequest, UnixMillis,
    };

    fn request(fields: Value) -> TextRequest {
        serde_json::from_value(fields).unwrap()
    }

    fn job(request: TextRequest, original: Option<Value>) -> Job {
        Job {
            id: JobId::random(),
            request: RequestId::random(),
            account: AccountId(1),
            shared_key: None,
            kind: Kind::Text,
            model: ModelChoice(vec!["tiny".into()]),
            body: Body::Text(Box::new(request)),
            limits: Limits {
                prompt_tokens: 100,
                ..Limits::default()
            },
            privacy: Privacy::Anyone,
            deadline: UnixMillis(0),
            durable: false,
            prefixes: Vec::new(),
            original: original.map(|body| Original {
                format: Formats::OPENAI_CHAT,
                body: Arc::new(body),
                native: None,
            }),
            price: None,
        }
    }

    fn rendered(request: &TextRequest, original: Option<Value>, context: u32) -> Value {
        let job = job(request.clone(), original);
        Value::Object(chat(&job, request, "Org/Tiny", context).unwrap())
    }

    #[test]
    fn the_clients_words_are_kept_without_nulls_and_the_defaults_filled_in() {
        let request = request(json!({"input": {"chat": {"messages": []}}, "choice": 2,
            "sampling": {"seed": 40}, "max_tokens": 7}));
        let original = json!({
            "model": "tiny", "n": 3, "temperature": 0.1, "user": null, "metadata": {"a": null},
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "assistant", "content": null, "tool_calls": []},
                {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},
            ],
        });
        let payload = rendered(&request, Some(original), 32_768);
        let wanted = &payload["request"];
        assert!(wanted.get("user").is_none());
        assert_eq!(wanted["model"], "Org/Tiny", "as its worker calls it");
        assert_eq!(wanted["metadata"], json!({"a": null}));
        assert!(wanted["messages"][1].get("content").is_none());
        assert_eq!(wanted["temperature"], 0.1);
        assert_eq!((&wanted["n"], &wanted["seed"]), (&json!(1), &json!(42)));
        assert_eq!(
            (&wanted["max_tokens"], &payload["max_length"]),
            (&json!(7), &json!(7))
        );
        assert_eq!(
            payload["prompt"],
            "System: Be brief.\nAssistant: \nUser: hi\nAssistant:"
        );
    }

    #[test]
    fn a_neutral_request_becomes_the_usual_fields() {
        let request = request(json!({
            "input": {"prompt": "hi"}, "stop": ["x"], "logprobs": 2,
            "sampling": {"top_k": 5, "logit_bias": [[7, -1.5]]},
            "tool_choice": {"named": "f"}, "format": {"json_schema": {"a": 1}},
        }));
        let wanted = &rendered(&request, None, 2048)["request"];
        assert_eq!(
            wanted["messages"],
            json!([{"role": "user", "content": "hi"}])
        );
        assert_eq!(wanted["logit_bias"], json!({"7": -1.5}));
        assert_eq!(
            (&wanted["top_k"], &wanted["top_logprobs"]),
            (&json!(5), &json!(2))
        );
        assert_eq!(wanted["tool_choice"]["function"]["name"], "f");
        let schema = &wanted["response_format"]["json_schema"]["schema"];
        assert_eq!(*schema, json!({"a": 1}));
        assert_eq!(wanted["max_tokens"], 32_768);
        assert_eq!(wanted["stream"], false);
    }

    #[test]
    fn an_unlimited_output_gets_the_context_the_worker_named() {
        let request = request(json!({"input": {"prompt": "hi"}}));
        assert_eq!(rendered(&request, None, 8192)["max_length"], 8092);
        assert_eq!(rendered(&request, None, 50)["max_length"], 16);
    }

    #[test]
    fn an_output_is_no_longer_than_the_context_the_worker_named_has_room_for() {
        let asked = request(json!({"input": {"prompt": "hi"}, "max_tokens": 100_000}));
        assert_eq!(rendered(&asked, None, 8192)["max_length"], 8092);
        assert_eq!(
            rendered(&asked, None, 2048)["max_length"],
            100_000,
            "none is named"
        );
    }

    #[test]
    fn a_seed_below_zero_stays_below_zero() {
        let minus_two = (-2_i64).cast_unsigned();
        let request = request(json!({"input": {"prompt": "hi"}, "sampling": {"seed": minus_two}}));
        assert_eq!(rendered(&request, None, 2048)["request"]["seed"], -2);
    }

    #[test]
    fn every_attempt_draws_from_the_same_seed() {
        let plain = request(json!({"input": {"prompt": "hi"}}));
        let job = job(plain.clone(), None);
        let seed = neutral(&job, &plain).sampling.seed;
        assert_eq!(seed, Some(random_seed(&job)));
        assert_eq!(seed, neutral(&job, &plain).sampling.seed);
        let given = request(json!({"input": {"prompt": "hi"}, "sampling": {"seed": 9}}));
        assert_eq!(neutral(&job, &given).sampling.seed, Some(9));
    }
}
