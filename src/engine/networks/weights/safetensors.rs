//! The header of a safetensors file: JSON that names each tensor, its type, shape and place.

use std::collections::BTreeMap;
use std::fmt;

use candle_core::quantized::GgmlDType;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};

use super::{
    cursor::Cursor,
    error::Flaw,
    header::{Claim, TensorHeader, TensorType, check_claims},
};

/// A tensor's entry takes about 100 bytes, so this is enough for some hundred thousand tensors.
const MAX_HEADER_BYTES: u64 = 1 << 25;
const MAX_DIMS: usize = 8;

/// Text metadata of a file, by name.
pub type Metadata = BTreeMap<String, String>;

pub fn parse(file: &[u8]) -> Result<Vec<TensorHeader>, Flaw> {
    Ok(parse_all(file)?.0)
}

/// The names of the tensors, even if the file is truncated after its header.
pub fn names(file: &[u8]) -> Result<Vec<String>, Flaw> {
    let mut cursor = Cursor::new(file);
    let json = cursor.string(MAX_HEADER_BYTES, "the header")?;
    let entries: Entries = serde_json::from_slice(json)
        .map_err(|error| Flaw::broken("the header", error, "a JSON object of tensors"))?;
    Ok(entries.tensors.into_iter().map(|(name, _)| name).collect())
}

/// Tensors and metadata.
pub fn parse_all(file: &[u8]) -> Result<(Vec<TensorHeader>, Metadata), Flaw> {
    let mut cursor = Cursor::new(file);
    let json = cursor.string(MAX_HEADER_BYTES, "the header")?;
    let data_start = cursor.position() as u64;
    let entries: Entries = serde_json::from_slice(json)
        .map_err(|error| Flaw::broken("the header", error, "a JSON object of tensors"))?;
    let claims = entries
        .tensors
        .into_iter()
        .map(|(name, entry)| entry.claim(name))
        .collect::<Result<Vec<_>, _>>()?;
    let tensors = check_claims(claims, data_start, file.len() as u64)?;
    Ok((tensors, entries.metadata))
}

/// The header's object in its own order; a map would hide a duplicate name.
#[derive(Default)]
struct Entries {
    tensors: Vec<(String, Entry)>,
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Shape,
    data_offsets: [u64; 2],
}

impl Entry {
    fn claim(self, name: String) -> Result<Claim, Flaw> {
        let what = format!("the tensor {name:?}");
        let dtype = tensor_type(&self.dtype, &what)?;
        let [start, end] = self.data_offsets;
        let bytes = dtype.bytes_of(&self.shape.0);
        if end.checked_sub(start) != bytes || bytes.is_none() {
            let found = format!("data from {start} to {end}");
            let wanted = match bytes {
                Some(bytes) => format!("{bytes} bytes for {dtype} of shape {:?}", self.shape.0),
                None => format!("a shape that fits in memory, not {:?}", self.shape.0),
            };
            return Err(Flaw::broken(what, found, wanted));
        }
        Ok(Claim {
            name,
            shape: self.shape.0,
            dtype,
            converted_from: None,
            start,
        })
    }
}

fn tensor_type(name: &str, what: &str) -> Result<TensorType, Flaw> {
    let other = |name, size_bytes| TensorType::Other { name, size_bytes };
    Ok(match name {
        "F32" => TensorType::Weight(GgmlDType::F32),
        "F16" => TensorType::Weight(GgmlDType::F16),
        "BF16" => TensorType::Weight(GgmlDType::BF16),
        "F64" => other("F64", 8),
        "I64" => other("I64", 8),
        "U64" => other("U64", 8),
        "I32" => other("I32", 4),
        "U32" => other("U32", 4),
        "I16" => other("I16", 2),
        "U16" => other("U16", 2),
        "I8" => other("I8", 1),
        "U8" => other("U8", 1),
        "BOOL" => other("BOOL", 1),
        "F8_E4M3" => other("F8_E4M3", 1),
        "F8_E5M2" => other("F8_E5M2", 1),
        found => {
            let known = "F32, F16 and BF16 weights, and integers beside them";
            return Err(Flaw::unsupported(what, found, known));
        }
    })
}

struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_DIMS} dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut shape = Vec::new();
        while let Some(dim) = seq.next_element()? {
            if shape.len() == MAX_DIMS {
                return Err(A::Error::invalid_length(MAX_DIMS + 1, &self));
            }
            shape.push(dim);
        }
        Ok(Shape(shape))
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Entries::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                entries.metadata = map.next_value()?;
            } else {
                entries.tensors.push((name, map.next_value()?));
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A file with this header and this many bytes of data.
    pub fn file(header: &str, data_bytes: usize) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.resize(file.len() + data_bytes, 0);
        file
    }

    fn check(header: &str, data_bytes: usize, expected: &str) {
        let flaw = parse(&file(header, data_bytes)).unwrap_err();
        let found = flaw
            .in_file(std::path::Path::new("m.safetensors"))
            .to_string();
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn a_header_says_where_its_tensors_are() {
        let header = r#"{"__metadata__":{"format":"pt"},
            "a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},
            "b":{"dtype":"I64","shape":[],"data_offsets":[12,20]}}"#;
        let headers = parse(&file(header, 20)).unwrap();
        assert_eq!(headers[0].shape, [2, 3]);
        assert_eq!(headers[0].bytes, 12);
        assert_eq!(headers[0].range.start, 8 + header.len());
        assert_eq!(headers[1].dtype.to_string(), "I64");
    }

    #[test]
    fn lying_headers_are_refused_before_memory_is_asked_for() {
        let one = |dtype, shape, place, data_bytes, expected| {
            let tensor = format!(r#""dtype":"{dtype}","shape":{shape},"data_offsets":{place}"#);
            check(&format!(r#"{{"a":{{{tensor}}}}}"#), data_bytes, expected);
        };
        one("F32", "[2]", "[0,8]", 4, "data within the 4 bytes");
        one("F32", "[2]", "[0,4]", 8, "8 bytes for F32 of shape [2]");
        one("F32", "[2]", "[8,0]", 8, "data from 8 to 0");
        let vast = "[4294967296,4294967296]";
        one("F32", vast, "[0,8]", 8, "a shape that fits in memory");
        let deep = "[1,1,1,1,1,1,1,1,1]";
        one("F32", deep, "[0,4]", 4, "at most 8 dimensions");
        one("Q9", "[2]", "[0,8]", 8, "found Q9");
        check(
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                "b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}"#,
            8,
            "data that overlaps \"a\"",
        );
        check(
            r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                "a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}"#,
            8,
            "found twice",
        );
        check(&"[".repeat(100_000), 0, "expected a JSON object of tensors");
        check(
            &format!(r#"{{"__metadata__":{}"#, r#"{"a":"#.repeat(100_000)),
            0,
            "expected a JSON object of tensors",
        );
        let mut huge = file("{}", 0);
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(parse(&huge).is_err());
    }

    #[test]
    fn a_truncated_file_is_refused_wherever_it_ends() {
        let header = r#"{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}"#;
        let file = file(header, 32);
        assert!(parse(&file).is_ok());
        for length in 0..file.len() {
            assert!(
                parse(&file[..length]).is_err(),
                "{length} of {}",
                file.len()
            );
        }
    }
}
