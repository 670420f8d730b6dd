//! Tolerant parsing of other peers' frames: lists are bounded, an invalid id counts as missing, and invalid optional
//! parts do not spoil a frame.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::FrameError;
use crate::job::JobId;

/// Values of a [`Few`].
const FEW: usize = 256;

/// Parses an object. Refuses an array, which serde would accept as a structure.
pub fn read<'a, T: Deserialize<'a>>(kind: &'static str, text: &'a str) -> Result<T, FrameError> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(FrameError::NotAnObject);
    }
    serde_json::from_str(text).map_err(|error| FrameError::from_json(kind, &error))
}

/// A list with a limit.
#[derive(Debug)]
pub struct AtMost<const MOST: usize, T>(pub Vec<T>);

impl<const MOST: usize, T> Default for AtMost<MOST, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, const MOST: usize, T: Deserialize<'de>> Deserialize<'de> for AtMost<MOST, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<const MOST: usize, T>(PhantomData<T>);
        impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for List<MOST, T> {
            type Value = Vec<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of at most {MOST}")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if list.len() == MOST {
                        return Err(A::Error::invalid_length(MOST + 1, &self));
                    }
                    list.push(item);
                }
                Ok(list)
            }
        }
        let list = deserializer.deserialize_seq(List::<MOST, T>(PhantomData))?;
        Ok(Self(list))
    }
}

/// Counts the values of a JSON text without reading them: each takes many times the memory of its shortest text.
pub fn has_more_values_than(most: usize, text: &str) -> bool {
    let (mut count, mut in_string, mut is_escaped) = (1_usize, false, false);
    for byte in text.bytes() {
        if in_string {
            in_string = byte != b'"' || is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
        } else {
            count += usize::from(matches!(byte, b',' | b'[' | b'{'));
            in_string = byte == b'"';
        }
        if count > most {
            return true;
        }
    }
    false
}

/// Any value that holds few others.
#[derive(Debug)]
pub struct Few(pub Value);

impl<'de> Deserialize<'de> for Few {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        if has_more_values_than(FEW, raw.get()) {
            return Err(D::Error::custom(format!("more than {FEW} values")));
        }
        serde_json::from_str(raw.get())
            .map(Self)
            .map_err(D::Error::custom)
    }
}

/// The first entries of an object. The others are skipped.
#[derive(Debug)]
pub struct Entries<const MOST: usize, T>(pub Vec<(String, T)>);

impl<const MOST: usize, T> Default for Entries<MOST, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, const MOST: usize, T: Deserialize<'de>> Deserialize<'de> for Entries<MOST, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<const MOST: usize, T>(PhantomData<T>);
        impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for Object<MOST, T> {
            type Value = Vec<(String, T)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while entries.len() < MOST
                    && let Some(entry) = map.next_entry()?
                {
                    entries.push(entry);
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(entries)
            }
        }
        let entries = deserializer.deserialize_map(Object::<MOST, T>(PhantomData))?;
        Ok(Self(entries))
    }
}

/// An optional value. A value of another type counts as missing, however large it is.
#[derive(Debug)]
pub struct Loose<T>(pub Option<T>);

impl<T> Default for Loose<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Loose<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        match serde_json::from_str(raw.get()) {
            Ok(value) => Ok(Self(Some(value))),
            Err(error) if error.is_data() => Ok(Self(None)),
            // Such as half of a character, which is mended.
            Err(error) => Err(D::Error::custom(error)),
        }
    }
}

/// A job's id, or something that names no job.
#[derive(Debug, Default)]
pub struct LooseId(pub Option<JobId>);

impl<'de> Deserialize<'de> for LooseId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Id;
        impl Visitor<'_> for Id {
            type Value = LooseId;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a job id")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<LooseId, E> {
                Ok(LooseId(Uuid::try_parse(text).ok().map(JobId)))
            }

            fn visit_unit<E: Error>(self) -> Result<LooseId, E> {
                Ok(LooseId(None))
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<LooseId, E> {
                Ok(LooseId(None))
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<LooseId, E> {
                Ok(LooseId(None))
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<LooseId, E> {
                Ok(LooseId(None))
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<LooseId, E> {
                Ok(LooseId(None))
            }
        }
        deserializer.deserialize_any(Id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use serde_json::{Value, json};

    use super::{Entries, Few, Loose, has_more_values_than};

    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(list) => list.iter().map(count).sum(),
            Value::Object(map) => map.values().map(count).sum(),
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn values_are_never_counted_too_low(texts in proptest::collection::vec(any::<String>(), 0..6)) {
            let value = json!({"a": texts, "b": [[], {}, {"c": texts}], "d": null});
            let text = value.to_string();
            assert!(has_more_values_than(count(&value) - 1, &text));
            assert!(!has_more_values_than(2 * count(&value), &text));
        }
    }

    #[test]
    fn a_value_of_another_kind_is_skipped_and_one_that_is_none_is_not() {
        let read = |text: &str| serde_json::from_str::<Loose<String>>(text).map(|it| it.0);
        assert_eq!(read("\"a\"").unwrap().as_deref(), Some("a"));
        assert_eq!(read("[1, {\"a\": [2]}]").unwrap(), None);
        assert_eq!(read("null").unwrap(), None);
        assert!(read("\"\\ud83d\"").is_err());
        assert!(read("nul").is_err());
    }

    #[test]
    fn entries_beyond_the_most_are_skipped() {
        let text = r#"{"a":1,"b":2,"c":[3]}"#;
        let read: Entries<2, u32> = serde_json::from_str(text).unwrap();
        assert_eq!(read.0, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert!(
            serde_json::from_str::<Few>(
                &vec![0; 300]
                    .iter()
                    .map(|it| json!(it))
                    .collect::<Value>()
                    .to_string()
            )
            .is_err()
        );
    }
}
