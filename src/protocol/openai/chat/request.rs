//! A body to a [`ChatRequest`]: first each field by itself, then the checks between them.

use serde_json::{Map, Value};

use crate::job::{Capabilities, Chat, OutputFormat, Sampling, StopRules, TextInput, TextRequest};
use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{IgnoredFields, Problem, Strictness, field, json};

use super::fields::FIELDS;
use super::tools::{self, Choice};
use super::{CallStyle, ChatRequest, Demand, Lenient, StreamOptions, aside, messages};

/// Values of the fields so far.
pub struct Draft {
    pub strictness: Strictness,
    pub model: String,
    pub messages: Option<Vec<Value>>,
    pub text: TextRequest,
    pub choices: Option<u32>,
    pub stream: bool,
    pub stream_options: Option<StreamOptions>,
    pub max_tokens: Option<u32>,
    pub max_completion_tokens: Option<u32>,
    pub repeat_penalty: Option<f32>,
    pub logprobs: bool,
    pub top_logprobs: Option<u32>,
    pub tools: Vec<Value>,
    pub tool_choice: Option<Value>,
    pub functions: Vec<Value>,
    pub function_call: Option<Choice>,
    pub variables: Map<String, Value>,
    pub demands: Vec<Demand>,
    pub names_tier: bool,
    pub metadata: Option<Map<String, Value>>,
    pub cache_key: Option<String>,
    pub hides_reasoning: bool,
    pub without_effect: Vec<&'static str>,
    /// The field that gave the answer a form.
    pub form: Option<&'static str>,
}

impl ChatRequest {
    /// Reads a body as it came.
    pub fn parse(body: &[u8], strictness: Strictness) -> Result<Self, Problem> {
        Self::read(json::parse(body)?, strictness)
    }

    /// Like [`Self::read`] with [`Strictness::Refuse`], except for fields that the operator lists as ignored: unknown
    /// or unsupported ones are left out.
    pub fn read_leniently(body: Value, wanted: &IgnoredFields) -> Result<Lenient, Problem> {
        let is_known = |name: &str| FIELDS.iter().any(|field| field.name == name);
        let read = |body: Value| Self::read(body, Strictness::Refuse);
        let (request, body, mut ignored) = field::leniently(body, wanted, is_known, read)?;
        ignored.extend(request.without_effect.iter().map(|name| (*name).to_owned()));
        Ok(Lenient {
            request,
            body,
            ignored,
        })
    }

    pub fn read(mut body: Value, strictness: Strictness) -> Result<Self, Problem> {
        if strictness == Strictness::Tolerate {
            aside::leave(&mut body);
        }
        let Value::Object(entries) = body else {
            let found = kind(&body);
            let message = format!("the body must be a JSON object, found {found}");
            return Err(Problem::malformed(message));
        };
        let mut draft = Draft::new(strictness);
        field::read(FIELDS, entries, strictness, &mut draft)?;
        draft.finish()
    }
}

impl Draft {
    fn new(strictness: Strictness) -> Self {
        Self {
            strictness,
            model: String::new(),
            messages: None,
            text: empty_text(),
            choices: None,
            stream: false,
            stream_options: None,
            max_tokens: None,
            max_completion_tokens: None,
            repeat_penalty: None,
            logprobs: false,
            top_logprobs: None,
            tools: Vec::new(),
            tool_choice: None,
            functions: Vec::new(),
            function_call: None,
            variables: Map::new(),
            demands: Vec::new(),
            names_tier: false,
            metadata: None,
            cache_key: None,
            hides_reasoning: false,
            without_effect: Vec::new(),
            form: None,
        }
    }

    pub fn demand(&mut self, capability: Capabilities, param: &'static str) {
        self.demands.push(Demand {
            capability,
            param: param.into(),
        });
    }

    /// Notes a field whose value has no effect, and is safe to leave out.
    pub fn without_effect(&mut self, name: &'static str, asks: bool) {
        if asks {
            self.without_effect.push(name);
        }
    }

    pub fn effort(&mut self, effort: Value) {
        if effort == "none" {
            let name = "enable_thinking".to_owned();
            self.variables.insert(name, false.into());
        }
        self.variables.insert("reasoning_effort".to_owned(), effort);
    }

    /// The form of the answer, which one field may give.
    pub fn form(&mut self, name: &'static str, format: OutputFormat) -> Result<(), Problem> {
        if let Some(other) = self.form.replace(name) {
            let message =
                format!("{other} and {name} both give the answer a form: use one of them");
            return Err(Problem::invalid(name, message));
        }
        self.demand(Capabilities::GRAMMAR, name);
        self.text.format = Some(format);
        Ok(())
    }

    /// Variables of the template, except those from other fields.
    pub fn template_variables(&mut self, value: Value) -> Result<(), Problem> {
        const TAKEN: [&str; 3] = ["messages", "tools", "add_generation_prompt"];
        let Value::Object(entries) = value else {
            return Ok(());
        };
        for (name, value) in entries {
            if TAKEN.contains(&name.as_str()) {
                let param = format!("chat_template_kwargs.{}", shortened(&name));
                let message = format!("{param} is set from the request: remove it");
                return Err(Problem::invalid(param, message));
            }
            self.variables.insert(name, value);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ChatRequest, Problem> {
        if self.model.is_empty() {
            return Err(Problem::invalid(
                "model",
                "model is missing: use a name listed by /v1/models",
            ));
        }
        let stream = self.stream_options()?;
        self.text.max_tokens = self.most_tokens()?;
        self.text.sampling.repetition_penalty = self.repetition_penalty()?;
        self.check_least_tokens()?;
        self.text.logprobs = self.wanted_logprobs()?;
        let calls = self.settle_tools()?;
        let (chat, prompt_bytes) = self.chat()?;
        self.text.input = TextInput::Chat(chat);
        Ok(ChatRequest {
            model: self.model.into(),
            text: self.text,
            choices: self.choices.unwrap_or(1),
            prompts: Vec::new(),
            stream,
            demands: self.demands,
            calls,
            names_tier: self.names_tier,
            metadata: self.metadata,
            cache_key: self.cache_key,
            prompt_bytes,
            keep_alive: None,
            hides_reasoning: self.hides_reasoning,
            without_effect: self.without_effect,
        })
    }

    fn stream_options(&self) -> Result<Option<StreamOptions>, Problem> {
        match self.stream_options {
            Some(options) if !self.stream && options != StreamOptions::default() => {
                if self.strictness == Strictness::Tolerate {
                    return Ok(None);
                }
                Err(Problem::invalid(
                    "stream_options",
                    "stream_options requires stream: true",
                ))
            }
            options => Ok(self.stream.then(|| options.unwrap_or_default())),
        }
    }

    /// A public coordinator adds `max_tokens` beside the client's own field, so `max_completion_tokens` takes
    /// precedence.
    fn most_tokens(&self) -> Result<Option<u32>, Problem> {
        match (self.max_completion_tokens, self.max_tokens) {
            (Some(new), Some(old)) if new != old && self.strictness == Strictness::Refuse => {
                Err(Problem::invalid(
                    "max_tokens",
                    format!(
                        "max_tokens is {old} and max_completion_tokens is {new}: send only one of them"
                    ),
                ))
            }
            (new, old) => Ok(new.or(old)),
        }
    }

    fn repetition_penalty(&self) -> Result<Option<f32>, Problem> {
        match (self.text.sampling.repetition_penalty, self.repeat_penalty) {
            (Some(one), Some(other)) if one != other && self.strictness == Strictness::Refuse => {
                Err(Problem::invalid(
                    "repeat_penalty",
                    format!(
                        "repetition_penalty is {one} and repeat_penalty is {other}: send only one of them"
                    ),
                ))
            }
            (one, other) => Ok(one.or(other)),
        }
    }

    fn check_least_tokens(&mut self) -> Result<(), Problem> {
        let rules = &self.text.stop_rules;
        if let (Some(least), Some(most)) = (rules.min_tokens, self.text.max_tokens)
            && least > most
        {
            let message =
                format!("min_tokens must not exceed max_tokens, which is {most}, found {least}");
            return Err(Problem::invalid("min_tokens", message));
        }
        let acting = [
            ("min_tokens", rules.min_tokens.is_some()),
            ("ignore_eos", rules.ignore_eos),
            ("stop_token_ids", !rules.stop_token_ids.is_empty()),
        ];
        for (name, _) in acting.into_iter().filter(|(_, acts)| *acts) {
            self.demand(Capabilities::STOP_RULES, name);
        }
        Ok(())
    }

    fn wanted_logprobs(&mut self) -> Result<Option<u32>, Problem> {
        if self.logprobs {
            self.demand(Capabilities::LOGPROBS, "logprobs");
            return Ok(Some(self.top_logprobs.unwrap_or(0)));
        }
        match self.top_logprobs {
            Some(count) if count > 0 => Err(Problem::invalid(
                "top_logprobs",
                "top_logprobs requires logprobs: true",
            )),
            _ => Ok(None),
        }
    }

    fn settle_tools(&mut self) -> Result<CallStyle, Problem> {
        let old = !self.functions.is_empty() || self.function_call.is_some();
        let new = !self.tools.is_empty() || self.tool_choice.is_some();
        let settled = if old && new {
            return Err(Problem::invalid(
                "functions",
                "functions and function_call are the older form of tools and tool_choice: send only one form",
            ));
        } else if old {
            self.text.parallel_tool_calls = Some(false);
            let functions = std::mem::take(&mut self.functions);
            tools::settle_functions(functions, self.function_call.take())?
        } else {
            let declared = std::mem::take(&mut self.tools);
            tools::settle(declared, self.tool_choice.take())?
        };
        self.demands.extend(settled.demands);
        self.text.tool_choice = settled.choice;
        self.tools = settled.tools;
        Ok(if old {
            CallStyle::Function
        } else {
            CallStyle::Tools
        })
    }

    fn chat(&mut self) -> Result<(Chat, usize), Problem> {
        let Some(messages) = self.messages.take() else {
            return Err(Problem::invalid(
                "messages",
                "messages is missing: send at least one",
            ));
        };
        let read = messages::read(messages, self.strictness)?;
        self.demands.extend(read.demands);
        let tools = std::mem::take(&mut self.tools);
        let tool_bytes: usize = tools.iter().map(|tool| tool.to_string().len()).sum();
        let chat = Chat {
            messages: read.messages,
            tools,
            variables: std::mem::take(&mut self.variables),
        };
        Ok((chat, read.bytes + tool_bytes))
    }
}

fn empty_text() -> TextRequest {
    TextRequest {
        input: TextInput::Chat(Chat::default()),
        sampling: Sampling::default(),
        max_tokens: None,
        stop: Vec::new(),
        logprobs: None,
        prompt_logprobs: None,
        tool_choice: None,
        stop_rules: StopRules::default(),
        parallel_tool_calls: None,
        format: None,
        choice: 0,
    }
}
