//! A tool call: a JSON object with a name and arguments, parsed incrementally. The arguments are streamed verbatim once
//! the name is known.

use super::scan::{Scan, Scanned};

/// Longer names are none, and longer keys are not ours.
pub const LONGEST_NAME: usize = 4096;
/// Arguments that come before the name, or as a text, are gathered up to this.
pub const MOST_GATHERED: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    More,
    /// The name is complete; the arguments so far follow.
    Named {
        name: String,
        arguments: String,
    },
    Arguments(String),
    End,
    Bad,
}

#[derive(Debug, Clone)]
pub struct Call {
    at: At,
    name: Option<String>,
    /// Arguments that wait for the name.
    arguments: Option<String>,
    is_told: bool,
}

#[derive(Debug, Clone)]
enum At {
    Open,
    FirstKey,
    Key,
    KeyText(Text),
    Colon(Role),
    Value(Role),
    Name(Text),
    /// Arguments as an object, passed on.
    Arguments(Scan),
    /// Arguments as a text that holds an object.
    ArgumentsText(Text),
    Skipped(Scan),
    Next,
    End,
}

/// The role of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Name,
    Arguments,
    Other,
}

/// A JSON text after its opening quote.
#[derive(Debug, Clone, Default)]
struct Text {
    raw: String,
    is_escaped: bool,
}

impl Call {
    pub fn new() -> Self {
        Self {
            at: At::Open,
            name: None,
            arguments: None,
            is_told: false,
        }
    }

    /// The first character that no call has is `Bad`, and is not taken in.
    pub fn push(&mut self, c: char) -> Read {
        match &mut self.at {
            At::Open => match c {
                '{' => self.go(At::FirstKey),
                c => space(c),
            },
            At::FirstKey | At::Key => match c {
                '"' => self.go(At::KeyText(Text::default())),
                c => space(c),
            },
            At::KeyText(text) => match text.push(c, LONGEST_NAME) {
                None => Read::Bad,
                Some(None) => Read::More,
                Some(Some(key)) => {
                    let role = self.role(&key);
                    role.map_or(Read::Bad, |role| self.go(At::Colon(role)))
                }
            },
            At::Colon(role) => match c {
                ':' => {
                    let role = *role;
                    self.go(At::Value(role))
                }
                c => space(c),
            },
            At::Value(role) => {
                let role = *role;
                self.value(role, c)
            }
            At::Name(text) => match text.push(c, LONGEST_NAME) {
                None => Read::Bad,
                Some(None) => Read::More,
                Some(Some(name)) if name.is_empty() => Read::Bad,
                Some(Some(name)) => {
                    self.name = Some(name);
                    self.at = At::Next;
                    self.tell_if_known()
                }
            },
            At::Arguments(_) => self.more_arguments(c),
            At::ArgumentsText(text) => match text.push(c, MOST_GATHERED) {
                None => Read::Bad,
                Some(None) => Read::More,
                Some(Some(arguments)) => {
                    self.at = At::Next;
                    self.arguments = Some(arguments);
                    self.tell_if_known()
                }
            },
            At::Skipped(scan) => match scan.push(c) {
                Scanned::More => Read::More,
                Scanned::End => self.go(At::Next),
                Scanned::EndBefore => self.next(c),
                Scanned::Bad => Read::Bad,
            },
            At::Next => self.next(c),
            At::End => Read::Bad,
        }
    }

    /// Each of our keys may occur once.
    fn role(&self, key: &str) -> Option<Role> {
        match key {
            "name" => self.name.is_none().then_some(Role::Name),
            "arguments" | "parameters" => {
                let is_first = self.arguments.is_none() && !self.is_told;
                is_first.then_some(Role::Arguments)
            }
            _ => Some(Role::Other),
        }
    }

    fn value(&mut self, role: Role, c: char) -> Read {
        match (role, c) {
            (_, ' ' | '\t' | '\n' | '\r') => Read::More,
            (Role::Name, '"') => self.go(At::Name(Text::default())),
            (Role::Arguments, '{') => {
                self.at = At::Arguments(Scan::new());
                self.arguments = Some(String::new());
                match self.tell_if_known() {
                    Read::Named { name, .. } => {
                        let _ = self.more_arguments(c);
                        let arguments = c.to_string();
                        Read::Named { name, arguments }
                    }
                    _ => self.more_arguments(c),
                }
            }
            (Role::Arguments, '"') => self.go(At::ArgumentsText(Text::default())),
            (Role::Arguments, 'n') | (Role::Other, _) => {
                let mut scan = Scan::new();
                match scan.push(c) {
                    Scanned::More => self.go(At::Skipped(scan)),
                    _ => Read::Bad,
                }
            }
            (Role::Name | Role::Arguments, _) => Read::Bad,
        }
    }

    fn more_arguments(&mut self, c: char) -> Read {
        let At::Arguments(scan) = &mut self.at else {
            return Read::Bad;
        };
        match scan.push(c) {
            Scanned::More => {}
            Scanned::End => self.at = At::Next,
            Scanned::EndBefore | Scanned::Bad => return Read::Bad,
        }
        match (self.is_told, &mut self.arguments) {
            (false, Some(gathered)) if gathered.len() < MOST_GATHERED => {
                gathered.push(c);
                Read::More
            }
            (false, _) => Read::Bad,
            (true, _) => Read::Arguments(c.to_string()),
        }
    }

    /// Once name and arguments are both known, or being written.
    fn tell_if_known(&mut self) -> Read {
        match (&self.name, &mut self.arguments) {
            (Some(name), Some(arguments)) if !self.is_told => {
                self.is_told = true;
                Read::Named {
                    name: name.clone(),
                    arguments: std::mem::take(arguments),
                }
            }
            _ => Read::More,
        }
    }

    fn next(&mut self, c: char) -> Read {
        match c {
            ',' => self.go(At::Key),
            '}' => self.end(),
            c => space(c),
        }
    }

    /// A call without arguments has none; one without a name is none.
    fn end(&mut self) -> Read {
        self.at = At::End;
        match (&self.name, self.is_told) {
            (_, true) => Read::End,
            (Some(name), false) => {
                self.is_told = true;
                Read::Named {
                    name: name.clone(),
                    arguments: "{}".to_owned(),
                }
            }
            (None, false) => Read::Bad,
        }
    }

    pub fn is_told(&self) -> bool {
        self.is_told
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.at, At::End)
    }

    fn go(&mut self, at: At) -> Read {
        self.at = at;
        Read::More
    }
}

impl Text {
    /// `None` if the value is no string; otherwise the complete string once it ends.
    fn push(&mut self, c: char, longest: usize) -> Option<Option<String>> {
        if c == '"' && !self.is_escaped {
            let json = format!("\"{}\"", self.raw);
            return serde_json::from_str(&json).ok().map(Some);
        }
        self.is_escaped = c == '\\' && !self.is_escaped;
        self.raw.push(c);
        (self.raw.len() <= longest).then_some(None)
    }
}

fn space(c: char) -> Read {
    match c {
        ' ' | '\t' | '\n' | '\r' => Read::More,
        _ => Read::Bad,
    }
}
