//! Finds the end of a JSON value and checks its syntax, character by character, without storing it.

/// Values nested deeper than this are no arguments of a tool.
const DEEPEST: usize = 128;
const LONGEST_NUMBER: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanned {
    More,
    /// The value ends with this character.
    End,
    /// The value ended before this character, which is not part of it.
    EndBefore,
    Bad,
}

/// Scans one value.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Open objects and arrays, outermost first.
    open: Vec<Open>,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Object,
    Array,
}

#[derive(Debug, Clone)]
enum At {
    Value,
    /// A value, or the end of an empty array.
    FirstItem,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    Colon,
    /// A comma, or the end of an object or array.
    Next,
    Text {
        is_key: bool,
    },
    Escape {
        is_key: bool,
    },
    Hex {
        is_key: bool,
        left: u8,
    },
    Word(&'static str),
    Number(String),
}

impl Scan {
    pub fn new() -> Self {
        Self {
            open: Vec::new(),
            at: At::Value,
        }
    }

    pub fn push(&mut self, c: char) -> Scanned {
        match &mut self.at {
            At::Value => self.value(c),
            At::FirstItem if c == ']' => self.close(Open::Array),
            At::FirstItem => self.value(c),
            At::FirstKey if c == '}' => self.close(Open::Object),
            At::FirstKey | At::Key => match c {
                '"' => self.go(At::Text { is_key: true }),
                c => space(c),
            },
            At::Colon => match c {
                ':' => self.go(At::Value),
                c => space(c),
            },
            At::Next => self.next(c),
            At::Text { is_key } => match (c, *is_key) {
                ('"', true) => self.go(At::Colon),
                ('"', false) => self.ended(),
                ('\\', is_key) => self.go(At::Escape { is_key }),
                ('\0'..='\x1f', _) => Scanned::Bad,
                _ => Scanned::More,
            },
            At::Escape { is_key } => match (c, *is_key) {
                ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't', is_key) => {
                    self.go(At::Text { is_key })
                }
                ('u', is_key) => self.go(At::Hex { is_key, left: 4 }),
                _ => Scanned::Bad,
            },
            At::Hex { is_key, left } => match (c.is_ascii_hexdigit(), *left) {
                (false, _) => Scanned::Bad,
                (true, 1) => {
                    let is_key = *is_key;
                    self.go(At::Text { is_key })
                }
                (true, _) => {
                    *left -= 1;
                    Scanned::More
                }
            },
            At::Word(rest) => match rest.strip_prefix(c) {
                Some("") => self.ended(),
                Some(rest) => self.go(At::Word(rest)),
                None => Scanned::Bad,
            },
            At::Number(_) => self.number(c),
        }
    }

    fn value(&mut self, c: char) -> Scanned {
        match c {
            '{' => self.open(Open::Object, At::FirstKey),
            '[' => self.open(Open::Array, At::FirstItem),
            '"' => self.go(At::Text { is_key: false }),
            't' => self.go(At::Word("rue")),
            'f' => self.go(At::Word("alse")),
            'n' => self.go(At::Word("ull")),
            '-' | '0'..='9' => self.go(At::Number(c.to_string())),
            c => space(c),
        }
    }

    fn next(&mut self, c: char) -> Scanned {
        match (c, self.open.last()) {
            (',', Some(Open::Object)) => self.go(At::Key),
            (',', Some(Open::Array)) => self.go(At::Value),
            ('}', _) => self.close(Open::Object),
            (']', _) => self.close(Open::Array),
            (c, _) => space(c),
        }
    }

    fn number(&mut self, c: char) -> Scanned {
        let At::Number(digits) = &mut self.at else {
            return Scanned::Bad;
        };
        if matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E') {
            digits.push(c);
            return match digits.len() > LONGEST_NUMBER {
                true => Scanned::Bad,
                false => Scanned::More,
            };
        }
        if serde_json::from_str::<serde_json::Number>(digits).is_err() {
            return Scanned::Bad;
        }
        match self.ended() {
            Scanned::End => Scanned::EndBefore,
            _ => self.next(c),
        }
    }

    fn open(&mut self, what: Open, at: At) -> Scanned {
        self.open.push(what);
        match self.open.len() > DEEPEST {
            true => Scanned::Bad,
            false => self.go(at),
        }
    }

    fn close(&mut self, what: Open) -> Scanned {
        match self.open.pop() == Some(what) {
            true => self.ended(),
            false => Scanned::Bad,
        }
    }

    fn ended(&mut self) -> Scanned {
        self.at = At::Next;
        match self.open.is_empty() {
            true => Scanned::End,
            false => Scanned::More,
        }
    }

    fn go(&mut self, at: At) -> Scanned {
        self.at = at;
        Scanned::More
    }
}

fn space(c: char) -> Scanned {
    match c {
        ' ' | '\t' | '\n' | '\r' => Scanned::More,
        _ => Scanned::Bad,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{Scan, Scanned};

    fn ends_at(text: &str) -> Result<Option<usize>, usize> {
        let mut scan = Scan::new();
        for (at, c) in text.char_indices() {
            match scan.push(c) {
                Scanned::More => {}
                Scanned::End => return Ok(Some(at + c.len_utf8())),
                Scanned::EndBefore => return Ok(Some(at)),
                Scanned::Bad => return Err(at),
            }
        }
        Ok(None)
    }

    #[test]
    fn a_value_ends_where_it_ends() {
        let nested = r#" {"a": [1, -2.5e3, {"b": "}\"\u00e9"}], "c": null}"#;
        assert_eq!(ends_at(&format!("{nested} tail")), Ok(Some(nested.len())));
        assert_eq!(ends_at("12,"), Ok(Some(2)));
        assert_eq!(ends_at("[]]"), Ok(Some(2)));
        assert_eq!(ends_at(r#"{"a": "#), Ok(None));
        assert_eq!(ends_at(r#"{"a" 1}"#), Err(5));
        assert_eq!(ends_at("{]"), Err(1));
        assert_eq!(ends_at("[01]"), Err(3));
        assert!(ends_at(&"[".repeat(200)).is_err());
    }

    proptest! {
        #[test]
        fn what_serde_writes_is_scanned_to_its_end(keys in any::<Vec<(String, Option<f64>)>>()) {
            let object: serde_json::Value = keys.into_iter().map(|(key, number)| (key, serde_json::Value::from(number))).collect();
            let text = object.to_string();
            assert_eq!(ends_at(&text), Ok(Some(text.len())));
        }
    }
}
