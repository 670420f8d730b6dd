//! `[models]`: which models the worker serves.

use std::path::{Path, PathBuf};

use super::raw::Raw;
use super::setting::settings;
use super::value::{Place, Value, quote};

settings! {
    /// Which models the worker serves.
    pub struct ModelsConfig = "models" {
        /// The models to load: names of the catalog (`worker models list`), NAME:QUANTIZATION, or paths of .gguf files and model folders.
        serve: Served = [],
        /// Which quantization to take where a model has several. Set it to trade speed for quality.
        quantization: Option<String>; unset "the model's own choice, or a smaller one that fits",
        /// A folder with catalog entries (*.toml) of your own, which add to the built-in ones or replace them.
        dir: Option<PathBuf>; unset "only the built-in catalog",
    }
}

/// Names of the catalog and paths, in the order of loading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served(pub Vec<String>);

/// Whether a model's name is meant as a path: it says where it is, or it ends like a file of weights.
pub fn is_path(name: &str) -> bool {
    let starts = ["/", "./", "../", "~/"]
        .iter()
        .any(|start| name.starts_with(start));
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    starts || matches!(extension, Some("gguf" | "safetensors"))
}

impl Value for Served {
    fn wanted() -> String {
        "a list of models such as [\"qwen3-0.6b\", \"./tiny.gguf\"]".to_owned()
    }

    fn parse(raw: &Raw, place: &Place<'_>) -> Result<Self, String> {
        let names: Option<Vec<&str>> = match raw {
            Raw::List(items) => items.iter().map(Raw::text).collect(),
            Raw::Untyped(text) => Some(text.split(',').collect()),
            _ => None,
        };
        let names = names.ok_or_else(String::new)?.into_iter().map(str::trim);
        let names = names.filter(|name| !name.is_empty());
        names
            .map(|name| model(name, place))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn show(&self) -> Option<String> {
        let names: Vec<String> = self.0.iter().map(|name| quote(name)).collect();
        Some(format!("[{}]", names.join(", ")))
    }
}

/// A path starts where it is written; a name stays as it is.
fn model(name: &str, place: &Place<'_>) -> Result<String, String> {
    match is_path(name) {
        true => Ok(place.path(name)?.to_string_lossy().into_owned()),
        false => Ok(name.to_owned()),
    }
}
