//! The sizes of a Kokoro, and the symbols it reads.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::networks::weights::{Flaw, layered};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KokoroSpec {
    pub tokens: usize,
    /// Width between the parts.
    pub hidden: usize,
    /// Numbers of a style; a voice has two of them.
    pub style: usize,
    /// Layers of both text encoders.
    pub layers: usize,
    /// Frames of a token at most, at speed 1.
    pub longest: usize,
    /// Kernel size of the text encoder's convolutions.
    pub kernel: usize,
    pub albert: AlbertSpec,
    pub generator: GeneratorSpec,
    /// Phonemes and their tokens.
    pub vocabulary: HashMap<char, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlbertSpec {
    pub embedding: usize,
    pub width: usize,
    pub heads: usize,
    pub feed: usize,
    pub layers: usize,
    /// Tokens of a text at most.
    pub positions: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratorSpec {
    /// Channels before the first stage; each stage halves them.
    pub channels: usize,
    pub stages: Vec<GeneratorStageSpec>,
    /// Kernel and dilations of the residual blocks of each stage.
    pub blocks: Vec<(usize, Vec<usize>)>,
    /// Samples of one transform, and between two of them.
    pub width: usize,
    pub hop: usize,
}

/// How a stage stretches time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratorStageSpec {
    pub rate: usize,
    pub kernel: usize,
}

#[derive(Deserialize)]
struct KokoroJson {
    n_token: usize,
    hidden_dim: usize,
    style_dim: usize,
    n_layer: usize,
    max_dur: usize,
    text_encoder_kernel_size: usize,
    plbert: AlbertJson,
    istftnet: GeneratorJson,
    vocab: HashMap<String, u32>,
}

#[derive(Deserialize)]
struct AlbertJson {
    /// Published files omit it and use the ALBERT library's default.
    #[serde(default = "default_embedding")]
    embedding_size: usize,
    hidden_size: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    num_hidden_layers: usize,
}

#[derive(Deserialize)]
struct GeneratorJson {
    upsample_kernel_sizes: Vec<usize>,
    upsample_rates: Vec<usize>,
    gen_istft_hop_size: usize,
    gen_istft_n_fft: usize,
    resblock_dilation_sizes: Vec<Vec<usize>>,
    resblock_kernel_sizes: Vec<usize>,
    upsample_initial_channel: usize,
}

/// No size of a network is larger, so that products of sizes do not overflow.
const LARGEST: usize = 1 << 16;

impl KokoroSpec {
    /// Whether a `config.json` is that of a Kokoro.
    pub fn is_in(value: &Value) -> bool {
        value["istftnet"].is_object() && value["plbert"].is_object()
    }

    pub fn read(value: &Value) -> Result<Self, Flaw> {
        let json: KokoroJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "a Kokoro"))?;
        let size = |name: &str, found: usize| match (1..=LARGEST).contains(&found) {
            true => Ok(found),
            false => Err(Flaw::broken(name, found, format!("1 to {LARGEST}"))),
        };
        let hidden = size("hidden_dim", json.hidden_dim)?;
        if !hidden.is_multiple_of(2) {
            return Err(Flaw::broken("hidden_dim", hidden, "an even number"));
        }
        let kernel = odd("text_encoder_kernel_size", json.text_encoder_kernel_size)?;
        let tokens = size("n_token", json.n_token)?;
        Ok(Self {
            tokens,
            hidden,
            style: size("style_dim", json.style_dim)?,
            layers: layered("n_layer", json.n_layer)?,
            longest: size("max_dur", json.max_dur)?,
            kernel,
            albert: AlbertSpec::check(&json.plbert)?,
            generator: GeneratorSpec::check(json.istftnet)?,
            vocabulary: vocabulary(json.vocab, tokens)?,
        })
    }
}

impl AlbertSpec {
    fn check(json: &AlbertJson) -> Result<Self, Flaw> {
        let (width, heads) = (json.hidden_size, json.num_attention_heads);
        if heads == 0 || width == 0 || width > LARGEST || !width.is_multiple_of(heads) {
            let found = format!("{heads} heads for a width of {width}");
            return Err(Flaw::broken("plbert", found, "a divisor of the width"));
        }
        if json.max_position_embeddings < 3 {
            let found = json.max_position_embeddings;
            let name = "plbert.max_position_embeddings";
            return Err(Flaw::broken(name, found, "at least 3"));
        }
        Ok(Self {
            embedding: json.embedding_size,
            width,
            heads,
            feed: json.intermediate_size,
            layers: layered("plbert.num_hidden_layers", json.num_hidden_layers)?,
            positions: json.max_position_embeddings,
        })
    }
}

impl GeneratorSpec {
    fn check(json: GeneratorJson) -> Result<Self, Flaw> {
        let (rates, kernels) = (json.upsample_rates, json.upsample_kernel_sizes);
        let fits = |(&rate, &kernel): (&usize, &usize)| {
            rate > 0 && kernel <= LARGEST && kernel >= rate && (kernel - rate).is_multiple_of(2)
        };
        let mut pairs = rates.iter().zip(&kernels);
        if rates.is_empty() || rates.len() != kernels.len() || !pairs.all(fits) {
            let found = format!("rates {rates:?} and kernels {kernels:?}");
            let wanted = "for each rate a kernel that is longer by an even number";
            return Err(Flaw::broken("istftnet.upsample_rates", found, wanted));
        }
        let channels = json.upsample_initial_channel;
        let halves = 1_usize.checked_shl(rates.len() as u32).unwrap_or(0);
        if halves == 0 || channels == 0 || channels > LARGEST || !channels.is_multiple_of(halves) {
            let name = "istftnet.upsample_initial_channel";
            let wanted = format!("a number that can be halved {} times", rates.len());
            return Err(Flaw::broken(name, channels, wanted));
        }
        let (kernels_of, dilations) = (json.resblock_kernel_sizes, json.resblock_dilation_sizes);
        if kernels_of.is_empty() || kernels_of.len() != dilations.len() {
            let found = format!("{} kernels, {}", kernels_of.len(), dilations.len());
            let name = "istftnet.resblock_dilation_sizes";
            return Err(Flaw::broken(name, found, "one list for each kernel"));
        }
        for &kernel in &kernels_of {
            odd("istftnet.resblock_kernel_sizes", kernel)?;
        }
        let (width, hop) = (json.gen_istft_n_fft, json.gen_istft_hop_size);
        let is_width = (4..=LARGEST).contains(&width) && width.is_multiple_of(2);
        if !is_width || hop == 0 || hop > width / 2 {
            let found = format!("{width} samples every {hop}");
            let wanted = "an even width of at least 4 and a hop of at most its half";
            return Err(Flaw::broken("istftnet.gen_istft_n_fft", found, wanted));
        }
        let spec = Self {
            channels,
            stages: rates
                .into_iter()
                .zip(kernels)
                .map(|(rate, kernel)| GeneratorStageSpec { rate, kernel })
                .collect(),
            blocks: kernels_of.into_iter().zip(dilations).collect(),
            width,
            hop,
        };
        match spec.samples_per_frame() {
            Some(_) => Ok(spec),
            None => Err(Flaw::broken(
                "istftnet.upsample_rates",
                "more samples than memory has",
                format!("at most {LARGEST} samples a frame"),
            )),
        }
    }

    /// Samples of one frame of the pitch. `None` where that is more than a sound can have.
    fn samples_per_frame(&self) -> Option<usize> {
        let rates = self.stages.iter().map(|stage| stage.rate);
        let product = rates.into_iter().try_fold(self.hop, usize::checked_mul)?;
        (product <= LARGEST).then_some(product)
    }

    /// Samples per pitch value.
    pub fn stretch(&self) -> usize {
        self.samples_per_frame().unwrap_or(LARGEST)
    }

    /// Numbers of a spectrum: magnitudes, then phases.
    pub fn bins(&self) -> usize {
        self.width + 2
    }
}

fn default_embedding() -> usize {
    128
}

fn odd(name: &str, kernel: usize) -> Result<usize, Flaw> {
    match kernel % 2 == 1 && kernel <= LARGEST {
        true => Ok(kernel),
        false => Err(Flaw::broken(name, kernel, "an odd number")),
    }
}

fn vocabulary(json: HashMap<String, u32>, tokens: usize) -> Result<HashMap<char, u32>, Flaw> {
    let read = |(symbol, id): (String, u32)| {
        let mut letters = symbol.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) if (id as usize) < tokens => Ok((letter, id)),
            _ => Err(Flaw::broken(
                "vocab",
                format!("{symbol:?}: {id}"),
                format!("one character and a number below {tokens}"),
            )),
        }
    };
    json.into_iter().map(read).collect()
}
