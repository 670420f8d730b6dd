//! `[models]`: which models the worker serves.

use std::path::{Path, PathBuf};

use super::raw::Raw;
use super::setting::settings;
use super::value::{Place, Value, quote};

settings! {
    /// Models that the worker serves.
    pub struct ModelsConfig = "models" {
        /// Models to load: catalog names (`worker models list`), NAME:QUANTIZATION, org/name:FILE of a pulled repository, or paths of .gguf files and model folders.
        serve: Served = [],
        /// Models of `serve` to load on every GPU; each of their jobs goes to the GPU with the fewest. Set it to serve one model with several GPUs.
        replicate: Served = [],
        /// Preferred quantization where a model has several. Set it to trade speed for quality.
        quantization: Option<Quantization>; unset "the model's default, or a smaller one that fits",
        /// Folder with your own catalog entries (*.toml), which extend or replace the built-in ones.
        dir: Option<PathBuf>; unset "only the built-in catalog",
    }
}

/// How weights are stored, by the word that the catalog has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantization(&'static str);

impl Quantization {
    /// All that an entry of the catalog may have.
    pub const WORDS: &[&str] = &[
        "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_0", "q4_k_m", "q4_k_s",
        "q4_0", "mxfp4", "q3_k_m", "q2_k",
    ];

    pub fn word(self) -> &'static str {
        self.0
    }
}

impl Value for Quantization {
    fn wanted() -> String {
        let words: Vec<String> = Self::WORDS.iter().map(|word| quote(word)).collect();
        format!("one of {}", words.join(", "))
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        let text = raw.text().unwrap_or_default().trim();
        let mut words = Self::WORDS.iter().copied();
        let word = words.find(|word| word.eq_ignore_ascii_case(text));
        word.map(Self).ok_or_else(String::new)
    }

    fn show(&self) -> Option<String> {
        Some(quote(self.0))
    }
}

/// Names of the catalog and paths, in the order of loading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served(pub Vec<String>);

/// Whether a model's name is a path: it begins like one, or ends like a weight file without a repository as in
/// `org/name:FILE`.
pub fn is_path(name: &str) -> bool {
    let starts = ["/", "./", "../", "~/"]
        .iter()
        .any(|start| name.starts_with(start));
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    let is_of_repository = name
        .split_once(':')
        .is_some_and(|(repository, _)| repository.matches('/').count() == 1);
    starts || (matches!(extension, Some("gguf" | "safetensors")) && !is_of_repository)
}

impl Value for Served {
    fn wanted() -> String {
        "a list of models such as [\"qwen3-0.6b\", \"./tiny.gguf\"]".to_owned()
    }

    fn parse(raw: &Raw, place: &Place<'_>) -> Result<Self, String> {
        let names = raw.texts().ok_or_else(String::new)?;
        let models = names.iter().map(|name| model(name, place));
        let models: Vec<String> = models.collect::<Result<_, _>>()?;
        match named_twice(&models) {
            Some(name) => Err(format!("a list without duplicates, found {name} twice")),
            None => Ok(Self(models)),
        }
    }

    fn show(&self) -> Option<String> {
        let names: Vec<String> = self.0.iter().map(|name| quote(name)).collect();
        Some(format!("[{}]", names.join(", ")))
    }
}

/// Names count in any case, as in the catalog.
fn named_twice(models: &[String]) -> Option<&String> {
    let is_same = |one: &String, other: &String| match is_path(one) {
        true => one == other,
        false => one.eq_ignore_ascii_case(other),
    };
    let mut all = models.iter().enumerate();
    let twice = all.find(|(index, name)| models[..*index].iter().any(|other| is_same(other, name)));
    twice.map(|(_, name)| name)
}

/// A path starts where it is written; a name stays as it is.
fn model(name: &str, place: &Place<'_>) -> Result<String, String> {
    match is_path(name) {
        true => Ok(place.path(name)?.to_string_lossy().into_owned()),
        false => Ok(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_repository_is_no_path() {
        for path in [
            "tiny.gguf",
            "models/tiny.gguf",
            "./org/name:tiny.gguf",
            "/m",
        ] {
            assert!(is_path(path), "{path}");
        }
        for name in [
            "qwen3-0.6b",
            "org/name",
            "org/name:q8_0",
            "org/name:tiny.gguf",
        ] {
            assert!(!is_path(name), "{name}");
        }
    }
}
