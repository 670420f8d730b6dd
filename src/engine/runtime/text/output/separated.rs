//! A tool call of DeepSeek or Mistral: a name and a JSON object, separated by a mark. Older templates of DeepSeek begin
//! with the tool's type, and put the object after the name in a code fence.

use super::call::{LONGEST_NAME, Read};
use super::scan::{Scan, Scanned};

/// Before all calls of an answer, and after them.
pub const DEEPSEEK_CALLS: &str = "<｜tool▁calls▁begin｜>";
pub const DEEPSEEK_END_CALLS: &str = "<｜tool▁calls▁end｜>";
/// Before each of them, and after it.
pub const DEEPSEEK_CALL: &str = "<｜tool▁call▁begin｜>";
pub const DEEPSEEK_END_CALL: &str = "<｜tool▁call▁end｜>";
/// Between the name and the arguments.
pub const DEEPSEEK_SEPARATOR: &str = "<｜tool▁sep｜>";
const FENCE: &str = "```json";
/// Between the name and the arguments of a call of Mistral's.
pub const MISTRAL_ARGUMENTS: &str = "[ARGS]";
/// Before the id that follows the name in older templates.
pub const MISTRAL_CALL_ID: &str = "[CALL_ID]";

#[derive(Debug, Clone)]
pub struct SeparatedCall {
    separator: &'static str,
    /// The end mark of a call, if the format has one.
    end: Option<&'static str>,
    at: SeparatedState,
    is_told: bool,
}

#[derive(Debug, Clone)]
enum SeparatedState {
    /// Up to the mark.
    Name(String),
    /// After the mark, with the text before it.
    Separated(String),
    /// The text before was the tool's type: reads the name up to the end of the line.
    NameLine(String),
    Fence {
        name: String,
        text: String,
    },
    Arguments(Scan),
    /// The end of a fence, and of the call.
    Closing(String),
    End,
}

impl SeparatedCall {
    /// For DeepSeek, after the mark that begins a call.
    pub fn new() -> Self {
        Self {
            separator: DEEPSEEK_SEPARATOR,
            end: Some(DEEPSEEK_END_CALL),
            at: SeparatedState::Name(String::new()),
            is_told: false,
        }
    }

    /// For Mistral, before the name.
    pub fn named() -> Self {
        Self {
            separator: MISTRAL_ARGUMENTS,
            end: None,
            ..Self::new()
        }
    }

    /// Like [`super::call::Call::push`].
    pub fn push(&mut self, c: char) -> Read {
        match &mut self.at {
            SeparatedState::Name(text) => {
                text.push(c);
                match text.strip_suffix(self.separator) {
                    Some(name) => {
                        let id = name.find(MISTRAL_CALL_ID).filter(|_| self.end.is_none());
                        let name = name[..id.unwrap_or(name.len())].trim().to_owned();
                        self.go(SeparatedState::Separated(name))
                    }
                    None => bounded(text),
                }
            }
            SeparatedState::Separated(name) => match c {
                '{' => {
                    let name = std::mem::take(name);
                    self.begin(name)
                }
                c if c.is_whitespace() => Read::More,
                _ if self.end.is_none() => Read::Bad,
                c => self.go(SeparatedState::NameLine(c.to_string())),
            },
            SeparatedState::NameLine(name) => match c {
                '\n' => {
                    let name = name.trim().to_owned();
                    self.go(SeparatedState::Fence {
                        name,
                        text: String::new(),
                    })
                }
                c => {
                    name.push(c);
                    bounded(name)
                }
            },
            SeparatedState::Fence { name, text } => match (c, text == FENCE) {
                ('{', true) => {
                    let name = std::mem::take(name);
                    self.begin(name)
                }
                (c, is_whole) if c.is_whitespace() && (is_whole || text.is_empty()) => Read::More,
                (c, false) => {
                    text.push(c);
                    match FENCE.starts_with(text.as_str()) {
                        true => Read::More,
                        false => Read::Bad,
                    }
                }
                (_, true) => Read::Bad,
            },
            SeparatedState::Arguments(scan) => {
                match scan.push(c) {
                    Scanned::More => {}
                    Scanned::End => {
                        self.at = match self.end {
                            Some(_) => SeparatedState::Closing(String::new()),
                            None => SeparatedState::End,
                        };
                    }
                    Scanned::EndBefore | Scanned::Bad => return Read::Bad,
                }
                Read::Arguments(c.to_string())
            }
            SeparatedState::Closing(text) => {
                if text.is_empty() && (c.is_whitespace() || c == '`') {
                    return Read::More;
                }
                text.push(c);
                let end = self.end.unwrap_or_default();
                if text == end {
                    self.at = SeparatedState::End;
                    return Read::End;
                }
                match end.starts_with(text.as_str()) {
                    true => Read::More,
                    false => Read::Bad,
                }
            }
            SeparatedState::End => Read::Bad,
        }
    }

    pub fn is_told(&self) -> bool {
        self.is_told
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.at, SeparatedState::End)
    }

    /// At the brace that opens the arguments.
    fn begin(&mut self, name: String) -> Read {
        if name.is_empty() {
            return Read::Bad;
        }
        let mut scan = Scan::new();
        let _ = scan.push('{');
        self.at = SeparatedState::Arguments(scan);
        self.is_told = true;
        Read::Named {
            name,
            arguments: "{".to_owned(),
        }
    }

    fn go(&mut self, at: SeparatedState) -> Read {
        self.at = at;
        Read::More
    }
}

fn bounded(name: &str) -> Read {
    match name.len() > LONGEST_NAME {
        true => Read::Bad,
        false => Read::More,
    }
}
