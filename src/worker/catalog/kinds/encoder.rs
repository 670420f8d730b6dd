//! Models of embeddings and models that rank: they read and do not write.

use super::{KindRules, ModelFacts, StatedDefaults, StatedFacts, refuse_wrong};
use crate::catalog::Family;
use crate::catalog::complete::refuse_incomplete_encoder;

/// Facts about a model of embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingFacts {
    pub parameters: u64,
    /// The most tokens of one text.
    pub context: u64,
}

/// Facts about a model that ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankingFacts {
    pub parameters: u64,
    /// The most tokens of a query with a document.
    pub context: u64,
}

impl ModelFacts for EmbeddingFacts {
    const RULES: KindRules = KindRules::of(
        &[Family::Qwen3Embedding, Family::EmbeddingGemma],
        &[],
        |source, _| refuse_incomplete_encoder(source, "Pooling"),
    );

    fn read(stated: StatedFacts) -> Result<Self, String> {
        let (parameters, context) = sizes(stated, "an embedding")?;
        Ok(Self {
            parameters,
            context,
        })
    }

    fn check(&self) -> Result<(), String> {
        check_sizes(self.parameters, self.context)
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }
}

impl ModelFacts for RankingFacts {
    const RULES: KindRules = KindRules::of(&[Family::Qwen3Reranker], &[], |source, _| {
        refuse_incomplete_encoder(source, "LogitScore")
    });

    fn read(stated: StatedFacts) -> Result<Self, String> {
        let (parameters, context) = sizes(stated, "a ranking")?;
        Ok(Self {
            parameters,
            context,
        })
    }

    fn check(&self) -> Result<(), String> {
        check_sizes(self.parameters, self.context)
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }
}

/// Parameters and context. `model` with its article.
fn sizes(stated: StatedFacts, model: &str) -> Result<(u64, u64), String> {
    let has_defaults = stated.defaults != StatedDefaults::default();
    match (stated.parameters, stated.context, stated.shape) {
        (Some(parameters), Some(context), None) if !has_defaults => Ok((parameters, context)),
        _ => Err(format!(
            "{model} model needs parameters and context, and has no shape and no defaults"
        )),
    }
}

fn check_sizes(parameters: u64, context: u64) -> Result<(), String> {
    refuse_wrong([("parameters", parameters == 0), ("context", context == 0)])
}
