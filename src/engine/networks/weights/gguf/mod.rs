//! GGUF files, versions 2 and 3: metadata, tensor headers, and a writer for both.
//!
//! The reader trusts nothing in the mapped file: every count is checked against the remaining bytes before memory is
//! allocated.

mod file_type;
mod metadata;
mod writer;

use candle_core::quantized::GgmlDType;

pub use self::{
    file_type::file_type_name,
    metadata::{GgufMetadata, GgufValue},
    writer::GgufWriter,
};
use super::{
    cursor::Cursor,
    error::Flaw,
    header::{Claim, TensorHeader, TensorType, check_claims},
    iq::IqType,
};

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;
/// One more than in ggml: programs for images and videos also write kernels with a frame axis.
const MAX_DIMS: u32 = 5;
/// Before the name of a tensor, the key of the shape that it had before it was quantized in rows of another length.
const OWN_SHAPE: &str = "comfy.gguf.orig_shape.";
const MAX_NAME_BYTES: u64 = 1 << 10;
/// The longest texts of real files are chat templates of some tens of kilobytes.
const MAX_TEXT_BYTES: u64 = 1 << 24;
/// All texts together: four times the largest vocabulary with its merges.
const MAX_ALL_TEXT_BYTES: usize = 1 << 26;
/// Real files have some dozens of metadata values.
const MAX_VALUES: usize = 1 << 14;
/// Elements of all lists together: four times the largest vocabulary with its scores, types and merges.
const MAX_LISTED: usize = 1 << 22;
const MAX_DEPTH: usize = 4;

/// The content of a GGUF file.
#[derive(Debug)]
pub struct Gguf {
    pub metadata: GgufMetadata,
    pub tensors: Vec<TensorHeader>,
}

pub fn parse(file: &[u8]) -> Result<Gguf, Flaw> {
    let mut cursor = Cursor::new(file);
    check_magic(&mut cursor)?;
    let tensor_count = cursor.count(24, "the number of tensors")?;
    let value_count = cursor.count(13, "the number of metadata values")?;
    if value_count > MAX_VALUES {
        let wanted = format!("at most {MAX_VALUES}");
        return Err(Flaw::broken(
            "the number of metadata values",
            value_count,
            wanted,
        ));
    }
    let metadata = metadata::read_metadata(&mut cursor, value_count)?;
    check_whole(&metadata)?;
    let alignment = alignment(&metadata)?;
    // The count may be wrong: memory grows only with actual headers.
    let mut claims = Vec::with_capacity(tensor_count.min(4096));
    for _ in 0..tensor_count {
        let claim = read_claim(&mut cursor, alignment)?;
        claims.push(with_own_shape(claim, &metadata)?);
    }
    let data_start = (cursor.position() as u64).next_multiple_of(alignment);
    let tensors = check_claims(claims, data_start, file.len() as u64)?;
    Ok(Gguf { metadata, tensors })
}

fn check_magic(cursor: &mut Cursor<'_>) -> Result<(), Flaw> {
    let magic = cursor.take(4, "the first four bytes")?;
    if magic != MAGIC {
        let found = String::from_utf8_lossy(magic).into_owned();
        return Err(Flaw::broken(
            "the first four bytes",
            format!("{found:?}"),
            "\"GGUF\"",
        ));
    }
    match cursor.u32("the version")? {
        2 | 3 => Ok(()),
        version if matches!(version.swap_bytes(), 1..=3) => Err(Flaw::unsupported(
            "the byte order",
            "a big-endian GGUF file",
            "little-endian files",
        )),
        version => Err(Flaw::unsupported("the GGUF version", version, "2 and 3")),
    }
}

fn check_whole(metadata: &GgufMetadata) -> Result<(), Flaw> {
    match metadata.unsigned("split.count") {
        Some(parts) if parts > 1 => Err(Flaw::unsupported(
            "split.count",
            format!("one part of a model split into {parts} files"),
            "models in one file (merge the parts with llama.cpp's gguf-split --merge)",
        )),
        _ => Ok(()),
    }
}

fn alignment(metadata: &GgufMetadata) -> Result<u64, Flaw> {
    let Some(value) = metadata.value("general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match value.unsigned() {
        Some(alignment @ 8..=MAX_ALIGNMENT) if alignment.is_power_of_two() => Ok(alignment),
        _ => Err(Flaw::broken(
            "general.alignment",
            format!("{value:?}"),
            format!("a power of two from 8 to {MAX_ALIGNMENT}"),
        )),
    }
}

fn read_claim(cursor: &mut Cursor<'_>, alignment: u64) -> Result<Claim, Flaw> {
    let name = metadata::read_name(cursor, "the name of a tensor")?;
    let what = format!("the tensor {name:?}");
    let dims = cursor.u32(&what)?;
    if !(1..=MAX_DIMS).contains(&dims) {
        let wanted = format!("1 to {MAX_DIMS}");
        return Err(Flaw::broken(what, format!("{dims} dimensions"), wanted));
    }
    let mut shape = Vec::with_capacity(dims as usize);
    for _ in 0..dims {
        let dim = cursor.u64(&what)?;
        let fits = usize::try_from(dim).ok().filter(|&dim| dim > 0);
        shape.push(fits.ok_or_else(|| {
            Flaw::broken(
                &what,
                format!("dimension {dim}"),
                "a positive size that fits in memory",
            )
        })?);
    }
    shape.reverse();
    let number = cursor.u32(&what)?;
    let converted_from = IqType::numbered(number);
    let dtype = match converted_from {
        Some(_) => TensorType::Weight(GgmlDType::Q8_0),
        None => tensor_type(number, &what)?,
    };
    let start = cursor.u64(&what)?;
    if !start.is_multiple_of(alignment) {
        let found = format!("offset {start}");
        return Err(Flaw::broken(
            what,
            found,
            format!("a multiple of {alignment}"),
        ));
    }
    Ok(Claim {
        name,
        shape,
        dtype,
        converted_from,
        start,
    })
}

fn with_own_shape(claim: Claim, metadata: &GgufMetadata) -> Result<Claim, Flaw> {
    let Some(list) = metadata.list(&format!("{OWN_SHAPE}{}", claim.name)) else {
        return Ok(claim);
    };
    let side = |value: &GgufValue| value.unsigned().and_then(|side| usize::try_from(side).ok());
    let shape: Option<Vec<usize>> = list.iter().map(side).collect();
    let count = |shape: &[usize]| shape.iter().try_fold(1_usize, |a, b| a.checked_mul(*b));
    match shape.filter(|shape| count(shape) == count(&claim.shape)) {
        Some(shape) => Ok(Claim { shape, ..claim }),
        None => Err(Flaw::broken(
            format!("{OWN_SHAPE}{}", claim.name),
            format!("{list:?}"),
            format!("a shape of as many numbers as {:?}", claim.shape),
        )),
    }
}

/// The numbers by which files name their tensor types.
const WEIGHT_TYPES: &[(u32, GgmlDType)] = &[
    (0, GgmlDType::F32),
    (1, GgmlDType::F16),
    (2, GgmlDType::Q4_0),
    (3, GgmlDType::Q4_1),
    (6, GgmlDType::Q5_0),
    (7, GgmlDType::Q5_1),
    (8, GgmlDType::Q8_0),
    (10, GgmlDType::Q2K),
    (11, GgmlDType::Q3K),
    (12, GgmlDType::Q4K),
    (13, GgmlDType::Q5K),
    (14, GgmlDType::Q6K),
    (30, GgmlDType::BF16),
];

const OTHER_TYPES: &[(u32, &str, usize)] = &[
    (24, "I8", 1),
    (25, "I16", 2),
    (26, "I32", 4),
    (27, "I64", 8),
    (28, "F64", 8),
];

/// Known types without support, so that refusals can name them.
const STRANGE_TYPES: &[(u32, &str)] = &[
    (9, "Q8_1"),
    (15, "Q8_K"),
    (19, "IQ1_S"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
];

const MXFP4: u32 = 39;

pub fn tensor_type(number: u32, what: &str) -> Result<TensorType, Flaw> {
    if number == MXFP4 {
        return Ok(TensorType::MxFp4);
    }
    if let Some(&(_, dtype)) = WEIGHT_TYPES.iter().find(|entry| entry.0 == number) {
        return Ok(TensorType::Weight(dtype));
    }
    if let Some(&(_, name, size_bytes)) = OTHER_TYPES.iter().find(|entry| entry.0 == number) {
        return Ok(TensorType::Other { name, size_bytes });
    }
    let name = STRANGE_TYPES.iter().find(|entry| entry.0 == number);
    let found = match name {
        Some((_, name)) => format!("type {name}"),
        None => format!("unknown type {number}"),
    };
    Err(Flaw::unsupported(
        what,
        found,
        "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ2 to IQ4 and MXFP4",
    ))
}

fn type_number(dtype: TensorType) -> u32 {
    let entry = match dtype {
        TensorType::MxFp4 => return MXFP4,
        TensorType::Weight(dtype) => WEIGHT_TYPES.iter().find(|entry| entry.1 == dtype),
        TensorType::Other { .. } => None,
    };
    entry.map_or(0, |entry| entry.0)
}

#[cfg(test)]
mod tests;
