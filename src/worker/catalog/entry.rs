//! A model of the catalog, complete and checked.

use std::{collections::BTreeMap, path::PathBuf};

use super::kinds::{Facts, MINIMUM_CONTEXT, WORKSPACE_BYTES};
use super::{Component, Embedded};
use crate::hub;
use muster_protocol::job::{Kind, KnownWords};

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key of the model everywhere inside.
    pub id: String,
    pub description: String,
    pub names: Names,
    pub family: Family,
    pub licence: String,
    pub facts: Facts,
    pub default_quantization: String,
    /// The words of a small model; empty for models that read any text.
    pub known_words: KnownWords,
    /// Sources of the weights, by quantization.
    pub sources: BTreeMap<String, Source>,
    /// Components with files in other sources, by the model's folder that they replace.
    pub components: BTreeMap<String, Component>,
}

/// The public names of a model, in each of the two APIs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub v1: Vec<String>,
    pub legacy: Vec<String>,
}

/// Which network a model is; one word per decoder that `networks` can build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Llama,
    Ministral3,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Qwen3Vl,
    Qwen3Next,
    /// Qwen3.6 and Qwen3.8 as well.
    Qwen35,
    Qwen35Moe,
    Qwen3Embedding,
    Qwen3Reranker,
    Gemma2,
    Gemma3,
    Gemma4,
    EmbeddingGemma,
    /// Phi 4 as well.
    Phi3,
    Olmo2,
    Olmoe,
    Mixtral,
    GptOss,
    /// GLM 4.5 and 4.6.
    Glm4Moe,
    /// GLM-4.7-Flash.
    Glm4MoeLite,
    DeepseekV2,
    Granite,
    GraniteHybrid,
    /// LFM2.5 as well.
    Lfm2,
    Lfm2Moe,
    SmolLm3,
    Gemma,
    /// GLM-4-0414.
    Glm4,
    Helium,
    Mamba,
    Olmo,
    /// Phi 1, 1.5 and 2.
    Phi,
    StableLm,
    Starcoder2,
    StableDiffusion1,
    StableDiffusion2,
    StableDiffusionXl,
    Whisper,
    Wan,
    Kokoro,
    AceStep,
}

impl Family {
    pub const ALL: &[(&'static str, Self)] = &[
        ("llama", Self::Llama),
        ("qwen2", Self::Qwen2),
        ("qwen3", Self::Qwen3),
        ("qwen3moe", Self::Qwen3Moe),
        ("qwen3-vl", Self::Qwen3Vl),
        ("qwen3next", Self::Qwen3Next),
        ("qwen35", Self::Qwen35),
        ("qwen35moe", Self::Qwen35Moe),
        ("qwen3-embedding", Self::Qwen3Embedding),
        ("qwen3-reranker", Self::Qwen3Reranker),
        ("ministral3", Self::Ministral3),
        ("gemma2", Self::Gemma2),
        ("gemma3", Self::Gemma3),
        ("gemma4", Self::Gemma4),
        ("embeddinggemma", Self::EmbeddingGemma),
        ("phi3", Self::Phi3),
        ("olmo2", Self::Olmo2),
        ("olmoe", Self::Olmoe),
        ("mixtral", Self::Mixtral),
        ("gpt-oss", Self::GptOss),
        ("glm4moe", Self::Glm4Moe),
        ("glm4moelite", Self::Glm4MoeLite),
        ("deepseek2", Self::DeepseekV2),
        ("granite", Self::Granite),
        ("granitehybrid", Self::GraniteHybrid),
        ("lfm2", Self::Lfm2),
        ("lfm2moe", Self::Lfm2Moe),
        ("smollm3", Self::SmolLm3),
        ("gemma", Self::Gemma),
        ("glm4", Self::Glm4),
        ("helium", Self::Helium),
        ("mamba", Self::Mamba),
        ("olmo", Self::Olmo),
        ("phi", Self::Phi),
        ("stablelm", Self::StableLm),
        ("starcoder2", Self::Starcoder2),
        ("stable-diffusion-1", Self::StableDiffusion1),
        ("stable-diffusion-2", Self::StableDiffusion2),
        ("stable-diffusion-xl", Self::StableDiffusionXl),
        ("whisper", Self::Whisper),
        ("wan", Self::Wan),
        ("kokoro", Self::Kokoro),
        ("ace_step", Self::AceStep),
    ];
}

impl Family {
    /// The word for this family in an entry.
    pub fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, value)| *value == self);
        found.map_or("", |(word, _)| word)
    }

    /// Whether a model of this family has run on a GPU. No other is proposed for one.
    pub fn has_run_on_gpus(self) -> bool {
        !matches!(
            self,
            Self::Qwen3Moe
                | Self::Olmoe
                | Self::Qwen3Vl
                | Self::Mixtral
                | Self::Glm4Moe
                | Self::Qwen3Embedding
                | Self::Qwen3Reranker
                | Self::Qwen3Next
                | Self::Qwen35
                | Self::Qwen35Moe
                | Self::Gemma4
                | Self::EmbeddingGemma
                | Self::GptOss
                | Self::Glm4MoeLite
                | Self::DeepseekV2
                | Self::GraniteHybrid
                | Self::Lfm2
                | Self::Lfm2Moe
        ) && !self.runs_one_job()
    }

    /// Whether its network is that of candle-transformers, which runs one request at a time.
    pub fn runs_one_job(self) -> bool {
        matches!(
            self,
            Self::Gemma
                | Self::Glm4
                | Self::Helium
                | Self::Mamba
                | Self::Olmo
                | Self::Phi
                | Self::StableLm
                | Self::Starcoder2
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Hub(hub::Source),
    /// A file or a folder on this machine.
    Path(PathBuf),
    /// A folder inside this program, to be unpacked.
    Embedded(&'static Embedded),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{model} has no quantization {found}; available: {}", .known.join(", "))]
pub struct UnknownQuantization {
    pub model: String,
    pub found: String,
    pub known: Vec<String>,
}

/// Size of quantizations, in thousandths of a bit per weight. Files mix types, so the numbers of mixed ones are
/// averages of whole files of 1 to 8 billion parameters.
pub(super) const QUANTIZATIONS: &[(&str, u64)] = &[
    ("f32", 32_000),
    ("f16", 16_000),
    ("bf16", 16_000),
    ("q8_0", 8_500),
    ("q6_k", 6_600),
    ("q5_k_m", 5_800),
    ("q5_k_s", 5_650),
    ("q5_0", 5_700),
    ("q4_k_m", 5_200),
    ("q4_k_s", 4_900),
    ("q4_0", 4_850),
    // For gpt-oss-20b: experts in 4.25 bits, everything else in 8.5 and more.
    ("mxfp4", 4_650),
    ("q3_k_m", 4_200),
    ("q2_k", 3_500),
];

impl Entry {
    /// The weights' source for a quantization; `None` selects the default one.
    pub fn source(
        &self,
        quantization: Option<&str>,
    ) -> Result<(&str, &Source), UnknownQuantization> {
        let wanted = quantization.unwrap_or(&self.default_quantization);
        let found = self
            .sources
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found
            .map(|(name, source)| (name.as_str(), source))
            .ok_or_else(|| UnknownQuantization {
                model: self.id.clone(),
                found: wanted.to_owned(),
                known: self.sources.keys().cloned().collect(),
            })
    }

    /// The source of the quantization that the owner prefers, where the model has it.
    pub fn preferred(&self, quantization: Option<&str>) -> Option<(&str, &Source)> {
        self.source(Some(quantization?)).ok()
    }

    /// Memory for weights, `MINIMUM_CONTEXT` tokens or one drawing, and the work itself. An estimate from the model's shape;
    /// the fit before loading counts from the file's own header.
    pub fn minimum_memory_bytes(&self, quantization: &str) -> Option<u64> {
        let weights = self.held_bytes(quantization)?;
        let facts = match &self.facts {
            Facts::Text(facts) => facts,
            others => return weights.checked_add(others.workspace_bytes()),
        };
        let context = facts.context.min(MINIMUM_CONTEXT);
        let kv = self.kv_bytes_per_token()?.checked_mul(context)?;
        weights.checked_add(kv)?.checked_add(WORKSPACE_BYTES)
    }

    /// Bytes of the weights in memory: those of the files, or f32 in networks of candle-transformers.
    pub fn held_bytes(&self, quantization: &str) -> Option<u64> {
        let stored = self.weight_bytes(quantization)?;
        match self.family.runs_one_job() {
            true => self.parameters().checked_mul(4),
            false => Some(stored),
        }
    }

    /// Bytes of a token's keys and values, in 16 bits or, in networks of candle-transformers, in 32; 0 of other kinds.
    pub fn kv_bytes_per_token(&self) -> Option<u64> {
        let Facts::Text(facts) = &self.facts else {
            return Some(0);
        };
        let bytes = facts.shape.kv_bytes_per_token()?;
        bytes.checked_mul(if self.family.runs_one_job() { 2 } else { 1 })
    }

    pub fn kind(&self) -> Kind {
        self.facts.kind()
    }

    pub fn parameters(&self) -> u64 {
        self.facts.parameters()
    }

    /// Bytes of weights read per token: active parameters of a text model, all of others.
    pub fn active_bytes(&self, quantization: &str) -> Option<u64> {
        let weights = self.held_bytes(quantization)?;
        let Facts::Text(facts) = &self.facts else {
            return Some(weights);
        };
        let shape = facts.shape;
        let product = u128::from(weights) * u128::from(shape.active_parameters);
        let share = product.checked_div(u128::from(shape.parameters))?;
        u64::try_from(share).ok()
    }

    /// Size of the weights in a quantization: as stated for the files, or estimated from the parameters.
    pub fn weight_bytes(&self, quantization: &str) -> Option<u64> {
        self.source(Some(quantization)).ok()?;
        let sources = self.sources_of(quantization);
        let mut stated = sources.iter().map(|it| match it.source {
            Source::Hub(source) => stated_bytes(source),
            Source::Path(_) | Source::Embedded(_) => None,
        });
        let stated = stated.try_fold(0, |sum: u64, bytes| sum.checked_add(bytes?));
        stated.or_else(|| {
            let (_, milli_bits) = QUANTIZATIONS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(quantization))?;
            Some(self.parameters().checked_mul(*milli_bits)? / 8000)
        })
    }
}

fn stated_bytes(source: &hub::Source) -> Option<u64> {
    let weights = source.files.iter().filter(|file| file.path.is_weights());
    weights
        .map(|file| file.size_bytes)
        .try_fold(0, |sum: u64, size| sum.checked_add(size?))
}
