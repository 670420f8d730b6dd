//! How strong an adapter is: `adapter_config.json` of peft, or the metadata of a GGUF file.

use std::collections::BTreeMap;
use std::path::Path;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::Value;

use crate::networks::weights::{CheckpointError, Flaw, GgufMetadata, read_description};

/// Numbers between the two products of a change.
const MOST_RANK: usize = 256;
/// Limit of a compiled pattern.
const MOST_PATTERN_BYTES: usize = 1 << 18;
const MOST_PATTERNS: usize = 4096;
const MERGE: &str =
    "plain LoRA; merge such an adapter into its model with peft's merge_and_unload, and serve that";

/// Parameters for the scale of a change.
#[derive(Debug)]
pub struct AdapterSettings {
    alpha: f64,
    alphas: Vec<(Regex, f64)>,
    /// `None` if the ranks are given only by tensors.
    ranks: Option<Ranks>,
    /// Alpha is divided by the root of the rank.
    divides_by_root: bool,
    /// The base model named in the adapter's file.
    pub base: Option<String>,
}

#[derive(Debug)]
struct Ranks {
    usual: usize,
    others: Vec<(Regex, usize)>,
}

/// The configuration of peft. Fields for training only are omitted.
#[derive(Deserialize)]
struct LoraConfigJson {
    peft_type: Option<String>,
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    use_rslora: Option<bool>,
    // peft writes keys in order, and the first pattern that fits counts.
    #[serde(default)]
    rank_pattern: Option<BTreeMap<String, usize>>,
    #[serde(default)]
    alpha_pattern: Option<BTreeMap<String, f64>>,
    #[serde(default)]
    base_model_name_or_path: Option<String>,
}

/// Settings of other computations than plain LoRA, with their values that change nothing.
const OTHERS: &[(&str, &[&str])] = &[
    ("use_dora", &[]),
    ("modules_to_save", &[]),
    ("bias", &["none"]),
    ("lora_bias", &[]),
    ("fan_in_fan_out", &[]),
    ("use_qalora", &[]),
    ("use_bdlora", &[]),
    ("alora_invocation_tokens", &[]),
    ("invocation_string", &[]),
    ("trainable_token_indices", &[]),
    ("target_parameters", &[]),
    ("layer_replication", &[]),
    ("arrow_config", &[]),
    ("kasa_config", &[]),
    ("monteclora_config", &[]),
    // The others replace weights of the base model, which the adapter does not contain.
    (
        "init_lora_weights",
        &["gaussian", "eva", "orthogonal", "loftq"],
    ),
];

impl AdapterSettings {
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let value = read_description(path)?;
        Self::of_json(&value).map_err(|flaw| flaw.in_file(path))
    }

    fn of_json(value: &Value) -> Result<Self, Flaw> {
        let json = LoraConfigJson::deserialize(value)
            .map_err(|error| Flaw::broken("the configuration", error, "that of a LoRA of peft"))?;
        match json.peft_type.as_deref() {
            None | Some("LORA") => {}
            Some(other) => return Err(Flaw::unsupported("peft_type", other, MERGE)),
        }
        for (name, harmless) in OTHERS {
            let found = &value[*name];
            let is_harmless = found.as_str().is_some_and(|it| harmless.contains(&it));
            let starts_plainly = *name == "init_lora_weights" && found.is_boolean();
            if !is_harmless && !starts_plainly && !is_unset(found) {
                return Err(Flaw::unsupported(*name, found, MERGE));
            }
        }
        let others = json.rank_pattern.unwrap_or_default().into_iter();
        let others = others.map(|(key, rank)| Ok((pattern("rank_pattern", &key)?, rank)));
        let alphas = json.alpha_pattern.unwrap_or_default().into_iter();
        let alphas = alphas.map(|(key, alpha)| {
            Ok((
                pattern("alpha_pattern", &key)?,
                finite("alpha_pattern", alpha)?,
            ))
        });
        Ok(Self {
            alpha: finite("lora_alpha", json.lora_alpha)?,
            alphas: few("alpha_pattern", alphas)?,
            ranks: Some(Ranks {
                usual: json.r,
                others: few("rank_pattern", others)?,
            }),
            divides_by_root: json.use_rslora.unwrap_or(false),
            base: json.base_model_name_or_path,
        })
    }

    /// The settings of a GGUF file. The name of the architecture is the caller's to check.
    pub fn of_gguf(metadata: &GgufMetadata) -> Result<Self, Flaw> {
        for (key, wanted) in [("general.type", "adapter"), ("adapter.type", "lora")] {
            let found = metadata.text(key).unwrap_or("nothing");
            if found != wanted {
                return Err(Flaw::unsupported(key, found, wanted));
            }
        }
        let invocation = "adapter.alora.invocation_tokens";
        if metadata.value(invocation).is_some() {
            let found = "tokens from which on the adapter counts";
            return Err(Flaw::unsupported(invocation, found, MERGE));
        }
        let alpha = metadata.float("adapter.lora.alpha").unwrap_or(0.0);
        Ok(Self {
            alpha: finite("adapter.lora.alpha", alpha)?,
            alphas: Vec::new(),
            ranks: None,
            divides_by_root: false,
            base: metadata
                .text("general.base_model.0.name")
                .map(str::to_owned),
        })
    }

    /// The scale of a module's change, whose tensors have this rank.
    pub fn scale(&self, module: &str, rank: usize) -> Result<f64, Flaw> {
        let what = || format!("the rank of {module}");
        if !(1..=MOST_RANK).contains(&rank) {
            return Err(Flaw::unsupported(what(), rank, format!("1 to {MOST_RANK}")));
        }
        let Some(ranks) = &self.ranks else {
            // Without an alpha llama.cpp adds the change as it is.
            return Ok(match self.alpha {
                0.0 => 1.0,
                alpha => alpha / rank as f64,
            });
        };
        let said = first(&ranks.others, module).unwrap_or(ranks.usual);
        if said != rank {
            let wanted = format!("{said} as in adapter_config.json");
            return Err(Flaw::broken(what(), rank, wanted));
        }
        let alpha = first(&self.alphas, module).unwrap_or(self.alpha);
        Ok(match self.divides_by_root {
            true => alpha / (rank as f64).sqrt(),
            false => alpha / rank as f64,
        })
    }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn first<T: Copy>(patterns: &[(Regex, T)], module: &str) -> Option<T> {
    let mut fitting = patterns.iter().filter(|(it, _)| it.is_match(module));
    fitting.next().map(|(_, value)| *value)
}

/// A pattern fits the end of a module's name, from a dot on.
fn pattern(setting: &str, key: &str) -> Result<Regex, Flaw> {
    let built = RegexBuilder::new(&format!(r"^(?:.*\.)?(?:{key})$"))
        .size_limit(MOST_PATTERN_BYTES)
        .build();
    built.map_err(|_| Flaw::unsupported(setting, format!("{key:?}"), "names and plain patterns"))
}

fn few<T>(
    setting: &str,
    items: impl ExactSizeIterator<Item = Result<T, Flaw>>,
) -> Result<Vec<T>, Flaw> {
    match items.len() {
        0..=MOST_PATTERNS => items.collect(),
        found => Err(Flaw::broken(
            setting,
            found,
            format!("at most {MOST_PATTERNS}"),
        )),
    }
}

fn finite(what: &str, number: f64) -> Result<f64, Flaw> {
    match (number as f32).is_finite() {
        true => Ok(number),
        false => Err(Flaw::broken(what, number, "a number")),
    }
}
