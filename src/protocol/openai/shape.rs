//! Shapes of values: each checks a value, names the expected one, and describes it in the OpenAPI document.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::Problem;
use super::nearest::shortened;

#[derive(Debug)]
pub enum Shape {
    Flag,
    Number(RangeInclusive<f64>),
    Integer(RangeInclusive<i64>),
    Text,
    /// A string of at most this many characters.
    TextOf(u32),
    /// A word of this list.
    Word(&'static [&'static str]),
    List,
    Object,
    Either(&'static [Shape]),
}

impl Shape {
    /// Checks a value against the shape; the error names the field, the expected shape and the value found.
    pub fn check(&self, name: &str, value: &Value) -> Result<(), Problem> {
        if self.fits(value) {
            return Ok(());
        }
        let (wanted, found) = (self.wanted(), self.found(value));
        let message = format!("{name} must be {wanted}, found {found}");
        Err(Problem::invalid(name.to_owned(), message))
    }

    fn fits(&self, value: &Value) -> bool {
        match self {
            Self::Flag => value.is_boolean(),
            Self::Number(range) => value.as_f64().is_some_and(|number| range.contains(&number)),
            Self::Integer(range) => whole(value).is_some_and(|number| range.contains(&number)),
            Self::Text => value.is_string(),
            Self::TextOf(most) => value.as_str().is_some_and(|text| count(text) <= *most),
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
            Self::Either(shapes) => shapes.iter().any(|shape| shape.fits(value)),
        }
    }

    /// `an integer from 1 to 16`
    fn wanted(&self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Number(range) => format!("a number from {} to {}", range.start(), range.end()),
            Self::Integer(range) => format!("an integer from {} to {}", range.start(), range.end()),
            Self::Text => "a string".to_owned(),
            Self::TextOf(most) => format!("a string of at most {most} characters"),
            Self::Word(words) => format!("\"{}\"", words.join("\" or \"")),
            Self::List => "an array".to_owned(),
            Self::Object => "an object".to_owned(),
            Self::Either(shapes) => {
                let wanted: Vec<_> = shapes.iter().map(Self::wanted).collect();
                wanted.join(" or ")
            }
        }
    }

    /// Only where one of a few words was wanted is a text repeated: elsewhere it may be part of a prompt.
    fn found(&self, value: &Value) -> String {
        let wants_word = match self {
            Self::Word(_) => true,
            Self::Either(shapes) => shapes.iter().any(|shape| matches!(shape, Self::Word(_))),
            _ => false,
        };
        match value {
            Value::String(text) if wants_word => format!("{:?}", shortened(text)),
            Value::String(text) if matches!(self, Self::TextOf(_)) => {
                format!("{} characters", count(text))
            }
            other => kind(other),
        }
    }

    /// The JSON Schema of the shape.
    pub fn schema(&self) -> Value {
        match self {
            Self::Flag => json!({"type": "boolean"}),
            Self::Number(range) => {
                json!({"type": "number", "minimum": range.start(), "maximum": range.end()})
            }
            Self::Integer(range) => {
                json!({"type": "integer", "minimum": range.start(), "maximum": range.end()})
            }
            Self::Text => json!({"type": "string"}),
            Self::TextOf(most) => json!({"type": "string", "maxLength": most}),
            Self::Word(words) => json!({"type": "string", "enum": words}),
            Self::List => json!({"type": "array", "items": {}}),
            Self::Object => json!({"type": "object"}),
            Self::Either(shapes) => {
                let any: Vec<_> = shapes.iter().map(Self::schema).collect();
                json!({"anyOf": any})
            }
        }
    }
}

fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

/// The type of a value, without any of its text.
pub fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Empty for other values.
pub fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        _ => String::new(),
    }
}

/// An integer, also when it is written as 3.0.
pub fn whole(value: &Value) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Shape;

    #[test]
    fn an_error_says_what_was_found_and_what_was_wanted() {
        let check = |shape: Shape, value, expected: &str| {
            let problem = shape.check("n", &value).unwrap_err();
            assert_eq!(problem.to_string(), expected);
            assert_eq!(problem.param.as_deref(), Some("n"));
        };
        check(
            Shape::Integer(1..=16),
            json!(17),
            "n must be an integer from 1 to 16, found 17",
        );
        check(
            Shape::TextOf(2),
            json!("äöü"),
            "n must be a string of at most 2 characters, found 3 characters",
        );
        check(
            Shape::Integer(1..=16),
            json!(1.5),
            "n must be an integer from 1 to 16, found 1.5",
        );
        check(
            Shape::Word(&["low", "high"]),
            json!("loud"),
            r#"n must be "low" or "high", found "loud""#,
        );
        check(Shape::Text, json!([]), "n must be a string, found an array");
    }

    #[test]
    fn a_text_that_may_be_a_prompt_is_not_repeated() {
        let problem = Shape::List.check("messages", &json!("a secret"));
        assert!(!problem.unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn whole_numbers_may_be_written_as_fractions() {
        assert!(Shape::Integer(0..=5).check("n", &json!(3.0)).is_ok());
        assert!(Shape::Integer(0..=5).check("n", &json!(1e300)).is_err());
    }
}
