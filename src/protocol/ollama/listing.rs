//! Models as programs list and show them. What only the files of a model tell (size, digest, quantization) is not known
//! here and is left out.

use serde_json::{Value, json};

use crate::job::Capabilities;

use super::answer::moment;

/// A model that is online.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    pub name: String,
    /// Seconds since the epoch from which on this service offers it.
    pub since: i64,
    pub context: u32,
    pub can: Capabilities,
}

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

/// What `/api/ps` answers: every model that is online is in the memory of a worker.
pub fn running(models: &[ListedModel]) -> Value {
    let running = models.iter().map(|model| {
        let mut entry = entry(model);
        entry["context_length"] = model.context.into();
        entry
    });
    let models: Vec<Value> = running.collect();
    json!({"models": models})
}

/// What `/api/show` answers.
pub fn show(model: &ListedModel) -> Value {
    const CAPABILITIES: [(Capabilities, &str); 4] = [
        (Capabilities::GENERATE, "completion"),
        (Capabilities::TOOLS, "tools"),
        (Capabilities::IMAGE_INPUT, "vision"),
        (Capabilities::EMBED, "embedding"),
    ];
    let can = CAPABILITIES.iter();
    let can: Vec<&str> = can
        .filter_map(|(can, word)| model.can.contains(*can).then_some(*word))
        .collect();
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
