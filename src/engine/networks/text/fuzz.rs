//! Broken models by the thousand, all the way to a step: each is refused in words or runs, and none panics.

use std::fs;

use candle_core::Device;

use super::{
    Decoder, DecoderSpec, LoadOptions, Synthetic, SyntheticQuant,
    experts::ExpertsSpec,
    golden::{fixture, one_sequence},
    recurrent::{DeltaNetSpec, RecurrenceSpec, RecurrentLayers},
};
use crate::networks::weights::{Checkpoint, fuzz::fuzz};
use muster_kernels::{KvDtype, RecurrenceShape};

/// `Some` if the file was refused at any stage.
fn run(path: &std::path::Path) -> Option<()> {
    let checkpoint = Checkpoint::open(path).ok()?;
    let options = LoadOptions::default();
    let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, &mut |_, _| {}).ok()?;
    let mut pages = decoder.new_pages(1, KvDtype::F32).ok()?;
    let logits = decoder.forward(&one_sequence(&[1, 2, 3], 0), &mut pages);
    logits.ok().map(drop)
}

fn refused(ran: Option<()>) -> Option<()> {
    match ran {
        Some(()) => None,
        None => Some(()),
    }
}

#[test]
fn fuzzed_models_are_refused_or_run() {
    fuzz_model(small("tiny"), 1000);
}

#[test]
fn fuzzed_experts_are_refused_or_run() {
    let spec = small("tiny-experts");
    let experts = spec.experts.clone().map(|experts| ExpertsSpec {
        count: 4,
        intermediate_size: 32,
        ..experts
    });
    fuzz_model(DecoderSpec { experts, ..spec }, 1000);
}

#[test]
fn fuzzed_recurrent_layers_are_refused_or_run() {
    let spec = DecoderSpec {
        layers: 2,
        ..small("tiny-recurrent")
    };
    let net = DeltaNetSpec {
        kernel: 3,
        heads: RecurrenceShape {
            key_heads: 1,
            value_heads: 2,
            key_dim: 32,
            value_dim: 16,
            is_tiled: true,
        },
    };
    let recurrent = RecurrentLayers::new(RecurrenceSpec::DeltaNet(net), vec![0]);
    fuzz_model(DecoderSpec { recurrent, ..spec }, 1000);
}

fn small(name: &str) -> DecoderSpec {
    DecoderSpec {
        vocab_size: 40,
        hidden_size: 32,
        intermediate_size: 32,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        rope: super::Rope {
            dims: 16,
            ..DecoderSpec::named(name).unwrap().rope
        },
        ..DecoderSpec::named(name).unwrap()
    }
}

fn fuzz_model(spec: DecoderSpec, rounds: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    Synthetic::new(spec, SyntheticQuant::Q8_0)
        .write_gguf(fs::File::create(&path).unwrap())
        .unwrap();
    let valid = fs::read(&path).unwrap();
    fuzz(&valid, rounds, |file| {
        fs::write(&path, file).unwrap();
        refused(run(&path))
    });
}

#[test]
fn fuzzed_configurations_are_refused_or_run() {
    for (name, rounds) in [
        ("qwen2", 1000),
        ("gemma4-shared", 300),
        ("gemma3n", 300),
        ("llama4", 300),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let golden = fixture("golden").join(name);
        let weights = folder.path().join("model.safetensors");
        fs::copy(golden.join("model.safetensors"), weights).unwrap();
        let valid = fs::read(golden.join("config.json")).unwrap();
        fuzz(&valid, rounds, |file| {
            fs::write(folder.path().join("config.json"), file).unwrap();
            refused(run(folder.path()))
        });
    }
}
