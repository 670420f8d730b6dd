//! The rows of a statement as its single parameter: a JSON array of arrays.

use std::fmt::Write;

/// Limit of names from clients and workers.
const LONGEST_TEXT: usize = 200;

#[derive(Debug)]
pub struct Values {
    json: String,
}

impl Values {
    pub fn of<T>(rows: &[T], bind: fn(&T, &mut Self)) -> Self {
        let mut values = Self {
            json: "[".to_owned(),
        };
        for row in rows {
            values.begin();
            values.json.push('[');
            bind(row, &mut values);
            values.json.push(']');
        }
        values.json.push(']');
        values
    }

    pub fn text(&mut self, text: &str) {
        self.whole_text(shortened(text));
    }

    /// Without a limit of length.
    pub fn whole_text(&mut self, text: &str) {
        self.begin();
        let escaped = match text.contains('\0') {
            true => serde_json::to_string(&without_zeros(text)),
            false => serde_json::to_string(text),
        };
        // A string always serializes.
        self.json.push_str(&escaped.unwrap_or_default());
    }

    pub fn number(&mut self, number: i64) {
        self.begin();
        // Writing to a string cannot fail.
        let _ = write!(self.json, "{number}");
    }

    pub fn maybe(&mut self, number: Option<i64>) {
        match number {
            Some(number) => self.number(number),
            None => {
                self.begin();
                self.json.push_str("null");
            }
        }
    }

    pub fn json(self) -> String {
        self.json
    }

    /// Ends the previous value.
    fn begin(&mut self) {
        if !self.json.ends_with('[') {
            self.json.push(',');
        }
    }
}

/// A text for both engines: PostgreSQL refuses NUL characters.
pub fn storable(text: &str) -> String {
    without_zeros(shortened(text))
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

pub fn without_zeros(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::{Values, storable};

    #[test]
    fn long_texts_are_cut_and_zeros_are_replaced() {
        assert_eq!(storable("a\0b"), "a\u{fffd}b");
        assert_eq!(storable(&"ö".repeat(150)).len(), 200);
    }

    #[test]
    fn rows_are_arrays_in_an_array() {
        let rows = [("[", Some(i64::MAX)), ("ä \"b\"\n\0\\", None)];
        let values = Values::of(&rows, |(text, number), values| {
            values.text(text);
            values.maybe(*number);
        });
        assert_eq!(
            values.json(),
            "[[\"[\",9223372036854775807],[\"ä \\\"b\\\"\\n\u{fffd}\\\\\",null]]"
        );
        assert_eq!(Values::of(&[(); 0], |(), _| ()).json(), "[]");
    }
}
