//! Text to pieces, one character at a time.

use std::sync::Arc;

use super::call::{Call, Read};
use super::gemma::{GEMMA_CALL, GemmaCall};
use super::harmony::HarmonyParser;
use super::parameters::{ParameterTags, ParametersCall};
use super::pythonic::{PYTHONIC_CALLS, PYTHONIC_END_CALLS, PythonicCall};
use super::separated::{DEEPSEEK_CALL, DEEPSEEK_CALLS, DEEPSEEK_END_CALLS, SeparatedCall};
use super::{Markup, OfferedTool, Piece, ToolMarkup};

/// Gemma 4's name of the channel of its thoughts.
const THOUGHT_CHANNEL: &str = "thought\n";
const TAG: &str = "<tool_call>";
const END_TAG: &str = "</tool_call>";
const PYTHON_TAG: &str = "<|python_tag|>";
const LIST: &str = "[TOOL_CALLS]";

/// Takes one answer apart.
#[derive(Debug, Clone)]
pub struct OutputParser {
    /// The marks before and after a thought.
    marks: [&'static str; 2],
    /// `None` while no tools are offered: then no text is a call.
    tools: Option<ToolMarkup>,
    /// The tools that were offered.
    offered: Arc<[OfferedTool]>,
    at: At,
    /// Space that is content only if content follows.
    space: String,
    /// The possible beginning of a mark.
    held: String,
    calls: u32,
    /// For models that write in channels.
    channels: Option<HarmonyParser>,
}

#[derive(Debug, Clone)]
enum At {
    /// Only white space so far, or the beginning of `<think>`.
    Beginning,
    /// The name of a thought's channel, which follows Gemma 4's mark.
    Channel,
    Reasoning {
        has_begun: bool,
    },
    Content {
        /// Only white space so far.
        is_fresh: bool,
        /// Space is not content here.
        skips_space: bool,
    },
    Call {
        call: Box<CallReader>,
        /// The complete text so far, mark included, in case it is no call.
        raw: String,
        is_bare: bool,
    },
    /// Between a call and its end mark, or the next call.
    AfterCall {
        is_bare: bool,
    },
    /// In a list, before its first call or after a comma.
    BeforeCall {
        raw: String,
    },
}

/// A call in the form of the model's markup.
#[derive(Debug, Clone)]
enum CallReader {
    Object(Call),
    Separated(SeparatedCall),
    Parameters(ParametersCall),
    Pythonic(PythonicCall),
    Gemma(GemmaCall),
}

impl CallReader {
    fn push(&mut self, c: char) -> Read {
        match self {
            Self::Object(call) => call.push(c),
            Self::Separated(call) => call.push(c),
            Self::Parameters(call) => call.push(c),
            Self::Pythonic(call) => call.push(c),
            Self::Gemma(call) => call.push(c),
        }
    }

    fn is_told(&self) -> bool {
        match self {
            Self::Object(call) => call.is_told(),
            Self::Separated(call) => call.is_told(),
            Self::Parameters(call) => call.is_told(),
            Self::Pythonic(call) => call.is_told(),
            Self::Gemma(call) => call.is_told(),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Object(call) => call.has_ended(),
            Self::Separated(call) => call.has_ended(),
            Self::Parameters(call) => call.has_ended(),
            Self::Pythonic(call) => call.has_ended(),
            Self::Gemma(call) => call.has_ended(),
        }
    }
}

impl OutputParser {
    /// `offered` are the tools that the model may call; `is_thinking` if its prompt ended inside `<think>`.
    pub fn new(markup: Markup, offered: Arc<[OfferedTool]>, is_thinking: bool) -> Self {
        let names = || offered.iter().map(|tool| tool.name.clone()).collect();
        Self {
            marks: markup.thought_marks(),
            channels: markup.channels.then(|| HarmonyParser::new(names())),
            tools: markup.tools.filter(|_| !offered.is_empty()),
            offered,
            at: match (markup.thinks, is_thinking) {
                (_, true) => At::Reasoning { has_begun: false },
                (true, false) => At::Beginning,
                (false, false) => FRESH,
            },
            space: String::new(),
            held: String::new(),
            calls: 0,
        }
    }

    pub fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        for c in text.chars() {
            self.step(c, out);
        }
    }

    /// Ends the answer: text held back is flushed.
    pub fn finish(&mut self, out: &mut Vec<Piece>) {
        if let Some(channels) = &mut self.channels {
            return channels.finish(out);
        }
        let at = std::mem::replace(&mut self.at, FRESH);
        let (space, held) = (
            std::mem::take(&mut self.space),
            std::mem::take(&mut self.held),
        );
        match at {
            At::Channel => {}
            At::Reasoning { .. } => reason(&held, out),
            At::Beginning | At::Content { .. } => {
                if self.calls == 0 || !held.is_empty() {
                    write(&space, out);
                }
                write(&held, out);
            }
            At::Call { call, raw, .. } if !call.is_told() => write(&raw, out),
            At::BeforeCall { raw } if self.calls == 0 => {
                write(&raw, out);
                write(&held, out);
            }
            At::Call { .. } | At::BeforeCall { .. } | At::AfterCall { .. } => write(&held, out),
        }
    }

    pub fn is_reasoning(&self) -> bool {
        match &self.channels {
            Some(channels) => channels.is_reasoning(),
            None => matches!(self.at, At::Channel | At::Reasoning { .. }),
        }
    }

    /// Calls begun so far.
    pub fn calls(&self) -> u32 {
        self.channels
            .as_ref()
            .map_or(self.calls, HarmonyParser::calls)
    }

    fn step(&mut self, c: char, out: &mut Vec<Piece>) {
        if let Some(channels) = &mut self.channels {
            return channels.push(c, out);
        }
        match &mut self.at {
            At::Beginning => self.begin(c, out),
            At::Channel => self.channel(c, out),
            At::Reasoning { .. } => self.reason(c, out),
            At::Content { .. } => self.content(c, out),
            At::Call { .. } => self.call(c, out),
            At::AfterCall { .. } => self.after_call(c, out),
            At::BeforeCall { .. } => self.before_call(c, out),
        }
    }

    fn begin(&mut self, c: char, out: &mut Vec<Piece>) {
        if c.is_whitespace() && self.held.is_empty() {
            return self.space.push(c);
        }
        self.held.push(c);
        let [think, _] = self.marks;
        if self.held == think {
            self.space.clear();
            self.held.clear();
            self.at = match self.is_gemma() {
                true => At::Channel,
                false => At::Reasoning { has_begun: false },
            };
        } else if !think.starts_with(&self.held) {
            let lead = std::mem::take(&mut self.space) + &std::mem::take(&mut self.held);
            self.at = FRESH;
            self.push(&lead, out);
        }
    }

    fn is_gemma(&self) -> bool {
        self.marks[0] == super::gemma::GEMMA_THOUGHT
    }

    /// The name of a channel, which is that of thoughts.
    fn channel(&mut self, c: char, out: &mut Vec<Piece>) {
        self.held.push(c);
        let is_named = self.held == THOUGHT_CHANNEL;
        if !is_named && THOUGHT_CHANNEL.starts_with(&self.held) {
            return;
        }
        let held = match is_named {
            true => String::new(),
            false => std::mem::take(&mut self.held),
        };
        self.held.clear();
        self.at = At::Reasoning { has_begun: false };
        self.push(&held, out);
    }

    /// Line ends around a thought are the markup's.
    fn reason(&mut self, c: char, out: &mut Vec<Piece>) {
        let At::Reasoning { has_begun } = &mut self.at else {
            return;
        };
        if c == '\n' && self.held.is_empty() {
            if *has_begun {
                self.space.push(c);
            }
            return;
        }
        self.held.push(c);
        let [think, thought] = self.marks;
        if self.held == thought {
            self.space.clear();
            self.held.clear();
            self.at = At::Content {
                is_fresh: true,
                skips_space: true,
            };
            return;
        }
        if !*has_begun && self.held == think {
            // The prompt had opened the thought, and the model does it again.
            return self.held.clear();
        }
        let opens = !*has_begun && think.starts_with(&self.held);
        if opens || thought.starts_with(&self.held) {
            return;
        }
        *has_begun = true;
        let space = std::mem::take(&mut self.space);
        reason(&space, out);
        self.let_go(&[thought], reason, out);
    }

    fn content(&mut self, c: char, out: &mut Vec<Piece>) {
        let At::Content {
            is_fresh,
            skips_space,
        } = &mut self.at
        else {
            return;
        };
        if *skips_space && c.is_whitespace() {
            return;
        }
        *skips_space = false;
        let Some(tools) = self.tools else {
            let mut text = [0; 4];
            return write(c.encode_utf8(&mut text), out);
        };
        if c.is_whitespace() && self.held.is_empty() {
            return self.space.push(c);
        }
        let was_fresh = std::mem::replace(is_fresh, false);
        if tools == ToolMarkup::Bare && c == '{' && self.held.is_empty() && was_fresh {
            let raw = std::mem::take(&mut self.space);
            let call = CallReader::Object(Call::new());
            return self.open_call(raw, call, true, Some(c), out);
        }
        self.held.push(c);
        let marks = marks(tools);
        if marks.contains(&self.held.as_str()) {
            let raw = std::mem::take(&mut self.space) + &std::mem::take(&mut self.held);
            return match tools {
                ToolMarkup::Tagged | ToolMarkup::Bare => {
                    self.open_call(raw, CallReader::Object(Call::new()), false, None, out);
                }
                ToolMarkup::FunctionTags | ToolMarkup::KeyTags => match ParameterTags::of(tools) {
                    Some(tags) => {
                        let call = ParametersCall::new(tags, Arc::clone(&self.offered));
                        self.open_call(raw, CallReader::Parameters(call), false, None, out);
                    }
                    None => self.at = At::BeforeCall { raw },
                },
                ToolMarkup::Listed
                | ToolMarkup::Named
                | ToolMarkup::Pythonic
                | ToolMarkup::Separated
                | ToolMarkup::Fenced => self.at = At::BeforeCall { raw },
                ToolMarkup::Gemma => {
                    let call = CallReader::Gemma(GemmaCall::new());
                    self.open_call(raw, call, false, None, out);
                }
            };
        }
        if !is_beginning(&self.held, marks) {
            let space = std::mem::take(&mut self.space);
            write(&space, out);
            self.let_go(marks, write, out);
        }
    }

    /// Flushes text that cannot begin one of the marks.
    fn let_go(&mut self, marks: &[&str], write: fn(&str, &mut Vec<Piece>), out: &mut Vec<Piece>) {
        while !self.held.is_empty() && !is_beginning(&self.held, marks) {
            let first = self.held.chars().next().map_or(0, char::len_utf8);
            write(&self.held[..first], out);
            self.held.drain(..first);
        }
    }

    fn open_call(
        &mut self,
        raw: String,
        call: CallReader,
        is_bare: bool,
        first: Option<char>,
        out: &mut Vec<Piece>,
    ) {
        let call = Box::new(call);
        self.at = At::Call { call, raw, is_bare };
        if let Some(first) = first {
            self.call(first, out);
        }
    }

    fn call(&mut self, c: char, out: &mut Vec<Piece>) {
        let At::Call { call, raw, is_bare } = &mut self.at else {
            return;
        };
        let (read, is_bare) = (call.push(c), *is_bare);
        let is_offered = |name: &str| self.offered.iter().any(|tool| tool.name == name);
        let is_foreign = matches!(&read, Read::Named { name, .. } if is_bare && !is_offered(name));
        match read {
            Read::Bad => return self.no_call(c, out),
            _ if is_foreign => {
                // An answer in JSON, not a call.
                raw.push(c);
                let raw = std::mem::take(raw);
                self.at = STALE;
                return write(&raw, out);
            }
            Read::More if !call.is_told() => raw.push(c),
            Read::More | Read::End => {}
            Read::Named { name, arguments } => {
                raw.clear();
                let index = self.calls;
                self.calls += 1;
                out.push(Piece::Call { index, name });
                argue(index, &arguments, out);
            }
            Read::Arguments(text) => argue(self.calls.saturating_sub(1), &text, out),
        }
        if call.has_ended() {
            self.at = match self.is_separated() {
                true => At::BeforeCall { raw: String::new() },
                false => At::AfterCall { is_bare },
            };
        }
    }

    /// The text is no call: unsent text becomes content.
    fn no_call(&mut self, c: char, out: &mut Vec<Piece>) {
        if let At::Call { raw, .. } = &mut self.at {
            let raw = std::mem::take(raw);
            write(&raw, out);
        }
        self.at = STALE;
        self.step(c, out);
    }

    fn after_call(&mut self, c: char, out: &mut Vec<Piece>) {
        let At::AfterCall { is_bare } = self.at else {
            return;
        };
        if c.is_whitespace() && self.held.is_empty() {
            return;
        }
        let closing = match self.tools {
            Some(ToolMarkup::Tagged | ToolMarkup::FunctionTags | ToolMarkup::KeyTags) => END_TAG,
            Some(ToolMarkup::Pythonic) => PYTHONIC_END_CALLS,
            _ => "",
        };
        match (self.tools, c) {
            (Some(ToolMarkup::Listed | ToolMarkup::Named | ToolMarkup::Pythonic), ',') => {
                self.at = At::BeforeCall { raw: String::new() };
            }
            (Some(ToolMarkup::Listed | ToolMarkup::Named), ']') => self.at = AFTER_CALLS,
            (Some(ToolMarkup::Pythonic), ']') if self.held.is_empty() => {}
            (Some(ToolMarkup::Bare), ';') => {
                let call = CallReader::Object(Call::new());
                self.open_call(String::new(), call, is_bare, None, out);
            }
            _ if !closing.is_empty() => {
                self.held.push(c);
                if self.held == closing {
                    self.held.clear();
                    self.at = AFTER_CALLS;
                } else if !closing.starts_with(&self.held) {
                    self.go_on_as_content(out);
                }
            }
            _ => {
                self.held.push(c);
                self.go_on_as_content(out);
            }
        }
    }

    fn is_separated(&self) -> bool {
        let tools = self.tools;
        matches!(tools, Some(ToolMarkup::Separated | ToolMarkup::Fenced))
    }

    /// Between marks: before a call, or the end of all.
    fn before_separated(&mut self, c: char, out: &mut Vec<Piece>) {
        let At::BeforeCall { raw } = &mut self.at else {
            return;
        };
        if c.is_whitespace() && self.held.is_empty() {
            return raw.push(c);
        }
        self.held.push(c);
        if self.held == DEEPSEEK_CALL {
            let raw = std::mem::take(raw) + &std::mem::take(&mut self.held);
            let call = CallReader::Separated(SeparatedCall::new());
            self.open_call(raw, call, false, None, out);
        } else if self.held == DEEPSEEK_END_CALLS && self.calls > 0 {
            self.held.clear();
            self.at = AFTER_CALLS;
        } else if !is_beginning(&self.held, &[DEEPSEEK_CALL, DEEPSEEK_END_CALLS]) {
            let raw = std::mem::take(raw);
            if self.calls == 0 {
                write(&raw, out);
            }
            let held = std::mem::take(&mut self.held);
            self.at = STALE;
            self.push(&held, out);
        }
    }

    fn before_call(&mut self, c: char, out: &mut Vec<Piece>) {
        if self.is_separated() {
            return self.before_separated(c, out);
        }
        let At::BeforeCall { raw } = &mut self.at else {
            return;
        };
        let is_after_mark = [LIST, PYTHONIC_CALLS]
            .iter()
            .any(|mark| raw.trim_end().ends_with(mark));
        let is_name = c.is_alphabetic() || c == '_';
        match c {
            '{' => {
                let raw = std::mem::take(raw);
                let call = CallReader::Object(Call::new());
                self.open_call(raw, call, false, Some(c), out);
            }
            '[' if is_after_mark => raw.push(c),
            c if c.is_whitespace() => raw.push(c),
            c if is_name && self.tools == Some(ToolMarkup::Pythonic) => {
                let raw = std::mem::take(raw);
                let call = CallReader::Pythonic(PythonicCall::new());
                self.open_call(raw, call, false, Some(c), out);
            }
            // Names may begin with any character.
            c if is_after_mark && self.tools != Some(ToolMarkup::Pythonic) => {
                let raw = std::mem::take(raw);
                let call = CallReader::Separated(SeparatedCall::named());
                self.open_call(raw, call, false, Some(c), out);
            }
            c => {
                let raw = std::mem::take(raw);
                write(&raw, out);
                self.at = STALE;
                self.step(c, out);
            }
        }
    }

    fn go_on_as_content(&mut self, out: &mut Vec<Piece>) {
        let held = std::mem::take(&mut self.held);
        self.at = AFTER_CALLS;
        self.push(&held, out);
    }
}

const FRESH: At = At::Content {
    is_fresh: true,
    skips_space: false,
};
/// Somewhere in a text.
const STALE: At = At::Content {
    is_fresh: false,
    skips_space: false,
};
const AFTER_CALLS: At = At::Content {
    is_fresh: false,
    skips_space: true,
};

fn marks(tools: ToolMarkup) -> &'static [&'static str] {
    match tools {
        ToolMarkup::Tagged | ToolMarkup::FunctionTags | ToolMarkup::KeyTags => &[TAG],
        ToolMarkup::Bare => &[PYTHON_TAG],
        ToolMarkup::Listed | ToolMarkup::Named => &[LIST],
        ToolMarkup::Pythonic => &[PYTHONIC_CALLS],
        ToolMarkup::Gemma => &[GEMMA_CALL],
        ToolMarkup::Separated | ToolMarkup::Fenced => &[DEEPSEEK_CALLS],
    }
}

fn is_beginning(text: &str, marks: &[&str]) -> bool {
    marks.iter().any(|mark| mark.starts_with(text))
}

/// Texts of one kind that follow each other are one piece.
fn write(text: &str, out: &mut Vec<Piece>) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece::Content(content)) => content.push_str(text),
        _ => out.push(Piece::Content(text.to_owned())),
    }
}

fn reason(text: &str, out: &mut Vec<Piece>) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(Piece::Reasoning(reasoning)) => reasoning.push_str(text),
        _ => out.push(Piece::Reasoning(text.to_owned())),
    }
}

fn argue(index: u32, more: &str, out: &mut Vec<Piece>) {
    match out.last_mut() {
        _ if more.is_empty() => {}
        Some(Piece::Arguments { index: last, text }) if *last == index => text.push_str(more),
        _ => out.push(Piece::Arguments {
            index,
            text: more.to_owned(),
        }),
    }
}
