//! A tool call of LFM2: a Python function call with named arguments, whose values are literals.

use serde_json::{Map, Number, Value};

use super::call::{LONGEST_NAME, MOST_GATHERED, Read};

/// Around the calls of an answer.
pub const PYTHONIC_CALLS: &str = "<|tool_call_start|>";
pub const PYTHONIC_END_CALLS: &str = "<|tool_call_end|>";
/// Values nested deeper than this are no arguments of a tool.
const DEEPEST: usize = 64;

#[derive(Debug, Clone)]
pub struct PythonicCall {
    name: String,
    /// Behind the parenthesis that opens them.
    arguments: Option<String>,
    /// The brackets that are open.
    open: usize,
    text: QuoteState,
    has_ended: bool,
}

/// The state of the scan within strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuoteState {
    Outside,
    Inside {
        quote: char,
        is_escaped: bool,
    },
    /// Behind a quote. Apostrophes inside strings come unescaped: it closed the string only if that can end there.
    Behind {
        quote: char,
    },
}

impl PythonicCall {
    /// At the first letter of its name.
    pub fn new() -> Self {
        Self {
            name: String::new(),
            arguments: None,
            open: 0,
            text: QuoteState::Outside,
            has_ended: false,
        }
    }

    /// Like [`super::call::Call::push`]: the call is emitted once it is complete.
    pub fn push(&mut self, c: char) -> Read {
        let Some(arguments) = &mut self.arguments else {
            return match c {
                '(' if !self.name.is_empty() => {
                    self.arguments = Some(String::new());
                    Read::More
                }
                c if c.is_alphanumeric() || matches!(c, '_' | '-' | '.') => {
                    self.name.push(c);
                    match self.name.len() > LONGEST_NAME {
                        true => Read::Bad,
                        false => Read::More,
                    }
                }
                _ => Read::Bad,
            };
        };
        if self.has_ended || arguments.len() > MOST_GATHERED {
            return Read::Bad;
        }
        if let QuoteState::Behind { quote } = self.text {
            self.text = match c {
                c if c.is_whitespace() => self.text,
                c if can_follow(c) => QuoteState::Outside,
                '\\' => QuoteState::Inside {
                    quote,
                    is_escaped: true,
                },
                c if c == quote => self.text,
                _ => QuoteState::Inside {
                    quote,
                    is_escaped: false,
                },
            };
            if self.text != QuoteState::Outside {
                arguments.push(c);
                return Read::More;
            }
        }
        match (self.text, c) {
            (QuoteState::Inside { quote, is_escaped }, c) => {
                self.text = match c == quote && !is_escaped {
                    true => QuoteState::Behind { quote },
                    false => QuoteState::Inside {
                        quote,
                        is_escaped: c == '\\' && !is_escaped,
                    },
                };
            }
            (_, '\'' | '"') => {
                self.text = QuoteState::Inside {
                    quote: c,
                    is_escaped: false,
                };
            }
            (_, '(' | '[' | '{') => self.open += 1,
            (_, ')') if self.open == 0 => return self.end(),
            (_, ')' | ']' | '}') => match self.open.checked_sub(1) {
                Some(open) => self.open = open,
                None => return Read::Bad,
            },
            _ => {}
        }
        arguments.push(c);
        Read::More
    }

    pub fn is_told(&self) -> bool {
        self.has_ended
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn end(&mut self) -> Read {
        let arguments = self.arguments.as_deref().unwrap_or_default();
        match Literals::new(arguments).arguments() {
            Some(arguments) => {
                self.has_ended = true;
                Read::Named {
                    name: std::mem::take(&mut self.name),
                    arguments: Value::Object(arguments).to_string(),
                }
            }
            None => Read::Bad,
        }
    }
}

/// Behind a string.
fn can_follow(c: char) -> bool {
    matches!(c, ',' | ')' | ']' | '}' | ':')
}

/// Literals of Python, also with the words of JSON.
struct Literals<'a> {
    rest: &'a str,
}

impl<'a> Literals<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn arguments(&mut self) -> Option<Map<String, Value>> {
        let mut arguments = Map::new();
        loop {
            self.space();
            if self.rest.is_empty() {
                return Some(arguments);
            }
            let end = self.rest.find('=')?;
            let key = self.rest[..end].trim_end();
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
            if key.is_empty() || !key.chars().all(is_name) {
                return None;
            }
            self.rest = &self.rest[end + 1..];
            let value = self.value(0)?;
            arguments.insert(key.to_owned(), value);
            self.space();
            if !self.takes(',') && !self.rest.is_empty() {
                return None;
            }
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.space();
        if depth > DEEPEST {
            return None;
        }
        match self.rest.chars().next()? {
            quote @ ('\'' | '"') => self.text(quote).map(Value::String),
            '[' => self.list('[', ']', depth),
            '(' => self.list('(', ')', depth),
            '{' => self.dictionary(depth),
            _ => self.word(),
        }
    }

    fn list(&mut self, opening: char, closing: char, depth: usize) -> Option<Value> {
        self.takes(opening);
        let mut items = Vec::new();
        loop {
            self.space();
            if self.takes(closing) {
                return Some(Value::Array(items));
            }
            items.push(self.value(depth + 1)?);
            self.space();
            if !self.takes(',') && !self.rest.starts_with(closing) {
                return None;
            }
        }
    }

    fn dictionary(&mut self, depth: usize) -> Option<Value> {
        self.takes('{');
        let mut entries = Map::new();
        loop {
            self.space();
            if self.takes('}') {
                return Some(Value::Object(entries));
            }
            let quote = self
                .rest
                .chars()
                .next()
                .filter(|c| matches!(c, '\'' | '"'))?;
            let key = self.text(quote)?;
            self.space();
            if !self.takes(':') {
                return None;
            }
            let value = self.value(depth + 1)?;
            entries.insert(key, value);
            self.space();
            if !self.takes(',') && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    fn text(&mut self, quote: char) -> Option<String> {
        self.takes(quote);
        let mut text = String::new();
        loop {
            let c = self.rest.chars().next()?;
            self.rest = &self.rest[c.len_utf8()..];
            match c {
                '\\' => text.push(self.escape()?),
                c if c == quote => {
                    let next = self.rest.trim_start().chars().next();
                    if next.is_none_or(can_follow) {
                        return Some(text);
                    }
                    text.push(c);
                }
                c => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        let digits = match c {
            'n' => return Some('\n'),
            't' => return Some('\t'),
            'r' => return Some('\r'),
            'b' => return Some('\u{8}'),
            'f' => return Some('\u{c}'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => return Some(other),
        };
        let code = self.digits(digits)?;
        match code {
            0xd800..=0xdbff => {
                self.rest = self.rest.strip_prefix("\\u")?;
                let low = self.digits(4)?;
                let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                char::from_u32(0x1_0000 + ((code - 0xd800) << 10) + low)
            }
            code => char::from_u32(code),
        }
    }

    fn digits(&mut self, count: usize) -> Option<u32> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        u32::from_str_radix(digits, 16).ok()
    }

    fn word(&mut self) -> Option<Value> {
        let end = self.rest.find(|c: char| !is_word(c));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Some(match word {
            "True" | "true" => Value::Bool(true),
            "False" | "false" => Value::Bool(false),
            "None" | "null" => Value::Null,
            number => {
                let number = number.strip_prefix('+').unwrap_or(number);
                Value::Number(serde_json::from_str::<Number>(number).ok()?)
            }
        })
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn takes(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use super::{PythonicCall, Read};

    fn told(text: &str) -> Option<(String, String)> {
        let mut call = PythonicCall::new();
        for c in text.chars() {
            match call.push(c) {
                Read::More => {}
                Read::Named { name, arguments } => return Some((name, arguments)),
                _ => return None,
            }
        }
        None
    }

    #[test]
    fn literals_become_json() {
        for (text, arguments) in [
            ("f()", "{}"),
            ("f( )", "{}"),
            ("f(a=1, b = -2.5,c=1e3)", r#"{"a":1,"b":-2.5,"c":1000.0}"#),
            ("f(a='x', b=\"y\")", r#"{"a":"x","b":"y"}"#),
            (
                "f(a=True, b=None, c=false)",
                r#"{"a":true,"b":null,"c":false}"#,
            ),
            (
                "f(a=[1, 'two', (3,)], b={'k': [], \"l\": {}},)",
                r#"{"a":[1,"two",[3]],"b":{"k":[],"l":{}}}"#,
            ),
            (
                r"f(a='it\'s', b='é\n\u00e9\U0001F600')",
                "{\"a\":\"it's\",\"b\":\"é\\né😀\"}",
            ),
            (r#"f(a="\ud83d\ude00")"#, r#"{"a":"😀"}"#),
            ("f(a='it's (so)', b='')", r#"{"a":"it's (so)","b":""}"#),
            ("f(a='x)', b=')')", r#"{"a":"x)","b":")"}"#),
            ("f(a='say \"hm\"')", r#"{"a":"say \"hm\""}"#),
        ] {
            assert_eq!(
                told(text),
                Some(("f".to_owned(), arguments.to_owned())),
                "{text}"
            );
        }
        for text in [
            "f(1)",
            "f(a=)",
            "f(a=b)",
            "f(a='x' b=1)",
            "f(a=[1)",
            r"f(a='\ud83d')",
            "(a=1)",
            "f g(a=1)",
            "f(a={1: 2})",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
        let deep = format!("f(a={}{})", "[".repeat(100), "]".repeat(100));
        assert_eq!(told(&deep), None);
    }
}
