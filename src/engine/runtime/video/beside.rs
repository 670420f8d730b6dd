//! Finds the components of a single-file transformer: named ones first, then folders of diffusers, then files with
//! published names in the transformer's folder and in ComfyUI's neighbouring folders.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::SCHEDULE;
use crate::networks::text_encoder::PIECES;
use crate::networks::video::{FactsOf, WanSpec, autoencoder_config, text_config};
use crate::networks::weights::{Checkpoint, CheckpointError, Flaw, TensorType};
use crate::runtime::LoadError;
use crate::runtime::component::ComponentFolders;
use crate::runtime::text::{Isolation, PromptTokenizer, UnigramVocabulary};

/// Components without which nothing can be made.
pub const NEEDED: [&str; 3] = ["text_encoder", "tokenizer", "vae"];
const TOKENIZER: &str = "tokenizer.json";
/// A file that identifies the folder of each component.
const MARKS: [(&str, &str); 4] = [
    ("scheduler", SCHEDULE),
    ("text_encoder", "config.json"),
    ("tokenizer", TOKENIZER),
    ("vae", "config.json"),
];
/// ComfyUI's folders of these components.
const NEIGHBOURS: [&str; 3] = ["clip", "text_encoders", "vae"];

/// The name of a component in messages.
pub fn label(component: &str) -> &str {
    match component {
        "text_encoder" => "text encoder (umT5)",
        "vae" => "autoencoder (VAE)",
        other => other,
    }
}

/// The places of the components of the transformer at `path`, by name, without components that are nowhere.
pub fn find(
    path: &Path,
    spec: &WanSpec,
    facts: FactsOf,
    named: &ComponentFolders,
) -> ComponentFolders {
    let mut places = named.clone();
    let own = path.parent().unwrap_or(Path::new("."));
    let above = own.parent().filter(|above| *above != own);
    let around = || [Some(own), above].into_iter().flatten();
    for (name, mark) in MARKS {
        let mut folders = around().map(|folder| folder.join(name));
        if let Some(folder) = folders.find(|folder| folder.join(mark).is_file()) {
            places.entry(name.to_owned()).or_insert(folder);
        }
    }
    let files = || weight_files(own, above, path);
    let mut place_file = |name: &str, fits: &dyn Fn(&Checkpoint) -> Result<Value, Flaw>| {
        if !places.contains_key(name)
            && let Some(file) = first_fitting(files(), fits)
        {
            places.insert(name.to_owned(), file);
        }
    };
    place_file("text_encoder", &|checkpoint| {
        let config = text_config(checkpoint)?;
        same(config, "d_model", spec.text_width)
    });
    place_file("vae", &|checkpoint| {
        let config = autoencoder_config(checkpoint, facts)?;
        same(config, "z_dim", spec.inputs)
    });
    if !places.contains_key("tokenizer") {
        // A tokenizer.json may be that of another model.
        let own_text = places
            .get("text_encoder")
            .filter(|text| holds_tokenizer(text));
        if let Some(text) = own_text.cloned() {
            places.insert("tokenizer".to_owned(), text);
            return places;
        }
        let text = places.get("text_encoder").and_then(|text| text.parent());
        let folders = [Some(own.to_owned()), text.map(Path::to_owned)];
        let mut folders = folders.into_iter().flatten();
        if let Some(folder) = folders.find(|folder| folder.join(TOKENIZER).is_file()) {
            places.insert("tokenizer".to_owned(), folder);
        }
    }
    places
}

/// Whether the file of a text encoder holds its tokenizer.
fn holds_tokenizer(text: &Path) -> bool {
    text.is_file() && tokenizer_in(text).is_ok_and(|found| found.is_some())
}

/// Opens the `tokenizer.json` of a folder, or the tokenizer in the file of a text encoder.
pub fn open_tokenizer(
    place: &Path,
    most: usize,
    isolation: Option<&Isolation>,
) -> Result<PromptTokenizer, LoadError> {
    if !place.is_file() {
        return Ok(PromptTokenizer::open(place, most, isolation)?);
    }
    match tokenizer_in(place)? {
        Some(vocabulary) => Ok(PromptTokenizer::of_unigram(&vocabulary, most, isolation)?),
        None => Err(CheckpointError::NotFound {
            path: place.to_owned(),
            found: "no tokenizer".to_owned(),
            wanted: "a folder with tokenizer.json, or a text encoder with its tokenizer".to_owned(),
        }
        .into()),
    }
}

/// The tokenizer in the file of a text encoder.
fn tokenizer_in(text: &Path) -> Result<Option<UnigramVocabulary>, LoadError> {
    let checkpoint = Checkpoint::open_file(text)?;
    if let Some(metadata) = checkpoint.gguf_metadata() {
        return Ok(UnigramVocabulary::from_gguf(metadata)?);
    }
    let message = checkpoint.tensor(PIECES);
    let message = message.map(|header| UnigramVocabulary::from_message(&checkpoint.bytes(header)));
    Ok(message.transpose()?)
}

/// Files with weights around a transformer, but for its own.
fn weight_files(own: &Path, above: Option<&Path>, transformer: &Path) -> BTreeSet<PathBuf> {
    let neighbours = NEIGHBOURS.iter();
    let neighbours = neighbours.filter_map(|name| Some(above?.join(name)));
    let folders = neighbours.chain([own.to_owned()]);
    let items = folders.filter_map(|folder| fs::read_dir(folder).ok());
    let files = items.flat_map(|items| items.flatten().map(|item| item.path()));
    let is_weights = |file: &PathBuf| {
        let ending = file.extension().unwrap_or_default();
        let known = ["safetensors", "gguf"].iter();
        file != transformer
            && known
                .into_iter()
                .any(|known| ending.eq_ignore_ascii_case(known))
    };
    files.filter(is_weights).collect()
}

/// The first matching file with readable weights; else the first match, so that loading reports its fault.
fn first_fitting(
    files: BTreeSet<PathBuf>,
    fits: &dyn Fn(&Checkpoint) -> Result<Value, Flaw>,
) -> Option<PathBuf> {
    let mut second = None;
    for file in files {
        let Ok(checkpoint) = Checkpoint::open_undescribed(&file, fits) else {
            continue;
        };
        let mut headers = checkpoint.tensors().iter();
        let is_read = |dtype: TensorType| matches!(dtype, TensorType::Weight(_));
        match headers.all(|it| is_read(it.dtype) || it.name == PIECES) {
            true => return Some(file),
            false => second = second.or(Some(file)),
        }
    }
    second
}

fn same(config: Value, setting: &str, wanted: usize) -> Result<Value, Flaw> {
    match config[setting] == wanted {
        true => Ok(config),
        false => Err(Flaw::broken(setting, &config[setting], wanted.to_string())),
    }
}
