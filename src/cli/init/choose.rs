//! Which models of the catalog fit this machine, and which to propose.

use crate::cli::place::Place;
use crate::cli::quantity;
use crate::cli::table::Table;
use crate::config::{Config, Quantization, nearest};
use crate::daemon::fit::{Needs, Room, Wishes, fit, quantization};
use crate::runtime::DeviceChoice;

/// A model that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    pub quantization: String,
    /// The quantization is not the usual one: that does not fit, or another is preferred.
    pub is_unusual: bool,
    pub total_bytes: u64,
    pub is_here: bool,
}

impl Candidate {
    /// As a configuration names it: the usual quantization needs no mention.
    pub fn served(&self) -> String {
        match self.is_unusual {
            true => format!("{}:{}", self.name, self.quantization),
            false => self.name.clone(),
        }
    }
}

/// On a processor more than this answers slower than people read.
const MOST_ON_A_CPU_BYTES: u64 = 2 << 30;

/// The models of the catalog that fit, largest first.
pub fn candidates(place: &Place, config: &Config, room: &Room) -> Vec<Candidate> {
    let wishes = Wishes::of(&config.engine);
    let fitting = place.catalog.entries().iter().filter_map(|entry| {
        let is_here = |name: &str| place.locate(&format!("{}:{name}", entry.id)).is_ok();
        let preferred = entry.preferred(config.models.quantization.map(Quantization::word));
        let preferred = preferred.filter(|(name, _)| !config.hub.offline || is_here(name));
        let (name, fit) = match preferred {
            Some((name, _)) => (name, fit(Needs::of_entry(entry, name)?, wishes, room).ok()?),
            None => quantization(entry, wishes, room).ok()?,
        };
        Some(Candidate {
            name: entry.id.clone(),
            quantization: name.to_owned(),
            is_unusual: name != entry.default_quantization,
            total_bytes: fit.total_bytes,
            is_here: is_here(name),
        })
    });
    let mut candidates: Vec<Candidate> = fitting.collect();
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.total_bytes));
    candidates
}

/// Those that will also be quick on this device.
pub fn quick(candidates: &[Candidate], device: DeviceChoice) -> Vec<&Candidate> {
    let most = match device {
        DeviceChoice::Cpu => MOST_ON_A_CPU_BYTES,
        DeviceChoice::Cuda(_) => u64::MAX,
    };
    candidates
        .iter()
        .filter(|candidate| candidate.total_bytes <= most)
        .collect()
}

/// The largest quick one that is already here; else the largest quick one.
pub fn proposal(candidates: &[Candidate], device: DeviceChoice) -> Vec<String> {
    let quick = quick(candidates, device);
    let here = quick.iter().find(|candidate| candidate.is_here);
    here.or(quick.first())
        .copied()
        .or(candidates.last())
        .map(|candidate| candidate.name.clone())
        .into_iter()
        .collect()
}

pub fn table(candidates: &[Candidate]) -> String {
    let mut table = Table::new(["model", "quantization", "takes", ""]);
    for candidate in candidates {
        let here = if candidate.is_here { "is here" } else { "" };
        let takes = quantity::bytes(candidate.total_bytes);
        table.row([
            candidate.name.clone(),
            candidate.quantization.clone(),
            takes,
            here.to_owned(),
        ]);
    }
    table.to_string()
}

/// Names of candidates, separated by spaces or commas.
pub fn parse(text: &str, candidates: &[Candidate]) -> Result<Vec<String>, String> {
    let words = text
        .split([' ', ','])
        .filter(|word| !word.is_empty() && *word != "none");
    words.map(|word| known(word, candidates)).collect()
}

fn known(word: &str, candidates: &[Candidate]) -> Result<String, String> {
    let mut names = candidates.iter().map(|candidate| candidate.name.as_str());
    match names.clone().find(|name| name.eq_ignore_ascii_case(word)) {
        Some(name) => Ok(name.to_owned()),
        None => Err(match nearest(word, &mut names) {
            Some(near) => format!("there is no {word} above; did you mean {near}?"),
            None => format!("there is no {word} above"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn candidate(name: &str, gib: u64, is_here: bool) -> Candidate {
        Candidate {
            name: name.to_owned(),
            quantization: "q4_k_m".to_owned(),
            is_unusual: false,
            total_bytes: gib << 30,
            is_here,
        }
    }

    #[test]
    fn a_model_is_proposed_in_the_preferred_quantization_if_it_has_that() {
        let home = tempfile::tempdir().unwrap();
        let variables = [
            ("HOME", home.path().to_str().unwrap()),
            ("MUSTER_MODELS_QUANTIZATION", "Q4_K_M"),
        ];
        let sources = Sources {
            environment: variables
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Sources::default()
        };
        let config = Config::load(&sources).unwrap().config;
        let room = Room {
            device: DeviceChoice::Cpu,
            place: "this machine".to_owned(),
            free_bytes: 1 << 40,
        };
        let place = Place::open(&config).unwrap();
        let all = candidates(&place, &config, &room);
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
    fn a_card_gets_the_largest_and_a_processor_one_that_is_quick() {
        let all = [candidate("large", 9, false), candidate("small", 1, false)];
        assert_eq!(proposal(&all, DeviceChoice::Cuda(0)), ["large"]);
        assert_eq!(proposal(&all, DeviceChoice::Cpu), ["small"]);
        assert_eq!(proposal(&all[..1], DeviceChoice::Cpu), ["large"]);
        assert!(proposal(&[], DeviceChoice::Cpu).is_empty());
    }

    #[test]
    fn what_is_already_here_is_preferred() {
        let all = [candidate("large", 9, false), candidate("small", 1, true)];
        assert_eq!(proposal(&all, DeviceChoice::Cuda(0)), ["small"]);
    }

    #[test]
    fn names_are_read_in_any_case_and_typing_errors_answered() {
        let all = [
            candidate("qwen3-8b", 9, false),
            candidate("llama", 1, false),
        ];
        assert_eq!(
            parse("Llama, qwen3-8b", &all).unwrap(),
            ["llama", "qwen3-8b"]
        );
        assert!(parse("none", &all).unwrap().is_empty());
        assert_eq!(
            parse("lama", &all).unwrap_err(),
            "there is no lama above; did you mean llama?"
        );
    }
}
