//! A text as it comes: its events, and counts that no program can inflate.

use std::collections::VecDeque;

use serde_json::Value;

use super::lines::{ReplyLine, ReplyLines};
use super::{Api, UpstreamError, ollama, openai};
use muster_protocol::job::{
    Channel, FinishReason, TextInput, TextRequest, TokenLogprob, ToolCallEvent, ToolChoice, Usage,
};

/// Tokens that a chat template may add to each message.
const TEMPLATE_TOKENS: usize = 64;
/// Tokens that an image may be.
const IMAGE_TOKENS: usize = 16 << 10;
/// Bytes of a text without a limit on its tokens.
const LONGEST_TEXT: usize = 32 << 20;

/// An event of a program's reply to a text request.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerEvent {
    Text {
        channel: Channel,
        text: String,
        logprobs: Vec<TokenLogprob>,
    },
    Call(ToolCallEvent),
    Finish(FinishReason),
    Usage(Usage),
}

/// A text that comes.
pub struct UpstreamAnswer {
    lines: ReplyLines,
    api: Api,
    /// Events of the last line that were not passed on.
    waiting: VecDeque<AnswerEvent>,
    tally: TextTally,
    has_ended: bool,
}

/// How much came.
#[derive(Debug, Default)]
struct TextTally {
    /// Pieces with text: a token each at least.
    pieces: usize,
    thoughts: usize,
    bytes: usize,
    /// Usage reported by the program.
    told: Option<Usage>,
    finish: Option<FinishReason>,
    /// Calls that have begun.
    calls: u32,
    has_whole_calls: bool,
    most_tokens: Option<usize>,
    /// Upper bound of the prompt's tokens, from its length in bytes.
    most_prompt: usize,
    /// Estimate of the prompt's tokens.
    likely_prompt: usize,
    wants_logprobs: bool,
    /// The answer must be a call of a tool.
    demands_call: bool,
}

impl UpstreamAnswer {
    pub fn new(lines: ReplyLines, api: Api, request: &TextRequest) -> Self {
        Self {
            lines,
            api,
            waiting: VecDeque::new(),
            tally: TextTally {
                has_whole_calls: api == Api::Ollama,
                ..TextTally::of(request)
            },
            has_ended: false,
        }
    }

    /// The next piece of the text; none at its end.
    pub async fn next(&mut self) -> Result<Option<AnswerEvent>, UpstreamError> {
        loop {
            while let Some(event) = self.waiting.pop_front() {
                if let Some(event) = self.tally.take(event)? {
                    return Ok(Some(event));
                }
            }
            if self.has_ended || self.tally.is_full() {
                return Ok(None);
            }
            match self.lines.next().await? {
                Some(ReplyLine::Document(document)) => {
                    let events = match self.api {
                        Api::Ollama => ollama::events(&document)?,
                        Api::OpenAi | Api::A1111 => openai::events(&document)?,
                    };
                    self.waiting.extend(events);
                }
                Some(ReplyLine::End) => self.has_ended = true,
                None => {
                    self.has_ended = true;
                    self.tally.check_end()?;
                }
            }
        }
    }

    /// How it ended, and its tokens.
    pub fn ending(&self) -> (FinishReason, Usage) {
        (self.tally.finish(), self.tally.usage())
    }
}

impl TextTally {
    fn of(request: &TextRequest) -> Self {
        let (bytes, extra) = match &request.input {
            TextInput::Prompt(text) => (text.len(), 0),
            // Each id is a token.
            TextInput::Tokens(ids) => (ids.len(), 0),
            TextInput::Chat(chat) => {
                let tools: usize = chat.tools.iter().map(|tool| tool.to_string().len()).sum();
                let (mut bytes, mut images) = (tools, 0);
                for message in &chat.messages {
                    let (text, pictures) = weight(message);
                    bytes += text;
                    images += pictures;
                }
                let messages = chat.messages.len() + usize::from(!chat.tools.is_empty()) * 16;
                (bytes, messages * TEMPLATE_TOKENS + images * IMAGE_TOKENS)
            }
        };
        Self {
            most_tokens: request.max_tokens.map(|tokens| tokens as usize),
            most_prompt: bytes + extra + TEMPLATE_TOKENS,
            likely_prompt: bytes / 4 + 1,
            wants_logprobs: request.logprobs.is_some(),
            demands_call: matches!(
                request.tool_choice,
                Some(ToolChoice::Required | ToolChoice::Named(_))
            ),
            ..Self::default()
        }
    }

    /// The event, unless it only changes the counts.
    fn take(&mut self, mut event: AnswerEvent) -> Result<Option<AnswerEvent>, UpstreamError> {
        if let AnswerEvent::Call(call) = &mut event {
            self.number(call);
        }
        match &event {
            AnswerEvent::Text {
                channel,
                text,
                logprobs,
            } => {
                if text.is_empty() {
                    return Ok(None);
                }
                if self.wants_logprobs && *channel == Channel::Content && logprobs.is_empty() {
                    return Err(UpstreamError::Unsupported("logprobs"));
                }
                let is_said = *channel == Channel::Content && !text.trim().is_empty();
                if self.demands_call && is_said {
                    return Err(UpstreamError::Unsupported("tool_choice"));
                }
                self.pieces += 1;
                self.thoughts += usize::from(*channel == Channel::Reasoning);
                self.bytes += text.len();
            }
            AnswerEvent::Call(call) => {
                self.pieces += 1;
                self.bytes += call.arguments.len() + call.name.as_deref().map_or(0, str::len);
            }
            AnswerEvent::Finish(finish) => {
                self.finish = Some(finish.clone());
                return Ok(None);
            }
            AnswerEvent::Usage(usage) => {
                self.told = Some(*usage);
                return Ok(None);
            }
        }
        Ok(Some(event))
    }

    /// Numbers calls consecutively: Ollama sends complete calls, in its earlier versions all with the index 0.
    fn number(&mut self, call: &mut ToolCallEvent) {
        call.index = match self.has_whole_calls {
            true => self.calls,
            false => call.index.min(self.calls),
        };
        self.calls = self.calls.max(call.index.saturating_add(1));
    }

    /// Whether the text is far beyond the request's limit: the rest is ignored.
    fn is_full(&self) -> bool {
        let is_over = self
            .most_tokens
            .is_some_and(|most| self.pieces >= most.saturating_mul(2).max(64));
        is_over || self.bytes > LONGEST_TEXT
    }

    /// A reply that ends without a word on why has been cut off.
    fn check_end(&self) -> Result<(), UpstreamError> {
        match &self.finish {
            Some(_) => Ok(()),
            None => Err(UpstreamError::Failed(
                "its reply ended in the middle of the text".to_owned(),
            )),
        }
    }

    fn finish(&self) -> FinishReason {
        match &self.finish {
            _ if self.is_full() => FinishReason::Length,
            Some(FinishReason::Stop) | None if self.calls > 0 => FinishReason::ToolCalls,
            Some(finish) => finish.clone(),
            None => FinishReason::Stop,
        }
    }

    fn usage(&self) -> Usage {
        let told = self.told.unwrap_or_default();
        // A token has a byte at least; a piece is a token at least.
        let most = self.bytes.max(self.pieces);
        let most = self.most_tokens.map_or(most, |limit| most.min(limit));
        let least = self.pieces.min(most);
        let completion = (told.completion_tokens as usize).clamp(least, most);
        let prompt = match told.prompt_tokens as usize {
            0 => self.likely_prompt,
            told => told.min(self.most_prompt),
        };
        let reasoning = match told.reasoning_tokens as usize {
            0 => self.thoughts,
            told => told,
        };
        Usage {
            prompt_tokens: small(prompt),
            cached_tokens: told.cached_tokens.min(small(prompt)),
            completion_tokens: small(completion),
            reasoning_tokens: small(reasoning.min(completion)),
        }
    }
}

/// Bytes of a message's text, and its images.
fn weight(message: &Value) -> (usize, usize) {
    match message {
        Value::Object(entries) if entries.contains_key("image_url") => (0, 1),
        Value::Object(entries) => entries.values().fold((0, 0), sum),
        Value::Array(items) => items.iter().fold((0, 0), sum),
        Value::String(text) => (text.len(), 0),
        _ => (8, 0),
    }
}

fn sum((bytes, images): (usize, usize), value: &Value) -> (usize, usize) {
    let (more, pictures) = weight(value);
    (bytes + more, images + pictures)
}

pub fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{AnswerEvent, TextTally};
    use crate::upstream::UpstreamError;
    use muster_protocol::job::{Channel, FinishReason, TextRequest, Usage};

    fn tally(fields: Value) -> TextTally {
        let request: TextRequest = serde_json::from_value(fields).unwrap();
        TextTally::of(&request)
    }

    fn text(text: &str) -> AnswerEvent {
        AnswerEvent::Text {
            channel: Channel::Content,
            text: text.to_owned(),
            logprobs: Vec::new(),
        }
    }

    fn told(prompt: u32, completion: u32) -> AnswerEvent {
        AnswerEvent::Usage(Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            ..Usage::default()
        })
    }

    #[test]
    fn no_program_inflates_its_counts() {
        let counted = |usage: AnswerEvent| {
            let mut tally = tally(json!({"input": {"prompt": "hello"}}));
            for word in ["one", " two", " three"] {
                tally.take(text(word)).unwrap();
            }
            tally.take(usage).unwrap();
            let usage = tally.usage();
            (usage.prompt_tokens, usage.completion_tokens)
        };
        assert_eq!(counted(told(2, 5)), (2, 5));
        assert_eq!(counted(told(2, 0)), (2, 3));
        assert_eq!(counted(told(1 << 30, 1 << 30)), (69, 13));
        assert_eq!(counted(told(0, 3)), (2, 3));
    }

    #[test]
    fn a_program_that_does_not_stop_is_stopped() {
        let mut tally = tally(json!({"input": {"prompt": "hello"}, "max_tokens": 40}));
        let mut count = 0;
        while !tally.is_full() {
            tally.take(text("a")).unwrap();
            count += 1;
        }
        assert_eq!((count, tally.finish()), (80, FinishReason::Length));
        assert_eq!(tally.usage().completion_tokens, 40);
    }

    #[test]
    fn log_probabilities_that_a_program_leaves_out_are_missed_before_any_text() {
        let mut tally = tally(json!({"input": {"prompt": "hello"}, "logprobs": 0}));
        let refused = tally.take(text("a")).unwrap_err();
        assert_eq!(refused, UpstreamError::Unsupported("logprobs"));
    }

    #[test]
    fn a_demanded_call_that_a_program_does_not_make_is_missed_before_any_text() {
        let demanded =
            |choice: Value| tally(json!({"input": {"prompt": ""}, "tool_choice": choice}));
        for choice in [json!("required"), json!({"named": "weather"})] {
            let mut tally = demanded(choice);
            assert!(tally.take(text("\n")).is_ok());
            let refused = tally.take(text("It rains.")).unwrap_err();
            assert_eq!(refused, UpstreamError::Unsupported("tool_choice"));
        }
        assert!(demanded(json!("auto")).take(text("It rains.")).is_ok());
    }

    #[test]
    fn a_reply_that_breaks_off_is_no_answer() {
        let mut tally = tally(json!({"input": {"prompt": "hello"}}));
        tally.take(text("a")).unwrap();
        assert!(tally.check_end().is_err());
        tally.take(AnswerEvent::Finish(FinishReason::Stop)).unwrap();
        assert_eq!(tally.check_end(), Ok(()));
    }

    #[test]
    fn images_and_calls_count_for_the_prompt() {
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        let chat = json!({"messages": [{"role": "user", "content": [image]}]});
        let tally = tally(json!({"input": {"chat": chat}}));
        assert!(tally.most_prompt > 16 << 10 && tally.most_prompt < 17 << 10);
    }
}
