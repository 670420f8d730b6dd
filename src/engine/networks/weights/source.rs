//! Where a decoder's tensors come from: a checkpoint, or thin air for a benchmark.

use std::path::Path;

use super::{Checkpoint, TensorBytes, TensorHeader};

pub trait TensorSource {
    /// What errors name.
    fn path(&self) -> &Path;
    fn headers(&self) -> &[TensorHeader];
    fn header(&self, name: &str) -> Option<&TensorHeader>;
    fn bytes(&self, header: &TensorHeader) -> TensorBytes;
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
