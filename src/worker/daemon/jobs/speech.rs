//! Converts the engine's events to reports for coordinators: content, reasoning and calls, each with its tokens.
//!
//! Tokens are sent with the first text that they produced, and pieces of one step are sent together. So a peer with the
//! tokens has all the text, and another worker that reads the same tokens can restore it. Only text held back to the
//! end may be sent after the last token: the coordinator reports how much of it the client has.

use std::sync::Arc;
use std::time::Instant;

use uuid::Uuid;

use super::logprobs::Logprobs;
use super::request::Asked;
use crate::daemon::pace::Pace;
use crate::link::Said;
use muster_engine::runtime::text::{OutputParser, Piece, Pieces};
use muster_engine::runtime::{self, TokenInfo};
use muster_protocol::job::{
    Channel, Event, FinishReason, JobId, PromptLogprobs, PromptToken, TokenEvent, TokenLogprob,
    ToolCallEvent, Usage,
};

/// Tokens of a prompt in one frame.
const PROMPT_TOKENS: usize = 64;

pub struct Speech<'a> {
    asked: &'a Asked,
    parser: OutputParser,
    /// Tokens without any output yet.
    ids: Vec<u32>,
    /// If log probabilities are requested.
    logprobs: Option<Logprobs>,
    usage: Usage,
    first: Option<Instant>,
    fresh_tokens: u32,
    /// Bytes of text that come next and that the client has.
    ahead: usize,
}

impl<'a> Speech<'a> {
    /// Continues after the previous attempt.
    pub fn new(asked: &'a Asked) -> Self {
        let offered = Arc::clone(&asked.offered);
        let mut speech = Self {
            parser: OutputParser::new(asked.language.markup, offered, asked.is_thinking),
            asked,
            ids: Vec::new(),
            logprobs: asked
                .request
                .logprobs
                .map(|_| Logprobs::new(asked.language.pieces(), asked.begins())),
            usage: Usage::default(),
            first: None,
            fresh_tokens: 0,
            ahead: 0,
        };
        speech.replay();
        speech
    }

    fn replay(&mut self) {
        let request = &self.asked.request;
        let (mut pieces, usage, parser) = (Vec::new(), &mut self.usage, &mut self.parser);
        let mut said = String::new();
        let language = &self.asked.language;
        if let Some(logprobs) = &mut self.logprobs {
            for &id in &request.generated {
                logprobs.push(language.pieces(), id, None);
            }
        }
        let logprobs = &mut self.logprobs;
        let stop = request.stop.clone();
        usage.completion_tokens = small(request.generated.len());
        let stops = (stop, &request.stop_rules);
        language.replay(&request.generated, self.asked.begins(), stops, |text| {
            usage.reasoning_tokens += u32::from(parser.is_reasoning());
            parser.push(text, &mut pieces);
            for text in pieces.drain(..).filter_map(words) {
                if let Some(logprobs) = logprobs {
                    logprobs.take(&text);
                }
                said.push_str(&text);
            }
        });
        let more = self.asked.told.strip_prefix(&said);
        self.ahead = more.map_or(0, str::len);
    }

    pub fn started(&mut self, prompt: usize, cached: usize) -> Said {
        self.usage.prompt_tokens = small(prompt);
        self.usage.cached_tokens = small(cached);
        Said::Started {
            prompt_tokens: self.usage.prompt_tokens,
            cached_tokens: self.usage.cached_tokens,
        }
    }

    /// Tokens of the prompt, in frames that are small enough to be sent again.
    pub fn prompt(&self, start: usize, tokens: Vec<TokenInfo>) -> Vec<Said> {
        let pieces = self.asked.language.pieces();
        let tokens: Vec<PromptToken> = tokens
            .into_iter()
            .map(|token| prompt_token(token, pieces))
            .collect();
        let parts = tokens.chunks(PROMPT_TOKENS).enumerate();
        parts
            .map(|(part, tokens)| {
                Said::Prompt(PromptLogprobs {
                    start: small(start + part * PROMPT_TOKENS),
                    tokens: tokens.to_vec(),
                })
            })
            .collect()
    }

    /// The report to send, and the final one if the text is complete.
    pub fn text(&mut self, text: &str, tokens: Vec<TokenInfo>) -> (Option<Said>, Option<Said>) {
        self.first.get_or_insert_with(Instant::now);
        self.count(&tokens);
        self.take(tokens);
        let mut pieces = Vec::new();
        self.parser.push(text, &mut pieces);
        if self.cut_second_call(&mut pieces) {
            let output = self.output(pieces);
            let usage = self.usage;
            let finish = FinishReason::ToolCalls;
            return (output, Some(Said::Done { finish, usage }));
        }
        (self.output(pieces), None)
    }

    pub fn done(
        &mut self,
        reason: &runtime::FinishReason,
        usage: runtime::Usage,
    ) -> (Option<Said>, Said) {
        let mut pieces = Vec::new();
        self.parser.finish(&mut pieces);
        self.cut_second_call(&mut pieces);
        let rest = self.output_with_tokens(pieces);
        self.usage = Usage {
            prompt_tokens: small(usage.prompt_tokens),
            cached_tokens: small(usage.cached_tokens),
            completion_tokens: small(usage.completion_tokens),
            ..self.usage
        };
        let finish = match reason {
            runtime::FinishReason::Length => FinishReason::Length,
            _ if self.parser.calls() > 0 => FinishReason::ToolCalls,
            runtime::FinishReason::EndOfTurn => FinishReason::Stop,
            runtime::FinishReason::Stop(stop) => FinishReason::StopString(stop.as_str().into()),
        };
        let usage = self.usage;
        (rest, Said::Done { finish, usage })
    }

    pub fn cancelled(&self) -> Said {
        Said::Done {
            finish: FinishReason::Cancelled,
            usage: self.usage,
        }
    }

    /// How fast it went.
    pub fn pace(&self, began: Instant, usage: runtime::Usage) -> Pace {
        let first = self.first.unwrap_or_else(Instant::now);
        Pace {
            read: small(usage.prompt_tokens.saturating_sub(usage.cached_tokens)),
            reading: first.saturating_duration_since(began),
            written: self.fresh_tokens,
            writing: first.elapsed(),
        }
    }

    fn count(&mut self, tokens: &[TokenInfo]) {
        let count = small(tokens.len());
        self.fresh_tokens += count;
        self.usage.completion_tokens += count;
        if self.parser.is_reasoning() {
            self.usage.reasoning_tokens += count;
        }
    }

    fn take(&mut self, tokens: Vec<TokenInfo>) {
        let pieces = self.asked.language.pieces();
        self.ids.extend(tokens.iter().map(|token| token.id));
        let Some(logprobs) = &mut self.logprobs else {
            return;
        };
        for token in tokens {
            let id = token.id;
            logprobs.push(pieces, id, logprob(token, pieces));
        }
    }

    /// Without parallel calls, drops everything after the first call.
    fn cut_second_call(&self, pieces: &mut Vec<Piece>) -> bool {
        let is_second = |piece: &Piece| match piece {
            Piece::Call { index, .. } | Piece::Arguments { index, .. } => *index > 0,
            Piece::Content(_) | Piece::Reasoning(_) => false,
        };
        let second = pieces.iter().position(is_second);
        match second {
            Some(second) if self.asked.only_one_call => {
                pieces.truncate(second);
                true
            }
            _ => false,
        }
    }

    fn skip_what_was_told(&mut self, pieces: &mut Vec<Piece>) {
        if self.ahead == 0 {
            return;
        }
        for piece in pieces.iter_mut() {
            if let Piece::Content(text) | Piece::Reasoning(text) = piece {
                let mut skipped = self.ahead.min(text.len());
                while !text.is_char_boundary(skipped) {
                    skipped -= 1;
                }
                text.drain(..skipped);
                self.ahead -= skipped;
            }
        }
        pieces.retain(|piece| !matches!(piece, Piece::Content(text) | Piece::Reasoning(text) if text.is_empty()));
    }

    /// Log probabilities of the content. Thoughts and calls are skipped.
    fn take_logprobs(&mut self, pieces: &[Piece]) -> Vec<TokenLogprob> {
        let Some(logprobs) = &mut self.logprobs else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Content(text) => found.extend(logprobs.take(text)),
                Piece::Reasoning(text) | Piece::Arguments { text, .. } => {
                    logprobs.take(text);
                }
                Piece::Call { .. } => {}
            }
        }
        found
    }

    fn output(&mut self, pieces: Vec<Piece>) -> Option<Said> {
        match pieces.is_empty() {
            true => None,
            false => self.output_with_tokens(pieces),
        }
    }

    /// The same, including tokens without output.
    fn output_with_tokens(&mut self, mut pieces: Vec<Piece>) -> Option<Said> {
        // Before anything is cut: the tokens' text includes all of it.
        let logprobs = self.take_logprobs(&pieces);
        self.skip_what_was_told(&mut pieces);
        let mut events: Vec<Event> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            add(piece, self.asked.job, &mut events);
        }
        let ids = std::mem::take(&mut self.ids);
        if events.is_empty() && !ids.is_empty() {
            events.push(Event::Token(TokenEvent::default()));
        }
        match events.first_mut() {
            Some(Event::Token(token)) => token.ids = ids,
            Some(Event::ToolCall(call)) => call.ids = ids,
            _ => {}
        }
        let content = events.iter_mut().find_map(|event| match event {
            Event::Token(token) if token.channel == Channel::Content => Some(token),
            _ => None,
        });
        if let Some(token) = content {
            token.logprobs = logprobs;
        }
        (!events.is_empty()).then_some(Said::Output(events))
    }
}

/// The text that may be held back; calls are never.
fn words(piece: Piece) -> Option<String> {
    match piece {
        Piece::Content(text) | Piece::Reasoning(text) => Some(text),
        Piece::Call { .. } | Piece::Arguments { .. } => None,
    }
}

fn add(piece: Piece, job: JobId, events: &mut Vec<Event>) {
    let token = |channel, text| {
        Event::Token(TokenEvent {
            channel,
            text,
            ..TokenEvent::default()
        })
    };
    let event = match piece {
        Piece::Content(text) => token(Channel::Content, text),
        Piece::Reasoning(text) => token(Channel::Reasoning, text),
        Piece::Call { index, name } => Event::ToolCall(ToolCallEvent {
            index,
            id: Some(call_id(job, index)),
            name: Some(name),
            ..ToolCallEvent::default()
        }),
        Piece::Arguments { index, text } => {
            if let Some(Event::ToolCall(call)) = events.last_mut()
                && call.index == index
            {
                return call.arguments.push_str(&text);
            }
            Event::ToolCall(ToolCallEvent {
                index,
                arguments: text,
                ..ToolCallEvent::default()
            })
        }
    };
    events.push(event);
}

/// The same on every worker that continues the job.
pub fn call_id(job: JobId, index: u32) -> String {
    let mixed = job.0.as_u128().wrapping_add(u128::from(index) + 1);
    format!("call_{}", Uuid::from_u128(mixed).simple())
}

fn logprob(token: TokenInfo, pieces: &Pieces) -> Option<TokenLogprob> {
    let PromptToken {
        bytes,
        logprob,
        top,
    } = prompt_token(token, pieces);
    Some(TokenLogprob {
        bytes,
        logprob: logprob?,
        top,
    })
}

fn prompt_token(token: TokenInfo, pieces: &Pieces) -> PromptToken {
    let bytes = |id| pieces.bytes(id).to_vec();
    let top = token.top.into_iter();
    PromptToken {
        bytes: bytes(token.id),
        logprob: token.logprob,
        top: top.map(|(id, logprob)| (bytes(id), logprob)).collect(),
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::Speech;
    use crate::daemon::jobs::request::Asked;
    use crate::link::Said;
    use muster_engine::runtime::text::{
        Begins, Language, Markup, OfferedTool, TextSource, ToolMarkup,
    };
    use muster_engine::runtime::{
        CacheScope, FinishReason, Prompt, Sampling, StopRules, TextRequest, TokenInfo, Usage,
    };
    use muster_protocol::job::{Event, JobId};

    fn language() -> Arc<Language> {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/tiny-llama"
        );
        let source = TextSource {
            folder: Some(Path::new(folder)),
            ..TextSource::default()
        };
        let mut language = Language::open(source).unwrap();
        language.markup = Markup {
            thinks: false,
            tools: Some(ToolMarkup::Tagged),
            channels: false,
        };
        Arc::new(language)
    }

    /// A job that continues after these tokens, whose client has this text.
    fn asked(generated: &[u32], told: &str) -> Asked {
        Asked {
            request: TextRequest {
                model: "tiny".to_owned(),
                prompt: Prompt::Text("hello".to_owned()),
                generated: generated.to_vec(),
                sampling: Sampling::default(),
                max_tokens: None,
                window: None,
                stop: Vec::new(),
                stop_rules: StopRules::default(),
                logprobs: None,
                prompt_logprobs: None,
                grammar: None,
                choice: 0,
                scope: CacheScope::default(),
            },
            language: language(),
            offered: [OfferedTool::new("look_up", None)].into(),
            only_one_call: false,
            is_thinking: false,
            told: told.to_owned(),
            job: JobId::random(),
        }
    }

    fn words(said: Option<Said>) -> String {
        let Some(Said::Output(events)) = said else {
            return String::new();
        };
        let texts = events.into_iter().map(|event| match event {
            Event::Token(token) => token.text,
            other => panic!("words were wanted, found {other:?}"),
        });
        texts.collect()
    }

    fn rest(speech: &mut Speech<'_>) -> String {
        words(speech.done(&FinishReason::Length, Usage::default()).0)
    }

    #[test]
    fn words_held_back_to_the_end_are_said_once_wherever_the_worker_is_lost() {
        let asked_first = asked(&[], "");
        let tokens = asked_first.language.encode("we say <tool", false);
        let tokens = tokens.unwrap();
        let mut text = String::new();
        let language = &asked_first.language;
        let stops = (Vec::new(), &StopRules::default());
        language.replay(&tokens, Begins::AfterPrompt, stops, |more| {
            text.push_str(more);
        });
        let mut first = Speech::new(&asked_first);
        let infos = tokens.iter().map(|&id| TokenInfo {
            id,
            logprob: None,
            top: Vec::new(),
        });
        let said = words(first.text(&text, infos.collect()).0);
        let held = rest(&mut first);
        assert!(text.ends_with("<tool"), "{text}");
        assert_eq!(
            (said.clone() + &held, held.as_str()),
            (text.clone(), " <tool")
        );
        for told in [said, text.clone()] {
            let continued = asked(&tokens, &told);
            let more = rest(&mut Speech::new(&continued));
            assert_eq!(told + &more, text);
        }
    }
}
