//! Checks that a source lists the files required to load a model of its kind.

use super::IMAGE_INDEX;
use crate::hub;

/// A GGUF file is complete; safetensors need a configuration and a tokenizer.
pub fn refuse_incomplete_text(source: &hub::Source) -> Result<(), String> {
    let weights: Vec<_> = source
        .files
        .iter()
        .filter(|file| file.path.is_weights())
        .collect();
    match weights.as_slice() {
        [] => Err("no weights (.gguf or .safetensors) are listed".to_owned()),
        [one] if one.path.is_gguf() => Ok(()),
        several if several.iter().any(|file| file.path.is_gguf()) => Err(format!(
            "a GGUF model is one file, but {} weight files are listed",
            several.len()
        )),
        _ => match ["config.json", "tokenizer.json"]
            .into_iter()
            .find(|wanted| {
                !source
                    .files
                    .iter()
                    .any(|file| file.path.as_str() == *wanted)
            }) {
            Some(missing) => Err(format!("safetensors also need {missing} in files")),
            None => Ok(()),
        },
    }
}

/// An encoder also needs the files of sentence-transformers about the steps after the network.
pub fn refuse_incomplete_encoder(source: &hub::Source, module: &str) -> Result<(), String> {
    refuse_incomplete_text(source)?;
    let module = format!("1_{module}/config.json");
    let mut wanted = ["modules.json", &module].into_iter();
    let is_listed = |wanted: &str| (source.files.iter()).any(|file| file.path.as_str() == wanted);
    match wanted.find(|wanted| !is_listed(wanted)) {
        Some(missing) => Err(format!("a model that reads also needs {missing} in files")),
        None => Ok(()),
    }
}

/// Needs weights, their configuration, and voices.
pub fn refuse_incomplete_speech(source: &hub::Source) -> Result<(), String> {
    let paths = || source.files.iter().map(|file| file.path.as_str());
    let is_weights = |path: &str| path.ends_with(".safetensors");
    let is_voice = |path: &str| path.starts_with("voices") && is_weights(path);
    if !paths().any(|path| is_weights(path) && !is_voice(path)) {
        return Err("no weights (.safetensors) are listed".to_owned());
    }
    match (
        paths().any(|path| path == "config.json"),
        paths().any(is_voice),
    ) {
        (false, _) => Err("a speech model also needs config.json in files".to_owned()),
        (_, false) => Err("a speech model also needs voices (.safetensors) in files".to_owned()),
        (true, true) => Ok(()),
    }
}

/// Files of every model with components in the layout of diffusers, in addition to the `config.json` of each component.
const IMAGE_FILES: [&str; 2] = [IMAGE_INDEX, SCHEDULER];
const SCHEDULER: &str = "scheduler/scheduler_config.json";

/// A checkpoint with all networks of an image model, whose tokenizers are built in.
pub fn is_one_file(source: &hub::Source) -> bool {
    match source.files.as_slice() {
        [only] => only.path.is_weights() && !only.path.is_gguf(),
        _ => false,
    }
}

/// The same, or a GGUF.
pub fn is_one_weights_file(source: &hub::Source) -> bool {
    matches!(source.files.as_slice(), [only] if only.path.is_weights())
}

/// `elsewhere` are components whose files are in other sources.
pub fn refuse_incomplete_folder(
    source: &hub::Source,
    components: &[&str],
    elsewhere: &[&str],
) -> Result<(), String> {
    let is_here = |component: &&&str| !elsewhere.contains(component);
    let components: Vec<&str> = components.iter().filter(is_here).copied().collect();
    let wanted = components
        .iter()
        .map(|component| format!("{component}/config.json"));
    let wanted = IMAGE_FILES.map(str::to_owned).into_iter().chain(wanted);
    let is_wanted = |wanted: &String| wanted != SCHEDULER || !elsewhere.contains(&"scheduler");
    let wanted: Vec<String> = wanted.filter(is_wanted).collect();
    let files = || source.files.iter().map(|file| &file.path);
    let is_missing = |wanted: &&String| !files().any(|path| path.as_str() == wanted.as_str());
    if let Some(missing) = wanted.iter().find(is_missing) {
        return Err(format!(
            "a model of this kind also needs {missing} in files"
        ));
    }
    let has_weights = |folder: &str| {
        files()
            .any(|path| path.as_str().starts_with(folder) && path.is_weights() && !path.is_gguf())
    };
    let mut folders = components.iter().map(|component| format!("{component}/"));
    match folders.find(|folder| !has_weights(folder)) {
        Some(folder) => Err(format!("no weights (.safetensors) of {folder} are listed")),
        None => Ok(()),
    }
}

/// A component needs its settings and its weights, a tokenizer any file.
pub fn refuse_incomplete_component(
    name: &str,
    folder: &str,
    source: &hub::Source,
) -> Result<(), String> {
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let inside = source.files.iter().map(|file| &file.path);
    let inside: Vec<_> = inside
        .filter(|path| path.as_str().starts_with(&prefix))
        .collect();
    let wanted = match name {
        _ if name.starts_with("tokenizer") => None,
        "scheduler" => Some("scheduler_config.json"),
        _ => Some("config.json"),
    };
    if inside.is_empty() {
        return Err(format!("no files of {name} are listed"));
    }
    let is_there = |wanted: &str| inside.iter().any(|path| path.as_str() == wanted);
    if let Some(wanted) = wanted.map(|wanted| format!("{prefix}{wanted}"))
        && !is_there(&wanted)
    {
        return Err(format!("a component also needs {wanted} in files"));
    }
    match wanted == Some("config.json") && !inside.iter().any(|path| path.is_weights()) {
        true => Err(format!("no weights of {name} are listed")),
        false => Ok(()),
    }
}
