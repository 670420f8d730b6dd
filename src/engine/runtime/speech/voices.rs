//! Voices: tables of vectors, one for each length of a text, and mixtures of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::networks::weights::{
    Checkpoint, CheckpointError, Flaw, TensorHeader, TensorType, tensor_floats,
};

/// The voices of a model by name.
pub struct Voices {
    tables: BTreeMap<String, VoiceTable>,
    /// Numbers of a vector.
    size: usize,
}

struct VoiceTable {
    values: Vec<f32>,
}

/// Voices and how much each counts; the weights sum up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct VoiceMix(Vec<(String, f32)>);

/// A file with all voices, in the model's folder or in its subfolder of voices.
pub const VOICES_FILE: &str = "voices.safetensors";
const FOLDER: &str = "voices";
/// The voice that the model's authors recommend.
const USUAL: &str = "af_heart";
/// Voices of one mixture at most.
const MOST_MIXED: usize = 8;

impl Voices {
    /// Opens `voices/NAME.safetensors`, and `voices.safetensors` with a tensor for each voice.
    pub fn open(folder: &Path, size: usize) -> Result<Self, CheckpointError> {
        let mut voices = Self {
            tables: BTreeMap::new(),
            size,
        };
        let common = folder.join(VOICES_FILE);
        if common.is_file() {
            let file = Checkpoint::open_tensors(&common)?;
            for header in file.tensors() {
                voices.add(header.name.clone(), &file, header)?;
            }
        }
        let folder = folder.join(FOLDER);
        let mut pickles = Vec::new();
        for path in files(&folder) {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let ending = path
                .extension()
                .unwrap_or_default()
                .to_string_lossy()
                .to_lowercase();
            match ending.as_str() {
                "safetensors" => voices.add_file(name, &path)?,
                "pt" | "pth" | "bin" => pickles.push((name, path)),
                _ => {}
            }
        }
        // A converted file may lie next to its source.
        let unconverted = pickles
            .iter()
            .find(|(name, _)| !voices.tables.contains_key(name));
        if let Some((_, path)) = unconverted.filter(|_| voices.tables.is_empty()) {
            // Says how to convert it.
            Checkpoint::open_tensors(path)?;
        }
        if voices.tables.is_empty() {
            return Err(CheckpointError::NotFound {
                path: folder,
                found: "no voices".to_owned(),
                wanted: format!(
                    "files NAME.safetensors, or one {VOICES_FILE} with a tensor for each voice"
                ),
            });
        }
        Ok(voices)
    }

    fn add_file(&mut self, name: String, path: &Path) -> Result<(), CheckpointError> {
        let file = Checkpoint::open_tensors(path)?;
        match file.tensors() {
            [header] => self.add(name, &file, header),
            many => {
                let found = format!("{} tensors", many.len());
                let flaw = Flaw::broken("the voice", found, "one tensor");
                Err(flaw.in_file(path))
            }
        }
    }

    fn add(
        &mut self,
        name: String,
        file: &Checkpoint,
        header: &TensorHeader,
    ) -> Result<(), CheckpointError> {
        let size = self.size;
        let has_shape = match header.shape.as_slice() {
            &[rows, 1, width] | &[rows, width] => rows > 0 && width == size,
            _ => false,
        };
        let broken = |found: String| {
            let wanted = format!("numbers of shape [lengths, 1, {size}]");
            Flaw::broken(format!("the voice {name:?}"), found, wanted).in_file(file.path())
        };
        if !has_shape {
            return Err(broken(format!("{:?}", header.shape)));
        }
        let TensorType::Weight(dtype) = header.dtype else {
            return Err(broken(header.dtype.to_string()));
        };
        let values = tensor_floats(dtype, &file.bytes(header));
        let values = values.map_err(|error| Flaw::from(error).in_file(file.path()))?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(broken("numbers that are not finite".to_owned()));
        }
        self.tables.insert(name, VoiceTable { values });
        Ok(())
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// Reads `a`, `a+b` or `a(2)+b(1)`; without, the usual voice.
    pub fn mix(&self, text: Option<&str>) -> Result<VoiceMix, String> {
        let usual = || {
            let usual = self.names().find(|name| *name == USUAL);
            usual.or_else(|| self.names().next()).unwrap_or(USUAL)
        };
        let text = text.map_or_else(usual, str::trim);
        let parts: Vec<&str> = text.split('+').map(str::trim).collect();
        if parts.len() > MOST_MIXED {
            let count = parts.len();
            return Err(format!(
                "the voice mixes {count} voices, but at most {MOST_MIXED} can be"
            ));
        }
        let mut mixed = Vec::with_capacity(parts.len());
        for part in parts {
            let (name, weight) = match part.strip_suffix(')').and_then(|part| part.split_once('('))
            {
                Some((name, weight)) => (name.trim(), weight.trim().parse::<f32>().ok()),
                None => (part, Some(1.0)),
            };
            let Some(weight) = weight.filter(|weight| (1e-3..=1e3).contains(weight)) else {
                return Err(format!(
                    "the weight of {part:?} is no number from 0.001 to 1000; write a mixture as a(2)+b(1)"
                ));
            };
            if !self.tables.contains_key(name) {
                let names: Vec<&str> = self.names().collect();
                return Err(format!(
                    "the model has no voice {name:?}; voices: {}",
                    names.join(", ")
                ));
            }
            mixed.push((name.to_owned(), weight));
        }
        let sum: f32 = mixed.iter().map(|(_, weight)| weight).sum();
        for (_, weight) in &mut mixed {
            *weight /= sum;
        }
        Ok(VoiceMix(mixed))
    }

    /// The style vector for a text of this many phonemes.
    pub fn vector(&self, mix: &VoiceMix, phonemes: usize) -> Vec<f32> {
        let mut vector = vec![0f32; self.size];
        for (name, weight) in &mix.0 {
            let Some(table) = self.tables.get(name) else {
                continue;
            };
            let rows = table.values.len() / self.size;
            let row = phonemes.clamp(1, rows.max(1)) - 1;
            let values = table.values.iter().skip(row * self.size);
            for (sum, value) in vector.iter_mut().zip(values) {
                *sum += weight * value;
            }
        }
        vector
    }
}

/// The files of a folder in the order of their names.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}
