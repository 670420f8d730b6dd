//! Reads the processor's properties from Linux.

use std::fs;
use std::thread::available_parallelism;

use super::Cpu;

/// The names in `/proc/cpuinfo`, and ours: the instruction sets used by matrix products.
const FEATURES: [(&str, &str); 15] = [
    ("avx2", "avx2"),
    ("fma", "fma"),
    ("f16c", "f16c"),
    ("avx_vnni", "avx-vnni"),
    ("avx512f", "avx512"),
    ("avx512_vnni", "avx512-vnni"),
    ("avx512_bf16", "avx512-bf16"),
    ("avx512_fp16", "avx512-fp16"),
    ("amx_int8", "amx-int8"),
    ("amx_bf16", "amx-bf16"),
    ("asimd", "neon"),
    ("asimddp", "dotprod"),
    ("i8mm", "i8mm"),
    ("bf16", "bf16"),
    ("sve", "sve"),
];

pub fn read() -> Cpu {
    // Counts the affinity mask and the quota of the control group, version 1 or 2.
    let threads = available_parallelism().map_or(1, usize::from);
    parse(
        &fs::read_to_string("/proc/cpuinfo").unwrap_or_default(),
        threads,
    )
}

fn parse(cpuinfo: &str, threads: usize) -> Cpu {
    let field = |names: &[&str]| {
        let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        fields
            .filter(|(name, _)| names.contains(&name.trim()))
            .map(|(_, value)| value.trim())
            .next()
    };
    let flags: Vec<&str> = field(&["flags", "Features"])
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let known = FEATURES.iter().filter(|(linux, _)| flags.contains(linux));
    Cpu {
        model: field(&["model name", "Model"])
            .unwrap_or(std::env::consts::ARCH)
            .to_owned(),
        threads,
        features: known.map(|(_, ours)| (*ours).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_and_the_features_that_matter_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nflags\t\t: fpu sse avx2 fma avx512f avx512_vnni\n";
        let cpu = parse(cpuinfo, 4);
        assert_eq!(cpu.model, "Some CPU @ 2.0GHz");
        assert_eq!(cpu.features, ["avx2", "fma", "avx512", "avx512-vnni"]);
    }

    #[test]
    fn an_unreadable_processor_is_named_by_its_architecture() {
        let cpu = parse("", 1);
        assert_eq!(cpu.model, std::env::consts::ARCH);
        assert!(cpu.features.is_empty());
    }
}
