//! From a checkpoint's tensors to a decoder on a device.

use std::collections::HashSet;

use candle_core::{DType, Device, Tensor, quantized::GgmlDType};

use super::{
    config,
    decoder::{Decoder, Layer},
    family::{Naming, Part, Role},
    gguf,
    spec::DecoderSpec,
};
use crate::networks::{
    layers::{Attention, Embedding, FeedForward, Linear, RmsNorm},
    weights::{
        Checkpoint, CheckpointError, Description, Flaw, Quantize, TensorBytes, TensorHeader,
        TensorSource, TensorType, Weight, convert,
    },
};

/// What an operator may ask of the weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadOptions {
    /// Quantize dense weights while loading.
    pub quantize: Option<Quantize>,
    /// Hold dense weights as this type: f32, f16 or bf16. `None` leaves them as they are stored.
    pub dtype: Option<DType>,
}

/// Told how many bytes of the weights are on the device, and how many there are.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Checkpoint {
    /// What the decoder in these files is; refuses by name whatever it would have to ignore.
    pub fn spec(&self) -> Result<DecoderSpec, CheckpointError> {
        let spec = match self.description() {
            Description::Config(value) => config::spec(value),
            Description::Gguf(metadata) => gguf::spec(self, metadata),
        };
        spec.map_err(|flaw| flaw.in_file(self.path()))
    }

    pub(super) fn naming(&self) -> Naming {
        match self.description() {
            Description::Config(_) => Naming::Hub,
            Description::Gguf(_) => Naming::Gguf,
        }
    }
}

impl Decoder {
    pub fn load(
        checkpoint: &Checkpoint,
        device: &Device,
        options: &LoadOptions,
        progress: Progress<'_>,
    ) -> Result<Self, CheckpointError> {
        let spec = checkpoint.spec()?;
        let naming = checkpoint.naming();
        Self::from_source(checkpoint, naming, spec, device, options, progress)
    }

    pub(super) fn from_source(
        source: &dyn TensorSource,
        naming: Naming,
        spec: DecoderSpec,
        device: &Device,
        options: &LoadOptions,
        progress: Progress<'_>,
    ) -> Result<Self, CheckpointError> {
        let total = source.headers().iter().map(|header| header.bytes).sum();
        let mut loader = Loader {
            source,
            naming,
            device,
            options,
            dtype: compute_dtype(source, naming, device, options),
            progress,
            total,
            done: 0,
            used: HashSet::new(),
        };
        let decoder = loader.decoder(spec).and_then(|decoder| {
            loader.check_nothing_was_ignored(&decoder.spec)?;
            Ok(decoder)
        });
        decoder.map_err(|flaw| flaw.in_file(source.path()))
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

struct Loader<'a> {
    source: &'a dyn TensorSource,
    naming: Naming,
    device: &'a Device,
    options: &'a LoadOptions,
    /// Of activations, norms and biases.
    dtype: DType,
    progress: Progress<'a>,
    total: u64,
    done: u64,
    used: HashSet<String>,
}

impl Loader<'_> {
    fn decoder(&mut self, spec: DecoderSpec) -> Result<Decoder, Flaw> {
        let embedding = self.embedding(&spec)?;
        let layers = (0..spec.layers).map(|index| self.layer(&spec, index));
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let norm = self.norm(Role::FinalNorm, spec.hidden_size, &spec)?;
        let role = if spec.tied_embeddings {
            Role::Embedding
        } else {
            Role::Head
        };
        let head = self.matrix(role, (spec.vocab_size, spec.hidden_size), true)?;
        (self.progress)(self.total, self.total);
        Ok(Decoder {
            rope: spec.rope_table(self.device)?,
            device: self.device.clone(),
            dtype: self.dtype,
            weights_are_f32: self.weights_are_f32(),
            spec,
            embedding,
            layers,
            norm,
            head,
        })
    }

    fn layer(&mut self, spec: &DecoderSpec, index: usize) -> Result<Layer, Flaw> {
        let (hidden, query, kv) = (spec.hidden_size, spec.query_size(), spec.kv_size());
        let feed = spec.intermediate_size;
        let biases = spec.biases;
        let role = |part| Role::Layer(index, part);
        let attention_norm = self.norm(role(Part::AttentionNorm), hidden, spec)?;
        let qkv = biases.query_key_value;
        let attention = Attention {
            query: self.linear(role(Part::Query), (query, hidden), qkv)?,
            key: self.linear(role(Part::Key), (kv, hidden), qkv)?,
            value: self.linear(role(Part::Value), (kv, hidden), qkv)?,
            output: self.linear(
                role(Part::AttentionOutput),
                (hidden, query),
                biases.attention_output,
            )?,
            head_norms: self.head_norms(spec, index)?,
            head_dim: spec.head_dim,
            window: spec.window(index),
        };
        let feed_norm = self.norm(role(Part::FeedNorm), hidden, spec)?;
        let feed_forward = FeedForward {
            gate: self.linear(role(Part::Gate), (feed, hidden), biases.feed_forward)?,
            up: self.linear(role(Part::Up), (feed, hidden), biases.feed_forward)?,
            down: self.linear(role(Part::Down), (hidden, feed), biases.feed_forward)?,
        };
        Ok(Layer {
            attention_norm,
            attention,
            feed_norm,
            feed_forward,
        })
    }

    fn head_norms(
        &mut self,
        spec: &DecoderSpec,
        index: usize,
    ) -> Result<Option<(RmsNorm, RmsNorm)>, Flaw> {
        if !spec.query_key_norm {
            return Ok(None);
        }
        let role = |part| Role::Layer(index, part);
        let query = self.norm(role(Part::QueryNorm), spec.head_dim, spec)?;
        let key = self.norm(role(Part::KeyNorm), spec.head_dim, spec)?;
        Ok(Some((query, key)))
    }

    fn embedding(&mut self, spec: &DecoderSpec) -> Result<Embedding, Flaw> {
        let shape = (spec.vocab_size, spec.hidden_size);
        let name = self.naming.weight(Role::Embedding);
        let (_, dtype, bytes) = self.find(&name, &[shape.0, shape.1])?;
        let embedding = Embedding::place(dtype, bytes, shape, self.device, self.dtype)?;
        Ok(embedding)
    }

    fn linear(
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

    fn norm(&mut self, role: Role, size: usize, spec: &DecoderSpec) -> Result<RmsNorm, Flaw> {
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

    fn matrix(
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
            let wanted = format!("one of shape {shape:?}");
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
                "weights in f32, f16, bf16 or GGUF's blocks",
            ));
        };
        self.used.insert(name.to_owned());
        Ok((header.clone(), dtype, self.source.bytes(header)))
    }

    fn report(&mut self, header: &TensorHeader) {
        self.done = (self.done + header.bytes).min(self.total);
        (self.progress)(self.done, self.total);
    }

    fn weights_are_f32(&self) -> bool {
        let name = self.naming.weight(Role::Layer(0, Part::Query));
        let stored = self.source.header(&name).map(|header| header.dtype);
        self.options.quantize.is_none()
            && match self.options.dtype {
                Some(dtype) => dtype == DType::F32,
                None => stored == Some(TensorType::Weight(GgmlDType::F32)),
            }
    }

    /// A tensor that nobody asked for belongs to a network that computes something else.
    fn check_nothing_was_ignored(&self, spec: &DecoderSpec) -> Result<(), Flaw> {
        let harmless = |name: &str| {
            let tied = spec.tied_embeddings && name == self.naming.weight(Role::Head);
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
                format!("something that a {} decoder has no place for", spec.family),
                "the tensors of the families it lists",
            )),
        }
    }
}
