//! Adapters of text models in the folder of the configuration: `MODEL/NAME`, a folder of peft or a GGUF file, is served as
//! `MODEL:NAME`.

use std::fs;
use std::path::{Component, Path, PathBuf};

use tracing::warn;

use super::locate::{Located, LocatedSource};
use muster_engine::runtime::ModelSource;

/// The path of an adapter, and its model.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterSource {
    /// The name that the model is served as.
    pub base: String,
    pub model: Box<ModelSource>,
    pub path: PathBuf,
}

const LONGEST_NAME: usize = 64;

/// The adapters of a model, by name.
pub fn adapters_of(folder: &Path, base: &Located) -> Vec<Located> {
    let LocatedSource::Text(model) = &base.source else {
        return Vec::new();
    };
    // A name may have slashes, and must not lead out of the folder.
    let own = Path::new(&base.name);
    if own
        .components()
        .any(|part| !matches!(part, Component::Normal(_)))
    {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(folder.join(own)) else {
        return Vec::new();
    };
    let mut adapters: Vec<Located> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let name = adapter_name(&path)?;
            Some(Located {
                name: format!("{}:{name}", base.name),
                source: LocatedSource::Adapter(AdapterSource {
                    base: base.name.clone(),
                    model: model.clone(),
                    path,
                }),
                is_vouched: false,
                sources: Vec::new(),
            })
        })
        .collect();
    adapters.sort_by(|one, other| one.name.cmp(&other.name));
    // A folder comes before a file of the same name.
    adapters.dedup_by(|later, first| later.name == first.name);
    adapters
}

/// The name of an adapter; `None` of another file.
fn adapter_name(path: &Path) -> Option<String> {
    let is_folder = path.is_dir();
    let is_gguf = path
        .extension()
        .is_some_and(|it| it.eq_ignore_ascii_case("gguf"));
    let is_peft = is_folder && path.join("adapter_config.json").is_file();
    if !is_peft && (is_folder || !is_gguf) {
        return None;
    }
    let name = if is_folder {
        path.file_name()
    } else {
        path.file_stem()
    };
    let name = name?.to_str()?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain) {
        return Some(name.to_owned());
    }
    warn!(
        "not serving the adapter {}: rename it to letters, digits, dots, dashes and underscores, at most {LONGEST_NAME}",
        path.display()
    );
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_folders_of_peft_and_gguf_files_of_their_model() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = root.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("adapter_config.json"), "{}").unwrap();
        };
        for name in ["tiny/pirate", "tiny/a b", "org/tiny/x", "other/y"] {
            make(name);
        }
        fs::create_dir(root.path().join("tiny/empty")).unwrap();
        for name in ["tiny/q8.gguf", "tiny/pirate.gguf", "tiny/readme.md"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        let names = |base: &str| {
            let base = Located {
                name: base.to_owned(),
                source: LocatedSource::Text(Box::new(ModelSource::new("nowhere"))),
                is_vouched: true,
                sources: Vec::new(),
            };
            let adapters = adapters_of(root.path(), &base).into_iter();
            adapters.map(|adapter| adapter.name).collect::<Vec<_>>()
        };
        assert_eq!(names("tiny"), ["tiny:pirate", "tiny:q8"]);
        assert_eq!(names("org/tiny"), ["org/tiny:x"]);
        for base in ["none", "../tiny", "/tiny", "tiny/../tiny"] {
            assert_eq!(names(base), [""; 0], "{base}");
        }
    }
}
