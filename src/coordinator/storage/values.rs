//! The values of a statement, in order.

use sqlx::Arguments;
use sqlx::any::AnyArguments;

/// Names from outside are stored no longer than this.
const LONGEST_TEXT: usize = 200;

pub struct Values {
    pub arguments: AnyArguments,
}

impl Values {
    pub fn for_rows(rows: usize, columns: usize) -> Self {
        let mut arguments = AnyArguments::default();
        arguments.reserve(rows * columns, 0);
        Self { arguments }
    }

    pub fn text(&mut self, text: &str) {
        self.add(storable(text));
    }

    /// However long it is.
    pub fn whole_text(&mut self, text: &str) {
        self.add(without_zeros(text));
    }

    pub fn number(&mut self, number: i64) {
        self.add(number);
    }

    pub fn maybe(&mut self, number: Option<i64>) {
        self.add(number);
    }

    fn add<T>(&mut self, value: T)
    where
        T: sqlx::Encode<'static, sqlx::Any> + sqlx::Type<sqlx::Any>,
    {
        // A text or a number always encodes; were one left out, the statement would be refused as a whole.
        let _ = self.arguments.add(value);
    }
}

/// A text as both engines take it: PostgreSQL has no zero characters.
pub fn storable(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST_TEXT);
    without_zeros(&text[..end])
}

pub fn without_zeros(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::storable;

    #[test]
    fn long_texts_are_cut_and_zeros_are_replaced() {
        assert_eq!(storable("a\0b"), "a\u{fffd}b");
        assert_eq!(storable(&"ö".repeat(150)).len(), 200);
    }
}
