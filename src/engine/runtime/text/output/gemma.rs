//! A tool call of Gemma 4: a name and arguments between braces, with unquoted keys and strings between marks without
//! escapes. Arguments are converted to JSON incrementally.

use serde_json::Value;

use super::call::Read;

/// Before a call, and after it.
pub const GEMMA_CALL: &str = "<|tool_call>";
pub const GEMMA_END_CALL: &str = "<tool_call|>";
/// Around a text.
pub const GEMMA_QUOTE: &str = "<|\"|>";
/// Around a thought.
pub const GEMMA_THOUGHT: &str = "<|channel>";
pub const GEMMA_END_THOUGHT: &str = "<channel|>";
const PREFIX: &str = "call:";
/// Longer names, keys and numbers are none.
const LONGEST_NAME: usize = 4096;
/// Values nested deeper than this are no arguments of a tool.
const DEEPEST: usize = 128;

#[derive(Debug, Clone)]
pub struct GemmaCall {
    at: GemmaState,
    /// Enclosing objects and arrays, outermost first.
    open: Vec<GemmaNesting>,
    /// The possible beginning of a mark, a name or a number.
    held: String,
    is_told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GemmaNesting {
    Object,
    Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GemmaState {
    /// The word before the name.
    Prefix,
    Name,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    QuotedKey,
    Colon,
    Value,
    /// A value, or the end of an empty array.
    FirstItem,
    /// Between marks.
    Text,
    /// Between quotes, as JSON has it.
    JsonText {
        is_escaped: bool,
    },
    /// A number, or a word.
    Scalar,
    /// A comma, or the end of an object or an array.
    Next,
    Closing,
    End,
}

impl GemmaCall {
    /// Behind the mark that begins it.
    pub fn new() -> Self {
        Self {
            at: GemmaState::Prefix,
            open: Vec::new(),
            held: String::new(),
            is_told: false,
        }
    }

    /// Like [`super::call::Call::push`].
    pub fn push(&mut self, c: char) -> Read {
        let is_space = c.is_whitespace() && self.held.is_empty();
        match self.at {
            GemmaState::Prefix if is_space => Read::More,
            GemmaState::Prefix => self.mark(c, PREFIX, GemmaState::Name, ""),
            GemmaState::Name if c == '{' => self.begin(),
            GemmaState::Name | GemmaState::Scalar if self.held.len() > LONGEST_NAME => Read::Bad,
            GemmaState::Name => self.hold(c),
            GemmaState::FirstKey if is_space => Read::More,
            GemmaState::FirstKey if c == '}' && self.held.is_empty() => {
                self.close(GemmaNesting::Object, c)
            }
            GemmaState::FirstKey | GemmaState::Key => self.key(c),
            GemmaState::QuotedKey => self.text(c, GemmaState::Colon),
            GemmaState::Colon if c.is_whitespace() => Read::More,
            GemmaState::Colon if c == ':' => self.say(GemmaState::Value, ":"),
            GemmaState::FirstItem if is_space => Read::More,
            GemmaState::FirstItem if c == ']' => self.close(GemmaNesting::Array, c),
            GemmaState::FirstItem | GemmaState::Value => self.value(c),
            GemmaState::Text => self.text(c, GemmaState::Next),
            GemmaState::JsonText { is_escaped } => self.json_text(c, is_escaped),
            GemmaState::Scalar => self.scalar(c),
            GemmaState::Next => self.next(c),
            GemmaState::Closing if is_space => Read::More,
            GemmaState::Closing => match self.mark(c, GEMMA_END_CALL, GemmaState::End, "") {
                Read::More if self.at == GemmaState::End => Read::End,
                read => read,
            },
            GemmaState::Colon | GemmaState::End => Read::Bad,
        }
    }

    pub fn is_told(&self) -> bool {
        self.is_told
    }

    pub fn has_ended(&self) -> bool {
        self.at == GemmaState::End
    }

    fn begin(&mut self) -> Read {
        let name = std::mem::take(&mut self.held).trim().to_owned();
        if name.is_empty() {
            return Read::Bad;
        }
        self.open.push(GemmaNesting::Object);
        self.at = GemmaState::FirstKey;
        self.is_told = true;
        Read::Named {
            name,
            arguments: "{".to_owned(),
        }
    }

    fn hold(&mut self, c: char) -> Read {
        self.held.push(c);
        Read::More
    }

    fn say(&mut self, at: GemmaState, text: &str) -> Read {
        self.at = at;
        match text.is_empty() {
            true => Read::More,
            false => Read::Arguments(text.to_owned()),
        }
    }

    /// A required mark; `text` is its JSON.
    fn mark(&mut self, c: char, mark: &str, then: GemmaState, text: &str) -> Read {
        self.held.push(c);
        if self.held == mark {
            self.held.clear();
            return self.say(then, text);
        }
        match mark.starts_with(&self.held) {
            true => Read::More,
            false => Read::Bad,
        }
    }

    /// Keys are as they are, or texts.
    fn key(&mut self, c: char) -> Read {
        if c.is_whitespace() && self.held.is_empty() {
            return Read::More;
        }
        if c == ':' && !self.held.is_empty() {
            let key = std::mem::take(&mut self.held);
            let key = key.trim().trim_matches('"');
            let text = format!("{}:", Value::from(key));
            return self.say(GemmaState::Value, &text);
        }
        self.held.push(c);
        if self.held == GEMMA_QUOTE {
            self.held.clear();
            return self.say(GemmaState::QuotedKey, "\"");
        }
        match self.held.len() > LONGEST_NAME || matches!(c, '{' | '}' | '[' | ']' | ',') {
            true => Read::Bad,
            false => Read::More,
        }
    }

    fn value(&mut self, c: char) -> Read {
        if self.held.is_empty() {
            match c {
                c if c.is_whitespace() => return Read::More,
                '{' => return self.open(GemmaNesting::Object, GemmaState::FirstKey, "{"),
                '[' => return self.open(GemmaNesting::Array, GemmaState::FirstItem, "["),
                '"' => return self.say(GemmaState::JsonText { is_escaped: false }, "\""),
                '<' => {}
                ',' | '}' | ']' | ':' => return Read::Bad,
                c => {
                    self.at = GemmaState::Scalar;
                    return self.hold(c);
                }
            }
        }
        self.at = GemmaState::Value;
        self.mark(c, GEMMA_QUOTE, GemmaState::Text, "\"")
    }

    /// Characters of a string; the possible beginning of its end is held back.
    fn text(&mut self, c: char, then: GemmaState) -> Read {
        self.held.push(c);
        if self.held == GEMMA_QUOTE {
            self.held.clear();
            return self.say(then, "\"");
        }
        let mut said = String::new();
        while !GEMMA_QUOTE.starts_with(&self.held) {
            let first = self.held.chars().next().map_or(0, char::len_utf8);
            let json = Value::from(&self.held[..first]).to_string();
            said.push_str(&json[1..json.len() - 1]);
            self.held.drain(..first);
        }
        self.say(self.at, &said)
    }

    fn json_text(&mut self, c: char, is_escaped: bool) -> Read {
        let at = match (c, is_escaped) {
            ('\0'..='\x1f', _) => return Read::Bad,
            ('"', false) => GemmaState::Next,
            (c, is_escaped) => GemmaState::JsonText {
                is_escaped: c == '\\' && !is_escaped,
            },
        };
        self.say(at, c.encode_utf8(&mut [0; 4]))
    }

    /// A scalar up to its delimiter. Words that are not JSON are strings.
    fn scalar(&mut self, c: char) -> Read {
        if !matches!(c, ',' | '}' | ']') {
            return self.hold(c);
        }
        let held = std::mem::take(&mut self.held);
        let word = held.trim();
        let value = match word {
            "None" => Value::Null,
            "True" => Value::from(true),
            "False" => Value::from(false),
            word => serde_json::from_str(word).unwrap_or_else(|_| Value::from(word)),
        };
        let text = match value {
            // A number stays as it was written.
            Value::Number(_) => word.to_owned(),
            value => value.to_string(),
        };
        self.at = GemmaState::Next;
        match self.next(c) {
            Read::Arguments(more) => Read::Arguments(text + &more),
            read => read,
        }
    }

    fn open(&mut self, what: GemmaNesting, at: GemmaState, text: &str) -> Read {
        self.open.push(what);
        match self.open.len() > DEEPEST {
            true => Read::Bad,
            false => self.say(at, text),
        }
    }

    fn close(&mut self, what: GemmaNesting, c: char) -> Read {
        if self.open.pop() != Some(what) {
            return Read::Bad;
        }
        let at = if self.open.is_empty() {
            GemmaState::Closing
        } else {
            GemmaState::Next
        };
        self.say(at, c.encode_utf8(&mut [0; 4]))
    }

    fn next(&mut self, c: char) -> Read {
        match (c, self.open.last()) {
            (',', Some(GemmaNesting::Object)) => self.say(GemmaState::Key, ","),
            (',', Some(GemmaNesting::Array)) => self.say(GemmaState::Value, ","),
            ('}', _) => self.close(GemmaNesting::Object, c),
            (']', _) => self.close(GemmaNesting::Array, c),
            (c, _) if c.is_whitespace() => Read::More,
            _ => Read::Bad,
        }
    }
}
