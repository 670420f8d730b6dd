//! Converts a job to the engine's request: from our coordinators' neutral request, or from a public coordinator's chat
//! body.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::grammar;
use super::images::{self, ImageReader};
use crate::link::LineId;
use crate::link::session::Work;
use muster_engine::runtime::text::{Begins, Language, OfferedTool};
use muster_engine::runtime::{self, CacheScope, ChatImage, Prompt};
use muster_protocol::job;
use muster_protocol::job::{Body, Failure, FailureKind, TextInput, ToolChoice};
use muster_protocol::link::Payload;
use muster_protocol::openai::Strictness;
use muster_protocol::openai::chat::ChatRequest;

/// An executable request, and the parsing of its result.
pub struct Asked {
    pub request: runtime::TextRequest,
    pub language: Arc<Language>,
    /// Tools whose calls are parsed from the text.
    pub offered: Arc<[OfferedTool]>,
    pub only_one_call: bool,
    /// The prompt ended inside a thought.
    pub is_thinking: bool,
    /// The text that the client already has, as reported by the coordinator.
    pub told: String,
    pub job: job::JobId,
}

impl Asked {
    /// `images` is set for a model with vision.
    pub fn read(
        work: Work,
        line: LineId,
        language: Arc<Language>,
        images: Option<&ImageReader>,
    ) -> Result<Self, Failure> {
        let scope = scope(line, work.cache_salt.as_deref(), work.job);
        let mut asked = text_request(work.payload)?;
        let images = take_images(&mut asked.input, images)?;
        let prefill = work.prefill.unwrap_or_default();
        let legacy = asked.sampling.legacy.as_deref();
        let window = legacy.and_then(|legacy| legacy.max_context_length);
        let window = window.map(|tokens| tokens as usize);
        let is_legacy = legacy.is_some();
        let stop = std::mem::take(&mut asked.stop);
        let stop = if is_legacy { without_idle(stop) } else { stop };
        let is_thinking = match &asked.input {
            TextInput::Chat(chat) => language.opens_thought(&chat_of(chat.clone(), Vec::new())),
            TextInput::Prompt(_) | TextInput::Tokens(_) => false,
        };
        let offered = offered(&asked);
        refuse_tools(!offered.is_empty(), &language)?;
        let grammar = grammar::of(&mut asked, language.markup, is_thinking)?;
        Ok(Self {
            offered,
            only_one_call: asked.parallel_tool_calls == Some(false),
            is_thinking,
            job: work.job,
            told: prefill.text,
            language,
            request: runtime::TextRequest {
                model: work.model,
                prompt: prompt_of(asked.input, images),
                generated: prefill.tokens,
                sampling: sampling_of(asked.sampling),
                max_tokens: asked.max_tokens.map(|tokens| tokens as usize),
                window,
                stop,
                stop_rules: runtime::StopRules {
                    min_tokens: asked.stop_rules.min_tokens.unwrap_or(0) as usize,
                    ignore_eos: asked.stop_rules.ignore_eos,
                    stop_token_ids: asked.stop_rules.stop_token_ids,
                },
                logprobs: asked.logprobs.map(|count| count as usize),
                prompt_logprobs: asked.prompt_logprobs.map(|count| count as usize),
                grammar: grammar.map(Arc::new),
                choice: asked.choice,
                scope,
            },
        })
    }

    /// Continues from the delivered text, by its tokens in this model. `None` if they decode to another text, or if the
    /// output starts with reasoning.
    pub fn continued_by_text(mut self) -> Option<Self> {
        if self.is_thinking {
            return None;
        }
        let tokens = self.language.encode(&self.told, false).ok()?;
        let mut said = String::new();
        let stops = (Vec::new(), &runtime::StopRules::default());
        self.language.replay(&tokens, self.begins(), stops, |text| {
            said.push_str(text);
        });
        self.request.generated = tokens;
        (said == self.told).then_some(self)
    }

    /// The position of the first token in its text.
    pub fn begins(&self) -> Begins {
        match self.request.prompt {
            Prompt::Chat(_) => Begins::Fresh,
            Prompt::Text(_) | Prompt::Tokens(_) => Begins::AfterPrompt,
        }
    }
}

pub fn text_request(payload: Payload) -> Result<job::TextRequest, Failure> {
    let format = payload.format().to_owned();
    match payload {
        Payload::Neutral(Body::Text(request)) => Ok(*request),
        Payload::Neutral(_) => Err(Failure::new(
            FailureKind::UnsupportedValue,
            "the model writes text, and the job is for media",
        )),
        Payload::Public(mut payload) if format == "openai-chat" => {
            let request = payload.remove("request").unwrap_or(Value::Null);
            let request = ChatRequest::read(request, Strictness::Tolerate);
            Ok(request.map_err(Failure::from)?.text)
        }
        Payload::Public(_) => {
            let message =
                format!("unsupported request format {format}; this worker supports openai-chat");
            Err(Failure::new(FailureKind::UnsupportedValue, message))
        }
        Payload::Unreadable => {
            let message =
                "parsing the request failed: the worker may be older than its coordinator";
            Err(Failure::new(FailureKind::WorkerFailed, message))
        }
        Payload::Excessive => {
            let message = "the request is nested too deeply, or a number is out of range";
            Err(Failure::new(FailureKind::InvalidRequest, message))
        }
    }
}

/// Jobs share the prefix cache if their coordinator gives them the same salt, and never across coordinators. A job
/// without a salt shares only with its own attempts.
fn scope(line: LineId, salt: Option<&str>, job: job::JobId) -> CacheScope {
    let mut hash = Sha256::new();
    hash.update(line.0.to_le_bytes());
    match salt {
        Some(salt) => {
            hash.update(b"salt");
            hash.update(salt);
        }
        None => {
            hash.update(b"job");
            hash.update(job.0.as_bytes());
        }
    }
    let digest = hash.finalize();
    let bytes = digest.first_chunk().copied();
    CacheScope(bytes.map_or(0, u128::from_le_bytes))
}

/// Clients of the poll API may send stop strings that are empty, or the same twice.
fn without_idle(stop: Vec<String>) -> Vec<String> {
    let mut known = HashSet::new();
    let acts = |stop: &String| !stop.is_empty() && known.insert(stop.clone());
    stop.into_iter().filter(acts).collect()
}

/// Takes the images out of a chat. A model that does not see refuses them: its template would leave them out without a
/// word, and the answer would be made up.
pub fn take_images(
    input: &mut TextInput,
    reader: Option<&ImageReader>,
) -> Result<Vec<ChatImage>, Failure> {
    match input {
        TextInput::Chat(chat) => images::take(&mut chat.messages, reader),
        TextInput::Prompt(_) | TextInput::Tokens(_) => Ok(Vec::new()),
    }
}

fn refuse_tools(are_offered: bool, language: &Language) -> Result<(), Failure> {
    match are_offered && !language.markup.calls_tools() {
        true => Err(Failure::new(
            FailureKind::UnsupportedValue,
            "the model's chat template does not support tools",
        )),
        false => Ok(()),
    }
}

/// Refuses an input for which no text would be written either.
pub fn check_template(input: &TextInput, language: &Language) -> Result<(), Failure> {
    let tools = match input {
        TextInput::Chat(chat) => !chat.tools.is_empty(),
        TextInput::Prompt(_) | TextInput::Tokens(_) => false,
    };
    refuse_tools(tools, language)
}

/// The tools that the model may call.
fn offered(asked: &job::TextRequest) -> Arc<[OfferedTool]> {
    let TextInput::Chat(chat) = &asked.input else {
        return Arc::default();
    };
    if asked.tool_choice == Some(ToolChoice::None) {
        return Arc::default();
    }
    let tool = |tool: &Value| {
        let function = tool.get("function").unwrap_or(tool);
        let name = function["name"].as_str()?;
        Some(OfferedTool::new(name, function.get("parameters")))
    };
    chat.tools.iter().filter_map(tool).collect()
}

pub fn prompt_of(input: TextInput, images: Vec<ChatImage>) -> Prompt {
    match input {
        TextInput::Prompt(text) => Prompt::Text(text),
        TextInput::Tokens(tokens) => Prompt::Tokens(tokens),
        TextInput::Chat(chat) => Prompt::Chat(chat_of(chat, images)),
    }
}

fn chat_of(chat: job::Chat, images: Vec<ChatImage>) -> runtime::Chat {
    runtime::Chat {
        image_texts: None,
        images,
        messages: chat.messages,
        tools: chat.tools,
        variables: chat.variables,
    }
}

fn sampling_of(sampling: job::Sampling) -> runtime::Sampling {
    let legacy = sampling.legacy.map(|legacy| *legacy).unwrap_or_default();
    let number = |number: Option<f64>| number.map(|number| number as f32);
    runtime::Sampling {
        temperature: sampling.temperature,
        top_k: sampling.top_k.map(|k| k as usize),
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        repetition_penalty: sampling.repetition_penalty,
        repetition_range: legacy.rep_pen_range.map(|range| range as usize),
        presence_penalty: sampling.presence_penalty,
        frequency_penalty: sampling.frequency_penalty,
        logit_bias: sampling.logit_bias,
        seed: sampling.seed,
        smoothing_factor: number(legacy.smoothing_factor),
        dynatemp_range: number(legacy.dynatemp_range),
        dynatemp_exponent: number(legacy.dynatemp_exponent),
        top_a: number(legacy.top_a),
        tfs: number(legacy.tfs),
        typical: number(legacy.typical),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        FailureKind, Payload, job, runtime, sampling_of, scope, take_images, text_request,
    };
    use crate::link::LineId;
    use muster_protocol::job::LegacySampling;

    #[test]
    fn an_image_from_a_public_coordinator_is_refused_and_named() {
        let read = |content: Value| {
            let request = json!({"model": "m", "messages": [{"role": "user", "content": content}]});
            let payload = json!({"api_format": "openai-chat", "request": request});
            let Value::Object(payload) = payload else {
                unreachable!("it is an object")
            };
            let mut asked = text_request(Payload::Public(payload))?;
            take_images(&mut asked.input, None).map(drop)
        };
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
        let text = json!({"type": "text", "text": "what is this?"});
        assert_eq!(read(json!("hello")), Ok(()));
        assert_eq!(read(json!([text])), Ok(()));
        let refused = read(json!([text, image])).unwrap_err();
        assert_eq!(refused.kind, FailureKind::UnsupportedValue);
        assert!(
            refused.message.starts_with("messages[0].content[1]: ")
                && refused.message.contains("image_url"),
            "{refused}"
        );
    }

    #[test]
    fn jobs_share_computed_prompts_by_salt_within_one_line() {
        let (one, other) = (job::JobId::random(), job::JobId::random());
        let (ours, theirs) = (LineId(1), LineId(2));
        let salted = scope(ours, Some("a"), one);
        assert_eq!(salted, scope(ours, Some("a"), other));
        assert_ne!(salted, scope(ours, Some("b"), one));
        assert_ne!(salted, scope(theirs, Some("a"), one));
        assert_eq!(scope(ours, None, one), scope(ours, None, one));
        assert_ne!(scope(ours, None, one), scope(ours, None, other));
        assert_ne!(salted, runtime::CacheScope::default());
    }

    #[test]
    fn the_engine_is_told_what_clients_of_the_poll_api_set() {
        let legacy = LegacySampling {
            rep_pen_range: Some(320),
            smoothing_factor: Some(0.25),
            dynatemp_range: Some(0.5),
            dynatemp_exponent: Some(1.5),
            top_a: Some(0.125),
            tfs: Some(0.75),
            typical: Some(0.875),
            ..LegacySampling::default()
        };
        let found = sampling_of(job::Sampling {
            temperature: Some(0.5),
            legacy: Some(Box::new(legacy)),
            ..job::Sampling::default()
        });
        let wanted = runtime::Sampling {
            temperature: Some(0.5),
            repetition_range: Some(320),
            smoothing_factor: Some(0.25),
            dynatemp_range: Some(0.5),
            dynatemp_exponent: Some(1.5),
            top_a: Some(0.125),
            tfs: Some(0.75),
            typical: Some(0.875),
            ..runtime::Sampling::default()
        };
        assert_eq!(found, wanted);
        let none = sampling_of(job::Sampling::default());
        assert_eq!(none, runtime::Sampling::default());
    }
}
