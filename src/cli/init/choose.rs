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

/// Those that will also be quick on this device.
pub fn quick(candidates: &[Candidate], device: DeviceChoice) -> Vec<&Candidate> {
    let most = most_bytes(device);
    candidates
        .iter()
        .filter(|candidate| candidate.total_bytes <= most)
        .collect()
}

/// The largest model that is quick on this device.
pub fn most_bytes(device: DeviceChoice) -> u64 {
    match device {
        DeviceChoice::Cpu => MOST_ON_A_CPU_BYTES,
        DeviceChoice::Cuda(_) => u64::MAX,
    }
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
