//! Textual inversions: vectors of a file that replace a word of a prompt.

use std::path::Path;
use std::sync::Arc;

use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, TensorHeader, TensorType, convert,
};

/// The vectors of a file, for each text encoder of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct InversionVectors(Vec<Vec<Arc<[f32]>>>);

/// Names of the tensor in files for models with one encoder. Others name the word.
const XL_NAMES: [&str; 2] = ["clip_l", "clip_g"];
const MOST_VECTORS: usize = 75;

impl InversionVectors {
    /// `widths` are those of the model's text encoders.
    pub fn read(path: &Path, widths: &[usize]) -> Result<Self, CheckpointError> {
        let checkpoint = Checkpoint::open_tensors(path)?;
        let read = || {
            let headers = checkpoint.tensors();
            let found: Vec<&TensorHeader> = match widths.len() {
                1 if headers.len() == 1 => headers.iter().collect(),
                2 => {
                    let named = XL_NAMES.iter().filter_map(|name| checkpoint.tensor(name));
                    named.collect()
                }
                _ => Vec::new(),
            };
            if found.len() != widths.len() || headers.len() != widths.len() {
                let found = headers.iter().map(|it| it.name.as_str());
                let found = found.collect::<Vec<_>>().join(", ");
                let wanted = format!("vectors for {} text encoders", widths.len());
                return Err(Flaw::broken("the tensors", found, wanted));
            }
            let vectors = found.into_iter().zip(widths);
            let vectors = vectors.map(|(header, width)| vectors_of(&checkpoint, header, *width));
            let vectors = vectors.collect::<Result<Vec<_>, Flaw>>()?;
            let counts: Vec<usize> = vectors.iter().map(Vec::len).collect();
            match counts.iter().all(|&it| it == counts[0]) {
                true => Ok(Self(vectors)),
                false => Err(Flaw::broken(
                    "the vectors",
                    format!("{counts:?}"),
                    "one count",
                )),
            }
        };
        read().map_err(|flaw| flaw.in_file(path))
    }

    pub fn memory_bytes(&self) -> u64 {
        let rows = self.0.iter().flatten();
        rows.map(|row| 4 * row.len() as u64).sum()
    }

    pub fn for_encoder(&self, index: usize) -> &[Arc<[f32]>] {
        self.0.get(index).map_or(&[], Vec::as_slice)
    }
}

fn vectors_of(
    checkpoint: &Checkpoint,
    header: &TensorHeader,
    width: usize,
) -> Result<Vec<Arc<[f32]>>, Flaw> {
    let what = || format!("the tensor {:?}", header.name);
    let count = match header.shape.as_slice() {
        &[count, columns] if columns == width => count,
        &[columns] if columns == width => 1,
        other => {
            let wanted = format!("rows of {width}, as this base model has");
            return Err(Flaw::broken(what(), format!("{other:?}"), wanted));
        }
    };
    if count == 0 || count > MOST_VECTORS {
        let wanted = format!("1 to {MOST_VECTORS}");
        return Err(Flaw::broken(what(), format!("{count} vectors"), wanted));
    }
    let TensorType::Weight(dtype) = header.dtype else {
        return Err(Flaw::unsupported(what(), header.dtype, "f32, f16 and bf16"));
    };
    let numbers = convert::floats(dtype, &checkpoint.bytes(header))?;
    if let Some(odd) = numbers.iter().find(|number| !number.is_finite()) {
        return Err(Flaw::broken(what(), odd, "finite numbers"));
    }
    Ok(numbers.chunks_exact(width).map(Arc::from).collect())
}
