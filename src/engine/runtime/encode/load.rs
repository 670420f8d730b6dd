//! Files to a network that encodes.

use std::path::Path;

use candle_core::Device;
use serde_json::Value;

use super::sentence::SentenceConfig;
use super::{Bidirectional, Encode, LastState, Purpose, Shorter, Vectors};
use crate::networks::encoder::{Encoder, EncoderSpec, Pooling, Task};
use crate::networks::text::{Decoder, DecoderSpec, Family, LoadOptions};
use crate::networks::weights::{Checkpoint, CheckpointError, Description, Flaw};
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
    let Description::Config(config) = checkpoint.description() else {
        return Ok(None);
    };
    let folder = match path.is_dir() {
        true => path,
        false => path.parent().unwrap_or(Path::new(".")),
    };
    let sentence = SentenceConfig::read(folder)?;
    let network = match checkpoint.encoder_spec()? {
        Some(spec) => NetworkSpec::Encoder(spec),
        None if sentence.pooling.is_some() => NetworkSpec::Decoder(Box::new(checkpoint.spec()?)),
        None => return Ok(None),
    };
    if let (NetworkSpec::Decoder(_), Some(pooling)) = (&network, sentence.pooling)
        && pooling != Pooling::Last
    {
        let flaw = Flaw::unsupported(
            "the pooling of a decoder",
            format!("{pooling:?}"),
            "lasttoken",
        );
        return Err(flaw.in_file(checkpoint.path()));
    }
    let vectors = network.vectors(config);
    Ok(Some(Encoding {
        network,
        sentence,
        vectors,
    }))
}

impl NetworkSpec {
    fn vectors(&self, config: &Value) -> Option<Vectors> {
        let (dimensions, is_trained) = match self {
            Self::Encoder(spec) if spec.task == Task::Score => return None,
            Self::Encoder(spec) => (spec.hidden_size, false),
            // The card of Qwen3-Embedding: vectors of any length from 32.
            Self::Decoder(spec) => (spec.hidden_size, spec.family == Family::Qwen3),
        };
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
            None => Purpose::Rerank,
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
        let normalizes = self.sentence.normalizes;
        let context = self.context();
        match self.network {
            NetworkSpec::Encoder(spec) => {
                let bytes = checkpoint.encoder_bytes(device.is_cpu());
                let encoder = Encoder::load(checkpoint, spec, device, progress)?;
                let network = Bidirectional {
                    encoder,
                    pooling: self.sentence.pooling.unwrap_or_default(),
                    normalizes,
                    pass: None,
                };
                Ok((Box::new(network), bytes))
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
                let network = LastState {
                    decoder,
                    normalizes,
                    pass: None,
                };
                Ok((Box::new(network), bytes))
            }
        }
    }
}

/// What an encoding network takes: its weights, and activations of the largest step, which has so many tokens unless
/// one text is longer.
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
    // And two pieces of the scores of attention.
    let workspace = rows.saturating_mul(4 * width as u64) + (128 << 20);
    Ok((weights, workspace))
}
