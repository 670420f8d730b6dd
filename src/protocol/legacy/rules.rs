//! Rules for values of a body. A rule parses a value into its type, or records the expected one.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use serde_json::{Map, Value};

use crate::openai::nearest::shortened;
use crate::openai::shape::whole as whole_number;

use super::body::{Body, Entries, ReadState};
use super::words::{self, Word};

/// Item limit of lists without one. Each item is checked against others, in some lists against all.
const MOST_ITEMS: usize = 1000;

pub trait Rule<T> {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<T>;

    /// In words: `an integer from 1 to 500`.
    fn wanted(&self) -> String;
}

/// true or false.
pub struct Flag;

/// A string of a bounded length.
pub struct Text {
    fewest: usize,
    most: usize,
}

/// A number without a fraction; 512.0 is one.
pub struct Whole {
    least: i64,
    most: i64,
    step: i64,
}

pub struct Number {
    least: f64,
    most: f64,
}

/// A word of a closed list.
pub struct OneOf;

/// No list is without an end.
pub struct List<R> {
    items: R,
    most: usize,
    unique: bool,
}

/// An object whose contents are not checked.
pub struct Free;

/// A string, or an object whose contents are not checked.
pub struct TextOrFree;

/// An object with a table of its own.
pub struct Inner;

pub fn flag() -> Flag {
    Flag
}

pub fn text(length: impl RangeBounds<usize>) -> Text {
    let fewest = match length.start_bound() {
        Bound::Included(fewest) => *fewest,
        Bound::Excluded(below) => below.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let most = match length.end_bound() {
        Bound::Included(most) => *most,
        Bound::Excluded(above) => above.saturating_sub(1),
        Bound::Unbounded => usize::MAX,
    };
    Text { fewest, most }
}

pub fn whole(range: impl RangeBounds<i64>) -> Whole {
    let least = match range.start_bound() {
        Bound::Included(least) => *least,
        Bound::Excluded(below) => below.saturating_add(1),
        Bound::Unbounded => i64::MIN,
    };
    let most = match range.end_bound() {
        Bound::Included(most) => *most,
        Bound::Excluded(above) => above.saturating_sub(1),
        Bound::Unbounded => i64::MAX,
    };
    Whole {
        least,
        most,
        step: 1,
    }
}

pub fn number(range: impl RangeBounds<f64>) -> Number {
    let bound = |bound: Bound<&f64>, none: f64| match bound {
        Bound::Included(number) | Bound::Excluded(number) => *number,
        Bound::Unbounded => none,
    };
    Number {
        least: bound(range.start_bound(), f64::MIN),
        most: bound(range.end_bound(), f64::MAX),
    }
}

pub fn word() -> OneOf {
    OneOf
}

pub fn list<R>(items: R) -> List<R> {
    List {
        items,
        most: MOST_ITEMS,
        unique: false,
    }
}

pub fn object() -> Free {
    Free
}

pub fn text_or_object() -> TextOrFree {
    TextOrFree
}

pub fn inner() -> Inner {
    Inner
}

impl Whole {
    #[must_use]
    pub fn in_steps_of(self, step: i64) -> Self {
        Self { step, ..self }
    }
}

impl<R> List<R> {
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    #[must_use]
    pub fn unique(self) -> Self {
        Self {
            unique: true,
            ..self
        }
    }
}

impl Rule<bool> for Flag {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<bool> {
        let flag = value.as_bool();
        if flag.is_none() {
            reading.refuse(&value, Rule::<bool>::wanted(self));
        }
        flag
    }

    fn wanted(&self) -> String {
        "true or false".to_owned()
    }
}

impl Rule<String> for Text {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<String> {
        let Value::String(text) = value else {
            reading.refuse(&value, self.wanted());
            return None;
        };
        reading.look_for_nul(&text);
        let length = self.is_bounded().then(|| text.chars().count());
        match length {
            Some(length) if length < self.fewest || length > self.most => {
                reading.note(format!(
                    "must be {}, found {length} characters",
                    self.wanted()
                ));
                None
            }
            _ => Some(text),
        }
    }

    fn wanted(&self) -> String {
        match (self.fewest, self.most) {
            (0, usize::MAX) => "a string".to_owned(),
            (1, usize::MAX) => "a non-empty string".to_owned(),
            (fewest, usize::MAX) => format!("a string of at least {fewest} characters"),
            (0, most) => format!("a string of at most {most} characters"),
            (fewest, most) if fewest == most => format!("a string of {most} characters"),
            (fewest, most) => format!("a string of {fewest} to {most} characters"),
        }
    }
}

impl Text {
    /// Prompts are long, and most have no bounds to count for.
    fn is_bounded(&self) -> bool {
        (self.fewest, self.most) != (0, usize::MAX)
    }
}

impl<N: TryFrom<i64>> Rule<N> for Whole {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<N> {
        let number = whole_number(&value)
            .filter(|number| (self.least..=self.most).contains(number))
            .filter(|number| number % self.step == 0)
            .and_then(|number| N::try_from(number).ok());
        if number.is_none() {
            reading.refuse(&value, Rule::<N>::wanted(self));
        }
        number
    }

    fn wanted(&self) -> String {
        let range = match (self.least, self.most) {
            (i64::MIN, i64::MAX) => String::new(),
            (least, i64::MAX) => format!(" of at least {least}"),
            (i64::MIN, most) => format!(" of at most {most}"),
            (least, most) => format!(" from {least} to {most}"),
        };
        match self.step {
            1 => format!("an integer{range}"),
            step => format!("an integer{range} in steps of {step}"),
        }
    }
}

impl Rule<f64> for Number {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<f64> {
        let number = value
            .as_f64()
            .filter(|number| (self.least..=self.most).contains(number));
        if number.is_none() {
            reading.refuse(&value, self.wanted());
        }
        number
    }

    fn wanted(&self) -> String {
        match (self.least, self.most) {
            (f64::MIN, f64::MAX) => "a number".to_owned(),
            (least, f64::MAX) => format!("a number of at least {least}"),
            (least, most) => format!("a number from {least} to {most}"),
        }
    }
}

impl<W: Word> Rule<W> for OneOf {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<W> {
        let word = value.as_str().and_then(words::named);
        match (&word, &value) {
            (Some(_), _) => {}
            // Never part of a prompt, so it can be said.
            (None, Value::String(found)) => reading.note(format!(
                "must be {}, found {:?}",
                Rule::<W>::wanted(self),
                shortened(found)
            )),
            (None, other) => reading.refuse(other, Rule::<W>::wanted(self)),
        }
        word
    }

    fn wanted(&self) -> String {
        let words: Vec<_> = W::ALL.iter().map(|word| word.word()).collect();
        format!("one of {}", words.join(", "))
    }
}

impl<T, R: Rule<T>> Rule<Vec<T>> for List<R> {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<Vec<T>> {
        let Value::Array(items) = value else {
            reading.refuse(&value, self.wanted());
            return None;
        };
        if items.len() > self.most {
            reading.note(format!(
                "must be {}, found {} items",
                self.wanted(),
                items.len()
            ));
            return None;
        }
        let twice = self.unique && stands_twice(&items);
        if twice {
            reading.note("must not contain an item twice".to_owned());
        }
        let mut read = Some(Vec::with_capacity(items.len()));
        for (index, item) in items.into_iter().enumerate() {
            let item = reading.within(index, |reading| self.items.read(item, reading));
            match (&mut read, item) {
                (Some(read), Some(item)) => read.push(item),
                _ => read = None,
            }
        }
        read.filter(|_| !twice)
    }

    fn wanted(&self) -> String {
        format!("an array of at most {} items", self.most)
    }
}

fn stands_twice(items: &[Value]) -> bool {
    let mut seen = BTreeSet::new();
    !items.iter().all(|item| seen.insert(item.to_string()))
}

impl Rule<Map<String, Value>> for Free {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<Map<String, Value>> {
        let Value::Object(object) = value else {
            reading.refuse(&value, self.wanted());
            return None;
        };
        object
            .values()
            .for_each(|value| look_for_nul(value, reading));
        object.keys().for_each(|key| reading.look_for_nul(key));
        Some(object)
    }

    fn wanted(&self) -> String {
        "an object".to_owned()
    }
}

impl Rule<Value> for TextOrFree {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<Value> {
        if !value.is_string() && !value.is_object() {
            reading.refuse(&value, self.wanted());
            return None;
        }
        look_for_nul(&value, reading);
        Some(value)
    }

    fn wanted(&self) -> String {
        "a string or an object".to_owned()
    }
}

/// Recursion is bounded by the JSON reader's depth limit.
fn look_for_nul(value: &Value, reading: &mut ReadState) {
    match value {
        Value::String(text) => reading.look_for_nul(text),
        Value::Array(items) => items.iter().for_each(|item| look_for_nul(item, reading)),
        Value::Object(entries) => entries.iter().for_each(|(key, value)| {
            reading.look_for_nul(key);
            look_for_nul(value, reading);
        }),
        _ => {}
    }
}

impl<B: Body> Rule<B> for Inner {
    fn read(&self, value: Value, reading: &mut ReadState) -> Option<B> {
        match value {
            Value::Object(entries) => B::take(&mut Entries::new(entries, reading)),
            other => {
                reading.refuse(&other, Rule::<B>::wanted(self));
                None
            }
        }
    }

    fn wanted(&self) -> String {
        "an object".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::legacy::interrogation::ModelInterrogationInputImage;
    use crate::legacy::{Body, Refusal};

    #[test]
    fn a_list_ends_somewhere_and_a_longer_one_is_one_complaint() {
        let read = |count: usize| {
            let forms = vec![json!({"name": "caption"}); count];
            ModelInterrogationInputImage::read(json!({"source_image": "", "forms": forms}))
        };
        assert_eq!(read(1000).unwrap().forms.unwrap().len(), 1000);
        let many = "must be an array of at most 1000 items, found 1001 items";
        assert_eq!(read(1001).unwrap_err(), Refusal::invalid("forms", many));
    }
}
