//! The key-value part of a GGUF file.

use std::collections::HashMap;

use super::{MAX_ALL_TEXT_BYTES, MAX_DEPTH, MAX_LISTED, MAX_NAME_BYTES, MAX_TEXT_BYTES};
use crate::networks::weights::{cursor::Cursor, error::Flaw};

/// A value of the file's metadata. All widths of a number read as one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum GgufValue {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<GgufValue>),
}

/// The metadata of a GGUF file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GgufMetadata {
    values: HashMap<String, GgufValue>,
}

impl GgufMetadata {
    pub fn value(&self, key: &str) -> Option<&GgufValue> {
        self.values.get(key)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            GgufValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn unsigned(&self, key: &str) -> Option<u64> {
        self.value(key)?.unsigned()
    }

    pub fn float(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            GgufValue::Float(float) => Some(*float),
            _ => None,
        }
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            GgufValue::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    pub fn list(&self, key: &str) -> Option<&[GgufValue]> {
        match self.value(key)? {
            GgufValue::List(list) => Some(list),
            _ => None,
        }
    }

    /// A list of texts, such as the vocabulary; `None` if it contains other values.
    pub fn texts(&self, key: &str) -> Option<Vec<&str>> {
        self.list(key)?.iter().map(GgufValue::text).collect()
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    pub(super) fn insert(&mut self, key: String, value: GgufValue) -> Result<(), Flaw> {
        if self.values.contains_key(&key) {
            let what = format!("the metadata key {key:?}");
            return Err(Flaw::broken(what, "twice", "once"));
        }
        self.values.insert(key, value);
        Ok(())
    }
}

impl GgufValue {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Unsigned(number) => Some(*number),
            Self::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }
}

pub fn read_metadata(cursor: &mut Cursor<'_>, count: usize) -> Result<GgufMetadata, Flaw> {
    let mut metadata = GgufMetadata::default();
    let mut reader = ValueReader::default();
    for _ in 0..count {
        let key = read_name(cursor, "a metadata key")?;
        let kind = cursor.u32("the type of a metadata value")?;
        let value = reader.value(cursor, kind, &key, 0)?;
        metadata.insert(key, value)?;
    }
    Ok(metadata)
}

pub fn read_name(cursor: &mut Cursor<'_>, what: &str) -> Result<String, Flaw> {
    let bytes = cursor.string(MAX_NAME_BYTES, what)?;
    match std::str::from_utf8(bytes) {
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err(Flaw::broken(what, "invalid bytes", "UTF-8")),
    }
}

/// Counts the elements of all lists and the bytes of all texts while reading, so that a file cannot allocate more
/// memory than a few times its size.
#[derive(Default)]
struct ValueReader {
    listed: usize,
    text_bytes: usize,
}

impl ValueReader {
    fn value(
        &mut self,
        cursor: &mut Cursor<'_>,
        kind: u32,
        key: &str,
        depth: usize,
    ) -> Result<GgufValue, Flaw> {
        let what = key;
        Ok(match kind {
            0 => GgufValue::Unsigned(u8::from_le_bytes(cursor.array(what)?).into()),
            1 => GgufValue::Signed(i8::from_le_bytes(cursor.array(what)?).into()),
            2 => GgufValue::Unsigned(u16::from_le_bytes(cursor.array(what)?).into()),
            3 => GgufValue::Signed(i16::from_le_bytes(cursor.array(what)?).into()),
            4 => GgufValue::Unsigned(cursor.u32(what)?.into()),
            5 => GgufValue::Signed(i32::from_le_bytes(cursor.array(what)?).into()),
            6 => GgufValue::Float(f32::from_le_bytes(cursor.array(what)?).into()),
            7 => GgufValue::Bool(cursor.array::<1>(what)?[0] != 0),
            8 => GgufValue::Text(self.text(cursor, key)?),
            9 => self.list(cursor, key, depth)?,
            10 => GgufValue::Unsigned(cursor.u64(what)?),
            11 => GgufValue::Signed(i64::from_le_bytes(cursor.array(what)?)),
            12 => GgufValue::Float(f64::from_le_bytes(cursor.array(what)?)),
            _ => return Err(unknown_kind(key, kind)),
        })
    }

    fn text(&mut self, cursor: &mut Cursor<'_>, key: &str) -> Result<String, Flaw> {
        let text = read_text(cursor, key)?;
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        if self.text_bytes > MAX_ALL_TEXT_BYTES {
            let wanted = format!("at most {MAX_ALL_TEXT_BYTES} in all strings of the file");
            let found = format!("{} bytes", self.text_bytes);
            return Err(Flaw::broken(key, found, wanted));
        }
        Ok(text)
    }

    fn list(
        &mut self,
        cursor: &mut Cursor<'_>,
        key: &str,
        depth: usize,
    ) -> Result<GgufValue, Flaw> {
        if depth == MAX_DEPTH {
            let wanted = format!("at most {MAX_DEPTH} nested lists");
            return Err(Flaw::broken(key, "more", wanted));
        }
        let kind = cursor.u32(key)?;
        let least_bytes = least_bytes(kind).ok_or_else(|| unknown_kind(key, kind))?;
        let count = cursor.count(least_bytes, key)?;
        self.listed = self.listed.saturating_add(count);
        if self.listed > MAX_LISTED {
            let wanted = format!("at most {MAX_LISTED} in all lists of the file");
            return Err(Flaw::broken(
                key,
                format!("{} elements", self.listed),
                wanted,
            ));
        }
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(self.value(cursor, kind, key, depth + 1)?);
        }
        Ok(GgufValue::List(list))
    }
}

/// Some converters wrote vocabularies with invalid UTF-8, which becomes replacement characters.
fn read_text(cursor: &mut Cursor<'_>, key: &str) -> Result<String, Flaw> {
    let bytes = cursor.string(MAX_TEXT_BYTES, key)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn least_bytes(kind: u32) -> Option<u64> {
    Some(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        _ => return None,
    })
}

fn unknown_kind(key: &str, kind: u32) -> Flaw {
    let what = format!("the type of the metadata value {key:?}");
    Flaw::broken(what, kind, "a number from 0 to 12")
}
