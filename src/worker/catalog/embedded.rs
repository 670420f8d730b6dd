//! Models inside this program: their files are part of the binary, and are written to a folder once so that weights can
//! be mapped like those of other models.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// A model folder inside the program.
#[derive(Debug, PartialEq, Eq)]
pub struct Embedded {
    pub name: &'static str,
    files: &'static [File],
}

/// Name and content.
type File = (&'static str, &'static [u8]);

macro_rules! embedded {
    ($folder:literal, $($file:literal),+ $(,)?) => {
        Embedded {
            name: $folder,
            files: &[$(($file, include_bytes!(concat!("../../../models/", $folder, "/", $file)))),+],
        }
    };
}

static ALL: &[Embedded] = &[
    embedded!(
        "demo-hearing",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ),
    embedded!(
        "demo-image",
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/merges.txt",
        "tokenizer/vocab.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ),
    embedded!(
        "demo-music",
        "condition_encoder/config.json",
        "condition_encoder/diffusion_pytorch_model.safetensors",
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/tokenizer.json",
        "transformer/config.json",
        "transformer/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ),
    embedded!("demo-safety", "config.json", "model.safetensors"),
    embedded!(
        "demo-speech",
        "config.json",
        "model.safetensors",
        "voices.safetensors",
    ),
    embedded!(
        "demo-text",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ),
    embedded!(
        "demo-video",
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/tokenizer.json",
        "transformer/config.json",
        "transformer/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    ),
    embedded!(
        "demo-vision",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ),
];

/// A folder that could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("unpacking the built-in model {model} to {folder} failed: {cause}", folder = .folder.display())]
pub struct UnpackError {
    pub model: &'static str,
    pub folder: PathBuf,
    pub cause: io::Error,
}

impl Embedded {
    pub fn find(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|model| model.name == name)
    }

    pub fn names() -> Vec<&'static str> {
        ALL.iter().map(|model| model.name).collect()
    }

    /// How many files it has.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// A hash over all files, their names and lengths: the name of the folder.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for (name, bytes) in self.files {
            hash.update(format!("{name} {}\n", bytes.len()));
            hash.update(bytes);
        }
        HEXLOWER.encode(&hash.finalize())
    }

    /// The model's folder under `models`, written first where it is missing or damaged.
    pub fn unpack(&self, models: &Path) -> Result<PathBuf, UnpackError> {
        let folder = models.join(self.sha256());
        if self.is_whole(&folder) {
            return Ok(folder);
        }
        self.write(models, &folder).map_err(|cause| UnpackError {
            model: self.name,
            folder: folder.clone(),
            cause,
        })?;
        Ok(folder)
    }

    /// Like `unpack`; the files instead of the folder.
    pub fn unpack_files(&self, models: &Path) -> Result<Vec<PathBuf>, UnpackError> {
        let folder = self.unpack(models)?;
        Ok(self
            .files
            .iter()
            .map(|(name, _)| folder.join(name))
            .collect())
    }

    /// Compares every byte: the model is small, and a disk may have lost some.
    fn is_whole(&self, folder: &Path) -> bool {
        let mut files = self.files.iter();
        files.all(|(name, bytes)| fs::read(folder.join(name)).is_ok_and(|found| found == *bytes))
    }

    /// Writes to a temporary folder and renames it, so that no incomplete model is visible.
    fn write(&self, models: &Path, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(models)?;
        let held = turn(models);
        if held.is_some() {
            self.sweep(models)?;
            if self.is_whole(folder) {
                return Ok(());
            }
        }
        let part = models.join(format!(".{}-{}", self.name, std::process::id()));
        let written = self
            .write_files(&part)
            .and_then(|()| self.put(&part, folder));
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        written
    }

    /// Removes temporary folders of killed processes: while the lock is held, no other process writes one.
    fn sweep(&self, models: &Path) -> io::Result<()> {
        for entry in fs::read_dir(models)? {
            let entry = entry?;
            if self.is_part(&entry.file_name()) {
                // Folders of other users cannot be removed, and do no harm.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }

    /// `.demo-text-4711`
    fn is_part(&self, name: &OsStr) -> bool {
        let name = name.to_str().and_then(|name| name.strip_prefix('.'));
        let rest = name.and_then(|name| name.strip_prefix(self.name));
        let number = rest.and_then(|rest| rest.strip_prefix('-'));
        number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    }

    fn write_files(&self, part: &Path) -> io::Result<()> {
        fs::create_dir_all(part)?;
        for (name, bytes) in self.files {
            let path = part.join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = fs::File::create(path)?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// A folder that is in the way is another process's whole one, or a damaged one.
    fn put(&self, part: &Path, folder: &Path) -> io::Result<()> {
        if fs::rename(part, folder).is_ok() || self.is_whole(folder) {
            return Ok(());
        }
        fs::remove_dir_all(folder)?;
        fs::rename(part, folder)
    }
}

/// Waits until no other process writes here, and keeps them waiting while it is held. Some network file systems know
/// no locks; there the names of parts keep processes apart.
fn turn(models: &Path) -> Option<fs::File> {
    let folder = fs::File::open(models).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    static SMALL: Embedded = Embedded {
        name: "small",
        files: &[("config.json", b"{}"), ("model.safetensors", b"weights")],
    };

    static DEEP: Embedded = Embedded {
        name: "deep",
        files: &[
            ("index.json", b"{}"),
            ("unet/model.safetensors", b"weights"),
        ],
    };

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_model_is_written_once_under_its_hash() {
        let models = tempfile::tempdir().unwrap();
        let folder = SMALL.unpack(&models.path().join("models")).unwrap();
        assert_eq!(names(&folder), ["config.json", "model.safetensors"]);
        let written = fs::metadata(folder.join("config.json"))
            .unwrap()
            .modified()
            .unwrap();
        assert_eq!(SMALL.unpack(&models.path().join("models")).unwrap(), folder);
        let found = fs::metadata(folder.join("config.json"))
            .unwrap()
            .modified()
            .unwrap();
        assert_eq!(found, written);
        assert_eq!(names(&models.path().join("models")), [SMALL.sha256()]);
    }

    #[test]
    fn a_model_of_several_folders_is_written_with_them() {
        let models = tempfile::tempdir().unwrap();
        let folder = DEEP.unpack(models.path()).unwrap();
        assert_eq!(names(&folder), ["index.json", "unet"]);
        assert_eq!(
            fs::read(folder.join("unet/model.safetensors")).unwrap(),
            b"weights"
        );
        fs::remove_file(folder.join("unet/model.safetensors")).unwrap();
        assert_eq!(DEEP.unpack(models.path()).unwrap(), folder);
        assert_eq!(names(&folder.join("unet")), ["model.safetensors"]);
    }

    #[test]
    fn a_damaged_model_is_written_again() {
        let models = tempfile::tempdir().unwrap();
        let folder = SMALL.unpack(models.path()).unwrap();
        fs::write(folder.join("model.safetensors"), b"weighty").unwrap();
        assert_eq!(SMALL.unpack(models.path()).unwrap(), folder);
        assert_eq!(
            fs::read(folder.join("model.safetensors")).unwrap(),
            b"weights"
        );
        assert_eq!(names(models.path()), [SMALL.sha256()]);
    }

    #[test]
    fn what_killed_processes_left_goes_with_the_next_writing() {
        let models = tempfile::tempdir().unwrap();
        for left in [".small-1", ".small-4711", ".small-er-1", ".large-1"] {
            fs::create_dir(models.path().join(left)).unwrap();
            fs::write(models.path().join(left).join("config.json"), b"{").unwrap();
        }
        SMALL.unpack(models.path()).unwrap();
        let whole = SMALL.sha256();
        assert_eq!(
            names(models.path()),
            [".large-1", ".small-er-1", whole.as_str()]
        );
    }

    #[test]
    fn what_another_is_writing_is_left_to_it() {
        let models = tempfile::tempdir().unwrap();
        let part = models.path().join(".small-1");
        std::thread::scope(|scope| {
            let held = turn(models.path()).unwrap();
            fs::create_dir(&part).unwrap();
            let other = scope.spawn(|| SMALL.unpack(models.path()).unwrap());
            SMALL.write_files(&part).unwrap();
            SMALL
                .put(&part, &models.path().join(SMALL.sha256()))
                .unwrap();
            drop(held);
            other.join().unwrap();
        });
        assert_eq!(names(models.path()), [SMALL.sha256()]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let models = tempfile::tempdir().unwrap();
        let file = models.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = SMALL.unpack(&file).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("unpacking the built-in model small to"),
            "{error}"
        );
    }

    #[test]
    fn every_embedded_model_is_small_enough_to_carry() {
        for model in ALL {
            assert!(
                model.bytes() <= 8_000_000,
                "{}: {} bytes",
                model.name,
                model.bytes()
            );
            assert_eq!(Embedded::find(model.name), Some(model));
        }
    }
}
