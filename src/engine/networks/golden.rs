//! Results of a reference implementation, which tests of networks are held to, and the weights that they were made with.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::blocks::{ComponentSource, Layout};
use super::test_device::device;
use super::weights::{Checkpoint, Description, Quantize};

pub fn fixtures() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures")
}

/// A file of tensors of f32.
pub struct GoldenTensors(Vec<u8>);

impl GoldenTensors {
    /// The file's path is below the fixtures.
    pub fn open(path: impl AsRef<Path>) -> Self {
        Self(std::fs::read(fixtures().join(path)).unwrap())
    }

    pub fn tensor(&self, name: &str) -> Tensor {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap();
        assert_eq!(view.dtype(), Dtype::F32, "{name}");
        Tensor::from_raw_buffer(view.data(), DType::F32, view.shape(), device()).unwrap()
    }

    pub fn numbers(&self, name: &str) -> Vec<f32> {
        self.tensor(name).flatten_all().unwrap().to_vec1().unwrap()
    }

    #[track_caller]
    pub fn check(&self, found: &Tensor, name: &str, tolerance: f32) {
        let wanted = self.tensor(name);
        assert_eq!(found.dims(), wanted.dims(), "{name}");
        let gap = gap(found, &wanted);
        assert!(gap < tolerance, "{name}: {gap:e}");
    }
}

/// The largest difference, relative to the largest expected number.
pub fn gap(found: &Tensor, wanted: &Tensor) -> f32 {
    let largest = |tensor: &Tensor| -> f32 {
        let largest = tensor.abs().unwrap().max_all().unwrap();
        largest.to_scalar().unwrap()
    };
    largest(&(found - wanted).unwrap()) / largest(wanted)
}

/// A network's weights and the reference's results.
pub struct NetworkGolden {
    tensors: GoldenTensors,
    pub checkpoint: Checkpoint,
}

impl Deref for NetworkGolden {
    type Target = GoldenTensors;

    fn deref(&self) -> &GoldenTensors {
        &self.tensors
    }
}

impl NetworkGolden {
    /// Both paths are below the fixtures.
    pub fn open(tensors: impl AsRef<Path>, network: impl AsRef<Path>) -> Self {
        Self {
            tensors: GoldenTensors::open(tensors),
            checkpoint: Checkpoint::open(&fixtures().join(network)).unwrap(),
        }
    }

    pub fn config(&self) -> &Value {
        match self.checkpoint.description() {
            Description::Config(config) => config,
            Description::Gguf(_) => panic!("a component has a config.json"),
        }
    }

    pub fn source(&self, quantize: Option<Quantize>) -> ComponentSource<'_> {
        ComponentSource {
            tensors: &self.checkpoint,
            layout: Layout::Folder,
            device: device(),
            quantize,
        }
    }
}
