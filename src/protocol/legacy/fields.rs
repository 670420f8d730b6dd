//! The `X-Fields` header: the fields of a reply that the client wants. `{done,generations{img,seed}}`, the outer braces
//! optional; `*` keeps all unnamed fields, and unknown names are ignored.

use std::collections::BTreeMap;
use std::mem;

use serde_json::{Map, Value};

use super::error::Refusal;

/// Longest mask; headers are hardly longer anyway.
const LONGEST: usize = 8192;
/// Replies are a handful of levels deep.
const DEEPEST: usize = 16;

/// Which fields are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mask {
    named: BTreeMap<String, Option<Mask>>,
    rest: bool,
}

impl Mask {
    /// Parses the header's value; `None` if it is empty, which selects everything.
    pub fn parse(header: &str) -> Result<Option<Self>, Refusal> {
        let header = header.trim();
        if header.is_empty() {
            return Ok(None);
        }
        if header.len() > LONGEST {
            return Err(broken(&format!("longer than {LONGEST} bytes")));
        }
        let inside = match header.strip_prefix('{') {
            Some(inside) => inside
                .strip_suffix('}')
                .ok_or_else(|| broken("missing }"))?,
            None => header,
        };
        Parser::default().parse(inside).map(Some)
    }

    /// The masked reply. Lists are masked item by item.
    #[must_use]
    pub fn apply(&self, reply: Value) -> Value {
        match reply {
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.apply(item)).collect())
            }
            Value::Object(entries) => Value::Object(self.keep(entries)),
            other => other,
        }
    }

    fn keep(&self, entries: Map<String, Value>) -> Map<String, Value> {
        let kept = entries
            .into_iter()
            .filter_map(|(name, value)| match self.named.get(&name) {
                Some(Some(inside)) => Some((name, inside.apply(value))),
                Some(None) => Some((name, value)),
                None => self.rest.then_some((name, value)),
            });
        kept.collect()
    }
}

/// Reads names, commas and braces, one level at a time, without recursion.
#[derive(Default)]
struct Parser {
    /// The enclosing levels, each with the name that it continues.
    outside: Vec<(Mask, String)>,
    level: Mask,
    /// The last name, which may open a brace.
    name: Option<String>,
    before: Token,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Token {
    #[default]
    Start,
    Name,
    Comma,
    Open,
    Close,
}

impl Parser {
    fn parse(mut self, text: &str) -> Result<Mask, Refusal> {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                ',' => self.comma()?,
                '{' => self.open()?,
                '}' => self.close()?,
                _ => self.named(rest)?,
            };
            rest = rest[length..].trim_start();
        }
        match self.before {
            _ if !self.outside.is_empty() => Err(broken("missing }")),
            Token::Start => Err(broken("no field named")),
            Token::Comma => Err(broken("trailing comma")),
            _ => Ok(self.level),
        }
    }

    fn named(&mut self, rest: &str) -> Result<usize, Refusal> {
        let allowed = |letter: char| letter.is_alphanumeric() || "_-:*".contains(letter);
        let length = rest.find(|letter| !allowed(letter)).unwrap_or(rest.len());
        if length == 0 {
            return Err(broken(
                "field names must contain only letters, digits, _ and -",
            ));
        }
        if matches!(self.before, Token::Name | Token::Close) {
            return Err(broken("missing comma"));
        }
        let name = &rest[..length];
        if name == "*" {
            self.level.rest = true;
            self.name = None;
        } else {
            self.level.named.insert(name.to_owned(), None);
            self.name = Some(name.to_owned());
        }
        self.before = Token::Name;
        Ok(length)
    }

    fn comma(&mut self) -> Result<usize, Refusal> {
        if !matches!(self.before, Token::Name | Token::Close) {
            return Err(broken("comma without a field before it"));
        }
        self.before = Token::Comma;
        Ok(1)
    }

    fn open(&mut self) -> Result<usize, Refusal> {
        let name = match self.before {
            Token::Name => self.name.take(),
            _ => None,
        };
        let name = name.ok_or_else(|| broken("{ without a field before it"))?;
        if self.outside.len() == DEEPEST {
            return Err(broken(&format!("nested deeper than {DEEPEST} levels")));
        }
        self.outside.push((mem::take(&mut self.level), name));
        self.before = Token::Open;
        Ok(1)
    }

    fn close(&mut self) -> Result<usize, Refusal> {
        if !matches!(self.before, Token::Name | Token::Close) {
            return Err(broken("} without a field before it"));
        }
        let (mut around, name) = self.outside.pop().ok_or_else(|| broken("missing {"))?;
        let inside = mem::take(&mut self.level);
        around.named.insert(name, Some(inside));
        self.level = around;
        self.before = Token::Close;
        Ok(1)
    }
}

fn broken(why: &str) -> Refusal {
    Refusal::plain(400, format!("invalid X-Fields mask: {why}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;
    use serde_json::{Value, json};

    use super::Mask;

    fn reply() -> Value {
        json!({
            "done": true,
            "wait_time": 5,
            "post-processing": 1,
            "generations": [{"img": "a", "seed": "1", "model": "m"}, {"img": "b", "seed": "2"}],
        })
    }

    fn check(mask: &str, expected: Value) {
        let mask = Mask::parse(mask).unwrap().unwrap();
        assert_eq!(mask.apply(reply()), expected);
    }

    #[test]
    fn only_what_is_named_is_kept() {
        check("done", json!({"done": true}));
        check(
            " { done , wait_time } ",
            json!({"done": true, "wait_time": 5}),
        );
        check("post-processing", json!({"post-processing": 1}));
    }

    #[test]
    fn lists_and_what_is_inside_are_masked_too() {
        let expected = json!({"done": true, "generations": [{"img": "a", "seed": "1"}, {"img": "b", "seed": "2"}]});
        check("{done,generations{img,seed}}", expected.clone());
        check("generations{seed,img},done", expected);
        let list = Mask::parse("done").unwrap().unwrap();
        assert_eq!(list.apply(json!([reply(), 5])), json!([{"done": true}, 5]));
    }

    #[test]
    fn a_star_keeps_the_rest() {
        let mut expected = reply();
        expected["generations"] = json!([{"img": "a"}, {"img": "b"}]);
        check("*,generations{img}", expected);
        check("*", reply());
    }

    #[test]
    fn names_the_reply_does_not_have_are_left_aside() {
        check("done,nothing,neither{here}", json!({"done": true}));
        check("done{inside}", json!({"done": true}));
    }

    #[test]
    fn an_empty_mask_keeps_everything() {
        assert_eq!(Mask::parse("  ").unwrap(), None);
    }

    #[test]
    fn wrong_syntax_is_refused() {
        let deep = format!("{}x{}", "a{".repeat(500), "}".repeat(500));
        let long = "a,".repeat(5000);
        for mask in [
            "{done",
            "done}",
            "{}",
            "done,,wait_time",
            ",done",
            "done,",
            "{done,}",
            "a{",
            "a{}",
            "a{}b",
            "{a{b}",
            "a{b}}",
            "{{a}}",
            "a b",
            "*{a}",
            "a;b",
            "a{b}{c}",
            "\u{0}",
            &deep,
            &long,
        ] {
            let refusal = Mask::parse(mask).unwrap_err();
            assert_eq!(refusal.status(), 400, "{mask}");
            assert_eq!(refusal.body().as_object().unwrap().len(), 1, "{mask}");
        }
    }

    proptest! {
        #[test]
        fn no_mask_makes_more_of_a_reply(mask in "[a-z{},* -]{0,40}") {
            if let Ok(Some(mask)) = Mask::parse(&mask) {
                let masked = mask.apply(reply()).to_string();
                assert!(masked.len() <= reply().to_string().len());
            }
        }
    }
}
