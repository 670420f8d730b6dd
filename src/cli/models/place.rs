//! Places of models: the catalog, the hub with its cache, and this machine.

use std::path::PathBuf;

use crate::{
    catalog::{Catalog, Entry, Source, UnknownQuantization},
    cli::{
        Failure, Root,
        place::{FileUsers, hub_settings},
    },
    config::{Config, Quantization},
    daemon::{
        fit::{self, Fit, Needs, Refusal, Room, Wishes},
        locate::Shelves,
        safety::CheckerFiles,
        shares::Shares,
    },
    hardware::{self, Machine},
    hub::{Hub, Partial},
    runtime::{DeviceChoice, SharedWeights},
};

pub struct Place {
    pub catalog: Catalog,
    pub hub: Hub,
    pub quiet: bool,
    /// Folder of unpacked embedded models.
    pub unpacked: PathBuf,
    preferred: Option<&'static str>,
    users: FileUsers,
    /// Memory of the largest GPU, or of the machine without one.
    device_bytes: u64,
    /// The device for models; `None` if the configured device is missing.
    room: Option<Room>,
    wishes: Wishes,
}

impl Place {
    pub fn open(root: &Root) -> Result<Self, Failure> {
        let config = root.load()?.config;
        Ok(Self {
            quiet: root.quiet,
            ..Self::of(&config)?
        })
    }

    /// With these settings, and no bars.
    pub fn of(config: &Config) -> Result<Self, Failure> {
        let machine = hardware::probe();
        let (engine, has_cuda) = (&config.engine, cfg!(feature = "cuda"));
        let room = fit::room(&machine, engine.device, &config.owner, has_cuda).ok();
        let checker = CheckerFiles::of(config).ok();
        let room = room.map(|room| match &checker {
            Some(files) => files.leave(room),
            None => room,
        });
        let device = room.as_ref().map_or(DeviceChoice::Cpu, |room| room.device);
        Ok(Self {
            wishes: Wishes::of(engine, device),
            room,
            catalog: Catalog::open(config.models.dir.as_deref())?,
            hub: Hub::new(hub_settings(config)),
            quiet: true,
            unpacked: config.worker.data_dir.join("models"),
            preferred: config.models.quantization.map(Quantization::word),
            users: FileUsers::of(config),
            device_bytes: most_memory(&machine),
        })
    }

    /// Keeps the files of models in use or being pulled; a download may delete others for space.
    pub async fn keep_used(&self, pulled: &[&str]) {
        let shelves = Shelves {
            catalog: &self.catalog,
            hub: &self.hub,
            unpacked: &self.unpacked,
            preferred: self.preferred,
        };
        self.users.keep(pulled, shelves).await;
    }

    /// The source of the quantization that is named; else of the preferred one if the model has it, else of its
    /// usual one.
    pub fn source<'a>(
        &self,
        entry: &'a Entry,
        named: Option<&str>,
    ) -> Result<(&'a str, &'a Source), UnknownQuantization> {
        match (named, entry.preferred(self.preferred)) {
            (None, Some(preferred)) => Ok(preferred),
            (named, _) => entry.source(named),
        }
    }

    /// Whether the model's device has this much memory in total.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes <= self.device_bytes
    }

    /// The memory shares of a model alone on its device, or the refusal. `None` without a device, and if the size is unknown
    /// before the download.
    pub fn shares(&self, entry: &Entry, quantization: &str) -> Option<Result<Share, Refusal>> {
        let room = self.room.as_ref()?;
        let needs = Needs::of_entry(entry, quantization)?;
        let fitted = fit::fit(needs, self.wishes, room);
        let none: &[SharedWeights] = &[];
        Some(fitted.map(|fit| Share {
            shares: Shares::of(room, [(&fit, none)].into_iter()),
            fit,
        }))
    }

    /// The same of several sources together.
    pub fn state_of<'a>(&self, sources: impl IntoIterator<Item = &'a Source>) -> OnDisk {
        let states = sources.into_iter().map(|source| self.state(source));
        states.fold(OnDisk::default(), OnDisk::plus)
    }

    /// Last use of downloads from these sources, in seconds since the epoch.
    pub fn last_used<'a>(&self, sources: impl IntoIterator<Item = &'a Source>) -> Option<i64> {
        let sources = sources.into_iter().filter_map(|source| match source {
            Source::Hub(source) => self.hub.last_used(source),
            Source::Path(_) | Source::Embedded(_) => None,
        });
        sources.max()
    }

    /// How many files a source has, how many of them are here, and their bytes.
    pub fn state(&self, source: &Source) -> OnDisk {
        match source {
            Source::Hub(source) => {
                let state = self.hub.state(source);
                OnDisk {
                    files: state.files,
                    present: state.present,
                    wrong: state.wrong,
                    bytes: state.bytes,
                    partial: state.partial,
                }
            }
            Source::Path(path) => OnDisk {
                files: 1,
                present: usize::from(path.exists()),
                wrong: 0,
                bytes: path.metadata().map_or(0, |metadata| metadata.len()),
                partial: None,
            },
            // Embedded in the program, so always present.
            Source::Embedded(model) => OnDisk {
                files: model.files(),
                present: model.files(),
                wrong: 0,
                bytes: model.bytes(),
                partial: None,
            },
        }
    }
}

/// A model alone on its device.
pub struct Share {
    pub fit: Fit,
    pub shares: Shares,
}

/// Memory of the largest GPU, or of the machine without one.
fn most_memory(machine: &Machine) -> u64 {
    let cards = machine.gpus.iter().map(|gpu| gpu.memory_total_bytes);
    cards.max().unwrap_or(machine.memory.total_bytes)
}

#[derive(Debug, Clone, Copy, Default)]
pub struct OnDisk {
    pub files: usize,
    pub present: usize,
    /// In the place of a file, with another hash or length than it has to have.
    pub wrong: usize,
    pub bytes: u64,
    /// Files of an interrupted pull.
    pub partial: Option<Partial>,
}

impl OnDisk {
    fn plus(self, other: Self) -> Self {
        let partial = match (self.partial, other.partial) {
            (Some(one), Some(other)) => Some(Partial {
                here_bytes: one.here_bytes + other.here_bytes,
                total_bytes: one.total_bytes + other.total_bytes,
            }),
            (one, other) => one.or(other),
        };
        Self {
            files: self.files + other.files,
            present: self.present + other.present,
            wrong: self.wrong + other.wrong,
            bytes: self.bytes + other.bytes,
            partial,
        }
    }

    pub fn is_whole(self) -> bool {
        self.files > 0 && self.present == self.files
    }

    pub fn is_nothing(self) -> bool {
        self.present + self.wrong == 0 && self.partial.is_none()
    }
}
