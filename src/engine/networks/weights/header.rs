//! Tensor headers of a file, checked against its length.

use std::{collections::HashSet, fmt, ops::Range, sync::Arc};

use candle_core::quantized::GgmlDType;

use super::error::Flaw;
use super::iq::IqType;
use super::packed::{PackedMatrixParts, StoredRange};
use muster_kernels::WeightType;

/// A tensor in a checkpoint's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorHeader {
    pub name: String,
    /// Rows first, as everywhere in this program; a GGUF file lists the other way round.
    pub shape: Vec<usize>,
    pub dtype: TensorType,
    /// Size in the file, or after conversion.
    pub bytes: u64,
    /// The stored form, if it is converted to `dtype` when read.
    pub converted_from: Option<StoredForm>,
    /// Which of the checkpoint's files holds it, and where in that file.
    pub(super) file: usize,
    pub(super) range: Range<usize>,
}

/// The stored form of a tensor that is converted when read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredForm {
    Iq(IqType),
    Packed(Arc<PackedMatrixParts>),
}

impl TensorHeader {
    /// A matrix in place of the tensors that it is made of.
    pub fn packed(name: String, shape: Vec<usize>, parts: PackedMatrixParts) -> Self {
        let dtype = TensorType::Weight(parts.held());
        Self {
            converted_from: Some(StoredForm::Packed(Arc::new(parts))),
            ..Self::described(name, shape, dtype)
        }
    }

    pub fn place(&self) -> StoredRange {
        StoredRange {
            file: self.file,
            range: self.range.clone(),
        }
    }

    /// A tensor that no file holds.
    pub fn described(name: String, shape: Vec<usize>, dtype: TensorType) -> Self {
        Self {
            bytes: dtype.bytes_of(&shape).unwrap_or(0),
            name,
            shape,
            dtype,
            converted_from: None,
            file: 0,
            range: 0..0,
        }
    }

    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|&dim| dim as u64).product()
    }
}

/// How a tensor's numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorType {
    /// Something weights are made of, dense or in quantized blocks.
    Weight(GgmlDType),
    /// Blocks of four-bit floats that candle lacks, as GGUF stores them.
    MxFp4,
    /// Something else that files carry (positions, masks): known by name and size, never loaded.
    Other {
        name: &'static str,
        size_bytes: usize,
    },
}

impl TensorType {
    /// Numbers in the smallest piece that can be stored.
    pub fn block_size(self) -> usize {
        match self {
            Self::Weight(dtype) => dtype.block_size(),
            Self::MxFp4 => WeightType::MxFp4.block_size(),
            Self::Other { .. } => 1,
        }
    }

    pub fn block_bytes(self) -> usize {
        match self {
            Self::Weight(dtype) => dtype.type_size(),
            Self::MxFp4 => WeightType::MxFp4.type_size(),
            Self::Other { size_bytes, .. } => size_bytes,
        }
    }

    /// The bytes a tensor of this shape takes, when its rows are whole blocks and nothing overflows.
    pub fn bytes_of(self, shape: &[usize]) -> Option<u64> {
        let columns = shape.last().copied().unwrap_or(1);
        if !columns.is_multiple_of(self.block_size()) {
            return None;
        }
        let elements = shape
            .iter()
            .try_fold(1_u64, |product, &dim| product.checked_mul(dim as u64))?;
        (elements / self.block_size() as u64).checked_mul(self.block_bytes() as u64)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weight(dtype) => write!(f, "{dtype:?}"),
            Self::MxFp4 => f.write_str("MXFP4"),
            Self::Other { name, .. } => f.write_str(name),
        }
    }
}

impl From<GgmlDType> for TensorType {
    fn from(dtype: GgmlDType) -> Self {
        Self::Weight(dtype)
    }
}

/// An unchecked tensor header: its offset counts from the start of the file's data.
pub struct Claim {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: TensorType,
    /// For a tensor of this form, held as `dtype`.
    pub converted_from: Option<IqType>,
    pub start: u64,
}

/// Checks claims: whole blocks, within the file, unique names, no overlaps.
pub fn check_claims(
    claims: Vec<Claim>,
    data_start: u64,
    file_bytes: u64,
) -> Result<Vec<TensorHeader>, Flaw> {
    let mut names = HashSet::with_capacity(claims.len());
    for claim in &claims {
        if !names.insert(claim.name.as_str()) {
            let what = format!("the tensor {:?}", claim.name);
            return Err(Flaw::broken(what, "twice", "once"));
        }
    }
    let headers = claims
        .into_iter()
        .map(|claim| placed(claim, data_start, file_bytes))
        .collect::<Result<Vec<_>, _>>()?;
    check_overlap(&headers)?;
    Ok(headers)
}

fn placed(claim: Claim, data_start: u64, file_bytes: u64) -> Result<TensorHeader, Flaw> {
    let what = || format!("the tensor {:?}", claim.name);
    let held = claim.dtype.bytes_of(&claim.shape);
    let stored = match claim.converted_from {
        Some(iq) => iq.bytes_of(&claim.shape),
        None => held,
    };
    let (Some(held), Some(bytes)) = (held, stored) else {
        let (name, block) = match claim.converted_from {
            Some(iq) => (iq.name().to_owned(), iq.block_size()),
            None => (claim.dtype.to_string(), claim.dtype.block_size()),
        };
        let wanted = format!("a row length in multiples of {block}");
        let found = format!("{name} of shape {:?}", claim.shape);
        return Err(Flaw::broken(what(), found, wanted));
    };
    let start = data_start.checked_add(claim.start);
    let end = start.and_then(|start| start.checked_add(bytes));
    let (Some(start), Some(end)) = (start, end.filter(|&end| end <= file_bytes)) else {
        let found = format!("{bytes} bytes at offset {}", claim.start);
        let wanted = format!(
            "data within the {} bytes after the header; the file is cut off, download it again",
            file_bytes.saturating_sub(data_start)
        );
        return Err(Flaw::broken(what(), found, wanted));
    };
    Ok(TensorHeader {
        // The file is mapped, so every offset inside it fits a usize.
        range: start as usize..end as usize,
        name: claim.name,
        shape: claim.shape,
        dtype: claim.dtype,
        bytes: held,
        converted_from: claim.converted_from.map(StoredForm::Iq),
        file: 0,
    })
}

fn check_overlap(headers: &[TensorHeader]) -> Result<(), Flaw> {
    let mut in_order: Vec<&TensorHeader> = headers.iter().collect();
    in_order.sort_by_key(|header| header.range.start);
    for pair in in_order.windows(2) {
        if pair[0].range.end > pair[1].range.start {
            return Err(Flaw::broken(
                format!("the tensor {:?}", pair[1].name),
                format!("data that overlaps {:?}", pair[0].name),
                "no overlap",
            ));
        }
    }
    Ok(())
}
