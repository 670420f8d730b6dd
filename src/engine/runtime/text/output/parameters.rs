//! A tool call with separate arguments between tags: Qwen3-Coder and Qwen3.5 put the name and the key inside the tags,
//! GLM has tags around keys and values. A value is a verbatim string or JSON, depending on the tool's schema.

use std::sync::Arc;

use serde_json::Value;

use super::ToolMarkup;
use super::call::{Call, LONGEST_NAME, MOST_GATHERED, Read};
use super::offered::{JsonTypes, OfferedTool};

/// The tags of one form.
#[derive(Debug, PartialEq, Eq)]
pub struct ParameterTags {
    /// Before the name, and after it: empty if the end of the line or the next tag ends it.
    pub name: &'static str,
    pub end_name: &'static str,
    pub key: &'static str,
    pub end_key: &'static str,
    pub value: &'static str,
    /// Ends of a value; the first is the longest.
    pub end_values: &'static [&'static str],
    /// Whether values are on separate lines.
    pub is_on_lines: bool,
    /// Behind the last value.
    pub end: &'static str,
}

const END_TAG: &str = "</tool_call>";
/// Before a key: by these are the forms known.
pub const PARAMETER: &str = "<parameter=";
pub const ARG_KEY: &str = "<arg_key>";

/// `<function=NAME><parameter=KEY>VALUE</parameter></function>`.
const FUNCTION_TAGS: ParameterTags = ParameterTags {
    name: "<function=",
    end_name: ">",
    key: PARAMETER,
    end_key: ">",
    value: "",
    end_values: &["\n</parameter>", "</parameter>"],
    is_on_lines: true,
    end: "</function>",
};

/// `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`.
const KEY_TAGS: ParameterTags = ParameterTags {
    name: "",
    end_name: "",
    key: ARG_KEY,
    end_key: "</arg_key>",
    value: "<arg_value>",
    end_values: &["</arg_value>"],
    is_on_lines: false,
    end: END_TAG,
};

impl ParameterTags {
    /// `None` for formats whose arguments are JSON.
    pub fn of(markup: ToolMarkup) -> Option<&'static Self> {
        match markup {
            ToolMarkup::FunctionTags => Some(&FUNCTION_TAGS),
            ToolMarkup::KeyTags => Some(&KEY_TAGS),
            _ => None,
        }
    }

    /// Whether a name or a key can be parsed unambiguously.
    pub fn can_hold(&self, name: &str) -> bool {
        !name.is_empty() && name.trim() == name && !name.contains(['<', '>', '\n', '{'])
    }
}

#[derive(Debug, Clone)]
pub struct ParametersCall {
    tags: &'static ParameterTags,
    offered: Arc<[OfferedTool]>,
    /// The one that is called, if it is offered.
    tool: Option<usize>,
    at: ParametersState,
    /// The possible beginning of a tag.
    held: String,
    /// Arguments so far.
    arguments: usize,
    is_told: bool,
}

#[derive(Debug, Clone)]
enum ParametersState {
    /// Before the name.
    Opening,
    /// The model wrote a JSON object instead.
    Object(Box<Call>),
    Name(String),
    /// Before a key, or the end.
    Between,
    Key(String),
    /// Between a key and its value.
    BeforeValue(String),
    Value {
        types: JsonTypes,
        /// Text of a value that may be JSON.
        gathered: String,
        is_first: bool,
    },
    End,
}

impl ParametersCall {
    /// Behind the mark that begins it.
    pub fn new(tags: &'static ParameterTags, offered: Arc<[OfferedTool]>) -> Self {
        Self {
            tags,
            offered,
            tool: None,
            at: ParametersState::Opening,
            held: String::new(),
            arguments: 0,
            is_told: false,
        }
    }

    /// Like [`super::call::Call::push`].
    pub fn push(&mut self, c: char) -> Read {
        match &mut self.at {
            ParametersState::Opening => self.opening(c),
            ParametersState::Object(call) => {
                let read = call.push(c);
                self.is_told = call.is_told();
                if call.has_ended() {
                    self.at = ParametersState::End;
                }
                read
            }
            ParametersState::Name(name) => match (c, self.tags.end_name) {
                ('\n', "") => self.begin(),
                ('<', "") => {
                    self.held.push(c);
                    self.begin()
                }
                (c, end) if end.starts_with(c) => self.begin(),
                (c, _) => bounded(name, c),
            },
            ParametersState::Between => self.between(c),
            ParametersState::Key(key) => {
                if matches!(bounded(key, c), Read::Bad) {
                    return Read::Bad;
                }
                if let Some(key) = key.strip_suffix(self.tags.end_key) {
                    let key = key.trim().to_owned();
                    self.at = ParametersState::BeforeValue(key);
                    if self.tags.value.is_empty() {
                        return self.open_value();
                    }
                }
                Read::More
            }
            ParametersState::BeforeValue(_) => {
                if c.is_whitespace() && self.held.is_empty() {
                    return Read::More;
                }
                self.held.push(c);
                if self.held == self.tags.value {
                    self.held.clear();
                    return self.open_value();
                }
                match self.tags.value.starts_with(&self.held) {
                    true => Read::More,
                    false => Read::Bad,
                }
            }
            ParametersState::Value { .. } => self.value(c),
            ParametersState::End => Read::Bad,
        }
    }

    pub fn is_told(&self) -> bool {
        self.is_told
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.at, ParametersState::End)
    }

    fn opening(&mut self, c: char) -> Read {
        if self.held.is_empty() {
            match c {
                '{' => {
                    let mut call = Box::new(Call::new());
                    let read = call.push(c);
                    self.at = ParametersState::Object(call);
                    return read;
                }
                c if c.is_whitespace() => return Read::More,
                '<' if self.tags.name.is_empty() => return Read::Bad,
                c if self.tags.name.is_empty() => {
                    self.at = ParametersState::Name(c.to_string());
                    return Read::More;
                }
                _ => {}
            }
        }
        self.held.push(c);
        if self.held == self.tags.name {
            self.held.clear();
            self.at = ParametersState::Name(String::new());
            return Read::More;
        }
        match self.tags.name.starts_with(&self.held) {
            true => Read::More,
            false => Read::Bad,
        }
    }

    /// Behind the name.
    fn begin(&mut self) -> Read {
        let state = std::mem::replace(&mut self.at, ParametersState::Between);
        let name = match state {
            ParametersState::Name(name) => name.trim().to_owned(),
            _ => String::new(),
        };
        if name.is_empty() {
            return Read::Bad;
        }
        self.tool = self.offered.iter().position(|tool| tool.name == name);
        self.is_told = true;
        let arguments = "{".to_owned();
        Read::Named { name, arguments }
    }

    /// Text that is neither a key nor the end is passed over.
    fn between(&mut self, c: char) -> Read {
        self.held.push(c);
        if self.held == self.tags.key {
            self.held.clear();
            self.at = ParametersState::Key(String::new());
        } else if self.held == self.tags.end || self.held == END_TAG {
            self.held.clear();
            self.at = ParametersState::End;
            return Read::Arguments("}".to_owned());
        } else {
            let marks = [self.tags.key, self.tags.end, END_TAG];
            let _ = let_go(&mut self.held, &marks);
        }
        Read::More
    }

    fn open_value(&mut self) -> Read {
        let key = match &self.at {
            ParametersState::BeforeValue(key) => key.clone(),
            _ => String::new(),
        };
        let tool = self.tool.and_then(|tool| self.offered.get(tool));
        let types = tool.map_or(JsonTypes::ANY, |tool| tool.types(&key));
        let between = if self.arguments == 0 { "" } else { ", " };
        let quote = if types.is_string() { "\"" } else { "" };
        self.arguments += 1;
        self.at = ParametersState::Value {
            types,
            gathered: String::new(),
            is_first: true,
        };
        Read::Arguments(format!("{between}{}: {quote}", Value::from(key)))
    }

    fn value(&mut self, c: char) -> Read {
        let tags = self.tags;
        let ParametersState::Value {
            types,
            gathered,
            is_first,
        } = &mut self.at
        else {
            return Read::Bad;
        };
        if std::mem::take(is_first) && tags.is_on_lines && c == '\n' {
            return Read::More;
        }
        self.held.push(c);
        let has_ended = tags.end_values.contains(&self.held.as_str());
        let gone = match has_ended {
            true => {
                self.held.clear();
                String::new()
            }
            false => let_go(&mut self.held, tags.end_values),
        };
        let text = match types.is_string() {
            true => {
                let mut text = escaped(&gone);
                text.push_str(if has_ended { "\"" } else { "" });
                text
            }
            false => {
                gathered.push_str(&gone);
                if gathered.len() > MOST_GATHERED {
                    return Read::Bad;
                }
                match has_ended {
                    true => types.json_of(gathered),
                    false => String::new(),
                }
            }
        };
        if has_ended {
            self.at = ParametersState::Between;
        }
        match text.is_empty() {
            true => Read::More,
            false => Read::Arguments(text),
        }
    }
}

/// Removes and returns the text that cannot begin a mark.
fn let_go(held: &mut String, marks: &[&str]) -> String {
    let mut gone = 0;
    while !marks.iter().any(|mark| mark.starts_with(&held[gone..])) {
        gone += held[gone..].chars().next().map_or(1, char::len_utf8);
    }
    held.drain(..gone).collect()
}

/// Escaped like in a JSON string, without the quotes.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn bounded(name: &mut String, c: char) -> Read {
    name.push(c);
    match name.len() > LONGEST_NAME {
        true => Read::Bad,
        false => Read::More,
    }
}
