//! Synthetic decoders with random weights, for benchmarks without a model file.
//!
//! The numbers are a function of a tensor's name alone, so that a decoder created in memory and its GGUF file compute
//! the same.

mod noise;
mod quant;
mod vocabulary;

pub use quant::SyntheticQuant;

use std::{
    collections::HashMap,
    io::{self, BufWriter, Write},
    path::Path,
};

use candle_core::{Device, quantized::GgmlDType};

use super::{
    LoadOptions,
    decoder::Decoder,
    experts::ExpertsSpec,
    family::{Naming, Part, Role},
    gguf::{self, rope_tensors},
    load::{Progress, feed_norm},
    recurrent::{DeltaNetSpec, RecurrenceSpec},
    spec::{DecoderSpec, QueryKeyNorm},
};
use crate::networks::weights::{
    CheckpointError, GgufWriter, TensorBytes, TensorHeader, TensorSource, TensorType,
};

/// The tensors of a synthetic decoder, with the names of GGUF files.
pub struct Synthetic {
    spec: DecoderSpec,
    quant: SyntheticQuant,
    headers: Vec<TensorHeader>,
    by_name: HashMap<String, usize>,
}

impl Decoder {
    pub fn synthetic(
        spec: DecoderSpec,
        quant: SyntheticQuant,
        device: &Device,
        progress: Progress<'_>,
    ) -> Result<Self, CheckpointError> {
        let source = Synthetic::new(spec.clone(), quant);
        let options = LoadOptions::default();
        Self::from_source(&source, Naming::Gguf, spec, device, &options, progress)
    }
}

impl Synthetic {
    pub fn new(spec: DecoderSpec, quant: SyntheticQuant) -> Self {
        let mut made = Self {
            spec,
            quant,
            headers: Vec::new(),
            by_name: HashMap::new(),
        };
        made.describe();
        made
    }

    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// Writes the decoder as a GGUF file, with a vocabulary that any program can read.
    pub fn write_gguf(&self, out: impl Write) -> io::Result<()> {
        let mut writer = GgufWriter::default();
        writer.text("general.name", format!("synthetic {}", self.quant));
        writer.unsigned("general.file_type", self.quant.number());
        writer.unsigned("general.quantization_version", 2);
        gguf::describe(&self.spec, &mut writer);
        vocabulary::describe(self.spec.vocab_size, &mut writer);
        for header in &self.headers {
            writer.tensor(&header.name, &header.shape, stored(header));
        }
        writer.write(BufWriter::new(out), |index| {
            Ok(self.made(&self.headers[index]))
        })
    }

    fn describe(&mut self) {
        let spec = self.spec.clone();
        let hidden = spec.hidden_size;
        self.matrix(Role::Embedding, spec.vocab_size, hidden);
        for layer in 0..spec.layers {
            self.describe_layer(&spec, layer);
        }
        self.vector(Naming::Gguf.weight(Role::FinalNorm), hidden);
        if !spec.tied_embeddings {
            self.matrix(Role::Head, spec.vocab_size, hidden);
        }
        for (name, factors) in rope_tensors(&spec) {
            self.vector(name.to_owned(), factors.len());
        }
    }

    fn describe_attention(&mut self, spec: &DecoderSpec, layer: usize) {
        let hidden = spec.hidden_size;
        let (query, kv) = (spec.query_size(layer), spec.kv_size(layer));
        let queries = if spec.attention_gate {
            2 * query
        } else {
            query
        };
        for (part, rows, cols, has_bias) in [
            (Part::Query, queries, hidden, spec.biases.query_key_value),
            (Part::Key, kv, hidden, spec.biases.query_key_value),
            (Part::Value, kv, hidden, spec.biases.query_key_value),
            (
                Part::AttentionOutput,
                hidden,
                query,
                spec.biases.attention_output,
            ),
        ] {
            self.linear(Role::Layer(layer, part), rows, cols, has_bias);
        }
        let query_key = match spec.query_key_norm {
            None | Some(QueryKeyNorm::Unweighted) => Vec::new(),
            Some(QueryKeyNorm::PerHead) => vec![spec.head_dim; 2],
            Some(QueryKeyNorm::Whole) => vec![query, kv],
        };
        for (part, size) in [Part::QueryNorm, Part::KeyNorm].into_iter().zip(query_key) {
            self.vector(Naming::Gguf.weight(Role::Layer(layer, part)), size);
        }
    }

    fn describe_delta_net(&mut self, spec: &DecoderSpec, net: &DeltaNetSpec, layer: usize) {
        let (hidden, heads) = (spec.hidden_size, net.heads);
        let (values, count) = (heads.value_size(), heads.value_heads);
        for (part, rows, cols) in [
            (Part::DeltaQkv, net.convolved(), hidden),
            (Part::DeltaGate, values, hidden),
            (Part::DeltaBetas, count, hidden),
            (Part::DeltaSteps, count, hidden),
            (Part::DeltaOutput, hidden, values),
        ] {
            self.matrix(Role::Layer(layer, part), rows, cols);
        }
        let role = |part| Role::Layer(layer, part);
        self.add(TensorHeader::described(
            Naming::Gguf.weight(role(Part::DeltaConvolution)),
            vec![net.convolved(), net.kernel],
            TensorType::Weight(GgmlDType::F32),
        ));
        self.vector(Naming::Gguf.weight(role(Part::DeltaRates)), count);
        self.vector(Naming::Gguf.bias(role(Part::DeltaStepBias)), count);
        self.vector(Naming::Gguf.weight(role(Part::DeltaNorm)), heads.value_dim);
    }

    fn describe_layer(&mut self, spec: &DecoderSpec, layer: usize) {
        let hidden = spec.hidden_size;
        match spec.recurrence(layer) {
            Some(RecurrenceSpec::DeltaNet(net)) => self.describe_delta_net(spec, net, layer),
            // No shape has other recurrences.
            _ => self.describe_attention(spec, layer),
        }
        match spec.layer_experts(layer) {
            Some(experts) => self.describe_experts(spec, experts, layer),
            None => self.describe_dense(spec, layer),
        }
        let norms = [
            (Part::AttentionNorm, spec.norms.has_before()),
            (feed_norm(spec), spec.norms.has_before()),
            (Part::AttentionPostNorm, spec.norms.has_after()),
            (Part::FeedPostNorm, spec.norms.has_after()),
        ];
        let norms = norms.into_iter().filter(|(_, is_there)| *is_there);
        for (part, _) in norms {
            self.vector(Naming::Gguf.weight(Role::Layer(layer, part)), hidden);
        }
    }

    fn describe_dense(&mut self, spec: &DecoderSpec, layer: usize) {
        let (hidden, feed) = (spec.hidden_size, spec.intermediate_size);
        for (part, rows, cols) in [
            (Part::Gate, feed, hidden),
            (Part::Up, feed, hidden),
            (Part::Down, hidden, feed),
        ] {
            let role = Role::Layer(layer, part);
            self.linear(role, rows, cols, spec.biases.feed_forward);
        }
    }

    fn describe_experts(&mut self, spec: &DecoderSpec, experts: &ExpertsSpec, layer: usize) {
        let (hidden, feed) = (spec.hidden_size, experts.intermediate_size);
        let router = Naming::Gguf.weight(Role::Layer(layer, Part::Router));
        let f32 = TensorType::Weight(GgmlDType::F32);
        self.add(TensorHeader::described(
            router,
            vec![experts.count, hidden],
            f32,
        ));
        if let Some(shared) = experts.shared {
            for (part, rows, cols) in [
                (Part::SharedGate, shared.intermediate_size, hidden),
                (Part::SharedUp, shared.intermediate_size, hidden),
                (Part::SharedDown, hidden, shared.intermediate_size),
            ] {
                self.matrix(Role::Layer(layer, part), rows, cols);
            }
        }
        for (part, rows, cols) in [
            (Part::GateExperts, feed, hidden),
            (Part::UpExperts, feed, hidden),
            (Part::DownExperts, hidden, feed),
        ] {
            let role = Role::Layer(layer, part);
            let dtype = TensorType::Weight(self.quant.dtype(role, cols, &self.spec));
            let shape = vec![experts.count, rows, cols];
            self.add(TensorHeader::described(
                Naming::Gguf.weight(role),
                shape,
                dtype,
            ));
        }
    }

    fn linear(&mut self, role: Role, rows: usize, cols: usize, has_bias: bool) {
        self.matrix(role, rows, cols);
        if has_bias {
            self.vector(Naming::Gguf.bias(role), rows);
        }
    }

    fn matrix(&mut self, role: Role, rows: usize, cols: usize) {
        let dtype = self.quant.dtype(role, cols, &self.spec);
        self.add(TensorHeader::described(
            Naming::Gguf.weight(role),
            vec![rows, cols],
            TensorType::Weight(dtype),
        ));
    }

    fn vector(&mut self, name: String, size: usize) {
        let dtype = TensorType::Weight(GgmlDType::F32);
        self.add(TensorHeader::described(name, vec![size], dtype));
    }

    fn add(&mut self, header: TensorHeader) {
        self.by_name.insert(header.name.clone(), self.headers.len());
        self.headers.push(header);
    }

    fn made(&self, header: &TensorHeader) -> Vec<u8> {
        let numbers = |numbers: Vec<f32>| numbers.into_iter().flat_map(f32::to_le_bytes).collect();
        let tensors = rope_tensors(&self.spec);
        let factors = tensors.iter().find(|(name, _)| *name == header.name);
        match (factors, header.shape.as_slice()) {
            (Some((_, factors)), _) => numbers(factors.to_vec()),
            (None, [size]) if header.name.ends_with("norm.weight") => numbers(vec![1.0; *size]),
            // Decay rates.
            (None, [size]) if header.name.ends_with("ssm_a") => numbers(vec![-0.5; *size]),
            (None, shape) => {
                let cols = shape.last().copied().unwrap_or(1);
                let spread = 1.0 / (cols as f32).sqrt();
                noise::blocks(stored(header), header.bytes as usize, &header.name, spread)
            }
        }
    }
}

impl TensorSource for Synthetic {
    fn path(&self) -> &Path {
        Path::new("random weights")
    }

    fn headers(&self) -> &[TensorHeader] {
        &self.headers
    }

    fn header(&self, name: &str) -> Option<&TensorHeader> {
        self.by_name.get(name).map(|&index| &self.headers[index])
    }

    fn bytes(&self, header: &TensorHeader) -> TensorBytes {
        TensorBytes::Owned(self.made(header))
    }
}

fn stored(header: &TensorHeader) -> GgmlDType {
    match header.dtype {
        TensorType::Weight(dtype) => dtype,
        TensorType::MxFp4 | TensorType::Other { .. } => GgmlDType::F32,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use muster_kernels::KvDtype;

    use super::{
        super::golden::{gap, one_sequence},
        *,
    };
    use crate::networks::weights::Checkpoint;

    fn logits(decoder: &Decoder) -> candle_core::Tensor {
        let mut pages = decoder.new_pages(1, KvDtype::F32).unwrap();
        let batch = one_sequence(&[1, 2, 3, 500], 0);
        decoder.forward(&batch, &mut pages).unwrap()
    }

    #[test]
    fn a_written_decoder_reads_back_as_the_one_made_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        for name in SyntheticQuant::names() {
            let quant = name.parse().unwrap();
            let spec = DecoderSpec::named("tiny").unwrap();
            Synthetic::new(spec.clone(), quant)
                .write_gguf(File::create(&path).unwrap())
                .unwrap();
            let checkpoint = Checkpoint::open(&path).unwrap();
            assert_eq!(checkpoint.spec().unwrap(), spec);
            let options = LoadOptions::default();
            let loaded =
                Decoder::load(&checkpoint, &Device::Cpu, &options, &mut |_, _| {}).unwrap();
            let made = Decoder::synthetic(spec, quant, &Device::Cpu, &mut |_, _| {}).unwrap();
            assert_eq!(loaded.weight_bytes(), made.weight_bytes());
            assert_eq!(gap(&logits(&loaded), &logits(&made)), 0.0, "{name}");
        }
    }

    #[test]
    fn every_named_shape_is_what_its_file_says() {
        for name in DecoderSpec::names() {
            let spec = DecoderSpec::named(name).unwrap();
            let source = Synthetic::new(spec.clone(), SyntheticQuant::Q4KM);
            let parameters: u64 = source.headers.iter().map(TensorHeader::elements).sum();
            let billions = |text: &str| text.trim_end_matches('b').parse::<f64>().ok();
            if let Some(wanted) = name.rsplit('-').next().and_then(billions) {
                let found = parameters as f64 / 1e9;
                assert!((found / wanted - 1.0).abs() < 0.26, "{name}: {found}");
            }
        }
    }

    #[test]
    fn half_the_values_and_ways_down_of_the_mix_have_six_bits() {
        let spec = DecoderSpec::named("llama-3.2-1b").unwrap();
        let source = Synthetic::new(spec, SyntheticQuant::Q4KM);
        let six = |part| {
            let names = (0..16).map(|layer| Naming::Gguf.weight(Role::Layer(layer, part)));
            let headers = names.map(|name| source.header(&name).unwrap());
            headers
                .filter(|header| stored(header) == GgmlDType::Q6K)
                .count()
        };
        assert_eq!(
            [six(Part::Value), six(Part::Down), six(Part::Up)],
            [8, 8, 0]
        );
        let bytes: u64 = source.headers.iter().map(|header| header.bytes).sum();
        // Published files of this model and mix have about 0.81 GB, of which some 8 MB are vocabulary.
        assert!((795_000_000..808_000_000).contains(&bytes), "{bytes}");
    }
}
