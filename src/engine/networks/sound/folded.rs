//! The tensors of a published file under plain names, with weight normalization folded: lengths and directions are
//! multiplied.

use std::collections::HashMap;
use std::path::Path;

use candle_core::quantized::GgmlDType;

use crate::networks::blocks::KNOWN_TYPES;
use crate::networks::weights::{
    Flaw, TensorBytes, TensorHeader, TensorSource, TensorType, tensor_floats,
};

/// Ends of the names of lengths and directions, in both of PyTorch's forms.
const LENGTHS: [&str; 2] = [".weight_g", ".parametrizations.weight.original0"];
const DIRECTIONS: [&str; 2] = [".weight_v", ".parametrizations.weight.original1"];

pub(super) struct FoldedTensors<'a> {
    source: &'a dyn TensorSource,
    headers: Vec<TensorHeader>,
    pieces: HashMap<String, (usize, FoldedPiece)>,
}

/// The source of a tensor.
enum FoldedPiece {
    Whole(TensorHeader),
    Product {
        length: TensorHeader,
        direction: TensorHeader,
    },
}

impl<'a> FoldedTensors<'a> {
    /// `plain` converts names of the file to those of the network.
    pub fn new(source: &'a dyn TensorSource, plain: impl Fn(&str) -> String) -> Result<Self, Flaw> {
        let mut view = Self {
            source,
            headers: Vec::new(),
            pieces: HashMap::new(),
        };
        let mut lengths: HashMap<String, TensorHeader> = HashMap::new();
        for header in source.headers() {
            let name = plain(&header.name);
            if let Some(stem) = stem(&name, &LENGTHS) {
                lengths.insert(format!("{stem}.weight"), header.clone());
            }
        }
        for header in source.headers() {
            let name = plain(&header.name);
            if stem(&name, &LENGTHS).is_some() {
                continue;
            }
            let Some(stem) = stem(&name, &DIRECTIONS) else {
                view.add(name, header, FoldedPiece::Whole(header.clone()))?;
                continue;
            };
            let name = format!("{stem}.weight");
            let Some(length) = lengths.remove(&name) else {
                let what = format!("the tensor {:?}", header.name);
                let found = "a direction without a length";
                return Err(Flaw::broken(what, found, format!("{stem}.weight_g")));
            };
            let rows = header.shape.first().copied().unwrap_or(0);
            if length.elements() != rows as u64 || rows == 0 {
                let what = format!("the tensor {:?}", length.name);
                let found = format!("{:?}", length.shape);
                return Err(Flaw::broken(what, found, format!("{rows} lengths")));
            }
            let product = FoldedPiece::Product {
                length,
                direction: header.clone(),
            };
            view.add(name, header, product)?;
        }
        match lengths.into_values().map(|header| header.name).min() {
            None => Ok(view),
            Some(name) => Err(Flaw::broken(
                format!("the tensor {name:?}"),
                "a length without a direction",
                "both",
            )),
        }
    }

    fn add(&mut self, name: String, like: &TensorHeader, piece: FoldedPiece) -> Result<(), Flaw> {
        let dtype = match &piece {
            FoldedPiece::Whole(header) => header.dtype,
            FoldedPiece::Product { length, direction } => {
                numbers(length)?;
                numbers(direction)?;
                TensorType::Weight(GgmlDType::F32)
            }
        };
        let header = TensorHeader::described(name.clone(), like.shape.clone(), dtype);
        let at = self.headers.len();
        self.headers.push(header);
        match self.pieces.insert(name, (at, piece)) {
            None => Ok(()),
            Some(_) => {
                let what = format!("the tensor {:?}", like.name);
                Err(Flaw::broken(what, "two forms of one name", "one"))
            }
        }
    }

    /// The first dimension of a tensor, for sizes that no configuration states.
    pub fn rows(&self, name: &str) -> Result<usize, Flaw> {
        let rows = self
            .header(name)
            .and_then(|header| header.shape.first().copied());
        rows.filter(|rows| (1..=1 << 16).contains(rows))
            .ok_or_else(|| {
                let what = format!("the tensor {name:?}");
                Flaw::broken(what, "nothing", "the rows of a convolution")
            })
    }

    fn floats(&self, header: &TensorHeader) -> Option<Vec<f32>> {
        let dtype = numbers(header).ok()?;
        tensor_floats(dtype, &self.source.bytes(header)).ok()
    }
}

fn stem<'n>(name: &'n str, ends: &[&str]) -> Option<&'n str> {
    ends.iter().find_map(|end| name.strip_suffix(end))
}

/// The type of numbers, dense or in blocks.
fn numbers(header: &TensorHeader) -> Result<GgmlDType, Flaw> {
    match header.dtype {
        TensorType::Weight(dtype) => Ok(dtype),
        other => {
            let what = format!("the tensor {:?}", header.name);
            Err(Flaw::unsupported(what, other, KNOWN_TYPES))
        }
    }
}

impl TensorSource for FoldedTensors<'_> {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn headers(&self) -> &[TensorHeader] {
        &self.headers
    }

    fn header(&self, name: &str) -> Option<&TensorHeader> {
        let (at, _) = self.pieces.get(name)?;
        self.headers.get(*at)
    }

    fn bytes(&self, header: &TensorHeader) -> TensorBytes {
        let nothing = || TensorBytes::Owned(Vec::new());
        let (length, direction) = match self.pieces.get(&header.name) {
            Some((_, FoldedPiece::Whole(header))) => return self.source.bytes(header),
            Some((_, FoldedPiece::Product { length, direction })) => (length, direction),
            None => return nothing(),
        };
        let (Some(lengths), Some(mut values)) = (self.floats(length), self.floats(direction))
        else {
            return nothing();
        };
        let columns = values.len() / lengths.len().max(1);
        for (row, length) in values.chunks_exact_mut(columns.max(1)).zip(lengths) {
            let squares = row
                .iter()
                .map(|value| f64::from(*value) * f64::from(*value));
            let factor = f64::from(length) / squares.sum::<f64>().sqrt();
            for value in row {
                *value = (f64::from(*value) * factor) as f32;
            }
        }
        TensorBytes::Owned(values.into_iter().flat_map(f32::to_le_bytes).collect())
    }
}
