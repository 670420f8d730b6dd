//! Text models.

use super::{KindRules, ModelFacts, StatedFacts};
use crate::catalog::Family;
use crate::catalog::complete::refuse_incomplete_text;

#[derive(Debug, Clone, PartialEq)]
pub struct TextFacts {
    /// The most tokens the model can attend to.
    pub context: u64,
    pub defaults: Defaults,
    pub shape: Shape,
}

/// Defaults for sampling settings that a request omits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Defaults {
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
}

/// The network's shape, for memory estimates before the download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub parameters: u64,
    /// Active parameters per token: without unused experts, and without input embeddings that are not tied to the
    /// output. All parameters, if the entry omits them.
    pub active_parameters: u64,
    /// Layers with a KV cache: recurrent layers have a state of fixed size.
    pub layers: u64,
    /// Numbers that a token keeps in each of them: keys and values of all heads, or a latent.
    pub kv_dim: u64,
}

impl Shape {
    pub fn kv_bytes_per_token(&self) -> Option<u64> {
        self.layers.checked_mul(self.kv_dim)?.checked_mul(2)
    }
}

/// The context that fits into the stated memory.
pub const MINIMUM_CONTEXT: u64 = 4096;

impl ModelFacts for TextFacts {
    const RULES: KindRules = KindRules::of(
        &[
            Family::Llama,
            Family::Ministral3,
            Family::Qwen2,
            Family::Qwen3,
            Family::Qwen3Moe,
            Family::Qwen3Vl,
            Family::Qwen3Next,
            Family::Qwen35,
            Family::Qwen35Moe,
            Family::Gemma2,
            Family::Gemma3,
            Family::Gemma4,
            Family::Phi3,
            Family::Olmo2,
            Family::Olmoe,
            Family::Mixtral,
            Family::GptOss,
            Family::Glm4Moe,
            Family::Glm4MoeLite,
            Family::DeepseekV2,
            Family::Granite,
            Family::GraniteHybrid,
            Family::Lfm2,
            Family::Lfm2Moe,
            Family::SmolLm3,
            Family::Gemma,
            Family::Glm4,
            Family::Helium,
            Family::Mamba,
            Family::Olmo,
            Family::Phi,
            Family::StableLm,
            Family::Starcoder2,
        ],
        &[
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "repetition_penalty",
        ],
        |source, _| refuse_incomplete_text(source),
    );

    fn read(stated: StatedFacts) -> Result<Self, String> {
        let StatedFacts {
            context: Some(context),
            shape: Some(shape),
            parameters: None,
            defaults,
        } = stated
        else {
            return Err(
                "a text model needs context and shape, and has its parameters in shape".to_owned(),
            );
        };
        Ok(Self {
            context,
            shape,
            defaults: Defaults {
                temperature: defaults.temperature,
                top_k: defaults.top_k,
                top_p: defaults.top_p,
                min_p: defaults.min_p,
                repetition_penalty: defaults.repetition_penalty,
            },
        })
    }

    fn check(&self) -> Result<(), String> {
        let shape = &self.shape;
        let sizes = [
            self.context,
            shape.parameters,
            shape.active_parameters,
            shape.layers,
            shape.kv_dim,
        ];
        if sizes.contains(&0) {
            return Err("context and shape must be greater than 0".to_owned());
        }
        match shape.active_parameters > shape.parameters {
            true => Err("shape.active_parameters must be at most shape.parameters".to_owned()),
            false => self.defaults.check(),
        }
    }

    fn parameters(&self) -> u64 {
        self.shape.parameters
    }
}

impl Defaults {
    /// Defaults have the same limits as requests.
    fn check(&self) -> Result<(), String> {
        let ranges = [
            ("temperature", self.temperature, 0.0..=100.0),
            ("top_p", self.top_p, 0.0..=1.0),
            ("min_p", self.min_p, 0.0..=1.0),
            ("repetition_penalty", self.repetition_penalty, 0.01..=100.0),
        ];
        for (name, value, range) in ranges {
            let outside = |value: &f32| !range.contains(value);
            if let Some(found) = value.filter(outside) {
                let (least, most) = (range.start(), range.end());
                return Err(format!(
                    "defaults.{name} must be between {least} and {most}, found {found}"
                ));
            }
        }
        Ok(())
    }
}
