//! `/tokenize` and `/detokenize`, as vLLM has them.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{field, list, model, never, only, read, text, token_ids};
use crate::job::{Capabilities, TextInput, TokenList, TokenizeInput, TokensRequest};
use crate::openai::chat::ChatRequest;
use crate::openai::field::Field;
use crate::openai::{Problem, Shape, Strictness};

/// A text or a chat whose tokens are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizeRequest {
    pub model: Arc<str>,
    pub input: TextInput,
    pub add_special_tokens: Option<bool>,
    pub with_strings: bool,
    /// Capabilities that the worker needs besides, to read the chat.
    pub requires: Capabilities,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetokenizeRequest {
    pub model: Arc<str>,
    pub tokens: Vec<u32>,
}

#[derive(Default)]
pub(super) struct TokenizeDraft {
    model: String,
    prompt: Option<String>,
    messages: Option<Value>,
    /// Fields of a chat alone, as the chat API calls them.
    chat: Map<String, Value>,
    add_generation_prompt: Option<bool>,
    add_special_tokens: Option<bool>,
    with_strings: bool,
}

#[derive(Default)]
pub(super) struct DetokenizeDraft {
    model: String,
    tokens: Option<Vec<u32>>,
}

#[rustfmt::skip]
pub(super) const TOKENIZE: &[Field<TokenizeDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models.", |draft, value| {
        draft.model = text(value);
        Ok(())
    }),
    field("prompt", Shape::Text, "Text to tokenize; either this or messages.", |draft, value| {
        draft.prompt = Some(text(value));
        Ok(())
    }),
    field("messages", Shape::List, "Conversation to render with the model's chat template and tokenize.", |draft, value| {
        draft.messages = Some(value);
        Ok(())
    }),
    field("tools", Shape::List, "Functions the model may call, for the chat template; with messages only.", |draft, value| {
        draft.chat.insert("tools".to_owned(), value);
        Ok(())
    }),
    field("chat_template_kwargs", Shape::Object, "Additional variables of the chat template; with messages only.", |draft, value| {
        draft.chat.insert("chat_template_kwargs".to_owned(), value);
        Ok(())
    }),
    field("add_generation_prompt", Shape::Flag, "End the rendered chat with the beginning of the model's turn; true by default, with messages only.", |draft, value| {
        draft.add_generation_prompt = value.as_bool();
        Ok(())
    }),
    field("add_special_tokens", Shape::Flag, "Add the tokenizer's own tokens such as BOS; by default true for a prompt and false for messages.", |draft, value| {
        draft.add_special_tokens = value.as_bool();
        Ok(())
    }),
    field("return_token_strs", Shape::Flag, "Return the vocabulary's name of each token.", |draft, value| {
        draft.with_strings = value == true;
        Ok(())
    }),
    field("continue_final_message", Shape::Flag, "Only false.", |_, value| {
        only("continue_final_message", value == false, "false")
    }),
    field("chat_template", Shape::Text, "Not supported: the model's own template is used.", |_, _| never("chat_template")),
    field("mm_processor_kwargs", Shape::Object, "Not supported.", |_, _| never("mm_processor_kwargs")),
];

#[rustfmt::skip]
pub(super) const DETOKENIZE: &[Field<DetokenizeDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models.", |draft, value| {
        draft.model = text(value);
        Ok(())
    }),
    field("tokens", Shape::List, "Token ids.", |draft, value| {
        draft.tokens = Some(token_ids("tokens", &list(value))?);
        Ok(())
    }),
];

impl TokenizeRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let draft: TokenizeDraft = read(TOKENIZE, body)?;
        let model = model(&draft.model)?;
        let (add_special_tokens, with_strings) = (draft.add_special_tokens, draft.with_strings);
        let (input, requires) = match (&draft.prompt, &draft.messages) {
            (Some(_), Some(_)) => {
                let message = "prompt and messages exclude each other: send one of them";
                return Err(Problem::invalid("prompt", message));
            }
            (None, None) => {
                let message = "prompt is missing: send prompt or messages";
                return Err(Problem::invalid("prompt", message));
            }
            (Some(_), None) => draft.prompt()?,
            (None, Some(_)) => draft.chat()?,
        };
        Ok(Self {
            model,
            input,
            add_special_tokens,
            with_strings,
            requires,
        })
    }

    /// The tokens that a model reads of an input before it answers.
    pub fn of(model: Arc<str>, input: TextInput, requires: Capabilities) -> Self {
        Self {
            model,
            input,
            add_special_tokens: None,
            with_strings: false,
            requires,
        }
    }

    pub fn neutral(self) -> TokensRequest {
        TokensRequest::Tokenize(TokenizeInput {
            input: self.input,
            add_special_tokens: self.add_special_tokens,
            with_strings: self.with_strings,
        })
    }
}

impl TokenizeDraft {
    fn prompt(self) -> Result<(TextInput, Capabilities), Problem> {
        let only_of_chats = self.chat.keys().next().cloned();
        let generation = self.add_generation_prompt.map(|_| "add_generation_prompt");
        if let Some(name) = only_of_chats.or(generation.map(str::to_owned)) {
            let message = format!("{name} requires messages instead of prompt");
            return Err(Problem::invalid(name, message));
        }
        let prompt = self.prompt.unwrap_or_default();
        if prompt.is_empty() {
            let message = "prompt is empty: send at least one character";
            return Err(Problem::invalid("prompt", message));
        }
        Ok((TextInput::Prompt(prompt), Capabilities::default()))
    }

    /// Read as the chat API reads its own messages.
    fn chat(self) -> Result<(TextInput, Capabilities), Problem> {
        let mut body = self.chat;
        body.insert("model".to_owned(), self.model.into());
        body.insert("messages".to_owned(), self.messages.unwrap_or_default());
        let request = ChatRequest::read(Value::Object(body), Strictness::Refuse)?;
        let requires = request.requires();
        let mut input = request.text.input;
        if let (TextInput::Chat(chat), Some(adds)) = (&mut input, self.add_generation_prompt) {
            let name = "add_generation_prompt".to_owned();
            chat.variables.insert(name, adds.into());
        }
        Ok((input, requires))
    }
}

impl DetokenizeRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let draft: DetokenizeDraft = read(DETOKENIZE, body)?;
        let model = model(&draft.model)?;
        let tokens = draft.tokens.ok_or_else(|| {
            let message = "tokens is missing: send an array of token ids";
            Problem::invalid("tokens", message)
        })?;
        Ok(Self { model, tokens })
    }
}

/// The reply of `/tokenize`.
pub fn tokens_reply(tokens: TokenList) -> Value {
    let mut reply = json!({
        "count": tokens.ids.len(),
        "max_model_len": tokens.context,
        "tokens": tokens.ids,
    });
    if let Some(strings) = tokens.strings {
        reply["token_strs"] = strings.into();
    }
    reply
}

/// The reply of `/detokenize`.
pub fn text_reply(text: String) -> Value {
    json!({ "prompt": text })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DetokenizeRequest, TokenizeRequest};
    use crate::job::{Capabilities, FailureKind, TextInput};
    use crate::openai::Problem;

    fn problem(body: Value) -> Problem {
        TokenizeRequest::read(body).unwrap_err()
    }

    #[test]
    fn a_chat_is_read_as_the_chat_api_reads_it() {
        let tool = json!({"type": "function", "function": {"name": "look"}});
        let request = TokenizeRequest::read(json!({
            "model": "m",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "tools": [tool],
            "chat_template_kwargs": {"enable_thinking": false},
            "add_generation_prompt": false,
        }));
        let request = request.unwrap();
        assert!(request.requires.contains(Capabilities::TOOLS));
        let TextInput::Chat(chat) = request.input else {
            panic!("expected a chat");
        };
        assert_eq!(chat.messages[0]["content"], "hi");
        assert_eq!(chat.tools.len(), 1);
        assert_eq!(chat.variables["enable_thinking"], false);
        assert_eq!(chat.variables["add_generation_prompt"], false);
    }

    #[test]
    fn a_field_that_cannot_be_honoured_is_refused_by_name() {
        let cases = [
            (json!({"prompt": "p"}), "model"),
            (json!({"model": "m"}), "prompt"),
            (
                json!({"model": "m", "prompt": "p", "messages": []}),
                "prompt",
            ),
            (json!({"model": "m", "prompt": ""}), "prompt"),
            (json!({"model": "m", "prompt": "p", "tools": []}), "tools"),
            (
                json!({"model": "m", "prompt": "p", "add_generation_prompt": true}),
                "add_generation_prompt",
            ),
            (json!({"model": "m", "messages": []}), "messages"),
            (
                json!({"model": "m", "prompt": "p", "chat_template": "x"}),
                "chat_template",
            ),
            (json!({"model": "m", "prompt": "p", "promt": "x"}), "promt"),
        ];
        for (body, param) in cases {
            let problem = problem(body.clone());
            assert_eq!(problem.param.as_deref(), Some(param), "{body}");
        }
        let unsupported =
            problem(json!({"model": "m", "prompt": "p", "continue_final_message": true}));
        assert_eq!(unsupported.failure.kind, FailureKind::UnsupportedValue);
    }

    #[test]
    fn token_ids_must_be_ids() {
        let read = |tokens: Value| DetokenizeRequest::read(json!({"model": "m", "tokens": tokens}));
        assert_eq!(read(json!([1, 2.0])).unwrap().tokens, [1, 2]);
        let problem = read(json!([1, -2])).unwrap_err();
        assert_eq!(
            problem.to_string(),
            "tokens[1] must be a token id, found -2"
        );
        assert!(read(json!("text")).is_err());
        assert!(DetokenizeRequest::read(json!({"model": "m"})).is_err());
    }
}
