//! The seeded checkpoints of all families as a converter would write them to GGUF: the spec and the logits are those of
//! the hub's files.

use std::{fs::File, path::Path};

use candle_core::quantized::GgmlDType;

use super::{describe, rope_tensors};
use crate::networks::test_device::device;
use crate::networks::{
    text::{
        Decoder, DecoderSpec, LoadOptions,
        family::{ExpertPart, Family, Naming, Part, Role},
        golden::{FAMILIES, Golden, fixture, gap, one_sequence},
        load::feed_norm,
        rope::{Rope, RopeScaling},
        spec::NormPlacement,
    },
    weights::{Checkpoint, GgufWriter, TensorHeader, TensorType, convert},
};
use muster_kernels::{KvDtype, RopeStyle};

const PARTS: &[Part] = &[
    Part::AttentionNorm,
    Part::Query,
    Part::Key,
    Part::Value,
    Part::QueryKeyValue,
    Part::QueryNorm,
    Part::KeyNorm,
    Part::AttentionOutput,
    Part::Gate,
    Part::Up,
    Part::GateUp,
    Part::Down,
    Part::FeedPostNorm,
    Part::Router,
    Part::BlockSparseRouter,
];

/// A tensor under its name of GGUF.
struct ConvertedTensor {
    name: String,
    shape: Vec<usize>,
    numbers: Vec<f32>,
}

#[test]
fn converted_checkpoints_compute_what_the_hubs_compute() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    // The format cannot say that a blend ends between two waves.
    for name in FAMILIES.iter().filter(|&&name| name != "llama-yarn") {
        let checkpoint = Checkpoint::open(&fixture(&format!("golden/{name}"))).unwrap();
        let wanted = as_converted(checkpoint.spec().unwrap());
        write(&checkpoint, &wanted, &path);
        let converted = Checkpoint::open(&path).unwrap();
        assert_eq!(
            rounded(converted.spec().unwrap()),
            rounded(wanted),
            "{name}"
        );
        let golden = Golden::open(name);
        let options = LoadOptions::default();
        let decoder = Decoder::load(&converted, device(), &options, &mut |_, _| {}).unwrap();
        let mut pages = decoder.new_pages(4, KvDtype::F32).unwrap();
        let batch = one_sequence(&golden.tokens("prompt"), 0);
        let logits = decoder.forward(&batch, &mut pages).unwrap();
        let gap = gap(&logits, &golden.tensor("logits"));
        assert!(gap < 1e-4, "{name}: {gap}");
    }
}

/// The spec of a checkpoint after conversion: families share names, and Llama 3's scaling becomes factors.
fn as_converted(mut spec: DecoderSpec) -> DecoderSpec {
    spec.family = Family::of_gguf(spec.family.gguf_name()).unwrap();
    let style = spec.family.rules().gguf_rope_style;
    spec.rope.style = style;
    if let Some(rope) = &mut spec.window_rope {
        rope.style = style;
    }
    if let RopeScaling::Llama3 { .. } = spec.rope.scaling {
        let plain = Rope::plain(spec.rope.theta, style, spec.rope.dims);
        let before = plain.inverse_frequencies(spec.context).into_iter();
        let after = spec.rope.inverse_frequencies(spec.context);
        let factors = before
            .zip(after)
            .map(|(before, after)| (before / after) as f32);
        spec.rope.scaling = RopeScaling::Factors(factors.collect());
    }
    spec
}

/// Numbers as the format's f32 keeps them.
fn rounded(mut spec: DecoderSpec) -> DecoderSpec {
    let round = |number: &mut f64| *number = f64::from(*number as f32);
    round(&mut spec.norm_eps);
    round(&mut spec.scales.embedding);
    round(&mut spec.scales.residual);
    round(&mut spec.scales.logits);
    if let Some(scale) = &mut spec.attention_scale {
        round(scale);
    }
    if let Some(temperature) = &mut spec.query_temperature {
        round(&mut temperature.weight);
    }
    match &mut spec.rope.scaling {
        RopeScaling::LongRope { magnitude, .. } => round(magnitude),
        RopeScaling::Yarn(yarn) => round(&mut yarn.magnitude),
        _ => {}
    }
    spec
}

fn write(checkpoint: &Checkpoint, spec: &DecoderSpec, path: &Path) {
    let tensors = converted(checkpoint, spec);
    let mut writer = GgufWriter::default();
    describe(spec, &mut writer);
    for tensor in &tensors {
        writer.tensor(&tensor.name, &tensor.shape, GgmlDType::F32);
    }
    let bytes = |index: usize| {
        let numbers = tensors[index].numbers.iter();
        Ok(numbers.flat_map(|number| number.to_le_bytes()).collect())
    };
    writer.write(File::create(path).unwrap(), bytes).unwrap();
}

fn converted(checkpoint: &Checkpoint, spec: &DecoderSpec) -> Vec<ConvertedTensor> {
    let mut roles = vec![Role::Embedding, Role::FinalNorm];
    if !spec.tied_embeddings {
        roles.push(Role::Head);
    }
    let norms = [feed_norm(spec), Part::AttentionPostNorm];
    // Where nothing follows attention the second has the first one's name on the hub.
    let norms = &norms[..if spec.norms == NormPlacement::Before {
        1
    } else {
        2
    }];
    // And the first has the second one's where nothing comes before.
    let norms = &norms[usize::from(spec.norms == NormPlacement::After)..];
    for layer in 0..spec.layers {
        let parts = PARTS.iter().chain(norms);
        roles.extend(parts.map(|&part| Role::Layer(layer, part)));
    }
    let mut tensors: Vec<ConvertedTensor> = roles
        .into_iter()
        .flat_map(|role| {
            let names = [
                (Naming::Hub.weight(role), Naming::Gguf.weight(role)),
                (Naming::Hub.bias(role), Naming::Gguf.bias(role)),
            ];
            names.map(|(from, to)| {
                let header = checkpoint.tensor(&from)?;
                Some(convert_one(checkpoint, spec, header, (role, to)))
            })
        })
        .flatten()
        .collect();
    for layer in (0..spec.layers).filter(|&layer| spec.layer_experts(layer).is_some()) {
        for part in [ExpertPart::Gate, ExpertPart::Up, ExpertPart::Down] {
            tensors.push(stacked_experts(checkpoint, spec, layer, part));
        }
    }
    let factors = rope_tensors(spec).into_iter();
    tensors.extend(factors.map(|(name, factors)| ConvertedTensor {
        name: name.to_owned(),
        shape: vec![factors.len()],
        numbers: factors.to_vec(),
    }));
    tensors
}

fn convert_one(
    checkpoint: &Checkpoint,
    spec: &DecoderSpec,
    header: &TensorHeader,
    (role, name): (Role, String),
) -> ConvertedTensor {
    let mut numbers = floats(checkpoint, header);
    let rules = spec.family.rules();
    if rules.norms_add_one && name.ends_with("norm.weight") {
        numbers.iter_mut().for_each(|number| *number += 1.0);
    }
    let turns = matches!(role, Role::Layer(_, Part::Query | Part::Key));
    if turns && rules.gguf_rope_style == RopeStyle::Pairs {
        numbers = paired(&numbers, header.shape[0], spec.head_dim);
    }
    ConvertedTensor {
        name,
        shape: header.shape.clone(),
        numbers,
    }
}

/// The matrices of all experts in one tensor.
fn stacked_experts(
    checkpoint: &Checkpoint,
    spec: &DecoderSpec,
    layer: usize,
    part: ExpertPart,
) -> ConvertedTensor {
    let experts = spec.layer_experts(layer).unwrap();
    let (hidden, feed) = (spec.hidden_size, experts.intermediate_size);
    let (rows, cols) = match part {
        ExpertPart::Gate | ExpertPart::Up => (feed, hidden),
        ExpertPart::Down => (hidden, feed),
    };
    let names = Naming::Hub.experts_apart(layer, part);
    let apart = |expert: usize| {
        let headers = names
            .iter()
            .map(|name| checkpoint.tensor(&name.named(expert)));
        floats(checkpoint, headers.flatten().next().unwrap())
    };
    let hub = |part| checkpoint.tensor(&Naming::Hub.weight(Role::Layer(layer, part)));
    let numbers: Vec<f32> = match (part, hub(Part::GateUpExperts), hub(Part::DownExperts)) {
        (ExpertPart::Down, _, Some(downs)) => floats(checkpoint, downs),
        (ExpertPart::Gate | ExpertPart::Up, Some(fused), _) => {
            let size = rows * cols;
            let first = if part == ExpertPart::Gate { 0 } else { size };
            let fused = floats(checkpoint, fused);
            let each = fused.chunks(2 * size);
            each.flat_map(|each| &each[first..first + size])
                .copied()
                .collect()
        }
        _ => (0..experts.count).flat_map(apart).collect(),
    };
    ConvertedTensor {
        name: Naming::Gguf.weight(Role::Layer(layer, part.stacked())),
        shape: vec![experts.count, rows, cols],
        numbers,
    }
}

fn floats(checkpoint: &Checkpoint, header: &TensorHeader) -> Vec<f32> {
    let TensorType::Weight(dtype) = header.dtype else {
        panic!("{} is no weight", header.name);
    };
    convert::floats(dtype, &checkpoint.bytes(header)).unwrap()
}

/// Rows of the two halves of each head by turns.
fn paired(numbers: &[f32], rows: usize, head_dim: usize) -> Vec<f32> {
    let cols = numbers.len() / rows;
    let half = head_dim / 2;
    let from = |row: usize| {
        let (head, at) = (row / head_dim, row % head_dim);
        head * head_dim + at % 2 * half + at / 2
    };
    let row = |row: usize| &numbers[from(row) * cols..][..cols];
    (0..rows).flat_map(row).copied().collect()
}
