//! The text of a `worker.toml`, and its way to the disk: whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::choose::Candidate;
use crate::cli::join::section::{Section, quoted};
use crate::cli::{Exit, Failure, publish, quantity};
use crate::config::{Config, DeviceSetting, Loaded, Sources};
use crate::hardware::Machine;

/// The owner's choices.
#[derive(Debug)]
pub struct Choices {
    pub name: String,
    pub device: DeviceSetting,
    pub models: Vec<Candidate>,
    pub data_dir: Option<PathBuf>,
    pub offline: bool,
    pub coordinator: Option<Section>,
}

impl Choices {
    /// Steps left after the file is written.
    pub fn next_steps(&self, file: &Path) -> Vec<String> {
        let missing = self.models.iter().filter(|model| !model.is_here());
        let pulls = missing.map(|model| format!("next: worker models pull {}", model.served()));
        let nothing = self.models.is_empty();
        let nothing = nothing.then(|| "no model chosen: add models to models.serve".to_owned());
        let alone = self.coordinator.is_none().then(|| {
            format!(
                "no coordinator chosen, so no jobs will arrive. next: worker join TOKEN, with a token from the operator (`worker key join`), or add a [[coordinator]] with url and key to {}",
                file.display()
            )
        });
        pulls
            .chain(nothing)
            .chain(alone)
            .chain([format!("next: worker --config {}", file.display())])
            .collect()
    }

    pub fn text(&self, machine: &Machine) -> String {
        let cards: Vec<&str> = machine.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        let memory = quantity::bytes(machine.memory.total_bytes);
        let cards = if cards.is_empty() {
            "no GPU".to_owned()
        } else {
            cards.join(", ")
        };
        let mut text = format!(
            "# Written by `worker init` for {cards}, {}, {memory}.\n\
             # `worker config example` prints every setting; `worker config check` shows the values in use.\n\n\
             [worker]\nname = {}\n",
            machine.cpu.model,
            quoted(&self.name),
        );
        if let Some(folder) = &self.data_dir {
            text += &format!("data_dir = {}\n", quoted(&folder.to_string_lossy()));
        }
        text += "\n[models]\n";
        for model in &self.models {
            text += &format!(
                "# {}: {}, including memory for jobs\n",
                model.name,
                quantity::bytes(model.total_bytes)
            );
        }
        let names: Vec<String> = self
            .models
            .iter()
            .map(|model| quoted(&model.served()))
            .collect();
        text += &format!(
            "serve = [{}]\n\n[engine]\ndevice = {}\n",
            names.join(", "),
            quoted(&self.device.to_string())
        );
        if self.offline {
            text += "\n[hub]\noffline = true\n";
        }
        if let Some(coordinator) = &self.coordinator {
            text += &coordinator.text();
        }
        text
    }
}

/// Writes the file in one step, after it was read back and found right.
pub fn write(file: &Path, text: &str, replace: bool) -> Result<(), Failure> {
    let draft = Draft::make(file, text)?;
    draft.check()?;
    draft.publish(replace)
}

/// A configuration under a temporary name, deleted unless published.
pub struct Draft<'a> {
    file: &'a Path,
    path: PathBuf,
}

impl<'a> Draft<'a> {
    /// Creates the draft readable by its owner only, since it may contain a key.
    pub fn make(file: &'a Path, text: &str) -> Result<Self, Failure> {
        let name = file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let path = file.with_file_name(format!(".{name}.{}.draft", std::process::id()));
        let draft = Self { file, path };
        draft
            .fill(text)
            .map_err(|error| Failure::writing(file, &error))?;
        Ok(draft)
    }

    fn fill(&self, text: &str) -> io::Result<()> {
        let mut opened: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        opened.write_all(text.as_bytes())?;
        opened.sync_all()
    }

    /// Passes `config check` on its own, without variables of this moment.
    pub fn check(&self) -> Result<Loaded, Failure> {
        let environment = Sources::of_process(None, Vec::new()).environment;
        let environment = environment
            .into_iter()
            .filter(|(name, _)| !name.starts_with("MUSTER_"))
            .collect();
        let loaded = Config::load(&Sources {
            file: Some(self.path.clone()),
            environment,
            ..Sources::default()
        });
        // The draft is gone when the owner looks for it.
        loaded.map_err(|error| {
            let [draft, file] =
                [self.path.as_path(), self.file].map(|path| path.display().to_string());
            let message = error.to_string().replace(&draft, &file);
            Failure::new(Exit::BadConfiguration, message)
        })
    }

    pub fn publish(&self, replace: bool) -> Result<(), Failure> {
        publish::publish(&self.path, self.file, replace)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // Gone already when it became the file.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::init::choose::Files;

    #[test]
    fn what_is_to_be_pulled_is_what_was_written() {
        let candidate = |name: &str, is_unusual, files| Candidate {
            name: name.to_owned(),
            quantization: "q4_k_m".to_owned(),
            is_unusual,
            total_bytes: 1 << 30,
            step_bytes: 1 << 30,
            has_run_on_gpus: true,
            files,
        };
        let choices = Choices {
            name: "attic".to_owned(),
            device: DeviceSetting::Auto,
            models: vec![
                candidate("tight", true, Files::Pullable),
                candidate("roomy", false, Files::Pullable),
                candidate("here", true, Files::Here),
            ],
            data_dir: None,
            offline: false,
            coordinator: Some(Section {
                url: "wss://muster.example".to_owned(),
                key: "file:key".to_owned(),
                name: None,
                certificate_sha256: None,
                insecure: false,
            }),
        };
        let text = choices.text(&crate::hardware::probe());
        assert!(
            text.contains(r#"serve = ["tight:q4_k_m", "roomy", "here:q4_k_m"]"#),
            "{text}"
        );
        assert_eq!(
            choices.next_steps(Path::new("worker.toml")),
            [
                "next: worker models pull tight:q4_k_m",
                "next: worker models pull roomy",
                "next: worker --config worker.toml",
            ]
        );
    }

    #[test]
    fn a_file_that_appeared_meanwhile_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("worker.toml");
        fs::write(&file, "mine").unwrap();
        let failure = write(&file, "[worker]\n", false).unwrap_err();
        assert_eq!(failure.exit(), Some(Exit::CannotWrite));
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        write(&file, "[worker]\n", true).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "[worker]\n");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "no draft stays"
        );
    }

    #[test]
    fn what_is_wrong_is_never_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("worker.toml");
        assert!(write(&file, "[nonsense]\n", false).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
