//! Loads a checkpoint's tensors as an encoder on a device.

use std::collections::HashSet;

use candle_core::{DType, Device, Tensor, quantized::GgmlDType};

use super::config::{EncoderFamily, EncoderSpec, Task};
use super::gguf;
use super::network::{Encoder, EncoderLayer, LayerNorm, ScoreHead, Tables};
use crate::networks::layers::{Embedding, Linear};
use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, TensorBytes, TensorHeader, TensorSource, Weight, convert,
};

/// Prefixes of the network's tensors, without a head and with the head of each family.
const PREFIXES: [&str; 3] = ["", "bert.", "roberta."];

/// Finds and places one tensor after the other, and remembers which were used.
struct TensorPlacer<'a> {
    checkpoint: &'a Checkpoint,
    prefix: &'static str,
    is_gguf: bool,
    device: &'a Device,
    progress: &'a mut dyn FnMut(u64, u64),
    total: u64,
    done: u64,
    used: HashSet<String>,
}

impl Encoder {
    /// Activations and weights are f32: encoders are small, and their vectors are compared.
    pub fn load(
        checkpoint: &Checkpoint,
        spec: EncoderSpec,
        device: &Device,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, CheckpointError> {
        let mut loader = TensorPlacer {
            checkpoint,
            prefix: prefix(checkpoint),
            is_gguf: checkpoint.gguf_metadata().is_some(),
            device,
            progress,
            total: checkpoint.tensors().iter().map(|header| header.bytes).sum(),
            done: 0,
            used: HashSet::new(),
        };
        let encoder = loader.encoder(spec).and_then(|encoder| {
            loader.check_nothing_was_ignored(&encoder.spec)?;
            Ok(encoder)
        });
        encoder.map_err(|flaw| flaw.in_file(checkpoint.path()))
    }
}

impl Checkpoint {
    /// Memory of an encoder's weights: all of them in f32, except for tables on the CPU, whose rows stay in the file.
    pub fn encoder_bytes(&self, on_cpu: bool) -> u64 {
        let is_table = |name: &str| name.contains("_embeddings.") || gguf::TABLES.contains(&name);
        let is_held = |header: &&TensorHeader| !(on_cpu && is_table(&header.name));
        let held = self.tensors().iter().filter(is_held);
        held.map(|header| 4 * header.shape.iter().product::<usize>() as u64)
            .sum()
    }
}

fn prefix(checkpoint: &Checkpoint) -> &'static str {
    let is_there = |prefix: &&&str| {
        let name = format!("{prefix}embeddings.word_embeddings.weight");
        checkpoint.tensor(&name).is_some()
    };
    PREFIXES.iter().find(is_there).copied().unwrap_or("")
}

impl TensorPlacer<'_> {
    fn encoder(&mut self, spec: EncoderSpec) -> Result<Encoder, Flaw> {
        let hidden = spec.hidden_size;
        let tables = Tables {
            words: self.table("word_embeddings", (spec.vocab_size, hidden))?,
            positions: self.table("position_embeddings", (spec.positions, hidden))?,
            types: self.table("token_type_embeddings", (spec.token_types, hidden))?,
        };
        let prefix = self.prefix;
        let norm = self.norm(&format!("{prefix}embeddings.LayerNorm"), &spec)?;
        let layers = (0..spec.layers).map(|index| self.layer(&spec, index));
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let head = match spec.task {
            Task::Embed => None,
            Task::Score => Some(self.score_head(&spec)?),
        };
        (self.progress)(self.total, self.total);
        Ok(Encoder {
            spec,
            device: self.device.clone(),
            tables,
            norm,
            layers,
            head,
        })
    }

    fn layer(&mut self, spec: &EncoderSpec, index: usize) -> Result<EncoderLayer, Flaw> {
        let (hidden, feed) = (spec.hidden_size, spec.intermediate_size);
        let stem = format!("{}encoder.layer.{index}", self.prefix);
        let mut attention = |part: &str| {
            let name = format!("{stem}.attention.{part}");
            self.linear(&name, (hidden, hidden))
        };
        let (query, key, value) = (
            attention("self.query")?,
            attention("self.key")?,
            attention("self.value")?,
        );
        Ok(EncoderLayer {
            query,
            key,
            value,
            output: attention("output.dense")?,
            attention_norm: self.norm(&format!("{stem}.attention.output.LayerNorm"), spec)?,
            up: self.linear(&format!("{stem}.intermediate.dense"), (feed, hidden))?,
            down: self.linear(&format!("{stem}.output.dense"), (hidden, feed))?,
            feed_norm: self.norm(&format!("{stem}.output.LayerNorm"), spec)?,
        })
    }

    fn score_head(&mut self, spec: &EncoderSpec) -> Result<ScoreHead, Flaw> {
        let hidden = spec.hidden_size;
        let (dense, scores) = match spec.family {
            EncoderFamily::Bert => (
                format!("{}pooler.dense", self.prefix),
                "classifier".to_owned(),
            ),
            EncoderFamily::Roberta => (
                "classifier.dense".to_owned(),
                "classifier.out_proj".to_owned(),
            ),
        };
        let weight = self.checkpoint.tensor(&format!("{scores}.weight"));
        let labels = weight.and_then(|header| header.shape.first().copied());
        if let Some(labels) = labels.filter(|&labels| labels != 1) {
            let found = format!("{labels} labels");
            return Err(Flaw::unsupported(
                "the classifier",
                found,
                "1 label: a score",
            ));
        }
        Ok(ScoreHead {
            dense: self.linear(&dense, (hidden, hidden))?,
            scores: self.linear(&scores, (1, hidden))?,
        })
    }

    fn table(&mut self, name: &str, shape: (usize, usize)) -> Result<Embedding, Flaw> {
        let name = format!("{}embeddings.{name}.weight", self.prefix);
        let (header, dtype, bytes) = self.find(&name, &[shape.0, shape.1])?;
        let table = Embedding::place(dtype, bytes, shape, self.device, DType::F32)?;
        self.report(&header);
        Ok(table)
    }

    fn linear(&mut self, name: &str, (rows, cols): (usize, usize)) -> Result<Linear, Flaw> {
        let (header, dtype, bytes) = self.find(&format!("{name}.weight"), &[rows, cols])?;
        let weight = Weight::place(dtype, &bytes, (rows, cols), self.device, Some(DType::F32))?;
        self.report(&header);
        let bias = Some(self.vector(&format!("{name}.bias"), rows)?);
        Ok(Linear { weight, bias })
    }

    fn norm(&mut self, name: &str, spec: &EncoderSpec) -> Result<LayerNorm, Flaw> {
        Ok(LayerNorm {
            weight: self.vector(&format!("{name}.weight"), spec.hidden_size)?,
            bias: self.vector(&format!("{name}.bias"), spec.hidden_size)?,
            eps: spec.norm_eps,
        })
    }

    fn vector(&mut self, name: &str, size: usize) -> Result<Tensor, Flaw> {
        let (header, dtype, bytes) = self.find(name, &[size])?;
        let numbers = convert::floats(dtype, &bytes)?;
        self.report(&header);
        Ok(Tensor::from_vec(numbers, size, self.device)?)
    }

    /// The bytes of a tensor that must be there, in this shape and dense.
    fn find(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<(TensorHeader, GgmlDType, TensorBytes), Flaw> {
        let converted = self.is_gguf.then(|| gguf::name(name)).flatten();
        let name = converted.unwrap_or_else(|| name.to_owned());
        let known = "f32, f16, bf16 and GGUF quantizations";
        let found = self.checkpoint.weight(&name, &[shape], known)?;
        self.used.insert(name);
        Ok(found)
    }

    fn report(&mut self, header: &TensorHeader) {
        self.done = (self.done + header.bytes).min(self.total);
        (self.progress)(self.done, self.total);
    }

    /// Refuses unused tensors, which belong to a different network. A pooler is ignored: embeddings are pooled by
    /// `1_Pooling`.
    fn check_nothing_was_ignored(&self, spec: &EncoderSpec) -> Result<(), Flaw> {
        let prefix = self.prefix;
        let pooler = format!("{prefix}pooler.dense.");
        let buffers = ["position_ids", "token_type_ids"];
        let is_harmless = |name: &str| {
            let is_buffer = buffers
                .iter()
                .any(|buffer| *name == format!("{prefix}embeddings.{buffer}"));
            is_buffer || (spec.task == Task::Embed && name.starts_with(&pooler))
        };
        let names = self.checkpoint.tensors().iter();
        let names = names.map(|header| header.name.as_str());
        let ignored = |name: &&str| !self.used.contains(*name) && !is_harmless(name);
        match names.filter(ignored).min() {
            None => Ok(()),
            Some(name) => Err(Flaw::unsupported(
                format!("the tensor {name:?}"),
                "a tensor that an encoder does not use",
                "the tensors of BERT and RoBERTa",
            )),
        }
    }
}
