//! A model's files on disk, opened and checked as one thing.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;

use super::{
    error::{CheckpointError, Flaw},
    gguf::{self, GgufMetadata},
    header::{StoredForm, TensorHeader},
    mapping::{Mapping, TensorBytes},
    packed::{Packing, StoredRange},
    safetensors, whisper_cpp,
};

/// The files of a model: tensor headers and descriptions. Opening reads headers only.
pub struct Checkpoint {
    path: PathBuf,
    files: Vec<Arc<Mapping>>,
    tensors: Vec<TensorHeader>,
    by_name: HashMap<String, usize>,
    description: Description,
    metadata: BTreeMap<String, String>,
    /// The bytes of each token of text, in a file of whisper.cpp.
    text_tokens: Option<Vec<Vec<u8>>>,
}

/// A model's metadata.
pub enum Description {
    /// `config.json` as the Hugging Face hub keeps it.
    Config(serde_json::Value),
    Gguf(GgufMetadata),
}

/// The index of the largest checkpoints has some megabytes; larger files are refused.
const MAX_INDEX_BYTES: u64 = 1 << 26;
/// A configuration has some kilobytes. Parsed, it takes up to forty times its bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
const INDEX: &str = "model.safetensors.index.json";
/// The names of an index; the second one is that of diffusers.
const INDEXES: [&str; 2] = [INDEX, "diffusion_pytorch_model.safetensors.index.json"];
const PICKLES: &[&str] = &["bin", "pt", "pth", "ckpt", "pkl", "pickle"];

impl Checkpoint {
    /// Opens a `.gguf` file, a `.safetensors` file next to its `config.json`, a folder of either, or a `.bin` file of
    /// whisper.cpp.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let metadata = fs::metadata(path).map_err(|error| unreadable(path, error))?;
        if metadata.is_dir() {
            return Self::open_folder(path);
        }
        match extension(path).as_str() {
            "gguf" => Self::open_gguf(path),
            "safetensors" => Self::open_safetensors(path),
            "bin" if begins_with(path, whisper_cpp::MAGIC) => Self::open_whisper_cpp(path),
            other if PICKLES.contains(&other) => Err(pickle(path)),
            _ => Err(CheckpointError::Refused {
                path: path.to_owned(),
                reason: "unsupported weights; use .safetensors or .gguf files".to_owned(),
            }),
        }
    }

    /// Whether a file, or the only weights of a folder, are in whisper.cpp's own form.
    pub fn is_of_whisper_cpp(path: &Path) -> bool {
        let is_one =
            |path: &Path| extension(path) == "bin" && begins_with(path, whisper_cpp::MAGIC);
        if !path.is_dir() {
            return is_one(path);
        }
        let mut names = list(path).unwrap_or_default();
        let ends = ["safetensors", "gguf", "bin"];
        names.retain(|name| ends.contains(&extension(Path::new(name)).as_str()));
        matches!(names.as_slice(), [one] if is_one(&path.join(one)))
    }

    /// Opens a `.safetensors` file for its tensors and metadata, without a `config.json`.
    pub fn open_tensors(path: &Path) -> Result<Self, CheckpointError> {
        fs::metadata(path).map_err(|error| unreadable(path, error))?;
        match extension(path).as_str() {
            "safetensors" => {}
            other if PICKLES.contains(&other) => return Err(pickle(path)),
            _ => {
                return Err(CheckpointError::Refused {
                    path: path.to_owned(),
                    reason: "unsupported weights; use a .safetensors file".to_owned(),
                });
            }
        }
        let mapping = map(path)?;
        let parsed = safetensors::parse_all(mapping.bytes());
        let (tensors, metadata) = parsed.map_err(|flaw| flaw.in_file(path))?;
        let description = Description::Config(serde_json::Value::Null);
        let checkpoint = Self::assemble(path, vec![mapping], tensors, description)?;
        Ok(Self {
            metadata,
            ..checkpoint
        })
    }

    /// Opens a `.gguf` or `.safetensors` file without a `config.json`.
    pub fn open_file(path: &Path) -> Result<Self, CheckpointError> {
        match extension(path).as_str() {
            "gguf" => Self::open(path),
            _ => Self::open_tensors(path),
        }
    }

    /// The same for a network whose `config.json` is inferred from its tensors.
    pub fn open_undescribed(
        path: &Path,
        describe: impl FnOnce(&Self) -> Result<serde_json::Value, Flaw>,
    ) -> Result<Self, CheckpointError> {
        let is_gguf = extension(path) == "gguf";
        let open = if is_gguf {
            Self::open
        } else {
            Self::open_tensors
        };
        let checkpoint = open(path)?;
        let config = describe(&checkpoint).map_err(|flaw| flaw.in_file(path))?;
        Ok(Self {
            description: Description::Config(config),
            ..checkpoint
        })
    }

    /// Uses the `config.json` next to a GGUF file as its description: such files have few metadata for other networks
    /// than decoders.
    pub fn described_beside(self) -> Result<Self, CheckpointError> {
        if self.gguf_metadata().is_none() {
            return Ok(self);
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        Ok(Self {
            description: Description::Config(read_config(folder)?),
            ..self
        })
    }

    /// The names of the tensors of a `.safetensors` file, even if it is truncated after its header.
    pub fn names_in(path: &Path) -> Option<Vec<String>> {
        let is_named = extension(path) == "safetensors";
        let mapping = is_named.then(|| map(path).ok())??;
        safetensors::names(mapping.bytes()).ok()
    }

    /// The same of a whole `.gguf` file, too.
    pub fn names_in_any(path: &Path) -> Option<Vec<String>> {
        match extension(path).as_str() {
            "gguf" => {
                let gguf = gguf::parse(map(path).ok()?.bytes()).ok()?;
                Some(gguf.tensors.into_iter().map(|it| it.name).collect())
            }
            _ => Self::names_in(path),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Text metadata of a file that was opened for its tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Size of its files.
    pub fn file_bytes(&self) -> u64 {
        let sizes = self.files.iter().map(|file| file.bytes().len() as u64);
        sizes.sum()
    }

    pub fn tensors(&self) -> &[TensorHeader] {
        &self.tensors
    }

    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The metadata of a GGUF file: tokenizer, chat template and all.
    pub fn gguf_metadata(&self) -> Option<&GgufMetadata> {
        match &self.description {
            Description::Gguf(metadata) => Some(metadata),
            Description::Config(_) => None,
        }
    }

    /// The bytes of each text token in a file of whisper.cpp; special tokens follow them.
    pub fn text_tokens(&self) -> Option<&[Vec<u8>]> {
        self.text_tokens.as_deref()
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorHeader> {
        self.by_name.get(name).map(|&index| &self.tensors[index])
    }

    pub fn bytes(&self, header: &TensorHeader) -> TensorBytes {
        let mapped = |place: &StoredRange| {
            TensorBytes::mapped(self.files[place.file].clone(), place.range.clone())
        };
        let converted = match &header.converted_from {
            None => return mapped(&header.place()),
            Some(StoredForm::Iq(iq)) => {
                let stored = mapped(&header.place());
                let converted = iq.as_q8_0(&stored);
                stored.release();
                converted
            }
            Some(StoredForm::Packed(parts)) => {
                let converted =
                    parts.converted(|place| &self.files[place.file].bytes()[place.range.clone()]);
                parts.places().for_each(|place| mapped(place).release());
                converted
            }
        };
        TensorBytes::Owned(converted)
    }

    fn open_folder(folder: &Path) -> Result<Self, CheckpointError> {
        let names = list(folder)?;
        let ending = |end: &str| -> Vec<&String> {
            let ends = |name: &&String| extension(Path::new(name)) == end;
            names.iter().filter(ends).collect()
        };
        let (tensors, ggufs) = (ending("safetensors"), ending("gguf"));
        if let Some(index) = INDEXES
            .iter()
            .find(|index| names.iter().any(|name| name == *index))
        {
            return Self::open_shards(folder, index);
        }
        match (tensors.as_slice(), ggufs.as_slice()) {
            ([one], _) => Self::open_safetensors(&folder.join(one)),
            ([], [one]) => Self::open_gguf(&folder.join(one)),
            ([], []) => match PICKLES.iter().find_map(|end| ending(end).first().copied()) {
                Some(name) => Self::open(&folder.join(name)),
                None => Err(not_found(folder, "no weights")),
            },
            ([], many) | (many, _) => {
                let found = format!("{} weight files", many.len());
                Err(not_found(folder, &found))
            }
        }
    }

    fn open_gguf(path: &Path) -> Result<Self, CheckpointError> {
        let mapping = map(path)?;
        let gguf = gguf::parse(mapping.bytes()).map_err(|flaw| flaw.in_file(path))?;
        let description = Description::Gguf(gguf.metadata);
        Self::assemble(path, vec![mapping], gguf.tensors, description)
    }

    fn open_whisper_cpp(path: &Path) -> Result<Self, CheckpointError> {
        let mapping = map(path)?;
        let file = whisper_cpp::parse(mapping.bytes()).map_err(|flaw| flaw.in_file(path))?;
        let description = Description::Config(file.config);
        let checkpoint = Self::assemble(path, vec![mapping], file.tensors, description)?;
        Ok(Self {
            text_tokens: Some(file.tokens),
            ..checkpoint
        })
    }

    fn open_safetensors(path: &Path) -> Result<Self, CheckpointError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        if let Some(index) = INDEXES.iter().find(|index| folder.join(index).is_file()) {
            return Self::open_shards(folder, index);
        }
        let description = Description::Config(read_config(folder)?);
        let mapping = map(path)?;
        let tensors = safetensors::parse(mapping.bytes()).map_err(|flaw| flaw.in_file(path))?;
        Self::assemble(path, vec![mapping], tensors, description)?.with_matrices()
    }

    fn open_shards(folder: &Path, index: &str) -> Result<Self, CheckpointError> {
        let path = folder.join(index);
        let index: IndexJson = read_json(&path, MAX_INDEX_BYTES)?;
        let description = Description::Config(read_config(folder)?);
        let mut names: Vec<&String> = index.weight_map.values().collect();
        names.sort();
        names.dedup();
        let (mut files, mut tensors) = (Vec::new(), Vec::new());
        for (file, name) in names.into_iter().enumerate() {
            check_shard_name(name).map_err(|flaw| flaw.in_file(&path))?;
            let shard = folder.join(name);
            let mapping = map(&shard)?;
            let headers =
                safetensors::parse(mapping.bytes()).map_err(|flaw| flaw.in_file(&shard))?;
            tensors.extend(
                headers
                    .into_iter()
                    .map(|header| TensorHeader { file, ..header }),
            );
            files.push(mapping);
        }
        let checkpoint = Self::assemble(&path, files, tensors, description)?;
        let missing = |name: &&String| checkpoint.tensor(name).is_none();
        match index.weight_map.keys().find(missing) {
            None => checkpoint.with_matrices(),
            Some(name) => Err(Flaw::broken(
                format!("the tensor {name:?}"),
                "only in the index",
                "in the file that the index names",
            )
            .in_file(&path)),
        }
    }

    /// Combines the tensors of each packed matrix, if the configuration declares such.
    fn with_matrices(self) -> Result<Self, CheckpointError> {
        let Description::Config(config) = &self.description else {
            return Ok(self);
        };
        let refuse = |flaw: Flaw| flaw.in_file(&self.path);
        let Some(packing) = Packing::of(config).map_err(refuse)? else {
            return Ok(self);
        };
        let tensors = packing.matrices(&self.tensors).map_err(refuse)?;
        Self::assemble(&self.path, self.files, tensors, self.description)
    }

    fn assemble(
        path: &Path,
        files: Vec<Arc<Mapping>>,
        tensors: Vec<TensorHeader>,
        description: Description,
    ) -> Result<Self, CheckpointError> {
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (index, header) in tensors.iter().enumerate() {
            if by_name.insert(header.name.clone(), index).is_some() {
                let what = format!("the tensor {:?}", header.name);
                return Err(Flaw::broken(what, "in two files", "in one").in_file(path));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            files,
            tensors,
            by_name,
            description,
            metadata: BTreeMap::new(),
            text_tokens: None,
        })
    }
}

#[derive(Deserialize)]
struct IndexJson {
    weight_map: HashMap<String, String>,
}

/// An index may only name safetensors files in its own folder.
fn check_shard_name(name: &str) -> Result<(), Flaw> {
    let plain = Path::new(name).file_name().is_some_and(|file| file == name);
    if plain && extension(Path::new(name)) == "safetensors" {
        return Ok(());
    }
    let wanted = "the name of a .safetensors file in the same folder";
    Err(Flaw::broken("weight_map", format!("{name:?}"), wanted))
}

fn read_config(folder: &Path) -> Result<serde_json::Value, CheckpointError> {
    let path = folder.join("config.json");
    if path.is_file() {
        return read_json(&path, MAX_CONFIG_BYTES);
    }
    Err(CheckpointError::NotFound {
        path,
        found: "no such file".to_owned(),
        wanted: "the model's config.json next to its weights".to_owned(),
    })
}

/// Reads a small JSON file next to weights.
pub fn read_description(path: &Path) -> Result<serde_json::Value, CheckpointError> {
    read_json(path, MAX_CONFIG_BYTES)
}

fn read_json<T: for<'de> Deserialize<'de>>(
    path: &Path,
    most_bytes: u64,
) -> Result<T, CheckpointError> {
    let size = regular(path)?;
    if size > most_bytes {
        let wanted = format!("at most {most_bytes}");
        let flaw = Flaw::broken("the file", format!("{size} bytes"), wanted);
        return Err(flaw.in_file(path));
    }
    let mut text = Vec::new();
    // A file may grow after its size was read.
    let read = fs::File::open(path).and_then(|file| file.take(most_bytes).read_to_end(&mut text));
    read.map_err(|error| unreadable(path, error))?;
    serde_json::from_slice(&text)
        .map_err(|error| Flaw::broken("the file", error, "valid JSON for this file").in_file(path))
}

fn list(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let read = || {
        let names = fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<Vec<_>, std::io::Error>>()?;
        Ok(names)
    };
    read().map_err(|error| unreadable(folder, error))
}

/// The size of a regular file: a pipe or a device is waited for without end, and maps to nothing.
fn regular(path: &Path) -> Result<u64, CheckpointError> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, error))?;
    match metadata.is_file() {
        true => Ok(metadata.len()),
        false => Err(CheckpointError::Refused {
            path: path.to_owned(),
            reason: "not a regular file".to_owned(),
        }),
    }
}

fn map(path: &Path) -> Result<Arc<Mapping>, CheckpointError> {
    regular(path)?;
    Mapping::open(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, source: std::io::Error) -> CheckpointError {
    match source.kind() {
        std::io::ErrorKind::NotFound => not_found(path, "no such file or folder"),
        _ => CheckpointError::Unreadable {
            path: path.to_owned(),
            source,
        },
    }
}

fn not_found(path: &Path, found: &str) -> CheckpointError {
    CheckpointError::NotFound {
        path: path.to_owned(),
        found: found.to_owned(),
        wanted: format!(
            "a .gguf file, a .safetensors file with its config.json, or a folder with one model ({INDEX} \
             when it has several files)"
        ),
    }
}

fn pickle(path: &Path) -> CheckpointError {
    CheckpointError::Refused {
        path: path.to_owned(),
        reason: "pickled weights can run code and are never opened; use the model's .safetensors or .gguf \
                 files, or write their tensors anew with `worker models convert FILE`, which runs nothing"
            .to_owned(),
    }
}

fn begins_with(path: &Path, magic: &[u8]) -> bool {
    let mut first = vec![0; magic.len()];
    let read = regular(path).ok().and_then(|_| fs::File::open(path).ok());
    read.is_some_and(|mut file| file.read_exact(&mut first).is_ok()) && first == magic
}

fn extension(path: &Path) -> String {
    let extension = path.extension().unwrap_or_default();
    extension.to_string_lossy().to_ascii_lowercase()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
