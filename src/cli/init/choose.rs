//! Which of the models that fit this machine to propose, and which were chosen.

use crate::cli::quantity;
use crate::cli::table::Table;
use crate::config::nearest;
use crate::runtime::DeviceChoice;

/// A model that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    pub quantization: String,
    /// The model's name alone may stand for another quantization: this is not the usual one, or another is preferred.
    pub is_unusual: bool,
    pub total_bytes: u64,
    /// Bytes read in each step: for a text model the active weights of one token, for others all.
    pub step_bytes: u64,
    pub files: Files,
    pub has_run_on_gpus: bool,
}

/// Location of a model's files, best proposals first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Files {
    Here,
    /// A pull would download them.
    Pullable,
    /// Embedded in this program, always available.
    BuiltIn,
    /// Cannot be downloaded: offline, a full disk, or a missing path.
    OutOfReach,
}

impl Candidate {
    pub fn is_here(&self) -> bool {
        matches!(self.files, Files::Here | Files::BuiltIn)
    }

    /// The name in a configuration, with the quantization if it is not the default.
    pub fn served(&self) -> String {
        match self.is_unusual {
            true => format!("{}:{}", self.name, self.quantization),
            false => self.name.clone(),
        }
    }
}

/// A CPU that reads more than this per step generates slower than people read. Of a mixture of experts only the active
/// ones count.
const MOST_ON_A_CPU_BYTES: u64 = 2 << 30;

/// Models that will also be quick on this device; on a GPU, of families that have run on one.
pub fn quick(candidates: &[Candidate], device: DeviceChoice) -> Vec<&Candidate> {
    let most = most_step_bytes(device);
    candidates
        .iter()
        .filter(|candidate| candidate.step_bytes <= most)
        .filter(|candidate| device == DeviceChoice::Cpu || candidate.has_run_on_gpus)
        .collect()
}

/// The most bytes that a model reads in each step which is quick on this device.
pub fn most_step_bytes(device: DeviceChoice) -> u64 {
    match device {
        DeviceChoice::Cpu => MOST_ON_A_CPU_BYTES,
        DeviceChoice::Cuda(_) => u64::MAX,
    }
}

/// The largest fast model on disk; else the largest fast one that can be downloaded, or else a built-in one. If no
/// model is fast, the smallest available one.
pub fn proposal(candidates: &[Candidate], device: DeviceChoice) -> Vec<String> {
    let can_be_had = |candidate: &&Candidate| candidate.files != Files::OutOfReach;
    let quick = quick(candidates, device).into_iter().filter(can_be_had);
    quick
        .min_by_key(|candidate| candidate.files)
        .or(candidates.iter().rfind(can_be_had))
        .map(|candidate| candidate.name.clone())
        .into_iter()
        .collect()
}

pub fn table(candidates: &[Candidate]) -> String {
    let mut table = Table::new(["model", "quantization", "memory", ""]);
    for candidate in candidates {
        let here = if candidate.is_here() { "on disk" } else { "" };
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
            Some(near) => format!("unknown model {word}; did you mean {near}?"),
            None => format!("unknown model {word}: choose from the list above"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, gib: u64, files: Files) -> Candidate {
        Candidate {
            name: name.to_owned(),
            quantization: "q4_k_m".to_owned(),
            is_unusual: false,
            total_bytes: gib << 30,
            step_bytes: gib << 30,
            has_run_on_gpus: true,
            files,
        }
    }

    #[test]
    fn a_card_gets_the_largest_and_a_processor_one_that_is_quick() {
        let all = [
            candidate("large", 9, Files::Pullable),
            candidate("small", 1, Files::Pullable),
        ];
        assert_eq!(proposal(&all, DeviceChoice::Cuda(0)), ["large"]);
        assert_eq!(proposal(&all, DeviceChoice::Cpu), ["small"]);
        assert_eq!(proposal(&all[..1], DeviceChoice::Cpu), ["large"]);
        assert!(proposal(&[], DeviceChoice::Cpu).is_empty());
    }

    #[test]
    fn a_processor_gets_a_large_model_with_few_active_parameters() {
        let all = [
            candidate("dense", 30, Files::Pullable),
            Candidate {
                step_bytes: 1 << 30,
                has_run_on_gpus: false,
                ..candidate("experts", 20, Files::Pullable)
            },
            candidate("small", 1, Files::Pullable),
        ];
        assert_eq!(proposal(&all, DeviceChoice::Cpu), ["experts"]);
        assert_eq!(proposal(&all[1..], DeviceChoice::Cuda(0)), ["small"]);
    }

    #[test]
    fn what_is_already_here_is_preferred() {
        let all = [
            candidate("large", 9, Files::Pullable),
            candidate("small", 1, Files::Here),
            candidate("own", 0, Files::BuiltIn),
        ];
        assert_eq!(proposal(&all, DeviceChoice::Cuda(0)), ["small"]);
    }

    #[test]
    fn what_is_part_of_the_program_is_for_machines_that_can_bring_nothing() {
        let all = |files| {
            [
                candidate("large", 9, files),
                candidate("small", 1, files),
                candidate("own", 0, Files::BuiltIn),
            ]
        };
        let proposed = |files| proposal(&all(files), DeviceChoice::Cpu);
        assert_eq!(proposed(Files::Pullable), ["small"]);
        assert_eq!(proposed(Files::OutOfReach), ["own"]);
        let alone = &all(Files::OutOfReach)[..2];
        assert!(proposal(alone, DeviceChoice::Cpu).is_empty());
    }

    #[test]
    fn names_are_read_in_any_case_and_typing_errors_answered() {
        let all = [
            candidate("qwen3-8b", 9, Files::Pullable),
            candidate("llama", 1, Files::Pullable),
        ];
        assert_eq!(
            parse("Llama, qwen3-8b", &all).unwrap(),
            ["llama", "qwen3-8b"]
        );
        assert!(parse("none", &all).unwrap().is_empty());
        assert_eq!(
            parse("lama", &all).unwrap_err(),
            "unknown model lama; did you mean llama?"
        );
    }
}
