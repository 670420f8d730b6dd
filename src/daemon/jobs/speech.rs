//! What the engine says, as coordinators hear it: content, reasoning and calls told apart, each with the tokens it was
//! read from.
//!
//! Tokens go with the first words that came of them, and words that came together leave together. So whoever has
//! the tokens has all the words, and another worker that reads the same tokens knows what was said.

use std::time::Instant;

use uuid::Uuid;

use super::request::Asked;
use crate::daemon::pace::Pace;
use crate::link::Said;
use crate::protocol::job::{
    Channel, Event, FinishReason, JobId, TokenEvent, TokenLogprob, ToolCallEvent, Usage,
};
use crate::runtime::text::{OutputParser, Piece, Pieces};
use crate::runtime::{self, TokenInfo};

pub struct Speech<'a> {
    asked: &'a Asked,
    parser: OutputParser,
    /// Tokens that no word has come of yet.
    ids: Vec<u32>,
    logprobs: Vec<TokenLogprob>,
    usage: Usage,
    first: Option<Instant>,
    fresh_tokens: u32,
}

impl<'a> Speech<'a> {
    /// Where the attempt before this one left off.
    pub fn new(asked: &'a Asked) -> Self {
        let offered = asked.offered.clone();
        let mut speech = Self {
            parser: OutputParser::new(asked.language.markup, offered, asked.is_thinking),
            asked,
            ids: Vec::new(),
            logprobs: Vec::new(),
            usage: Usage::default(),
            first: None,
            fresh_tokens: 0,
        };
        speech.replay();
        speech
    }

    fn replay(&mut self) {
        let request = &self.asked.request;
        let (mut said, usage, parser) = (Vec::new(), &mut self.usage, &mut self.parser);
        let language = &self.asked.language;
        let stop = request.stop.clone();
        usage.completion_tokens = small(request.generated.len());
        language.replay(&request.generated, self.asked.begins(), stop, |text| {
            usage.reasoning_tokens += u32::from(parser.is_reasoning());
            parser.push(text, &mut said);
            said.clear();
        });
    }

    pub fn started(&mut self, prompt: usize, cached: usize, seed: Option<u64>) -> Said {
        self.usage.prompt_tokens = small(prompt);
        self.usage.cached_tokens = small(cached);
        Said::Started {
            prompt_tokens: self.usage.prompt_tokens,
            cached_tokens: self.usage.cached_tokens,
            seed,
        }
    }

    /// What there is to pass on, and the end if this was all that was wanted.
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
            runtime::FinishReason::EndOfTurn | runtime::FinishReason::Stop(_) => FinishReason::Stop,
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
        let pieces = self.asked.language.tokenizer.pieces();
        self.ids.extend(tokens.iter().map(|token| token.id));
        let told = tokens
            .into_iter()
            .filter_map(|token| logprob(token, pieces));
        self.logprobs.extend(told);
    }

    /// A model that may call once is held to it: what follows its first call is not said.
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

    fn output(&mut self, pieces: Vec<Piece>) -> Option<Said> {
        match pieces.is_empty() {
            true => None,
            false => self.output_with_tokens(pieces),
        }
    }

    /// The same, for tokens that no words will come of too.
    fn output_with_tokens(&mut self, pieces: Vec<Piece>) -> Option<Said> {
        let mut events: Vec<Event> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            add(piece, self.asked.job, &mut events);
        }
        let (ids, logprobs) = (
            std::mem::take(&mut self.ids),
            std::mem::take(&mut self.logprobs),
        );
        if events.is_empty() && !ids.is_empty() {
            events.push(Event::Token(TokenEvent::default()));
        }
        match events.first_mut() {
            Some(Event::Token(token)) => token.ids = ids,
            Some(Event::ToolCall(call)) => call.ids = ids,
            _ => {}
        }
        let content = events.iter_mut().find_map(|event| match event {
            Event::Token(token) => Some(token),
            _ => None,
        });
        if let Some(token) = content {
            token.logprobs = logprobs;
        }
        (!events.is_empty()).then_some(Said::Output(events))
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
fn call_id(job: JobId, index: u32) -> String {
    let mixed = job.0.as_u128().wrapping_add(u128::from(index) + 1);
    format!("call_{}", Uuid::from_u128(mixed).simple())
}

fn logprob(token: TokenInfo, pieces: &Pieces) -> Option<TokenLogprob> {
    let text = |id| String::from_utf8_lossy(pieces.bytes(id)).into_owned();
    Some(TokenLogprob {
        text: text(token.id),
        logprob: token.logprob?,
        top: token
            .top
            .into_iter()
            .map(|(id, logprob)| (text(id), logprob))
            .collect(),
    })
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
