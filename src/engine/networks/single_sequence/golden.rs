//! Every listed family against the reference: seeded checkpoints in `tests/fixtures/golden/single-sequence`, made by
//! `tests/fixtures/make/single_sequence.py`.

use candle_core::Tensor;

use super::{SingleSequenceNetwork, SingleSequenceSpec, load};
use crate::networks::test_device::device;
use crate::networks::text::golden::{Golden, best, fixture, gap};
use crate::networks::weights::Checkpoint;

pub const FAMILIES: &[&str] = &[
    "gemma",
    "glm4",
    "glm4-biased",
    "helium",
    "mamba",
    "olmo",
    "olmo-clipped",
    "phi",
    "stablelm",
    "stablelm-biased",
    "starcoder2",
];

fn checkpoint(name: &str) -> Checkpoint {
    Checkpoint::open(&fixture("golden/single-sequence").join(name)).unwrap()
}

fn golden(name: &str) -> Golden {
    Golden::open(&format!("single-sequence/{name}"))
}

fn loaded(name: &str) -> (SingleSequenceSpec, Box<dyn SingleSequenceNetwork>) {
    let checkpoint = checkpoint(name);
    let spec = SingleSequenceSpec::of(&checkpoint).unwrap().unwrap();
    let mut told = Vec::new();
    let mut progress = |done, total| told.push((done, total));
    let network = load(&spec, &checkpoint, spec.context, device(), &mut progress).unwrap();
    let (done, total) = told.last().unwrap();
    assert_eq!(done, total, "{name}");
    (spec, network)
}

/// Runs tokens after `past` others, in passes of at most `chunk`. Returns the position and the logits of the last token of
/// each pass.
fn run(
    network: &mut dyn SingleSequenceNetwork,
    tokens: &[u32],
    past: usize,
    chunk: usize,
) -> Vec<(usize, Tensor)> {
    let (mut first, mut ends) = (0, Vec::new());
    while first < tokens.len() {
        let most = chunk.min(network.pass_tokens(past + first));
        let end = tokens.len().min(first + most);
        let pass = Tensor::new(&tokens[first..end], device()).unwrap();
        let pass = pass.unsqueeze(0).unwrap();
        let logits = network.forward(&pass, past + first).unwrap();
        let width = logits.elem_count();
        ends.push((past + end - 1, logits.reshape((1, width)).unwrap()));
        first = end;
    }
    ends
}

#[test]
fn logits_are_those_of_the_reference_however_a_prompt_is_cut() {
    for name in FAMILIES {
        let (golden, (_, mut network)) = (golden(name), loaded(name));
        for chunk in [1, 3, 16, usize::MAX] {
            for prompt in 0..3 {
                let tokens = golden.tokens(&format!("prompt.{prompt}"));
                let wanted = golden.tensor(&format!("logits.{prompt}"));
                network.clear().unwrap();
                for (row, found) in run(network.as_mut(), &tokens, 0, chunk) {
                    let gap = gap(&found, &wanted.narrow(0, row, 1).unwrap());
                    assert!(gap < 1e-4, "{name}: {gap} in row {row}, passes of {chunk}");
                }
            }
        }
    }
}

#[test]
fn logits_after_a_long_prompt_are_those_of_the_reference() {
    for name in FAMILIES {
        let (golden, (_, mut network)) = (golden(name), loaded(name));
        let ends = run(network.as_mut(), &golden.tokens("long"), 0, usize::MAX);
        let (_, found) = ends.last().unwrap();
        let gap = gap(found, &golden.tensor("long.logits"));
        assert!(gap < 1e-4, "{name}: {gap}");
    }
}

#[test]
fn greedy_tokens_are_those_of_the_reference() {
    for name in FAMILIES {
        let (golden, (_, mut network)) = (golden(name), loaded(name));
        let wanted = golden.tokens("greedy");
        let mut next = golden.tokens("prompt.0");
        let (mut past, mut drawn) = (0, Vec::<u32>::new());
        while drawn.len() < wanted.len() {
            let ends = run(network.as_mut(), &next, past, usize::MAX);
            past += next.len();
            next = best(&ends.last().unwrap().1);
            drawn.extend(&next);
        }
        assert_eq!(drawn, wanted, "{name}");
    }
}

#[test]
fn a_network_whose_sequence_was_forgotten_has_no_trace_of_it() {
    for name in FAMILIES {
        let (golden, (_, mut network)) = (golden(name), loaded(name));
        let tokens = golden.tokens("prompt.1");
        let last = |network: &mut dyn SingleSequenceNetwork| {
            let mut ends = run(network, &tokens, 0, usize::MAX);
            ends.pop().unwrap().1.flatten_all().unwrap()
        };
        let alone = last(network.as_mut()).to_vec1::<f32>().unwrap();
        network.clear().unwrap();
        run(network.as_mut(), &golden.tokens("long")[..50], 0, 7);
        network.clear().unwrap();
        let after = last(network.as_mut()).to_vec1::<f32>().unwrap();
        assert_eq!(alone, after, "{name}");
    }
}

#[test]
fn the_memory_of_weights_and_caches_is_counted_from_headers() {
    let bytes = |name: &str| {
        let checkpoint = checkpoint(name);
        let spec = SingleSequenceSpec::of(&checkpoint).unwrap().unwrap();
        let stored: u64 = checkpoint.tensors().iter().map(|it| it.bytes).sum();
        // Stored as bf16, held as f32.
        assert_eq!(spec.weight_bytes(&checkpoint), 2 * stored, "{name}");
        (spec.kv_bytes_per_token(), spec.context)
    };
    // Two layers with two key heads of 16 numbers.
    assert_eq!(bytes("gemma"), (2 * 2 * 2 * 16 * 4, 1024));
    assert_eq!(bytes("mamba"), (0, 2048));
    // No longer than its window.
    assert_eq!(bytes("starcoder2"), (2 * 2 * 2 * 8 * 4, 700));
}
