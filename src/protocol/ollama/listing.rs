//! Models as programs list and show them. What only the files of a model tell (size, digest, quantization) is not known
//! here and is left out.

use serde_json::{Value, json};

use crate::job::{Capabilities, Kind, Kinds, MemoryStay};

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
}

/// The last second that programs can say which count nanoseconds in 64 bits: `ollama ps` shows it as forever.
const FOREVER: i64 = 9_223_372_036;

fn entry(model: &ListedModel) -> Value {
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": moment(model.since),
        "details": {"format": "", "family": "", "families": null, "parameter_size": "", "quantization_level": ""},
    })
}

/// What `/api/tags` answers.
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

/// What `/api/show` answers.
pub fn show(model: &ListedModel) -> Value {
    let can = [
        (model.kinds.contains(Kind::Text), "completion"),
        (model.can.contains(Capabilities::TOOLS), "tools"),
        (model.can.contains(Capabilities::IMAGE_INPUT), "vision"),
        (model.kinds.contains(Kind::Embedding), "embedding"),
    ];
    let can = can.into_iter();
    let can: Vec<&str> = can.filter_map(|(can, word)| can.then_some(word)).collect();
    // Programs look for the context under the name of the architecture, which is not known here.
    let info = json!({"general.architecture": "model", "model.context_length": model.context});
    let entry = entry(model);
    json!({
        "modified_at": entry["modified_at"],
        "details": entry["details"],
        "model_info": info,
        "capabilities": can,
    })
}
