//! `GET /v1/models` and `GET /v1/models/{id}`: models that are online.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName};
use serde_json::{Value, json};

use crate::clock::started_at;
use crate::error::ApiError;
use crate::state::DoorSettings;
use crate::switchboard::{ModelOnline, Overview, Switchboard};
use muster_protocol::job::{Capabilities, FailureKind, Kind};

use super::anthropic::models as anthropic;
use super::auto::{AUTO, Auto, PARTICULAR, is_candidate, is_chat_model};
use super::models::{limits, unknown};
use super::open::KnownModels;
use super::params;
use super::reply::Reply;

/// Every request of OpenAI's SDKs has it.
const OF_SDK: HeaderName = HeaderName::from_static("x-stainless-lang");

/// Text models, as most chat programs expect; `?type=all` lists all models, `?type=speech` and other kinds list models
/// of that kind. OpenAI's SDKs get all, since their programs use models of every kind.
pub async fn list(
    State(board): State<Switchboard>,
    State(settings): State<Arc<DoorSettings>>,
    State(known): State<Arc<KnownModels>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Reply {
    let query = query.unwrap_or_default();
    let mut kinds = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("type="));
    let asked = kinds.next();
    let all = match asked {
        Some(kind) => kind == "all",
        None => headers.contains_key(OF_SDK) && !anthropic::is_client(&headers),
    };
    let kind = asked.and_then(kind_named);
    let is_listed = |model: &&ModelOnline| match kind {
        Some(kind) => model.kinds.contains(kind),
        None => all || is_chat_model(model),
    };
    // Workers offer the forms of the AI Horde API as models.
    let is_model = |model: &&ModelOnline| model.kinds.each().any(|kind| kind != Kind::Form);
    let overview = board.current().await;
    let listed = overview.models.iter().filter(is_model).filter(is_listed);
    let listed = listed.map(|model| {
        let entry = entry(model, &settings.name, &known);
        (entry, model.capabilities)
    });
    let auto = auto(&overview, &settings.name).filter(|_| kind.is_none());
    let models: Vec<_> = auto.into_iter().chain(listed).collect();
    if anthropic::is_client(&headers) {
        return Reply(anthropic::list(&models));
    }
    let data: Vec<Value> = models.into_iter().map(|(entry, _)| entry).collect();
    Reply(json!({"object": "list", "data": data}))
}

/// A kind by its name; texts have the name that chat programs know.
fn kind_named(name: &str) -> Option<Kind> {
    let mut kinds = Kind::each().filter(|kind| *kind != Kind::Text);
    kinds.find(|kind| kind.facts().name == name)
}

/// A model by any of its names, which may contain slashes.
pub async fn show(
    State(board): State<Switchboard>,
    State(settings): State<Arc<DoorSettings>>,
    State(known): State<Arc<KnownModels>>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
) -> Result<Reply, ApiError> {
    let written = |model: Value, can| match anthropic::is_client(&headers) {
        true => Reply(anthropic::entry(&model, can)),
        false => Reply(model),
    };
    let Path(name) = id.map_err(|_| {
        ApiError::new(
            FailureKind::InvalidRequest,
            "the model name is not valid UTF-8",
        )
    })?;
    let overview = board.current().await;
    if Auto::called(&name).is_some()
        && let Some((auto, can)) = auto(&overview, &settings.name)
    {
        return Ok(written(auto, can));
    }
    if let Some(model) = with_params(&name).and_then(|name| overview.model(&known.id(name))) {
        return Ok(Reply(params::params(model)));
    }
    let model = overview.model(&known.id(&name)).ok_or_else(|| {
        let online: Vec<&str> = overview.models.iter().map(|model| &*model.name).collect();
        unknown(&name, &online, &known)
    })?;
    let mut entry = entry(model, &settings.name, &known);
    if let Some(words) = settings.known_words.get(&*model.name) {
        entry["known_words"] = words.iter().collect();
    }
    Ok(written(entry, model.capabilities))
}

/// The model of a `/params` path: names may contain slashes, so no separate route can end with `/params`.
fn with_params(path: &str) -> Option<&str> {
    path.strip_suffix("/params")
}

/// `auto`, as long as a candidate is online, with the capabilities of all candidates.
fn auto(overview: &Overview, owner: &str) -> Option<(Value, Capabilities)> {
    let models = overview.models.iter();
    let texts = || models.clone().filter(|model| is_candidate(model));
    let longest = texts().map(|model| model.context).max()?;
    let can = texts().fold(Capabilities::default(), |can, model| {
        can.with(model.capabilities)
    });
    let entry = json!({
        "id": AUTO,
        "object": "model",
        "created": started_at(),
        "owned_by": owner,
        "input_modalities": ["text"],
        "output_modalities": ["text"],
        "max_context_length": longest,
        "aliases": PARTICULAR,
    });
    Some((entry, can))
}

fn entry(model: &ModelOnline, owner: &str, known: &KnownModels) -> Value {
    let texts = |list: &[Arc<str>]| -> Value { list.iter().map(|text| &**text).collect() };
    let mut entry = json!({
        "id": &*model.name,
        "object": "model",
        "created": started_at(),
        "owned_by": owner,
        "input_modalities": input_modalities(model),
        "output_modalities": output_modalities(model),
        "aliases": texts(&known.other_names(&model.name)),
    });
    if let Some(parent) = &model.details.parent {
        entry["parent"] = parent.as_str().into();
    }
    if let Some(upstream) = &model.details.upstream {
        entry["upstream"] = upstream.as_str().into();
    }
    if let Some(network) = &model.details.network {
        entry["network"] = network.as_str().into();
    }
    // Media models have no context, whatever their workers state.
    if reads_tokens(model) {
        entry["max_context_length"] = model.context.into();
    }
    let limits = limits(model);
    if !limits.is_empty() {
        entry["limits"] = limits.into();
    }
    entry
}

fn input_modalities(model: &ModelOnline) -> Vec<&str> {
    let mut inputs: Vec<&str> = model.modalities.iter().map(|name| &**name).collect();
    let takes_sources = model.kinds.contains(Kind::Image)
        && model.capabilities.contains(Capabilities::SOURCE_IMAGES);
    let reads_images = model.capabilities.contains(Capabilities::IMAGE_INPUT);
    if (takes_sources || reads_images) && !inputs.contains(&"image") {
        inputs.push("image");
    }
    if model.kinds.contains(Kind::Transcription) {
        inputs = vec!["audio"];
    }
    if inputs.is_empty() {
        inputs.push("text");
    }
    inputs
}

fn output_modalities(model: &ModelOnline) -> Vec<&'static str> {
    let modalities = model.kinds.each().filter_map(|kind| kind.facts().modality);
    let mut outputs: Vec<_> = modalities.collect();
    outputs.dedup();
    outputs
}

fn reads_tokens(model: &ModelOnline) -> bool {
    let mut kinds = [Kind::Text, Kind::Embedding, Kind::Ranking].into_iter();
    kinds.any(|kind| model.kinds.contains(kind))
}
