//! Loads a checkpoint's tensors, as f32, as a network of candle-transformers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Error, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder, var_builder::SimpleBackend};

use super::networks::network;
use super::{F32_BYTES, SingleSequenceFamily, SingleSequenceNetwork, SingleSequenceSpec};
use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, TensorHeader, TensorType, convert,
};

/// The tensors of a checkpoint, and which of them the network has taken.
struct LoadedTensors {
    tensors: HashMap<String, Tensor>,
    used: Mutex<HashSet<String>>,
}

struct Backend(Arc<LoadedTensors>);

/// Loads a network for sequences of up to `context` tokens. `progress` gets the loaded and total bytes.
pub fn load(
    spec: &SingleSequenceSpec,
    checkpoint: &Checkpoint,
    context: usize,
    device: &Device,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<Box<dyn SingleSequenceNetwork>, CheckpointError> {
    let refuse = |flaw: Flaw| flaw.in_file(checkpoint.path());
    let tensors = tensors(spec, checkpoint, device, progress).map_err(refuse)?;
    let loaded = Arc::new(LoadedTensors {
        tensors,
        used: Mutex::default(),
    });
    let backend = Box::new(Backend(Arc::clone(&loaded)));
    let weights = VarBuilder::from_backend(backend, DType::F32, device.clone());
    let network = network(spec, context, weights).map_err(|error| {
        let wanted = format!("those of a {} network with this configuration", spec.family);
        refuse(Flaw::broken("the tensors", plain(&error), wanted))
    })?;
    let unused = loaded.tensors.keys().filter(|name| !loaded.has_used(name));
    match unused.min() {
        None => Ok(network),
        Some(name) => Err(refuse(Flaw::unsupported(
            format!("the tensor {name:?}"),
            format!("a tensor that a {} network does not use", spec.family),
            "the tensors of the network",
        ))),
    }
}

fn tensors(
    spec: &SingleSequenceSpec,
    checkpoint: &Checkpoint,
    device: &Device,
    progress: &mut dyn FnMut(u64, u64),
) -> std::result::Result<HashMap<String, Tensor>, Flaw> {
    let (mut done, total) = (0, checkpoint.tensors().iter().map(|it| it.bytes).sum());
    let mut tensors = HashMap::new();
    for header in spec.taken(checkpoint) {
        let TensorType::Weight(dtype) = header.dtype else {
            continue;
        };
        if !convert::is_dense(dtype) {
            let what = format!("the tensor {:?}", header.name);
            return Err(Flaw::unsupported(what, header.dtype, "f32, f16 and bf16"));
        }
        let bytes = checkpoint.bytes(header);
        bytes.will_read();
        if let Some(odd) = convert::first_odd(dtype, &bytes)? {
            let what = format!("the tensor {:?}", header.name);
            return Err(Flaw::broken(what, odd, "finite numbers"));
        }
        let numbers = convert::floats(dtype, &bytes)?;
        let tensor = Tensor::from_vec(numbers, header.shape.as_slice(), device)?;
        tensors.insert(spec.family.network_name(&header.name), tensor);
        bytes.release();
        done += header.bytes;
        progress(done, total);
    }
    progress(total, total);
    Ok(tensors)
}

impl SingleSequenceSpec {
    /// The bytes of the loaded weights, from the headers alone.
    pub fn weight_bytes(&self, checkpoint: &Checkpoint) -> u64 {
        let numbers = self.taken(checkpoint).map(TensorHeader::elements);
        F32_BYTES.saturating_mul(numbers.sum())
    }

    /// The tensors that the network takes: not the frequencies of the rope, nor a copy of the embedding table.
    fn taken<'a>(&self, checkpoint: &'a Checkpoint) -> impl Iterator<Item = &'a TensorHeader> {
        let ties = self.ties_embeddings;
        checkpoint.tensors().iter().filter(move |header| {
            let is_copy = ties && header.name == "lm_head.weight";
            let turns = header.name.ends_with("rotary_emb.inv_freq");
            matches!(header.dtype, TensorType::Weight(_)) && !is_copy && !turns
        })
    }
}

impl SingleSequenceFamily {
    /// The network's name of a tensor.
    fn network_name(self, name: &str) -> String {
        match (self, name) {
            (Self::Mamba, "backbone.embeddings.weight") => "backbone.embedding.weight".to_owned(),
            (_, name) => name.to_owned(),
        }
    }
}

impl LoadedTensors {
    fn used(&self) -> MutexGuard<'_, HashSet<String>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_used(&self, name: &str) -> bool {
        self.used().contains(name)
    }
}

impl SimpleBackend for Backend {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, _: &Device) -> Result<Tensor> {
        let tensor = self.get_unchecked(name, dtype, &Device::Cpu)?;
        match *tensor.shape() == shape {
            true => Ok(tensor),
            false => Err(Error::msg(format!(
                "{name:?} of shape {:?}, where the network has {shape:?}",
                tensor.shape()
            ))),
        }
    }

    fn get_unchecked(&self, name: &str, dtype: DType, _: &Device) -> Result<Tensor> {
        let tensor = self.0.tensors.get(name);
        let tensor = tensor.ok_or_else(|| Error::msg(format!("no {name:?}")))?;
        self.0.used().insert(name.to_owned());
        tensor.to_dtype(dtype)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.tensors.contains_key(name)
    }
}

/// The message without the backtrace that candle may append.
fn plain(error: &Error) -> String {
    match error {
        Error::WithBacktrace { inner, .. } => plain(inner),
        Error::Context { inner, .. } => plain(inner),
        other => other.to_string(),
    }
}
