//! Files to a network that encodes.

use std::path::Path;

use candle_core::Device;
use serde_json::Value;

use super::head::{Dense, TokenScore};
use super::sentence::SentenceConfig;
use super::{Bidirectional, DecoderStates, Encode, NextToken, Pairing, Purpose, Shorter, Vectors};
use crate::networks::encoder::{Encoder, EncoderSpec, Task};
use crate::networks::text::{Decoder, DecoderSpec, Family, LoadOptions};
use crate::networks::weights::{Checkpoint, CheckpointError, Description, Flaw, GgufMetadata};
use crate::runtime::load::{LoadError, ModelSource};

/// A model that encodes, as its files describe it.
pub struct Encoding {
    network: NetworkSpec,
    sentence: SentenceConfig,
    vectors: Option<Vectors>,
}

enum NetworkSpec {
    Encoder(EncoderSpec),
    Decoder(Box<DecoderSpec>),
}

/// The encoding network in these files; none where they hold a model that writes.
pub fn open(checkpoint: &Checkpoint, path: &Path) -> Result<Option<Encoding>, CheckpointError> {
    let config = match checkpoint.description() {
        Description::Config(config) => config,
        Description::Gguf(metadata) => return open_gguf(checkpoint, metadata),
    };
    let folder = match path.is_dir() {
        true => path,
        false => path.parent().unwrap_or(Path::new(".")),
    };
    let sentence = SentenceConfig::read(folder)?;
    let reads = sentence.pooling.is_some() || sentence.answers.is_some();
    let network = match checkpoint.encoder_spec()? {
        Some(spec) => NetworkSpec::Encoder(spec),
        None if reads => NetworkSpec::Decoder(Box::new(checkpoint.spec()?)),
        None => return Ok(None),
    };
    let vectors = network.vectors(config, &sentence);
    sentence
        .check(
            network.hidden_size(),
            matches!(network, NetworkSpec::Decoder(_)),
        )
        .map_err(|flaw| flaw.in_file(&folder.join("modules.json")))?;
    Ok(Some(Encoding {
        network,
        sentence,
        vectors,
    }))
}

/// The same for a GGUF file, whose metadata state the pooling.
fn open_gguf(
    checkpoint: &Checkpoint,
    metadata: &GgufMetadata,
) -> Result<Option<Encoding>, CheckpointError> {
    let refuse = |flaw: Flaw| flaw.in_file(checkpoint.path());
    let Some(sentence) = SentenceConfig::of_gguf(checkpoint, metadata).map_err(refuse)? else {
        return Ok(None);
    };
    let network = match checkpoint.encoder_spec()? {
        Some(spec) => NetworkSpec::Encoder(spec),
        None => NetworkSpec::Decoder(Box::new(checkpoint.spec()?)),
    };
    let vectors = network.vectors(&Value::Null, &sentence);
    let is_decoder = matches!(network, NetworkSpec::Decoder(_));
    let checked = sentence.check(network.hidden_size(), is_decoder);
    checked.map_err(refuse)?;
    Ok(Some(Encoding {
        network,
        sentence,
        vectors,
    }))
}

impl NetworkSpec {
    fn hidden_size(&self) -> usize {
        match self {
            Self::Encoder(spec) => spec.hidden_size,
            Self::Decoder(spec) => spec.hidden_size,
        }
    }

    fn vectors(&self, config: &Value, sentence: &SentenceConfig) -> Option<Vectors> {
        let is_trained = match self {
            Self::Encoder(spec) if spec.task == Task::Score => return None,
            Self::Decoder(_) if sentence.answers.is_some() => return None,
            Self::Encoder(_) => false,
            // According to the model card of Qwen3-Embedding: vectors of any length from 32.
            Self::Decoder(spec) => spec.family == Family::Qwen3,
        };
        let last = sentence.dense.last().map(|dense| dense.outputs);
        let dimensions = last.unwrap_or(self.hidden_size());
        let sizes = config["matryoshka_dimensions"].as_array().map(|sizes| {
            let sizes = sizes.iter().filter_map(Value::as_u64);
            sizes
                .filter_map(|size| usize::try_from(size).ok())
                .collect()
        });
        let shorter = match sizes {
            Some(sizes) => Shorter::To(sizes),
            None if is_trained || config["is_matryoshka"] == true => Shorter::ToAny,
            None => Shorter::Never,
        };
        Some(Vectors {
            dimensions,
            shorter,
        })
    }
}

impl Encoding {
    pub fn purpose(&self) -> Purpose {
        match &self.vectors {
            Some(vectors) => Purpose::Embed(vectors.clone()),
            None if self.sentence.answers.is_some() => {
                Purpose::Rerank(Pairing::Template(self.sentence.template.clone()))
            }
            None => Purpose::Rerank(Pairing::Tokenizer),
        }
    }

    pub fn vocabulary(&self) -> usize {
        match &self.network {
            NetworkSpec::Encoder(spec) => spec.vocab_size,
            NetworkSpec::Decoder(spec) => spec.vocab_size,
        }
    }

    /// The most tokens of a text, or of a query and a document together.
    pub fn context(&self) -> usize {
        let context = match &self.network {
            NetworkSpec::Encoder(spec) => spec.context(),
            NetworkSpec::Decoder(spec) => spec.context,
        };
        context.min(self.sentence.max_tokens.unwrap_or(context))
    }

    /// The network, and the bytes of its weights.
    pub fn load(
        self,
        checkpoint: &Checkpoint,
        source: &ModelSource,
        device: &Device,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Box<dyn Encode>, u64), LoadError> {
        let (normalizes, answers) = (self.sentence.normalizes, self.sentence.answers);
        let context = self.context();
        let pooling = self.sentence.pooling.unwrap_or_default();
        let dense = self.sentence.dense.iter();
        let dense = dense.map(|module| Dense::load(module, checkpoint, device));
        let dense = dense.collect::<Result<Vec<_>, _>>()?;
        let after: u64 = dense.iter().map(Dense::bytes).sum();
        match self.network {
            NetworkSpec::Encoder(spec) => {
                let bytes = checkpoint.encoder_bytes(device.is_cpu());
                let encoder = Encoder::load(checkpoint, spec, device, progress)?;
                let network = Bidirectional {
                    encoder,
                    pooling,
                    dense,
                    normalizes,
                    pass: None,
                };
                Ok((Box::new(network), bytes + after))
            }
            NetworkSpec::Decoder(_) => {
                let options = LoadOptions {
                    quantize: source.quantize,
                    dtype: source.dtype,
                    context: Some(context),
                    is_headless: true,
                };
                let decoder = Decoder::load(checkpoint, device, &options, progress)?;
                let bytes = decoder.weight_bytes();
                if let Some(answers) = answers {
                    let network = NextToken {
                        decoder,
                        score: TokenScore::load(checkpoint, answers)?,
                        pass: None,
                    };
                    return Ok((Box::new(network), bytes));
                }
                let network = DecoderStates {
                    decoder,
                    pooling,
                    dense,
                    normalizes,
                    pass: None,
                };
                Ok((Box::new(network), bytes + after))
            }
        }
    }
}

/// Memory of an encoder: weights, and activations of the largest step, which has this many tokens unless a single text
/// is longer.
pub fn encoder_footprint(
    encoding: &Encoding,
    checkpoint: &Checkpoint,
    on_cpu: bool,
    options: &LoadOptions,
    step: usize,
) -> Result<(u64, u64), CheckpointError> {
    let rows = encoding.context().max(step) as u64;
    let (weights, width) = match &encoding.network {
        NetworkSpec::Encoder(spec) => (
            checkpoint.encoder_bytes(on_cpu),
            8 * spec.hidden_size + 2 * spec.intermediate_size,
        ),
        NetworkSpec::Decoder(spec) => (
            checkpoint.weight_bytes(on_cpu, options)?,
            8 * spec.hidden_size + 3 * spec.intermediate_size + spec.attention_width(),
        ),
    };
    let dense = encoding.sentence.dense.iter();
    let dense = dense.map(|dense| 4 * (dense.inputs as u64) * (dense.outputs as u64));
    let weights = weights + dense.sum::<u64>();
    // And two pieces of the scores of attention.
    let workspace = rows.saturating_mul(4 * width as u64) + (128 << 20);
    Ok((weights, workspace))
}
