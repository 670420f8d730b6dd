//! One tensor at a time: found by its role, checked, and placed on the device.

use std::collections::HashSet;

use candle_core::{DType, Device, Tensor, quantized::GgmlDType};

use super::super::{
    family::{Naming, Part, Role},
    gguf,
    spec::DecoderSpec,
};
use super::{LoadOptions, Progress};
use crate::networks::{
    layers::{Embedding, Linear, RmsNorm},
    weights::{Flaw, TensorBytes, TensorHeader, TensorSource, TensorType, Weight, convert},
};

/// Places one tensor after the other, and remembers which were asked for.
pub struct Loader<'a> {
    source: &'a dyn TensorSource,
    naming: Naming,
    pub device: &'a Device,
    options: &'a LoadOptions,
    /// Of activations, norms and biases.
    pub dtype: DType,
    progress: Progress<'a>,
    total: u64,
    done: u64,
    used: HashSet<String>,
}

impl<'a> Loader<'a> {
    pub fn new(
        source: &'a dyn TensorSource,
        naming: Naming,
        device: &'a Device,
        options: &'a LoadOptions,
        progress: Progress<'a>,
    ) -> Self {
        Self {
            source,
            naming,
            device,
            options,
            dtype: compute_dtype(source, naming, device, options),
            progress,
            total: source.headers().iter().map(|header| header.bytes).sum(),
            done: 0,
            used: HashSet::new(),
        }
    }

    pub fn embedding(&mut self, spec: &DecoderSpec) -> Result<Embedding, Flaw> {
        let shape = (spec.vocab_size, spec.hidden_size);
        let name = self.naming.weight(Role::Embedding);
        let (_, dtype, bytes) = self.find(&name, &[shape.0, shape.1])?;
        let embedding = Embedding::place(dtype, bytes, shape, self.device, self.dtype)?;
        Ok(embedding)
    }

    pub fn linear(
        &mut self,
        role: Role,
        shape: (usize, usize),
        has_bias: bool,
    ) -> Result<Linear, Flaw> {
        let weight = self.matrix(role, shape, false)?;
        let bias = match has_bias {
            true => Some(self.vector(&self.naming.bias(role), shape.0)?),
            false => None,
        };
        Ok(Linear { weight, bias })
    }

    pub fn norm(&mut self, role: Role, size: usize, spec: &DecoderSpec) -> Result<RmsNorm, Flaw> {
        Ok(RmsNorm {
            weight: self.vector(&self.naming.weight(role), size)?,
            eps: spec.norm_eps,
        })
    }

    fn vector(&mut self, name: &str, size: usize) -> Result<Tensor, Flaw> {
        let (header, dtype, bytes) = self.find(name, &[size])?;
        let numbers = convert::floats(dtype, &bytes)?;
        let vector = Tensor::from_vec(numbers, size, self.device)?.to_dtype(self.dtype)?;
        self.report(&header);
        Ok(vector)
    }

    pub fn matrix(
        &mut self,
        role: Role,
        (rows, cols): (usize, usize),
        is_head: bool,
    ) -> Result<Weight, Flaw> {
        let (header, dtype, bytes) = self.find(&self.naming.weight(role), &[rows, cols])?;
        bytes.will_read();
        let target = self.options.quantize.filter(|_| convert::is_dense(dtype));
        let target = target.and_then(|quantize| quantize.target(cols, is_head));
        let dense = if self.device.is_cpu() {
            self.options.dtype
        } else {
            Some(self.dtype)
        };
        let weight = match target {
            Some(target) => {
                let quantized = convert::quantized(dtype, &bytes, cols, target)?;
                Weight::place(target, &quantized, (rows, cols), self.device, dense)
            }
            None => Weight::place(dtype, &bytes, (rows, cols), self.device, dense),
        };
        bytes.release();
        self.report(&header);
        Ok(weight?)
    }

    /// The bytes of a tensor that must be there, in this shape and of a type that weights can have.
    fn find(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        let what = || format!("the tensor {name:?}");
        let Some(header) = self.source.header(name) else {
            let wanted = format!("shape {shape:?}");
            return Err(Flaw::broken(what(), "nothing", wanted));
        };
        if header.shape != shape {
            let wanted = format!("{shape:?}");
            return Err(Flaw::broken(what(), format!("{:?}", header.shape), wanted));
        }
        let TensorType::Weight(dtype) = header.dtype else {
            return Err(Flaw::unsupported(
                what(),
                header.dtype,
                "f32, f16, bf16 and GGUF quantizations",
            ));
        };
        self.used.insert(name.to_owned());
        Ok((header.clone(), dtype, self.source.bytes(header)))
    }

    /// All is there, also what stood in the file for nobody.
    pub fn report_all(&mut self) {
        (self.progress)(self.total, self.total);
    }

    fn report(&mut self, header: &TensorHeader) {
        self.done = (self.done + header.bytes).min(self.total);
        (self.progress)(self.done, self.total);
    }

    pub fn is_headless(&self) -> bool {
        self.options.is_headless
    }

    pub fn weights_are_f32(&self) -> bool {
        let name = self.naming.weight(Role::Layer(0, Part::Query));
        let stored = self.source.header(&name).map(|header| header.dtype);
        self.options.quantize.is_none()
            && match self.options.dtype {
                Some(dtype) => dtype == DType::F32,
                None => stored == Some(TensorType::Weight(GgmlDType::F32)),
            }
    }

    /// A tensor that nobody asked for belongs to a network that computes something else.
    pub fn check_nothing_was_ignored(&self, spec: &DecoderSpec) -> Result<(), Flaw> {
        let harmless = |name: &str| {
            let needs_no_head = spec.tied_embeddings || self.options.is_headless;
            let tied = needs_no_head && name == self.naming.weight(Role::Head);
            tied || name.ends_with("rotary_emb.inv_freq") || name == gguf::ROPE_FACTORS
        };
        let names = self
            .source
            .headers()
            .iter()
            .map(|header| header.name.as_str());
        let ignored = |name: &&str| !self.used.contains(*name) && !harmless(name);
        match names.filter(ignored).min() {
            None => Ok(()),
            Some(name) => Err(Flaw::unsupported(
                format!("the tensor {name:?}"),
                format!("a tensor that a {} decoder does not use", spec.family),
                "the tensors of the known families",
            )),
        }
    }
}

/// The type of activations: f32 on the CPU, whose products take nothing else, and elsewhere that of dense
/// weights. Quantized ones get bf16, because Qwen's activations overflow f16.
fn compute_dtype(
    source: &dyn TensorSource,
    naming: Naming,
    device: &Device,
    options: &LoadOptions,
) -> DType {
    if device.is_cpu() {
        return DType::F32;
    }
    let header = source.header(&naming.weight(Role::Layer(0, Part::Query)));
    let stored = header.and_then(|header| match header.dtype {
        TensorType::Weight(dtype) => convert::dense_dtype(dtype),
        TensorType::Other { .. } => None,
    });
    options.dtype.or(stored).unwrap_or(DType::BF16)
}
