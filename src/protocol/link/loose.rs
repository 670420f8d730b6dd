//! How frames of strangers are read: no list is longer than its limit, an identity that is none names nothing, and
//! what only adds to a frame does not spoil it.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use uuid::Uuid;

use super::FrameError;
use crate::protocol::job::JobId;

/// Reads one object. What serde takes for a structure besides, an array, is none here.
pub fn read<T: DeserializeOwned>(kind: &'static str, text: &str) -> Result<T, FrameError> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(FrameError::NotAnObject);
    }
    serde_json::from_str(text).map_err(|error| FrameError::from_json(kind, &error))
}

/// A list of at most so many.
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

/// Something that may be there. What is of another kind is as good as not there.
#[derive(Debug)]
pub struct Loose<T>(pub Option<T>);

impl<T> Default for Loose<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Loose<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(Self(T::deserialize(value).ok()))
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
                formatter.write_str("a job's id")
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
