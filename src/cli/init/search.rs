//! Which models of the catalog fit this machine, and in which quantization.

use std::cmp::Reverse;

use super::choose::{Candidate, Files};
use crate::catalog::{Entry, EntrySource, Kind, Source};
use crate::cli::place::Place;
use crate::config::{Config, Quantization};
use crate::daemon::fit::{Fit, Needs, Room, Wishes, fit, quantization};
use crate::hardware;

/// Text models of the catalog that fit, most parameters first: each in the preferred quantization or, if that is
/// unavailable, in the default one or a smaller one.
pub fn candidates(place: &Place, config: &Config, room: &Room) -> Vec<Candidate> {
    Search::new(place, config, room, Kind::Text).candidates()
}

/// Downloaded models of a kind that fit and are fast, in the same order: in the preferred or default quantization, or
/// any downloaded one. Only for `up`.
#[cfg(any(test, feature = "coordinator"))]
pub fn ready(place: &Place, config: &Config, room: &Room, kind: Kind) -> Vec<Candidate> {
    let search = Search::new(place, config, room, kind);
    search.all(|entry| search.ready(entry))
}

/// Parameters of a search for models.
struct Search<'a> {
    place: &'a Place,
    kind: Kind,
    preferred: Option<&'static str>,
    is_offline: bool,
    /// Free space of the downloads' disk.
    disk_bytes: u64,
    wishes: Wishes,
    room: &'a Room,
}

impl<'a> Search<'a> {
    fn new(place: &'a Place, config: &Config, room: &'a Room, kind: Kind) -> Self {
        Self {
            place,
            kind,
            preferred: config.models.quantization.map(Quantization::word),
            is_offline: config.hub.offline,
            // A file system that does not say how much is free may still have room.
            disk_bytes: hardware::disk(&config.hub.cache_dir)
                .map_or(u64::MAX, |disk| disk.free_bytes),
            wishes: Wishes::of(&config.engine, room.device),
            room,
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        self.all(|entry| self.proposed(entry))
    }

    /// The chosen quantization of each entry, best model first: more parameters make the better model, however few bits
    /// each has.
    fn all(&self, choose: impl Fn(&'a Entry) -> Option<(&'a str, Fit)>) -> Vec<Candidate> {
        let mut entries: Vec<&Entry> = self.place.catalog.entries().iter().collect();
        entries.retain(|entry| entry.kind() == self.kind);
        // The later name wins among equals, since its version is newer: Qwen3.6 before Qwen3.5.
        entries.sort_by_key(|entry| Reverse((entry.parameters(), &entry.id)));
        let chosen = entries.into_iter().filter_map(|entry| {
            let (name, fit) = choose(entry)?;
            Some(Candidate {
                name: entry.id.clone(),
                quantization: name.to_owned(),
                is_unusual: name != entry.default_quantization || self.is_second(entry, name),
                total_bytes: fit.total_bytes,
                step_bytes: self.step_bytes(entry, name, &fit),
                files: self.files(entry, name),
                has_run_on_gpus: entry.family.has_run_on_gpus(),
            })
        });
        chosen.collect()
    }

    fn proposed(&self, entry: &'a Entry) -> Option<(&'a str, Fit)> {
        let can_be_had = |name: &&str| !self.is_offline || self.is_here(entry, name);
        let preferred = self.preferred(entry).filter(can_be_had);
        let preferred = preferred.and_then(|name| self.fitted(entry, name));
        preferred.or_else(|| quantization(entry, self.wishes, self.room).ok())
    }

    #[cfg(any(test, feature = "coordinator"))]
    fn ready(&self, entry: &'a Entry) -> Option<(&'a str, Fit)> {
        let most = super::choose::most_step_bytes(self.room.device);
        let names = entry.sources.keys().map(String::as_str);
        let fitting = names.filter_map(|name| self.fitted(entry, name));
        let ready = fitting.filter(|(name, fit)| {
            self.step_bytes(entry, name, fit) <= most && self.is_here(entry, name)
        });
        ready.min_by_key(|(name, fit)| {
            let is_usual = *name == entry.default_quantization;
            (
                self.is_second(entry, name),
                !is_usual,
                Reverse(fit.total_bytes),
            )
        })
    }

    fn step_bytes(&self, entry: &Entry, name: &str, fit: &Fit) -> u64 {
        let active = (self.kind == Kind::Text).then(|| entry.active_bytes(name));
        active.flatten().unwrap_or(fit.total_bytes)
    }

    fn fitted(&self, entry: &Entry, name: &'a str) -> Option<(&'a str, Fit)> {
        let needs = Needs::of_entry(entry, name)?;
        Some((name, fit(needs, self.wishes, self.room).ok()?))
    }

    fn preferred(&self, entry: &'a Entry) -> Option<&'a str> {
        Some(entry.preferred(self.preferred)?.0)
    }

    /// Whether another quantization of the model is preferred.
    fn is_second(&self, entry: &Entry, name: &str) -> bool {
        let preferred = entry.preferred(self.preferred);
        preferred.is_some_and(|(preferred, _)| preferred != name)
    }

    fn files(&self, entry: &Entry, name: &str) -> Files {
        let sources = entry.sources_of(name);
        let built_in = |it: &EntrySource<'_>| matches!(it.source, Source::Embedded(_));
        let pullable = |it: &EntrySource<'_>| !matches!(it.source, Source::Path(_));
        if sources.iter().all(built_in) {
            return Files::BuiltIn;
        }
        if self.is_here(entry, name) {
            return Files::Here;
        }
        let is_pullable = sources.iter().all(pullable) && !self.is_offline;
        match is_pullable && self.has_room(entry, name) {
            true => Files::Pullable,
            false => Files::OutOfReach,
        }
    }

    fn has_room(&self, entry: &Entry, name: &str) -> bool {
        let bytes = entry.weight_bytes(name);
        bytes.is_none_or(|bytes| bytes <= self.disk_bytes)
    }

    fn is_here(&self, entry: &Entry, name: &str) -> bool {
        self.place.locate(&format!("{}:{name}", entry.id)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::cli::init::choose::proposal;
    use crate::config::Sources;
    use crate::runtime::DeviceChoice;

    /// A model of 1.1 billion parameters, the usual one in 4 bits.
    const ENTRY: &str = r#"
        id = "small"
        family = "llama"
        kind = "text"
        licence = "Apache-2.0"
        context = 8192
        default_quantization = "q4_k_m"
        names = { v1 = ["small"], legacy = ["koboldcpp/small"] }
        shape = { parameters = 1_100_000_000, layers = 2, kv_heads = 2, head_dim = 64 }
        [sources]
        bf16 = { path = "small-bf16.gguf" }
        q8_0 = { path = "small-q8_0.gguf" }
        q4_k_m = { path = "small-q4_k_m.gguf" }
    "#;

    /// A machine of a test, with a preferred quantization and these files of the model.
    struct Owner {
        _home: TempDir,
        config: Config,
        room: Room,
    }

    impl Owner {
        fn new(preferred: &str, here: &[&str]) -> Self {
            let home = tempfile::tempdir().unwrap();
            std::fs::write(home.path().join("small.toml"), ENTRY).unwrap();
            for name in here {
                std::fs::write(home.path().join(format!("small-{name}.gguf")), "").unwrap();
            }
            let folder = home.path().to_str().unwrap();
            let variables = [
                ("HOME", folder),
                ("MUSTER_MODELS_DIR", folder),
                ("MUSTER_MODELS_QUANTIZATION", preferred),
            ];
            let sources = Sources {
                environment: variables
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into(),
                ..Sources::default()
            };
            let room = Room {
                device: DeviceChoice::Cpu,
                place: "this machine".to_owned(),
                free_bytes: 1 << 40,
                kept_bytes: 0,
            };
            Self {
                config: Config::load(&sources).unwrap().config,
                _home: home,
                room,
            }
        }

        fn with_room(mut self, free_bytes: u64) -> Self {
            self.room.free_bytes = free_bytes;
            self
        }

        fn place(&self) -> Place {
            Place::open(&self.config).unwrap()
        }

        /// The name under which `small` of these candidates is served.
        fn small(candidates: &[Candidate]) -> Option<String> {
            let mut all = candidates.iter();
            all.find(|candidate| candidate.name == "small")
                .map(Candidate::served)
        }

        fn proposed(&self) -> Option<String> {
            Self::small(&candidates(&self.place(), &self.config, &self.room))
        }

        /// The proposal of `init` with this much free disk space.
        fn proposal(&self, disk_bytes: u64) -> Vec<String> {
            let place = self.place();
            let search = Search {
                disk_bytes,
                ..Search::new(&place, &self.config, &self.room, Kind::Text)
            };
            proposal(&search.candidates(), self.room.device)
        }

        fn ready(&self) -> Option<String> {
            Self::small(&ready(&self.place(), &self.config, &self.room, Kind::Text))
        }
    }

    #[test]
    fn a_model_is_proposed_in_the_preferred_quantization_if_it_has_that() {
        let owner = Owner::new("Q4_K_M", &[]);
        let place = owner.place();
        let all = candidates(&place, &owner.config, &owner.room);
        for entry in place.catalog.entries() {
            let Some(found) = all.iter().find(|candidate| candidate.name == entry.id) else {
                continue;
            };
            let wanted = match entry.sources.contains_key("q4_k_m") {
                true => "q4_k_m",
                false => entry.default_quantization.as_str(),
            };
            assert_eq!(found.quantization, wanted, "{}", entry.id);
            assert_eq!(found.is_unusual, wanted != entry.default_quantization);
        }
        assert!(all.iter().any(|candidate| candidate.is_unusual), "{all:?}");
    }

    #[test]
    fn a_machine_where_nothing_is_yet_gets_the_best_of_the_catalog_that_can_be_brought() {
        let mut owner = Owner::new("", &[]).with_room(22 << 30);
        assert_eq!(owner.proposal(1 << 40), ["qwen3.6-35b-a3b"]);
        assert_eq!(owner.proposal(0), ["demo-text"]);
        owner.room.device = DeviceChoice::Cuda(0);
        owner.room.free_bytes = 139 << 30;
        assert_eq!(owner.proposal(1 << 40), ["phi-4"]);
        assert_eq!(owner.proposal(1), ["demo-text"]);
        owner.config.hub.offline = true;
        assert_eq!(owner.proposal(1 << 40), ["demo-text"]);
        let mut owner = Owner::new("", &["q4_k_m"]);
        assert_eq!(owner.proposal(1 << 40), ["small"]);
        owner.config.hub.offline = true;
        assert_eq!(owner.proposal(0), ["small"]);
    }

    #[test]
    fn a_machine_without_a_gpu_gets_the_largest_model_that_fits_and_reads_little_for_each_token() {
        // Free memory of machines with 4, 8, 16, 32 and 64 GB.
        let free = [
            (3, "gemma-4-e2b-it"),
            (6, "lfm2.5-8b-a1b"),
            (13, "gpt-oss-20b"),
            (28, "qwen3.6-35b-a3b"),
            (58, "qwen3.6-35b-a3b"),
        ];
        for (gib, wanted) in free {
            let owner = Owner::new("", &[]).with_room(gib << 30);
            assert_eq!(owner.proposal(1 << 40), [wanted], "{gib} GiB");
        }
    }

    #[test]
    fn a_gpu_may_have_models_that_are_not_proposed_for_it() {
        let mut owner = Owner::new("", &[]);
        owner.room.device = DeviceChoice::Cuda(0);
        let place = owner.place();
        let all = candidates(&place, &owner.config, &owner.room);
        let has = |name: &str| all.iter().any(|candidate| candidate.name == name);
        let new = ["qwen3-30b-a3b", "gpt-oss-20b", "qwen3.5-9b"];
        assert!(new.iter().all(|name| has(name)));
        let quick = crate::cli::init::choose::quick(&all, owner.room.device);
        let is_new = |name: &str| new.contains(&name);
        assert!(!quick.iter().any(|candidate| is_new(&candidate.name)));
    }

    #[test]
    fn a_model_whose_preferred_quantization_does_not_fit_is_proposed_in_one_that_does() {
        let served = |preferred, bytes| Owner::new(preferred, &[]).with_room(bytes).proposed();
        assert_eq!(served("bf16", 8 << 30).unwrap(), "small:bf16");
        // The name alone would be the preferred quantization, which was found not to fit.
        assert_eq!(served("bf16", 2 << 30).unwrap(), "small:q4_k_m");
        assert_eq!(served("", 2 << 30).unwrap(), "small");
        assert_eq!(served("bf16", 1 << 28), None);
    }

    #[test]
    fn the_larger_model_comes_first_though_it_takes_less() {
        let mut owner = Owner::new("", &["bf16"]);
        owner.room.device = DeviceChoice::Cuda(0);
        let folder = owner.config.models.dir.clone().unwrap();
        let large = ENTRY.replace("1_100_000_000", "3_000_000_000");
        let large = large.replace("small", "large");
        std::fs::write(folder.join("large.toml"), large).unwrap();
        std::fs::write(folder.join("large-q4_k_m.gguf"), "").unwrap();
        let all = ready(&owner.place(), &owner.config, &owner.room, Kind::Text);
        let of = |name| all.iter().position(|candidate| candidate.name == name);
        let (large, small) = (of("large").unwrap(), of("small").unwrap());
        assert!(large < small && all[large].total_bytes < all[small].total_bytes);
    }

    #[test]
    fn what_is_here_is_ready_although_another_quantization_is_preferred() {
        let ready = |preferred, here: &[&str]| Owner::new(preferred, here).ready();
        assert_eq!(ready("q8_0", &["q4_k_m"]).unwrap(), "small:q4_k_m");
        assert_eq!(ready("q8_0", &["q4_k_m", "q8_0"]).unwrap(), "small:q8_0");
        assert_eq!(ready("", &["q4_k_m", "q8_0"]).unwrap(), "small");
        assert_eq!(ready("", &["q8_0"]).unwrap(), "small:q8_0");
        assert_eq!(ready("q8_0", &[]), None);
        // `bf16` fits, but a CPU would be slow with it.
        assert_eq!(ready("bf16", &["bf16", "q4_k_m"]).unwrap(), "small:q4_k_m");
    }
}
