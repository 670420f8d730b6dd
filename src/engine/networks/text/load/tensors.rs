//! Finds tensors by role, checks them, and places them on the device, one at a time.

use std::collections::HashSet;
use std::ops::Range;

use candle_core::{DType, Device, Tensor, quantized::GgmlDType};
use half::bf16;

use super::super::{
    family::{Naming, Part, Role},
    gguf,
    latent::LATENT_NORM_EPS,
    spec::DecoderSpec,
};
use super::{LoadOptions, Progress};
use crate::networks::{
    layers::{Embedding, Linear, RmsNorm},
    vision,
    weights::{Flaw, TensorBytes, TensorHeader, TensorSource, TensorType, Weight, convert, fp8},
};

/// LFM2's name of the final norm in GGUF files.
const LFM2_FINAL_NORM: &str = "token_embd_norm.weight";

/// Rows of a tensor: all of them, or those of one part of a layer.
#[derive(Debug, Clone, Copy)]
pub struct RowRange {
    role: Role,
    /// The rows of the whole tensor.
    total: usize,
    first: usize,
    count: usize,
}

impl RowRange {
    pub fn all(role: Role, rows: usize) -> Self {
        Self {
            role,
            total: rows,
            first: 0,
            count: rows,
        }
    }

    /// The bytes of these rows.
    fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let row_bytes = bytes.len() / self.total;
        &bytes[self.first * row_bytes..(self.first + self.count) * row_bytes]
    }
}

/// Places tensors one after the other, and records those that were used.
pub struct Loader<'a> {
    source: &'a dyn TensorSource,
    pub naming: Naming,
    pub device: &'a Device,
    options: &'a LoadOptions,
    /// Type of activations, norms and biases.
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
        self.table(Role::Embedding, (spec.vocab_size, spec.hidden_size))
    }

    pub fn table(&mut self, role: Role, shape: (usize, usize)) -> Result<Embedding, Flaw> {
        let name = self.naming.weight(role);
        let (_, dtype, bytes) = self.find(&name, &[shape.0, shape.1])?;
        let embedding = Embedding::place(dtype, bytes, shape, self.device, self.dtype)?;
        Ok(embedding)
    }

    /// The rows of a layer's parts: in separate tensors, or concatenated in a fused one.
    pub fn rows<const N: usize>(
        &self,
        layer: usize,
        fused: Part,
        parts: [(Part, usize); N],
    ) -> [RowRange; N] {
        let role = Role::Layer(layer, fused);
        let total = parts.iter().map(|(_, rows)| rows).sum();
        let header = self.source.header(&self.naming.weight(role));
        // GGUF files give the fused gates the name of one of their parts.
        let is_fused = header.is_some_and(|header| header.shape.first() == Some(&total));
        let mut next = 0;
        parts.map(|(part, count)| {
            let first = next;
            next += count;
            match is_fused {
                true => RowRange {
                    role,
                    total,
                    first,
                    count,
                },
                false => RowRange::all(Role::Layer(layer, part), count),
            }
        })
    }

    pub fn linear(&mut self, rows: RowRange, cols: usize, has_bias: bool) -> Result<Linear, Flaw> {
        let weight = self.matrix(rows, cols, false)?;
        let bias = match has_bias {
            true => {
                let name = self.naming.bias(rows.role);
                let numbers = self.numbers(&name, &[rows.total])?;
                let end = rows.first + rows.count;
                Some(self.vector(numbers[rows.first..end].to_vec())?)
            }
            false => None,
        };
        Ok(Linear { weight, bias })
    }

    pub fn norm(&mut self, role: Role, size: usize, spec: &DecoderSpec) -> Result<RmsNorm, Flaw> {
        let mut name = self.naming.weight(role);
        if role == Role::FinalNorm && !self.has(&name) && self.has(LFM2_FINAL_NORM) {
            name = LFM2_FINAL_NORM.to_owned();
        }
        let mut numbers = self.numbers(&name, &[size])?;
        if spec.family.rules().norms_add_one && self.naming != Naming::Gguf {
            numbers.iter_mut().for_each(|number| *number += 1.0);
        }
        let eps = match role {
            Role::FinalNorm
            | Role::Layer(_, Part::AttentionNorm | Part::FeedNorm | Part::FeedPreNorm) => {
                spec.stream_norm_eps()
            }
            Role::Layer(_, Part::QueryDownNorm | Part::LatentNorm) => LATENT_NORM_EPS,
            _ => spec.norm_eps,
        };
        let weight = self.vector(numbers)?;
        Ok(RmsNorm { weight, eps })
    }

    pub fn vector(&self, numbers: Vec<f32>) -> Result<Tensor, Flaw> {
        let size = numbers.len();
        let vector = Tensor::from_vec(numbers, size, self.device)?;
        Ok(vector.to_dtype(self.dtype)?)
    }

    pub fn numbers(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Flaw> {
        let (header, dtype, bytes) = self.find(name, shape)?;
        let numbers = convert::floats(dtype, &bytes)?;
        self.report(header.bytes);
        Ok(numbers)
    }

    pub fn matrix(&mut self, rows: RowRange, cols: usize, is_head: bool) -> Result<Weight, Flaw> {
        let name = self.naming.weight(rows.role);
        let (_, dtype, all) = self.find(&name, &[rows.total, cols])?;
        all.will_read();
        let shape = (rows.count, cols);
        let weight = match Naming::stays_dense(&name) {
            true => self.placed_as(dtype, rows.of(&all), shape, None),
            false => self.placed(dtype, rows.of(&all), shape, is_head),
        };
        all.release();
        weight
    }

    /// Rows of a matrix in another order.
    pub fn gathered(
        &mut self,
        role: Role,
        total: usize,
        rows: &[Range<usize>],
        cols: usize,
    ) -> Result<Linear, Flaw> {
        let name = self.naming.weight(role);
        let (_, dtype, all) = self.find(&name, &[total, cols])?;
        let row_bytes = all.len() / total;
        let bytes = |rows: &Range<usize>| &all[rows.start * row_bytes..rows.end * row_bytes];
        let bytes: Vec<u8> = rows.iter().flat_map(bytes).copied().collect();
        let shape = (rows.iter().map(Range::len).sum(), cols);
        let weight = match Naming::stays_dense(&name) {
            true => self.placed_as(dtype, &bytes, shape, None),
            false => self.placed(dtype, &bytes, shape, false),
        };
        all.release();
        Ok(Linear {
            weight: weight?,
            bias: None,
        })
    }

    /// A matrix of four bits, which stays as it is.
    pub fn placed_mxfp4(&mut self, bytes: &[u8], shape: (usize, usize)) -> Result<Weight, Flaw> {
        let weight = Weight::place_mxfp4(bytes, shape, self.device)?;
        self.report(bytes.len() as u64);
        Ok(weight)
    }

    /// A matrix on the device, quantized if requested.
    pub fn placed(
        &mut self,
        dtype: GgmlDType,
        bytes: &[u8],
        shape: (usize, usize),
        is_head: bool,
    ) -> Result<Weight, Flaw> {
        let target = self.options.quantize.filter(|_| convert::is_dense(dtype));
        let target = target.and_then(|quantize| quantize.target(shape.1, is_head));
        self.placed_as(dtype, bytes, shape, target)
    }

    pub fn placed_as(
        &mut self,
        dtype: GgmlDType,
        bytes: &[u8],
        shape: (usize, usize),
        target: Option<GgmlDType>,
    ) -> Result<Weight, Flaw> {
        let dense = if self.device.is_cpu() {
            self.options.dtype
        } else {
            Some(self.dtype)
        };
        let weight = match target {
            Some(target) => {
                let quantized = convert::quantized(dtype, bytes, shape.1, target)?;
                Weight::place(target, &quantized, shape, self.device, dense)
            }
            None => Weight::place(dtype, bytes, shape, self.device, dense),
        };
        self.report(bytes.len() as u64);
        Ok(weight?)
    }

    /// How many rows the file has of a tensor.
    pub fn rows_of(&self, role: Role) -> Option<usize> {
        let header = self.source.header(&self.naming.weight(role))?;
        header.shape.first().copied()
    }

    /// Whether the file has a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.source.header(name).is_some()
    }

    /// The bytes of a tensor that must be there, in this shape and of a type that weights can have.
    pub fn find(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        if self.type_of(name) == Some(fp8::E4M3) {
            return self.find_fp8(name, shape);
        }
        let known = "f32, f16, bf16 and GGUF quantizations";
        let found = self.source.weight(name, &[shape], known)?;
        self.used.insert(name.to_owned());
        Ok(found)
    }

    /// A matrix of eight-bit floats as wider ones.
    fn find_fp8(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        let what = || format!("the tensor {name:?}");
        let &[rows, cols] = shape else {
            return Err(Flaw::unsupported(what(), fp8::E4M3, "matrices in FP8"));
        };
        let codes = self.find_bytes(name, fp8::E4M3, shape)?;
        let Some(header) = self.source.header(name).cloned() else {
            return Err(Flaw::broken(what(), "nothing", "a matrix in FP8"));
        };
        let blocks = [rows, cols].map(|size| size.div_ceil(fp8::BLOCK));
        let names = fp8::SCALES.map(|scales| format!("{name}{scales}"));
        let scales = names
            .iter()
            .find(|scales| self.has(scales))
            .unwrap_or(&names[0]);
        let found = self.source.header(scales).map(|it| it.shape.clone());
        let block = match found.as_deref() {
            Some([] | [1] | [1, 1]) => [rows, cols],
            Some(&[count]) | Some(&[count, 1]) if count == rows => [1, cols],
            _ => [fp8::BLOCK; 2],
        };
        let shape = match (&found, block == [fp8::BLOCK; 2]) {
            (Some(found), false) => found.as_slice(),
            _ => &blocks,
        };
        let scales = self.numbers(scales, shape)?;
        codes.will_read();
        let numbers = fp8::widened(&codes, cols, &scales, block).into_iter();
        codes.release();
        let (dtype, bytes) = match self.options.dtype {
            Some(DType::F32) => (GgmlDType::F32, numbers.flat_map(f32::to_le_bytes).collect()),
            _ => {
                let halves = numbers.map(|number| bf16::from_f32(number).to_le_bytes());
                (GgmlDType::BF16, halves.flatten().collect())
            }
        };
        Ok((header, dtype, TensorBytes::Owned(bytes)))
    }

    /// The bytes of a tensor of this type and shape, which weights cannot have by themselves.
    pub fn find_bytes(
        &mut self,
        name: &str,
        dtype: TensorType,
        shape: &[usize],
    ) -> Result<TensorBytes, Flaw> {
        let what = format!("the tensor {name:?}");
        let wanted = format!("{dtype} of shape {shape:?}");
        let Some(header) = self.source.header(name) else {
            return Err(Flaw::broken(what, "nothing", wanted));
        };
        if header.dtype != dtype || header.shape != shape {
            let found = format!("{} of shape {:?}", header.dtype, header.shape);
            return Err(Flaw::broken(what, found, wanted));
        }
        let bytes = self.source.bytes(header);
        self.used.insert(name.to_owned());
        Ok(bytes)
    }

    pub fn type_of(&self, name: &str) -> Option<TensorType> {
        self.source.header(name).map(|header| header.dtype)
    }

    /// Reports completion, including unused tensors of the file.
    pub fn report_all(&mut self) {
        (self.progress)(self.total, self.total);
    }

    fn report(&mut self, bytes: u64) {
        self.done = (self.done + bytes).min(self.total);
        (self.progress)(self.done, self.total);
    }

    pub fn is_headless(&self) -> bool {
        self.options.is_headless
    }

    pub fn weights_are_f32(&self) -> bool {
        let stored = first_output(self.source, self.naming).map(|header| header.dtype);
        self.options.quantize.is_none()
            && match self.options.dtype {
                Some(dtype) => dtype == DType::F32,
                None => stored == Some(TensorType::Weight(GgmlDType::F32)),
            }
    }

    /// Refuses unused tensors, which belong to a different network.
    pub fn check_nothing_was_ignored(&self, spec: &DecoderSpec) -> Result<(), Flaw> {
        let unread = spec.unread_tensors(self.naming);
        let harmless = |name: &str| {
            let needs_no_head = spec.tied_embeddings || self.options.is_headless;
            let tied = needs_no_head && name == self.naming.weight(Role::Head);
            let mut layers = spec.layers..spec.layers + spec.prediction_layers;
            let predicts =
                layers.any(|it| name.starts_with(&format!("{}.", self.naming.layer(it))));
            // A vision tower is loaded separately.
            let is_beside = spec.vision.is_some() && vision::is_of_tower(name);
            // Scales of activations, which are not rounded here.
            let rounds = fp8::UNUSED.iter().any(|end| name.ends_with(end));
            let turns = name.ends_with("rotary_emb.inv_freq");
            let stays = spec.family.leaves_in_file(name) || unread.contains(name);
            tied || predicts
                || stays
                || is_beside
                || rounds
                || turns
                || gguf::ROPE_TENSORS.contains(&name)
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

/// The type of activations: f32 on the CPU, whose products support no other, and elsewhere that of dense weights.
/// Quantized weights use bf16, because Qwen's activations overflow f16.
fn compute_dtype(
    source: &dyn TensorSource,
    naming: Naming,
    device: &Device,
    options: &LoadOptions,
) -> DType {
    if device.is_cpu() {
        return DType::F32;
    }
    let stored = first_output(source, naming).and_then(|header| match header.dtype {
        TensorType::Weight(dtype) => convert::dense_dtype(dtype),
        TensorType::MxFp4 | TensorType::Other { .. } => None,
    });
    options.dtype.or(stored).unwrap_or(DType::BF16)
}

/// The output matrix of the first layer's attention or recurrence.
fn first_output(source: &dyn TensorSource, naming: Naming) -> Option<&TensorHeader> {
    let parts = [
        Part::AttentionOutput,
        Part::DeltaOutput,
        Part::ConvolutionOutput,
        Part::SpaceOutput,
    ];
    let mut headers = parts
        .into_iter()
        .map(|part| source.header(&naming.weight(Role::Layer(0, part))));
    headers.find_map(|header| header)
}
