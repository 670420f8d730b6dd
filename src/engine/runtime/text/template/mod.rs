//! Chat templates: the Jinja template in a model's files renders messages to the text format of its training.
//!
//! Templates come with downloaded models, so that instructions and output bytes are limited, and files and other
//! templates inaccessible. Python's string methods and JSON format are supported, because templates depend on them.
//!
//! Intermediate values of a template are not limited: the engine counts an operator, a filter or a captured block as
//! one instruction, however long the resulting string or list is. A template that doubles a string in a loop, or puts a
//! list into itself, crashes the process when memory or stack run out. So an untrusted template is rendered in a
//! separate process (`isolated/`).

mod clock;
mod json;

use std::error::Error as _;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Value};

use super::TextError;
use crate::runtime::{Chat, Failure};

/// Instructions of one rendering: a template spends about a hundred on a message. Ends loops, not strings.
const FUEL: u64 = 5_000_000;
const MAX_RENDERED_BYTES: usize = 16 << 20;
const MAX_TEMPLATE_BYTES: usize = 1 << 20;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// A model's templates, compiled.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
    /// Reasoning is the field `thinking` of messages, as gpt-oss has it.
    names_thinking: bool,
}

/// The argument of `raise_exception` in a template: an error in the client's messages.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TemplateRefusal(String);

impl ChatTemplate {
    /// Compiles templates by name; the main one is called `default`.
    pub fn new(templates: &[(String, String)], bos: &str, eos: &str) -> Result<Self, TextError> {
        let mut environment =
            environment().map_err(|error| TextError::broken("the template engine", error))?;
        let mut names_thinking = false;
        for (name, source) in templates {
            if source.len() > MAX_TEMPLATE_BYTES {
                let reason = format!(
                    "found {} bytes, expected at most {MAX_TEMPLATE_BYTES}",
                    source.len()
                );
                return Err(TextError::broken("the chat template", reason));
            }
            names_thinking |= source.contains("message.thinking");
            let source = without_generation_tags(source);
            let added = environment.add_template_owned(name.clone(), source);
            added.map_err(|error| TextError::broken("the chat template", sentence(&error)))?;
        }
        Ok(Self {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
            names_thinking,
        })
    }

    /// The prompt for the model's next turn. Refusals of the template are errors of the client.
    pub fn render(&self, chat: &Chat) -> Result<String, Failure> {
        let name = self.name_for(chat).map_err(Failure::BadRequest)?;
        let template = self.environment.get_template(name);
        let template = template.map_err(|error| complaint(&error))?;
        let mut out = Bounded::default();
        let rendered = template.render_captured_to(self.variables(chat), &mut out);
        if out.is_full {
            let limit = MAX_RENDERED_BYTES;
            return Err(failed(&format!("the output exceeds {limit} bytes")));
        }
        rendered.map_err(|error| complaint(&error))?;
        let text = String::from_utf8(out.bytes).map_err(|_| failed("the output is not UTF-8"))?;
        match &chat.image_texts {
            Some(texts) => texts.put_into(&text),
            None => Ok(text),
        }
    }

    fn name_for(&self, chat: &Chat) -> Result<&str, String> {
        let has = |wanted: &str| self.environment.templates().any(|(name, _)| name == wanted);
        if !chat.tools.is_empty() && has(TOOL_USE) {
            return Ok(TOOL_USE);
        }
        if has(DEFAULT) {
            return Ok(DEFAULT);
        }
        let names: Vec<&str> = self.environment.templates().map(|(name, _)| name).collect();
        Err(format!(
            "none of the model's chat templates fits this request; available: {}",
            names.join(", ")
        ))
    }

    fn variables(&self, chat: &Chat) -> Value {
        let mut variables = serde_json::Map::new();
        variables.insert("add_generation_prompt".to_owned(), true.into());
        variables.extend(chat.variables.clone());
        variables.insert("bos_token".to_owned(), self.bos.as_str().into());
        variables.insert("eos_token".to_owned(), self.eos.as_str().into());
        let mut messages = chat.messages.clone();
        if self.names_thinking {
            messages.iter_mut().for_each(name_thinking);
        }
        variables.insert("messages".to_owned(), messages.into());
        let tools = match chat.tools.is_empty() {
            true => serde_json::Value::Null,
            false => chat.tools.clone().into(),
        };
        variables.insert("tools".to_owned(), tools);
        Value::from(Serde(variables))
    }
}

/// Reasoning before a tool call. Such templates refuse it together with text.
fn name_thinking(message: &mut serde_json::Value) {
    let has_text = message["content"]
        .as_str()
        .is_some_and(|text| !text.is_empty());
    let reasoning = message["reasoning_content"].as_str().map(str::to_owned);
    if let Some(reasoning) = reasoning.filter(|_| !has_text && message["tool_calls"].is_array()) {
        message["thinking"] = reasoning.into();
    }
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    Ok(environment)
}

fn tojson(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Options of Python's encoder without effect here that templates pass.
    for ignored in ["ensure_ascii", "sort_keys", "separators"] {
        let _: Option<Value> = options.get(ignored)?;
    }
    options.assert_all_used()?;
    json::spell(&value, indent)
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::from(ErrorKind::InvalidOperation).with_source(TemplateRefusal(message)))
}

/// The time in UTC: a worker serves people in every zone.
fn strftime_now(format: String) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    clock::format(&format, now.map_or(0, |since| since.as_secs()))
}

/// `{% generation %}` marks training text in some templates; rendering ignores it.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        let Some((tag, after)) = after.split_once("%}") else {
            break;
        };
        let replaced = match tag.trim_matches(|c: char| c.is_whitespace() || "+-".contains(c)) {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_owned(),
        };
        out.extend([before, "{%", &replaced, "%}"]);
        rest = after;
    }
    out.push_str(rest);
    out
}

fn complaint(error: &Error) -> Failure {
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(TemplateRefusal(message)) = source.downcast_ref() {
            let what = format!("the model's chat template refuses the messages: {message}");
            return Failure::BadRequest(what);
        }
        cause = source.source();
    }
    failed(&sentence(error))
}

fn failed(reason: &str) -> Failure {
    Failure::BrokenTemplate(format!("the model's chat template failed: {reason}"))
}

/// The error and its position, in one line.
fn sentence(error: &Error) -> String {
    let what = error.detail().map_or_else(
        || error.kind().to_string(),
        |detail| format!("{}: {detail}", error.kind()),
    );
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

/// Output with a size limit.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    is_full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_RENDERED_BYTES {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
