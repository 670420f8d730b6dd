//! The continuation of a text that another worker began: the request for the rest, and the token counts of the whole.
//!
//! Programs send no token ids, so the next program continues from the text. Chat templates and tokenizers may strip trailing
//! whitespace: the request omits it, and the same whitespace is removed from the start of the rest.

use serde_json::json;

use muster_protocol::job::{OutputFormat, TextInput, TextRequest, ToolChoice, Usage};
use muster_protocol::link::Prefill;

/// The state of a continued text.
#[derive(Debug)]
pub struct TextContinuation {
    /// Trailing whitespace that the client has and the request omits.
    ahead: String,
    /// Tokens that the client has.
    written: u32,
    /// Whether the client has `max_tokens` already.
    is_full: bool,
    /// Whether the request contains a part of the text.
    goes_on: bool,
}

/// Whether the output of this request can be continued from its text. A grammar or a tool call would start again, and a
/// request that ends with an assistant message is a continuation already.
pub fn is_plain(request: &TextRequest, ends_a_message: bool) -> bool {
    if !matches!(request.format, None | Some(OutputFormat::Text)) {
        return false;
    }
    match &request.input {
        TextInput::Prompt(_) => true,
        TextInput::Tokens(_) => false,
        TextInput::Chat(chat) => {
            let calls = !chat.tools.is_empty() && request.tool_choice != Some(ToolChoice::None);
            let last = chat.messages.last();
            let is_begun = last.is_some_and(|last| last["role"] == "assistant");
            ends_a_message && !calls && !is_begun
        }
    }
}

impl TextContinuation {
    /// Changes the request to one for the rest of its text. `None` if the client has more output than the text.
    pub fn of(request: &mut TextRequest, prefill: Prefill) -> Option<Self> {
        let written = prefill.written?;
        let begun = prefill.text.trim_end();
        let ahead = prefill.text[begun.len()..].to_owned();
        if !begun.is_empty() {
            match &mut request.input {
                TextInput::Prompt(text) => text.push_str(begun),
                TextInput::Chat(chat) => {
                    let message = json!({"role": "assistant", "content": begun});
                    chat.messages.push(message);
                }
                TextInput::Tokens(_) => return None,
            }
        }
        let left = request.max_tokens.map(|most| most.saturating_sub(written));
        request.max_tokens = left.map(|left| left.max(1));
        Some(Self {
            ahead,
            written,
            is_full: left == Some(0),
            goes_on: !begun.is_empty(),
        })
    }

    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The part of a piece that the client does not have.
    pub fn fresh<'a>(&mut self, piece: &'a str) -> &'a str {
        let mut fresh = piece;
        while let (Some(wanted), Some(found)) = (self.ahead.chars().next(), fresh.chars().next()) {
            if wanted != found {
                self.ahead.clear();
                break;
            }
            self.ahead.remove(0);
            fresh = &fresh[found.len_utf8()..];
        }
        fresh
    }

    /// The token counts of the whole text. The program counts the delivered part as prompt.
    pub fn counted(&self, rest: Usage) -> Usage {
        let read = if self.goes_on { self.written } else { 0 };
        let fresh = if self.is_full {
            0
        } else {
            rest.completion_tokens
        };
        Usage {
            prompt_tokens: rest.prompt_tokens.saturating_sub(read).max(1),
            cached_tokens: rest
                .cached_tokens
                .min(rest.prompt_tokens.saturating_sub(read)),
            completion_tokens: self.written.saturating_add(fresh),
            ..rest
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{TextContinuation, is_plain};
    use muster_protocol::job::{TextRequest, Usage};
    use muster_protocol::link::Prefill;

    fn request(fields: Value) -> TextRequest {
        serde_json::from_value(fields).unwrap()
    }

    fn begun(text: &str, written: u32) -> Prefill {
        Prefill {
            text: text.to_owned(),
            written: Some(written),
            ..Prefill::default()
        }
    }

    #[test]
    fn the_rest_is_asked_for_after_the_text_so_far() {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let mut chat = request(json!({"input": {"chat": {"messages": messages}}, "max_tokens": 9}));
        let rest = TextContinuation::of(&mut chat, begun("we say ", 3)).unwrap();
        assert!(rest.goes_on() && !rest.is_full());
        let sent = serde_json::to_value(&chat).unwrap();
        let last = &sent["input"]["chat"]["messages"][1];
        assert_eq!(last, &json!({"role": "assistant", "content": "we say"}));
        assert_eq!(sent["max_tokens"], 6);
        let program = Usage {
            prompt_tokens: 13,
            completion_tokens: 4,
            ..Usage::default()
        };
        let counted = rest.counted(program);
        assert_eq!((counted.prompt_tokens, counted.completion_tokens), (10, 7));

        let mut prompt = request(json!({"input": {"prompt": "once"}, "max_tokens": 2}));
        let rest = TextContinuation::of(&mut prompt, begun(" upon", 2)).unwrap();
        assert!(rest.is_full());
        assert_eq!(
            serde_json::to_value(&prompt).unwrap()["input"]["prompt"],
            "once upon"
        );
        assert_eq!(rest.counted(program).completion_tokens, 2);
        assert!(TextContinuation::of(&mut prompt, Prefill::default()).is_none());
    }

    #[test]
    fn white_space_that_comes_again_is_left_out() {
        let check = |text: &str, pieces: &[&str], wanted: &str| {
            let mut prompt = request(json!({"input": {"prompt": "a"}}));
            let mut rest = TextContinuation::of(&mut prompt, begun(text, 1)).unwrap();
            let fresh: String = pieces.iter().map(|piece| rest.fresh(piece)).collect();
            assert_eq!(fresh, wanted, "{text:?} {pieces:?}");
        };
        check("say ", &[" the", " rest"], "the rest");
        check("say ", &["the", " rest"], "the rest");
        check("say\n\n", &["\n", "\n\n", "more"], "\nmore");
        check("say", &[" the"], " the");
        check(" ", &[" the"], "the");
    }

    #[test]
    fn grammars_calls_and_begun_messages_are_not_plain() {
        let user = json!({"role": "user", "content": "hi"});
        let chat = |more: Value| {
            let mut fields = json!({"input": {"chat": {"messages": [user.clone()]}}});
            fields
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            request(fields)
        };
        assert!(is_plain(&chat(json!({})), true));
        assert!(!is_plain(&chat(json!({})), false));
        assert!(!is_plain(&chat(json!({"format": "json_object"})), true));
        let tools = json!({"chat": {"messages": [user.clone()], "tools": [{"name": "f"}]}});
        assert!(!is_plain(&chat(json!({"input": tools.clone()})), true));
        assert!(is_plain(
            &chat(json!({"input": tools, "tool_choice": "none"})),
            true
        ));
        let begun = json!({"chat": {"messages": [user, {"role": "assistant", "content": "we"}]}});
        assert!(!is_plain(&request(json!({"input": begun})), true));
        assert!(is_plain(&request(json!({"input": {"prompt": "a"}})), false));
        assert!(!is_plain(&request(json!({"input": {"tokens": [1]}})), true));
    }
}
