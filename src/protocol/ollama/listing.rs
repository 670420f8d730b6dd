//! Models as programs list and show them. Facts that no worker says are left empty.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::job::{Capabilities, Kind, Kinds, MemoryStay, ModelDetails};

use super::answer::moment;

/// A model that is online.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    pub name: String,
    /// Seconds since the epoch from which on this service offers it.
    pub since: i64,
    pub context: u32,
    pub kinds: Kinds,
    pub can: Capabilities,
    pub stay: MemoryStay,
    pub details: Arc<ModelDetails>,
}

/// The last second that programs can say which count nanoseconds in 64 bits: `ollama ps` shows it as forever.
const FOREVER: i64 = 9_223_372_036;

fn entry(model: &ListedModel) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": moment(model.since),
        "size": model.details.bytes.unwrap_or(0),
        "digest": digest(model),
        "details": details(&model.details),
    })
}

fn details(details: &ModelDetails) -> Value {
    let family = details.family.as_ref();
    json!({
        "parent_model": details.parent.as_deref().unwrap_or(""),
        "format": details.format.as_deref().unwrap_or(""),
        "family": family.map_or("", String::as_str),
        "families": family.map(|family| [family]),
        "parameter_size": details.parameters.map_or_else(String::new, short_count),
        "quantization_level": details.quantization.as_deref().unwrap_or(""),
    })
}

/// Ollama's digest is that of a list of files, and changes when they do. This one is of the name and all facts that are
/// known of the files.
fn digest(model: &ListedModel) -> String {
    let ModelDetails {
        bytes,
        parameters,
        format,
        family,
        quantization,
        parent,
        upstream,
        network,
    } = &*model.details;
    let mut facts = vec![
        json!(model.name),
        json!(bytes),
        json!(parameters),
        json!(format),
        json!(family),
        json!(quantization),
    ];
    // Without one the digest is that of earlier versions.
    let more = parent.iter().chain(upstream).chain(network);
    facts.extend(more.map(|more| json!(more)));
    let facts = Value::from(facts);
    let digest = Sha256::digest(facts.to_string());
    HEXLOWER.encode(&digest)
}

/// A number of parameters in Ollama's format: `8.2B`, `134.52M`.
fn short_count(count: u64) -> String {
    let scaled = |unit: f64, decimals: usize, letter: char| {
        format!("{:.decimals$}{letter}", count as f64 / unit)
    };
    match count {
        1_000_000_000.. => scaled(1e9, 1, 'B'),
        1_000_000.. => scaled(1e6, 2, 'M'),
        1_000.. => scaled(1e3, 2, 'K'),
        _ => count.to_string(),
    }
}

/// The reply of `/api/tags`.
pub fn tags(models: &[ListedModel]) -> Value {
    let models: Vec<Value> = models.iter().map(entry).collect();
    json!({"models": models})
}

/// The answer of `/api/ps`: models in the memory of a worker.
pub fn running(models: &[ListedModel]) -> Value {
    let running = models.iter().filter_map(|model| {
        let expires = match model.stay {
            MemoryStay::Unloaded => return None,
            MemoryStay::Until(at) => at,
            MemoryStay::Always => FOREVER,
        };
        let mut entry = entry(model);
        entry["context_length"] = model.context.into();
        entry["expires_at"] = moment(expires).into();
        Some(entry)
    });
    let models: Vec<Value> = running.collect();
    json!({"models": models})
}

/// The reply of `/api/show`.
pub fn show(model: &ListedModel) -> Value {
    let can = [
        (model.kinds.contains(Kind::Text), "completion"),
        (model.can.contains(Capabilities::TOOLS), "tools"),
        (model.can.contains(Capabilities::IMAGE_INPUT), "vision"),
        (model.kinds.contains(Kind::Embedding), "embedding"),
    ];
    let can = can.into_iter();
    let can: Vec<&str> = can.filter_map(|(can, word)| can.then_some(word)).collect();
    // Programs look for the context under the name of the architecture.
    let family = model.details.family.as_deref().unwrap_or("model");
    let mut info = json!({"general.architecture": family});
    info[format!("{family}.context_length")] = model.context.into();
    if let Some(parameters) = model.details.parameters {
        info["general.parameter_count"] = parameters.into();
    }
    let entry = entry(model);
    json!({
        "modified_at": entry["modified_at"],
        "details": entry["details"],
        "model_info": info,
        "capabilities": can,
    })
}
