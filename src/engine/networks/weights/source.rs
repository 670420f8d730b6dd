//! Sources of a decoder's tensors: a checkpoint, or random numbers for a benchmark.

use std::path::Path;

use candle_core::quantized::GgmlDType;

use super::{Checkpoint, Flaw, TensorBytes, TensorHeader, TensorType};

pub trait TensorSource {
    /// The path for errors.
    fn path(&self) -> &Path;
    fn headers(&self) -> &[TensorHeader];
    fn header(&self, name: &str) -> Option<&TensorHeader>;
    fn bytes(&self, header: &TensorHeader) -> TensorBytes;

    /// A tensor that must be there, in one of these shapes and of a type that weights can have. `known` names the types
    /// that the caller takes.
    fn weight(
        &self,
        name: &str,
        shapes: &[&[usize]],
        known: &str,
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        let what = || format!("the tensor {name:?}");
        let wanted = || {
            let shapes = shapes.iter().map(|shape| format!("{shape:?}"));
            shapes.collect::<Vec<_>>().join(" or ")
        };
        let Some(header) = self.header(name) else {
            return Err(Flaw::broken(
                what(),
                "nothing",
                format!("shape {}", wanted()),
            ));
        };
        if !shapes.contains(&header.shape.as_slice()) {
            return Err(Flaw::broken(
                what(),
                format!("{:?}", header.shape),
                wanted(),
            ));
        }
        let TensorType::Weight(dtype) = header.dtype else {
            return Err(Flaw::unsupported(what(), header.dtype, known));
        };
        Ok((header.clone(), dtype, self.bytes(header)))
    }
}

impl TensorSource for Checkpoint {
    fn path(&self) -> &Path {
        self.path()
    }

    fn headers(&self) -> &[TensorHeader] {
        self.tensors()
    }

    fn header(&self, name: &str) -> Option<&TensorHeader> {
        self.tensor(name)
    }

    fn bytes(&self, header: &TensorHeader) -> TensorBytes {
        self.bytes(header)
    }
}
