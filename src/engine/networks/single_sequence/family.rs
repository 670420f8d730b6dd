//! The families, and the facts in which their networks differ.

use std::fmt;

use super::PASS_TOKENS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SingleSequenceFamily {
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
}

/// Family, `architectures` of config.json, name for people.
const FAMILIES: &[(SingleSequenceFamily, &str, &str)] = &[
    (SingleSequenceFamily::Gemma, "GemmaForCausalLM", "Gemma 1"),
    (SingleSequenceFamily::Glm4, "Glm4ForCausalLM", "GLM-4-0414"),
    (SingleSequenceFamily::Helium, "HeliumForCausalLM", "Helium"),
    (SingleSequenceFamily::Mamba, "MambaForCausalLM", "Mamba"),
    (SingleSequenceFamily::Olmo, "OlmoForCausalLM", "OLMo 1"),
    (SingleSequenceFamily::Phi, "PhiForCausalLM", "Phi 1 and 2"),
    (
        SingleSequenceFamily::StableLm,
        "StableLmForCausalLM",
        "StableLM",
    ),
    (
        SingleSequenceFamily::Starcoder2,
        "Starcoder2ForCausalLM",
        "StarCoder2",
    ),
];

impl SingleSequenceFamily {
    pub fn of_architecture(name: &str) -> Option<Self> {
        let found = FAMILIES.iter().find(|entry| entry.1 == name);
        found.map(|entry| entry.0)
    }

    /// The family that a `config.json` names.
    pub fn of_config(config: &serde_json::Value) -> Option<Self> {
        let names = config["architectures"].as_array()?.iter();
        let mut names = names.filter_map(serde_json::Value::as_str);
        names.find_map(Self::of_architecture)
    }

    pub fn known_architectures() -> String {
        let names: Vec<&str> = FAMILIES.iter().map(|entry| entry.1).collect();
        names.join(", ")
    }

    /// The most tokens of any pass.
    pub fn most_pass_tokens(self) -> usize {
        match self {
            Self::Mamba => 1,
            Self::Phi => PHI_FIRST_PASS,
            _ => PASS_TOKENS,
        }
    }

    /// How many tables of the rope the network has: Phi one in each layer.
    pub fn rope_tables(self, layers: usize) -> usize {
        match self {
            Self::Phi => layers,
            _ => 1,
        }
    }
}

/// Phi masks the tokens of a pass as if none came before, so only the first pass may have several.
pub const PHI_FIRST_PASS: usize = 512;

impl fmt::Display for SingleSequenceFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = FAMILIES.iter().find(|entry| entry.0 == *self);
        f.write_str(found.map_or("", |entry| entry.2))
    }
}
