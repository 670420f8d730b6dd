//! Untrusted bytes to JSON, stricter than [`serde_json`]: refuses duplicate keys, which two programs on the way could
//! read as different requests; too many values, since each costs much more memory than its bytes; and nesting near the
//! limit of 128 levels, since parsed values are stored and sent inside others, and have to be parsed there again.
//!
//! NaN, infinities, numbers beyond a double, lone surrogates and broken UTF-8 are refused by `serde_json` itself.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::Problem;
use super::nearest::shortened;

/// Values of one body, a number in a list counted as one. The longest prompts have a few thousand.
pub const MOST_VALUES: usize = 500_000;

/// Limit of nesting. Wrappers around stored values stay far below the distance to [`serde_json`]'s own limit.
pub const DEEPEST: usize = 100;

/// Prefix of the parse error.
const NOT_JSON: &str = "the body is not valid JSON: ";

/// Errors of [`serde_json`] for lone surrogates.
const HALVES: [&str; 2] = [
    "lone leading surrogate in hex escape",
    "unexpected end of hex escape",
];

/// How many more values may be read.
#[derive(Debug)]
pub struct Budget(Cell<usize>);

/// The budget was not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany;

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(MOST_VALUES))
    }
}

impl Budget {
    fn take_one(&self) -> Result<(), TooMany> {
        let left = self.0.get().checked_sub(1).ok_or(TooMany)?;
        self.0.set(left);
        Ok(())
    }

    fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}

/// Reads one JSON value and nothing after it.
pub fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let place = error.valid_up_to();
        Problem::malformed(format!("the body is not valid UTF-8 at byte {place}"))
    })?;
    if text.trim_ascii().is_empty() {
        return Err(Problem::malformed("the body is empty: send JSON"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let budget = Budget::default();
    let value = Strict::new(&budget).deserialize(&mut reader);
    value
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| Problem::malformed(format!("{NOT_JSON}{error}")))
}

/// Whether that is all that is wrong: an escape such as `\ud800` is half a character, and the other half is missing.
pub fn is_half_a_character(problem: &Problem) -> bool {
    let said = problem.failure.message.strip_prefix(NOT_JSON);
    said.is_some_and(|said| HALVES.iter().any(|half| said.starts_with(half)))
}

/// A text that may hold one JSON object and nothing else, such as the arguments of a call. The value may take many
/// times the memory of the text, so several texts share a budget.
pub fn object(text: &str, budget: &Budget) -> Result<Option<Map<String, Value>>, TooMany> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict::new(budget).deserialize(&mut reader);
    match value.and_then(|value| reader.end().map(|()| value)) {
        Ok(Value::Object(entries)) => Ok(Some(entries)),
        Err(_) if budget.is_spent() => Err(TooMany),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Reads strictly, as long as values and levels are left.
#[derive(Clone, Copy)]
struct Strict<'a> {
    budget: &'a Budget,
    levels: usize,
}

impl<'a> Strict<'a> {
    fn new(budget: &'a Budget) -> Self {
        Self {
            budget,
            levels: DEEPEST,
        }
    }

    /// For values inside a list or an object.
    fn inside<E: Error>(self) -> Result<Self, E> {
        let levels = self.levels.checked_sub(1);
        let levels =
            levels.ok_or_else(|| E::custom(format!("nested deeper than {DEEPEST} levels")))?;
        Ok(Self { levels, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let taken = self.budget.take_one();
        taken.map_err(|TooMany| D::Error::custom(format!("more than {MOST_VALUES} values")))?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        let number = Number::from_f64(number);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                let key = shortened(&key);
                return Err(A::Error::custom(format!("duplicate key {key:?}")));
            }
            let value = entries.next_value_seed(inside)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Budget, DEEPEST, TooMany, is_half_a_character, object, parse};

    fn check(body: impl AsRef<[u8]>, expected: &str) {
        let problem = parse(body.as_ref()).unwrap_err();
        let message = problem.to_string();
        assert!(message.contains(expected), "{message}");
        assert_eq!(problem.failure.status(), 400);
    }

    #[test]
    fn json_is_read_as_it_stands() {
        let body = r#"{"b":[1,-2,2.5,null,true,"\ud83d\ude00"],"a":{}}"#;
        let expected = json!({"b": [1, -2, 2.5, null, true, "😀"], "a": {}});
        assert_eq!(parse(body.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn lone_surrogates_are_refused() {
        check(r#"{"content":"\ud800"}"#, "hex escape");
        check(r#"{"content":"\udc00x"}"#, "surrogate");
        check(r#"{"content":"\ud800\ud800"}"#, "surrogate");
    }

    #[test]
    fn half_a_character_is_told_from_all_else_that_is_wrong() {
        let check = |body: &str, expected: bool| {
            let problem = parse(body.as_bytes()).unwrap_err();
            assert_eq!(is_half_a_character(&problem), expected, "{problem}");
        };
        for halves in [r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\ud83d\n"] {
            check(&format!(r#"{{"prompt":"a {halves} cat"}}"#), true);
        }
        check(r#"{"prompt":"\ud83"}"#, false);
        check(r#"{"prompt":"a cat"#, false);
        let key = super::HALVES[0];
        check(&format!(r#"{{"{key}":1,"{key}":2}}"#), false);
    }

    #[test]
    fn nan_and_numbers_beyond_a_double_are_refused() {
        for number in ["NaN", "Infinity", "-Infinity", "nan"] {
            check(format!(r#"{{"temperature":{number}}}"#), "not valid JSON");
        }
        check(r#"{"seed":1e999}"#, "out of range");
    }

    #[test]
    fn a_hundred_thousand_levels_are_refused() {
        check("[".repeat(100_000), "deeper than 100 levels");
        check(r#"{"a":"#.repeat(100_000), "deeper than 100 levels");
    }

    #[test]
    fn what_is_as_deep_as_it_may_be_can_be_read_inside_of_something_else() {
        let nested = |levels: usize| {
            [
                r#"{"a":"#.repeat(levels),
                "0".to_owned(),
                "}".repeat(levels),
            ]
            .concat()
        };
        check(nested(DEEPEST + 1), "deeper than 100 levels");
        let deep = parse(nested(DEEPEST).as_bytes()).unwrap();
        let inside = json!({"job": {"body": [deep]}});
        let again: Value = serde_json::from_str(&inside.to_string()).unwrap();
        assert_eq!(again, inside);
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        check(r#"{"model":"a","x":{"k":1,"k":2}}"#, r#"duplicate key "k""#);
    }

    #[test]
    fn values_without_end_are_refused() {
        check(
            format!("[{}0]", "0,".repeat(500_000)),
            "more than 500000 values",
        );
    }

    #[test]
    fn texts_that_hold_objects_share_a_budget() {
        let budget = Budget::default();
        let large = format!("{{\"a\":[{}0]}}", "0,".repeat(300_000));
        assert!(object(&large, &budget).unwrap().is_some());
        assert_eq!(object("[1]", &budget), Ok(None));
        assert_eq!(object("not json", &budget), Ok(None));
        assert_eq!(object(&large, &budget), Err(TooMany));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        check(b"{\"model\":\"\xff\"}", "not valid UTF-8 at byte 10");
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        check("", "empty");
        check(" \n", "empty");
        check("{} {}", "trailing characters");
        check("{\"a\":", "EOF");
    }
}
