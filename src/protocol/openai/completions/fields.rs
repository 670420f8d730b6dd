//! Every field of a request: its own, and those shared with the chat API.

use serde_json::{Map, Value, json};

use crate::openai::chat::Reading;
use crate::openai::field::{self, Field};
use crate::openai::shape::whole;
use crate::openai::{IgnoredFields, Problem, Shape, Strictness, chat};

use super::dialect::CompletionsDialect;
use super::echo::EchoSource;
use super::prompts::{self, Prompts};

/// The request so far.
#[derive(Default)]
pub struct CompletionDraft {
    chat: Map<String, Value>,
    prompts: Option<Prompts>,
    choices: Option<i64>,
    best_of: Option<i64>,
    echo: bool,
    logprobs: Option<u32>,
    only_prompt: bool,
    without_effect: Vec<String>,
}

/// The default of OpenAI's API.
const DEFAULT_TOKENS: u32 = 16;
const MOST_TOKENS: i64 = u32::MAX as i64;
const MOST_CHOICES: i64 = 16;
/// Choices of all prompts together.
const MOST_ANSWERS: usize = 64;

/// Fields of the chat API that mean the same here.
pub const SHARED: &[&str] = &[
    "cache_prompt",
    "frequency_penalty",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_stop_str_in_output",
    "logit_bias",
    "metadata",
    "min_p",
    "min_tokens",
    "presence_penalty",
    "repeat_penalty",
    "repetition_penalty",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop",
    "stop_token_ids",
    "store",
    "stream",
    "stream_options",
    "structured_outputs",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "user",
];

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut CompletionDraft, Value) -> Result<(), Problem>,
) -> Field<CompletionDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

#[rustfmt::skip]
pub const FIELDS: &[Field<CompletionDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models.", |draft, value| draft.put("model", value)),
    field("prompt", Shape::Either(&[Shape::Text, Shape::List]), "A string, an array of strings, an array of token ids, or an array of such arrays.", |draft, value| {
        draft.prompts = Some(prompts::read(value)?);
        Ok(())
    }),
    field("max_tokens", Shape::Integer(0..=MOST_TOKENS), "Maximum number of generated tokens; 16 if absent. 0 with echo only.", |draft, value| {
        draft.only_prompt = value == 0;
        match draft.only_prompt {
            true => Ok(()),
            false => draft.put("max_tokens", value),
        }
    }),
    field("n", Shape::Integer(1..=MOST_CHOICES), "Number of choices for each prompt.", |draft, value| {
        draft.choices = whole(&value);
        Ok(())
    }),
    field("best_of", Shape::Integer(1..=MOST_CHOICES), "Only the value of n: every choice that is generated is returned.", |draft, value| {
        draft.best_of = whole(&value);
        Ok(())
    }),
    field("echo", Shape::Flag, "Return the prompt before the completion, with logprobs also the log probabilities of its tokens.", |draft, value| {
        draft.echo = value == true;
        Ok(())
    }),
    field("logprobs", Shape::Integer(0..=20), "Return the log probability of each generated token, and so many alternatives.", |draft, value| {
        draft.logprobs = whole(&value).and_then(|count| u32::try_from(count).ok());
        draft.put("logprobs", true.into())?;
        draft.put("top_logprobs", value)
    }),
    field("add_special_tokens", Shape::Flag, "false has no effect: the tokenizer puts its own tokens around a text. Not in OpenAI's API.", |draft, value| {
        draft.without_effect("add_special_tokens", value == false);
        Ok(())
    }),
    field("add_bos_token", Shape::Flag, "false has no effect: the tokenizer decides. Not in OpenAI's API.", |draft, value| {
        draft.without_effect("add_bos_token", value == false);
        Ok(())
    }),
    field("suffix", Shape::Text, "Not supported: no model here is known to have infill tokens.", |_, value| {
        match value == "" {
            true => Ok(()),
            false => Err(Problem::unsupported("suffix", "suffix is not supported here: models are not asked to fill in text")),
        }
    }),
];

pub fn read(body: Value, wanted: &IgnoredFields) -> Result<Reading, Problem> {
    let is_known =
        |name: &str| SHARED.contains(&name) || FIELDS.iter().any(|field| field.name == name);
    let ((chat, dialect, without_effect), _, mut ignored) =
        field::leniently(body, wanted, is_known, read_strictly)?;
    ignored.extend(without_effect);
    Ok(Reading {
        chat,
        dialect: Box::new(dialect),
        ignored,
        native: None,
    })
}

fn read_strictly(body: Value) -> Result<(Value, CompletionsDialect, Vec<String>), Problem> {
    let (own, chat) = chat::split(body, FIELDS, SHARED)?;
    let mut draft = CompletionDraft {
        chat,
        ..CompletionDraft::default()
    };
    field::read(FIELDS, own, Strictness::Refuse, &mut draft)?;
    draft.finish()
}

impl CompletionDraft {
    fn put(&mut self, name: &str, value: Value) -> Result<(), Problem> {
        self.chat.insert(name.to_owned(), value);
        Ok(())
    }

    fn without_effect(&mut self, name: &str, asks: bool) {
        if asks {
            self.without_effect.push(name.to_owned());
        }
    }

    fn finish(mut self) -> Result<(Value, CompletionsDialect, Vec<String>), Problem> {
        let prompts = self.prompts.take().ok_or_else(|| {
            Problem::invalid(
                "prompt",
                "prompt is missing: send a string, or an array of them",
            )
        })?;
        let choices = self.choices.unwrap_or(1);
        if let Some(best_of) = self.best_of.filter(|best_of| *best_of != choices) {
            let message = format!(
                "best_of must be {choices}, the value of n, found {best_of}: every choice that is generated is returned"
            );
            return Err(Problem::unsupported("best_of", message));
        }
        let each = usize::try_from(choices).unwrap_or(1);
        if prompts.len() * each > MOST_ANSWERS {
            let message = format!(
                "prompt must ask for at most {MOST_ANSWERS} completions in all, found {}",
                prompts.len() * each
            );
            return Err(Problem::invalid("prompt", message));
        }
        if self.only_prompt && !self.echo {
            let message = "max_tokens: 0 requires echo: true: nothing would be returned";
            return Err(Problem::invalid("max_tokens", message));
        }
        let echoed: Vec<EchoSource> = match (&prompts, self.echo) {
            (_, false) => Vec::new(),
            (Prompts::Texts(texts), true) => texts.iter().cloned().map(EchoSource::Text).collect(),
            (Prompts::Tokens(lists), true) => vec![EchoSource::Tokens; lists.len()],
        };
        // The text of token ids comes with their log probabilities, and a worker that reports those need not generate.
        let needs_prompt =
            self.logprobs.is_some() || self.only_prompt || matches!(prompts, Prompts::Tokens(_));
        let prompt_logprobs =
            (self.echo && needs_prompt).then(|| self.logprobs.unwrap_or_default());
        let messages = prompts.messages();
        self.put("messages", messages.into())?;
        self.chat
            .entry("max_tokens")
            .or_insert_with(|| json!(DEFAULT_TOKENS));
        let dialect = CompletionsDialect {
            tokens: prompts.into_tokens(),
            echoed,
            prompt_logprobs,
            only_prompt: self.only_prompt,
            each: u32::try_from(each).unwrap_or(1),
        };
        Ok((Value::Object(self.chat), dialect, self.without_effect))
    }
}
