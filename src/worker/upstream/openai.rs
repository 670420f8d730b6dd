//! OpenAI's API as vLLM, SGLang, llama.cpp's server and LM Studio have it.

use serde_json::{Map, Value, json};

use super::UpstreamError;
use super::answer::{AnswerEvent, small};
use super::error::shortened;
use super::facts::Software;
use muster_protocol::job::{
    Channel, EmbeddingRequest, FinishReason, OutputFormat, RankingRequest, TextInput, TextRequest,
    TokenLogprob, ToolCallEvent, ToolChoice, Usage, Vector,
};
use muster_protocol::openai::chat::outgoing_fields;

/// Path and body of a request for a text.
pub fn text_body(
    model: &str,
    request: &TextRequest,
    software: Software,
    goes_on: bool,
) -> Result<(&'static str, Value), UpstreamError> {
    if request.prompt_logprobs.is_some() {
        return Err(UpstreamError::Unsupported("prompt_logprobs"));
    }
    check_stop_rules(request, software)?;
    let (path, mut body) = match &request.input {
        TextInput::Chat(_) => ("v1/chat/completions", fields(request)?),
        TextInput::Prompt(text) => ("v1/completions", completion(request, json!(text))?),
        TextInput::Tokens(ids) => ("v1/completions", completion(request, json!(ids))?),
    };
    if goes_on
        && matches!(request.input, TextInput::Chat(_))
        && matches!(software, Software::Vllm | Software::Sglang)
    {
        // The others continue a last assistant message by default.
        body.insert("continue_final_message".to_owned(), json!(true));
        body.insert("add_generation_prompt".to_owned(), json!(false));
    }
    body.remove("legacy");
    demand_call(&mut body, request, software);
    add_format(&mut body, request, software)?;
    add_effort(&mut body, request);
    if let Some(penalty) = body.get("repetition_penalty").cloned() {
        // The name at llama.cpp's server and LM Studio.
        body.insert("repeat_penalty".to_owned(), penalty);
    }
    body.insert("model".to_owned(), json!(model));
    body.insert("stream".to_owned(), json!(true));
    let options = json!({"include_usage": true});
    body.insert("stream_options".to_owned(), options);
    if let Some(most) = request.max_tokens {
        body.insert("max_tokens".to_owned(), json!(most));
    }
    if let Some(seed) = request.sampling.seed {
        // Programs read 63 bits; choices of one request differ.
        let seed = seed.wrapping_add(u64::from(request.choice)) & (u64::MAX >> 1);
        body.insert("seed".to_owned(), json!(seed));
    }
    Ok((path, Value::Object(body)))
}

/// Programs that know no call by name, and would ignore it, get the one tool instead.
fn demand_call(body: &mut Map<String, Value>, request: &TextRequest, software: Software) {
    let Some(ToolChoice::Named(wanted)) = &request.tool_choice else {
        return;
    };
    if matches!(software, Software::Vllm | Software::Sglang) {
        return;
    }
    if let Some(Value::Array(tools)) = body.get_mut("tools") {
        tools.retain(|tool| tool["function"]["name"] == **wanted);
    }
    body.insert("tool_choice".to_owned(), json!("required"));
}

fn fields(request: &TextRequest) -> Result<Map<String, Value>, UpstreamError> {
    outgoing_fields(request).map_err(|failure| UpstreamError::Refused(failure.message.into_owned()))
}

/// The same for a text that is continued: no messages, and log probabilities by their number.
fn completion(request: &TextRequest, prompt: Value) -> Result<Map<String, Value>, UpstreamError> {
    let plain = TextRequest {
        input: TextInput::Prompt(String::new()),
        ..request.clone()
    };
    let mut body = fields(&plain)?;
    body.remove("messages");
    body.remove("top_logprobs");
    body.insert("prompt".to_owned(), prompt);
    if let Some(top) = request.logprobs {
        body.insert("logprobs".to_owned(), json!(top));
    }
    Ok(body)
}

fn check_stop_rules(request: &TextRequest, software: Software) -> Result<(), UpstreamError> {
    let rules = &request.stop_rules;
    let knows_all = matches!(software, Software::Vllm | Software::Sglang);
    let unknown = match (knows_all, software) {
        (true, _) => None,
        _ if rules.min_tokens.is_some_and(|least| least > 0) => Some("min_tokens"),
        _ if !rules.stop_token_ids.is_empty() => Some("stop_token_ids"),
        (_, Software::LlamaCpp) => None,
        _ if rules.ignore_eos => Some("ignore_eos"),
        _ => None,
    };
    unknown.map_or(Ok(()), |name| Err(UpstreamError::Unsupported(name)))
}

/// JSON has a field in the API; other forms have one at some programs, and would be ignored by the others.
fn add_format(
    body: &mut Map<String, Value>,
    request: &TextRequest,
    software: Software,
) -> Result<(), UpstreamError> {
    for name in ["guided_regex", "guided_choice", "guided_grammar"] {
        body.remove(name);
    }
    let (name, value) = match (&request.format, software) {
        (
            None
            | Some(OutputFormat::Text | OutputFormat::JsonObject | OutputFormat::JsonSchema(_)),
            _,
        ) => return Ok(()),
        // Earlier versions know the one field, later ones the other.
        (Some(OutputFormat::Regex(pattern)), Software::Vllm) => {
            body.insert("guided_regex".to_owned(), json!(pattern));
            ("structured_outputs", json!({"regex": pattern}))
        }
        (Some(OutputFormat::Choice(choices)), Software::Vllm) => {
            body.insert("guided_choice".to_owned(), json!(choices));
            ("structured_outputs", json!({"choice": choices}))
        }
        (Some(OutputFormat::Lark(grammar)), Software::Vllm) => {
            body.insert("guided_grammar".to_owned(), json!(grammar));
            ("structured_outputs", json!({"grammar": grammar}))
        }
        (Some(OutputFormat::Regex(pattern)), Software::Sglang) => ("regex", json!(pattern)),
        (Some(OutputFormat::Choice(choices)), Software::Sglang) => {
            ("regex", json!(one_of(choices)))
        }
        (Some(OutputFormat::Choice(choices)), Software::LlamaCpp) => {
            ("grammar", json!(gbnf(choices)))
        }
        (Some(OutputFormat::Regex(_)), _) => {
            return Err(UpstreamError::Unsupported("guided_regex"));
        }
        (Some(OutputFormat::Choice(_)), _) => {
            return Err(UpstreamError::Unsupported("guided_choice"));
        }
        (Some(OutputFormat::Lark(_)), _) => {
            return Err(UpstreamError::Unsupported("guided_grammar"));
        }
    };
    body.insert(name.to_owned(), value);
    Ok(())
}

/// A pattern that is exactly one of these texts.
fn one_of(choices: &[String]) -> String {
    let escaped = choices.iter().map(|choice| {
        let escape = |one: char| match one.is_ascii_punctuation() {
            true => vec!['\\', one],
            false => vec![one],
        };
        choice.chars().flat_map(escape).collect::<String>()
    });
    format!("({})", escaped.collect::<Vec<_>>().join("|"))
}

/// The same as a grammar of llama.cpp.
fn gbnf(choices: &[String]) -> String {
    let quoted = choices.iter().map(|choice| json!(choice).to_string());
    format!("root ::= {}", quoted.collect::<Vec<_>>().join(" | "))
}

/// Reasoning models behind OpenAI's own API read the effort from this field.
fn add_effort(body: &mut Map<String, Value>, request: &TextRequest) {
    if let TextInput::Chat(chat) = &request.input
        && let Some(effort) = chat.variables.get("reasoning_effort")
    {
        body.insert("reasoning_effort".to_owned(), effort.clone());
    }
}

/// The events of a chunk, or of a complete reply.
pub fn events(chunk: &Value) -> Result<Vec<AnswerEvent>, UpstreamError> {
    if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
        let words = error["message"]
            .as_str()
            .or(error.as_str())
            .unwrap_or("no reason given");
        return Err(UpstreamError::Failed(shortened(words)));
    }
    if !chunk["choices"].is_array() && chunk["usage"].is_null() {
        return Err(UpstreamError::Failed(
            "its reply is not that of OpenAI's API: check api".to_owned(),
        ));
    }
    let mut events = Vec::new();
    let choice = &chunk["choices"][0];
    let delta = match choice.get("delta") {
        Some(delta) => delta,
        None => &choice["message"],
    };
    for (channel, names) in [
        (Channel::Reasoning, &["reasoning_content", "reasoning"][..]),
        (Channel::Content, &["content"]),
        (Channel::Refusal, &["refusal"]),
    ] {
        let mut texts = names.iter().filter_map(|name| delta[*name].as_str());
        if let Some(text) = texts.find(|text| !text.is_empty()) {
            events.push(AnswerEvent::Text {
                channel,
                text: text.to_owned(),
                logprobs: match channel {
                    Channel::Content => logprobs(&choice["logprobs"]["content"]),
                    _ => Vec::new(),
                },
            });
        }
    }
    if let Some(text) = choice["text"].as_str() {
        events.push(AnswerEvent::Text {
            channel: Channel::Content,
            text: text.to_owned(),
            logprobs: legacy_logprobs(&choice["logprobs"]),
        });
    }
    let calls = delta["tool_calls"].as_array().into_iter().flatten();
    events.extend(
        calls
            .enumerate()
            .map(|(at, call)| AnswerEvent::Call(tool_call(at, call))),
    );
    if let Some(reason) = choice["finish_reason"].as_str() {
        events.push(AnswerEvent::Finish(finish(reason)));
    }
    if chunk["usage"].is_object() {
        events.push(AnswerEvent::Usage(usage(&chunk["usage"])));
    }
    Ok(events)
}

fn tool_call(at: usize, call: &Value) -> ToolCallEvent {
    let text = |value: &Value| {
        value
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let function = &call["function"];
    let arguments = match &function["arguments"] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        object => object.to_string(),
    };
    ToolCallEvent {
        index: call["index"]
            .as_u64()
            .map_or(small(at), |index| small(index as usize)),
        id: text(&call["id"]),
        name: text(&function["name"]),
        arguments,
        ids: Vec::new(),
    }
}

pub fn finish(reason: &str) -> FinishReason {
    match reason {
        "length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    }
}

fn usage(usage: &Value) -> Usage {
    let count = |value: &Value| value.as_u64().map_or(0, |count| small(count as usize));
    Usage {
        prompt_tokens: count(&usage["prompt_tokens"]),
        cached_tokens: count(&usage["prompt_tokens_details"]["cached_tokens"]),
        completion_tokens: count(&usage["completion_tokens"]),
        reasoning_tokens: count(&usage["completion_tokens_details"]["reasoning_tokens"]),
    }
}

/// `[{"token": …, "bytes": …, "logprob": …, "top_logprobs": […]}]`.
pub fn logprobs(list: &Value) -> Vec<TokenLogprob> {
    let list = list.as_array().into_iter().flatten();
    let read = |one: &Value| {
        let top = one["top_logprobs"].as_array().into_iter().flatten();
        Some(TokenLogprob {
            bytes: token_bytes(one),
            logprob: one["logprob"].as_f64()? as f32,
            top: top
                .filter_map(|one| Some((token_bytes(one), one["logprob"].as_f64()? as f32)))
                .collect(),
        })
    };
    list.filter_map(read).collect()
}

fn token_bytes(token: &Value) -> Vec<u8> {
    let bytes = token["bytes"].as_array().map(|bytes| {
        let bytes = bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok());
        bytes.collect::<Option<Vec<u8>>>()
    });
    let text = || {
        token["token"]
            .as_str()
            .unwrap_or_default()
            .as_bytes()
            .to_vec()
    };
    bytes.flatten().unwrap_or_else(text)
}

/// Log probabilities of `/v1/completions`: parallel lists.
fn legacy_logprobs(lists: &Value) -> Vec<TokenLogprob> {
    // Some programs have the newer shape here, too.
    if lists["content"].is_array() {
        return logprobs(&lists["content"]);
    }
    let tokens = lists["tokens"].as_array().into_iter().flatten();
    let read = |(at, token): (usize, &Value)| {
        let top = lists["top_logprobs"][at].as_object().into_iter().flatten();
        let mut top: Vec<(Vec<u8>, f32)> = top
            .filter_map(|(text, logprob)| {
                Some((text.as_bytes().to_vec(), logprob.as_f64()? as f32))
            })
            .collect();
        top.sort_by(|one, two| two.1.total_cmp(&one.1));
        Some(TokenLogprob {
            bytes: token.as_str()?.as_bytes().to_vec(),
            logprob: lists["token_logprobs"][at].as_f64()? as f32,
            top,
        })
    };
    tokens.enumerate().filter_map(read).collect()
}

/// A request for vectors.
pub fn embedding_body(model: &str, request: &EmbeddingRequest) -> Value {
    let inputs = request.inputs.iter().map(|input| match input {
        TextInput::Prompt(text) => json!(text),
        TextInput::Tokens(ids) => json!(ids),
        TextInput::Chat(chat) => json!(chat.messages),
    });
    let mut body =
        json!({"model": model, "input": inputs.collect::<Vec<_>>(), "encoding_format": "float"});
    if let Some(dimensions) = request.dimensions {
        body["dimensions"] = json!(dimensions);
    }
    body
}

/// The vectors in the order of the inputs, and the tokens read.
pub fn vectors(reply: &Value, inputs: usize) -> Result<(Vec<Vector>, usize), UpstreamError> {
    let data = reply["data"].as_array().into_iter().flatten();
    let mut found: Vec<Option<Vector>> = vec![None; inputs];
    for (at, one) in data.enumerate() {
        let at = one["index"].as_u64().map_or(at, |index| index as usize);
        if let Some(place) = found.get_mut(at) {
            *place = vector(&one["embedding"]);
        }
    }
    let tokens = reply["usage"]["prompt_tokens"].as_u64().unwrap_or(0) as usize;
    whole(found).map(|vectors| (vectors, tokens))
}

/// A request for scores, as the servers have it that know Jina's and Cohere's API.
pub fn ranking_body(model: &str, request: &RankingRequest) -> Value {
    let documents = &request.documents;
    json!({"model": model, "query": request.query, "documents": documents, "top_n": documents.len()})
}

/// The scores in the order of the documents, and the tokens read.
pub fn scores(reply: &Value, documents: usize) -> Result<(Vec<f32>, usize), UpstreamError> {
    let mut found = vec![None; documents];
    for result in reply["results"].as_array().into_iter().flatten() {
        let place = result["index"]
            .as_u64()
            .and_then(|at| found.get_mut(at as usize));
        let score = result["relevance_score"]
            .as_f64()
            .or(result["score"].as_f64());
        if let (Some(place), Some(score)) = (place, score) {
            *place = Some(score as f32);
        }
    }
    let scores: Option<Vec<f32>> = found.into_iter().collect();
    let scores = scores.filter(|scores| scores.iter().all(|score| score.is_finite()));
    let scores = scores.ok_or_else(|| UpstreamError::Failed("it left out scores".to_owned()))?;
    let usage = &reply["usage"];
    let tokens = usage["prompt_tokens"]
        .as_u64()
        .or(usage["total_tokens"].as_u64());
    Ok((scores, tokens.unwrap_or(0) as usize))
}

pub fn vector(list: &Value) -> Option<Vector> {
    let numbers = list.as_array()?.iter().map(|number| {
        let number = number.as_f64()? as f32;
        number.is_finite().then_some(number)
    });
    let numbers: Vec<f32> = numbers.collect::<Option<_>>()?;
    (!numbers.is_empty()).then_some(Vector(numbers))
}

/// A vector for each input, all of one length.
pub fn whole(found: Vec<Option<Vector>>) -> Result<Vec<Vector>, UpstreamError> {
    let vectors: Option<Vec<Vector>> = found.into_iter().collect();
    let vectors = vectors.filter(|vectors| {
        let mut lengths = vectors.iter().map(|vector| vector.0.len());
        let first = lengths.next();
        lengths.all(|length| Some(length) == first)
    });
    vectors.ok_or_else(|| UpstreamError::Failed("it left out vectors".to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AnswerEvent, events, scores, text_body, vectors};
    use crate::upstream::UpstreamError;
    use crate::upstream::facts::Software;
    use muster_protocol::job::{Channel, FinishReason, TextRequest, ToolCallEvent, Usage};

    fn request(fields: Value) -> TextRequest {
        serde_json::from_value(fields).unwrap()
    }

    fn body(fields: Value, software: Software) -> Result<(&'static str, Value), UpstreamError> {
        text_body("m", &request(fields), software, false)
    }

    #[test]
    fn a_tool_is_demanded_as_the_program_knows_it() {
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        let chat = json!({"messages": [], "tools": [tool("time"), tool("weather")]});
        let fields = json!({"input": {"chat": chat}, "tool_choice": {"named": "weather"}});
        let demanded = |software| {
            let (_, body) = body(fields.clone(), software).unwrap();
            (body["tools"].clone(), body["tool_choice"].clone())
        };
        let both = json!([tool("time"), tool("weather")]);
        assert_eq!(demanded(Software::Vllm), (both, tool("weather")));
        let one = (json!([tool("weather")]), json!("required"));
        assert_eq!(demanded(Software::LlamaCpp), one);
        assert_eq!(demanded(Software::LmStudio), one);
    }

    #[test]
    fn a_message_is_continued_by_the_fields_of_the_program() {
        let messages =
            json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "we"}]);
        let fields = json!({"input": {"chat": {"messages": messages}}});
        let field = |software| {
            let (_, body) = text_body("m", &request(fields.clone()), software, true).unwrap();
            assert_eq!(body["messages"][1]["content"], "we");
            body.get("continue_final_message").cloned()
        };
        assert_eq!(field(Software::Vllm), Some(json!(true)));
        assert_eq!(field(Software::Sglang), Some(json!(true)));
        assert_eq!(field(Software::LlamaCpp), None);
        let prompt = request(json!({"input": {"prompt": "we"}}));
        let (_, body) = text_body("m", &prompt, Software::Vllm, true).unwrap();
        assert!(body.get("continue_final_message").is_none());
    }

    #[test]
    fn a_chat_is_asked_for_as_a_stream_with_its_counts() {
        let chat = json!({"messages": [{"role": "user", "content": "hi"}]});
        let fields = json!({"input": {"chat": chat}, "max_tokens": 7, "choice": 1,
            "sampling": {"temperature": 0.5, "seed": u64::MAX}, "stop": ["\n"], "logprobs": 2});
        let (path, body) = body(fields, Software::Other).unwrap();
        assert_eq!(path, "v1/chat/completions");
        assert_eq!(
            (&body["model"], &body["stream"]),
            (&json!("m"), &json!(true))
        );
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(body["max_tokens"], 7);
        assert_eq!(
            (&body["seed"], &body["temperature"]),
            (&json!(0), &json!(0.5))
        );
        assert_eq!(
            (&body["logprobs"], &body["top_logprobs"]),
            (&json!(true), &json!(2))
        );
    }

    #[test]
    fn a_text_is_continued_by_completions() {
        let (path, body) = body(
            json!({"input": {"prompt": "once"}, "logprobs": 3}),
            Software::Other,
        )
        .unwrap();
        assert_eq!((path, &body["prompt"]), ("v1/completions", &json!("once")));
        assert_eq!(body["logprobs"], 3);
        assert!(body.get("messages").is_none());
    }

    #[test]
    fn what_a_program_would_ignore_is_refused_by_name() {
        let check = |field: Value, software, wanted: Result<&str, &'static str>| {
            let mut fields = json!({"input": {"prompt": "a"}});
            fields
                .as_object_mut()
                .unwrap()
                .extend(field.as_object().unwrap().clone());
            match (body(fields, software), wanted) {
                (Ok((_, body)), Ok(name)) => assert!(body.get(name).is_some(), "{name}: {body}"),
                (Err(UpstreamError::Unsupported(found)), Err(name)) => assert_eq!(found, name),
                (found, wanted) => panic!("wanted {wanted:?}, found {found:?}"),
            }
        };
        let choice = || json!({"format": {"choice": ["a", "b"]}});
        check(choice(), Software::Vllm, Ok("structured_outputs"));
        check(choice(), Software::Sglang, Ok("regex"));
        check(choice(), Software::LlamaCpp, Ok("grammar"));
        check(choice(), Software::Other, Err("guided_choice"));
        let pattern = || json!({"format": {"regex": "a+"}});
        check(pattern(), Software::LlamaCpp, Err("guided_regex"));
        let schema = json!({"format": {"json_schema": {"type": "object"}}});
        check(schema, Software::Other, Ok("response_format"));
        let least = json!({"stop_rules": {"min_tokens": 4}});
        check(least.clone(), Software::Vllm, Ok("min_tokens"));
        check(least, Software::LlamaCpp, Err("min_tokens"));
        check(
            json!({"prompt_logprobs": 1}),
            Software::Vllm,
            Err("prompt_logprobs"),
        );
    }

    #[test]
    fn chunks_become_events() {
        let chunk = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]});
        let text = |channel, text: &str| AnswerEvent::Text {
            channel,
            text: text.to_owned(),
            logprobs: Vec::new(),
        };
        assert_eq!(events(&chunk).unwrap(), [text(Channel::Reasoning, "hm")]);
        let call = json!({"index": 1, "id": "c", "function": {"name": "f", "arguments": "{}"}});
        let chunk = json!({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
        let wanted = [
            AnswerEvent::Call(ToolCallEvent {
                index: 1,
                id: Some("c".to_owned()),
                name: Some("f".to_owned()),
                arguments: "{}".to_owned(),
                ids: Vec::new(),
            }),
            AnswerEvent::Finish(FinishReason::ToolCalls),
            AnswerEvent::Usage(Usage {
                prompt_tokens: 3,
                completion_tokens: 4,
                ..Usage::default()
            }),
        ];
        assert_eq!(events(&chunk).unwrap(), wanted);
        let whole = json!({"choices": [{"message": {"content": "all"}, "finish_reason": "stop"}]});
        assert_eq!(events(&whole).unwrap()[0], text(Channel::Content, "all"));
        assert!(events(&json!({"error": {"message": "out of memory"}})).is_err());
        assert!(events(&json!({"hello": 1})).is_err());
    }

    #[test]
    fn scores_are_those_of_their_documents() {
        let results = json!([{"index": 1, "relevance_score": 0.9}, {"index": 0, "score": -2.5}]);
        let reply = json!({"results": results, "usage": {"total_tokens": 7}});
        assert_eq!(scores(&reply, 2), Ok((vec![-2.5, 0.9], 7)));
        assert!(scores(&reply, 3).is_err());
        assert!(scores(&json!({"error": "no"}), 1).is_err());
    }

    #[test]
    fn vectors_are_those_of_their_inputs() {
        let data = json!([{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]);
        let (found, tokens) =
            vectors(&json!({"data": data, "usage": {"prompt_tokens": 5}}), 2).unwrap();
        assert_eq!((found[0].0[0], found[1].0[0], tokens), (1.0, 2.0, 5));
        for wrong in [
            json!([{"index": 0, "embedding": [1.0]}]),
            json!([{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]),
            json!([{"index": 0, "embedding": []}, {"index": 1, "embedding": ["a"]}]),
        ] {
            assert!(vectors(&json!({"data": wrong}), 2).is_err());
        }
    }
}
