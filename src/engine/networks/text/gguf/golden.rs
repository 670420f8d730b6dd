//! The seeded checkpoints of all families, converted to GGUF: the spec and the logits equal those of the hub's files.

use std::{fs::File, path::Path};

use candle_core::quantized::GgmlDType;

use super::{
    describe,
    golden_recurrent::{granite_feed_tensors, recurrent_tensors},
    rope_tensors,
};
use crate::networks::test_device::device;
use crate::networks::{
    layers::LatentSizes,
    text::{
        Decoder, DecoderSpec, LoadOptions,
        family::{ExpertPart, Family, Naming, Part, Role},
        golden::{FAMILIES, Golden, fixture, gap, one_sequence},
        load::feed_norm,
        recurrent::{RecurrenceSpec, RecurrentLayers},
        rope::{Rope, RopeScaling},
        spec::NormPlacement,
    },
    weights::{Checkpoint, GgufValue, GgufWriter, TensorHeader, TensorType, convert, mxfp4},
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
    Part::QueryDown,
    Part::QueryDownNorm,
    Part::QueryUp,
    Part::LatentDown,
    Part::LatentNorm,
    Part::AttentionOutput,
    Part::Gate,
    Part::Up,
    Part::GateUp,
    Part::Down,
    Part::FeedPostNorm,
    Part::Router,
    Part::BlockSparseRouter,
    Part::OssRouter,
    Part::SharedGate,
    Part::SharedUp,
    Part::SharedDown,
    Part::GatedSharedGate,
    Part::GatedSharedUp,
    Part::GatedSharedDown,
    Part::SharedRouter,
    Part::Correction,
    Part::Sinks,
    Part::InputGate,
    Part::InputProjection,
    Part::InputNorm,
    Part::LayerScale,
    Part::GemmaRouter,
    Part::RouterScale,
    Part::ExpertScales,
    Part::ExpertsPreNorm,
    Part::DensePostNorm,
    Part::ExpertsPostNorm,
    Part::StreamRouter,
    Part::StreamRouterNorm,
    Part::Prediction,
    Part::StreamCorrection,
    Part::StreamScale,
    Part::ResidualLeft,
    Part::ResidualRight,
    Part::ResidualNorm,
];

/// A tensor under its name of GGUF.
pub struct ConvertedTensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub numbers: Vec<f32>,
    /// Blocks of MXFP4 for the numbers.
    pub blocks: Option<Vec<u8>>,
}

#[test]
fn converted_checkpoints_compute_what_the_hubs_compute() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    // The format cannot express that YaRN's interpolation ends between two frequencies, or that a latent's rope has
    // halves. Converters write FP8 as bf16 with the same numbers; chunks of Llama 4 have a fixed size, and the active
    // stream of Gemma 3n is always scaled.
    let unsaid = [
        "llama-yarn",
        "deepseek-v3-halves",
        "qwen3-fp8",
        "qwen3-fp8-rows",
        "qwen3-gptq-ordered",
        "llama4",
        "llama4-dense",
        "gemma3n-odd",
    ];
    for name in FAMILIES.iter().filter(|name| !unsaid.contains(name)) {
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
        let mut pages = decoder.new_pages(6, KvDtype::F32).unwrap();
        let batch = one_sequence(&golden.tokens("prompt"), 0);
        let logits = decoder.forward(&batch, &mut pages).unwrap();
        let gap = gap(&logits, &golden.tensor("logits"));
        assert!(gap < 1e-4, "{name}: {gap}");
    }
}

/// A checkpoint as a GGUF file.
pub fn convert_file(checkpoint: &Checkpoint, path: &Path) {
    write(checkpoint, &as_converted(checkpoint.spec().unwrap()), path);
}

/// The same with further keys and tensors, and with the matrices of layers in this type.
pub fn convert_with(
    checkpoint: &Checkpoint,
    path: &Path,
    (values, tensors): (Vec<(&str, GgufValue)>, Vec<ConvertedTensor>),
    stored: GgmlDType,
) {
    let spec = as_converted(checkpoint.spec().unwrap());
    let mut writer = GgufWriter::default();
    for (key, value) in values {
        writer.value(key, value);
    }
    let mut all = converted(checkpoint, &spec);
    all.extend(tensors);
    write_tensors(&spec, (writer, all), stored, path);
}

/// The spec of a checkpoint after conversion: families share names, and Llama 3's scaling becomes factors.
fn as_converted(mut spec: DecoderSpec) -> DecoderSpec {
    spec.family = Family::of_gguf(spec.family.gguf_name()).unwrap();
    // Files of texts have no tower, and without images the axes of a position are alike.
    spec.rope_axes = None;
    let style = spec.family.rules().gguf_rope_style;
    spec.rope.style = style;
    if let Some(rope) = &mut spec.window_rope {
        rope.style = style;
    }
    if let Some(RecurrentLayers {
        kind: RecurrenceSpec::DeltaNet(net),
        ..
    }) = &mut spec.recurrent
    {
        let differ = net.heads.key_heads != net.heads.value_heads;
        net.heads.is_tiled = differ && spec.family != Family::Qwen3Next;
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
    if let RopeScaling::Proportional { turned, factor } = spec.rope.scaling {
        // Converters divide unused frequencies by this.
        let factors = (0..spec.rope.dims / 2).map(|index| match index < turned {
            true => factor as f32,
            false => 1e30,
        });
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
        // With latents the scale is computed from the weight of a logarithm.
        *scale = (*scale * 1e6).round() / 1e6;
    }
    if let Some(temperature) = &mut spec.query_temperature {
        round(&mut temperature.weight);
    }
    spec.gate_cutoffs.iter_mut().flatten().for_each(round);
    match &mut spec.rope.scaling {
        RopeScaling::LongRope { magnitude, .. } => round(magnitude),
        RopeScaling::Yarn(yarn) => round(&mut yarn.magnitude),
        _ => {}
    }
    spec
}

fn write(checkpoint: &Checkpoint, spec: &DecoderSpec, path: &Path) {
    let tensors = converted(checkpoint, spec);
    write_tensors(spec, (GgufWriter::default(), tensors), GgmlDType::F32, path);
}

fn write_tensors(
    spec: &DecoderSpec,
    (mut writer, tensors): (GgufWriter, Vec<ConvertedTensor>),
    stored: GgmlDType,
    path: &Path,
) {
    describe(spec, &mut writer);
    let dtype = |tensor: &ConvertedTensor| match tensor.shape[..] {
        [_, cols] if cols % stored.block_size() == 0 && tensor.name.starts_with("blk.") => stored,
        _ => GgmlDType::F32,
    };
    for tensor in &tensors {
        let dtype = match &tensor.blocks {
            Some(_) => TensorType::MxFp4,
            None => TensorType::Weight(dtype(tensor)),
        };
        writer.tensor(&tensor.name, &tensor.shape, dtype);
    }
    let bytes = |index: usize| {
        let tensor = &tensors[index];
        if let Some(blocks) = &tensor.blocks {
            return Ok(blocks.clone());
        }
        let numbers = tensor.numbers.iter();
        let plain: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
        Ok(match (dtype(tensor), &tensor.shape[..]) {
            (GgmlDType::F32, _) | (_, []) => plain,
            (stored, [.., cols]) => {
                convert::quantized(GgmlDType::F32, &plain, *cols, stored).unwrap()
            }
        })
    };
    writer.write(File::create(path).unwrap(), bytes).unwrap();
}

fn converted(checkpoint: &Checkpoint, spec: &DecoderSpec) -> Vec<ConvertedTensor> {
    let mut roles = vec![
        Role::Embedding,
        Role::FinalNorm,
        Role::LayerInputTable,
        Role::LayerInputProjection,
        Role::LayerInputNorm,
    ];
    if !spec.tied_embeddings {
        roles.push(Role::Head);
    }
    let norms = [feed_norm(spec), Part::AttentionPostNorm];
    // Without norms after attention the second norm has the first one's name on the hub.
    let norms = &norms[..if spec.norms == NormPlacement::Before {
        1
    } else {
        2
    }];
    // And the first has the second one's where nothing comes before.
    let norms = &norms[usize::from(spec.norms == NormPlacement::After)..];
    let is_granite = spec.family == Family::GraniteHybrid;
    let apart = [Part::GateUp, Part::Down, Part::SharedDown];
    for layer in 0..spec.layers {
        let parts = PARTS.iter().chain(norms);
        let parts = parts.filter(|part| !(is_granite && apart.contains(part)));
        roles.extend(parts.map(|&part| Role::Layer(layer, part)));
    }
    let hub = checkpoint.naming();
    let mut tensors: Vec<ConvertedTensor> = roles
        .into_iter()
        .flat_map(|role| {
            let names = [
                (hub.weight(role), converted_name(spec, role)),
                (hub.bias(role), Naming::Gguf.bias(role)),
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
            tensors.extend(expert_biases(checkpoint, spec, layer, part));
        }
    }
    for layer in 0..spec.layers {
        tensors.extend(recurrent_tensors(checkpoint, spec, layer));
        if is_granite {
            tensors.extend(granite_feed_tensors(checkpoint, spec, layer));
        }
    }
    if let Some(updates) = spec.alternating_updates {
        for role in [Role::StreamProjection, Role::StreamUnembedding] {
            let each = (1..updates.streams).map(|stream| {
                let header = checkpoint.tensor(&hub.weight(role(stream - 1)));
                floats(checkpoint, header.unwrap())
            });
            tensors.push(ConvertedTensor {
                name: Naming::Gguf.weight(role(0)),
                shape: vec![updates.streams - 1, spec.hidden_size, spec.hidden_size],
                numbers: each.flatten().collect(),
                blocks: None,
            });
        }
    }
    if let Some(latent) = &spec.latent {
        let layers = 0..spec.layers;
        tensors.extend(
            layers.flat_map(|layer| latent_heads(checkpoint, spec.heads, latent.sizes, layer)),
        );
    }
    let factors = rope_tensors(spec).into_iter();
    tensors.extend(factors.map(|(name, factors)| ConvertedTensor {
        name: name.to_owned(),
        shape: vec![factors.len()],
        numbers: factors.to_vec(),
        blocks: None,
    }));
    tensors
}

fn converted_name(spec: &DecoderSpec, role: Role) -> String {
    match (spec.family, role) {
        (Family::Lfm2 | Family::Lfm2Moe, Role::FinalNorm) => "token_embd_norm.weight".to_owned(),
        _ => Naming::Gguf.weight(role),
    }
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
    let turns = matches!(role, Role::Layer(_, Part::Query | Part::Key)) && spec.latent.is_none();
    // Llama 4's files of the hub have interleaved pairs, too.
    let are_neighbours = spec.family == Family::Llama4;
    if turns && rules.gguf_rope_style == RopeStyle::Pairs && !are_neighbours {
        numbers = paired(&numbers, header.shape[0], spec.head_dim);
    }
    let is_correction = matches!(role, Role::Layer(_, Part::Correction));
    let is_shared = matches!(role, Role::Layer(_, Part::SharedRouter));
    ConvertedTensor {
        name: match is_correction {
            true => Naming::Gguf.bias(role),
            false => name,
        },
        shape: match is_shared {
            true => vec![spec.hidden_size],
            false => header.shape.clone(),
        },
        numbers,
        blocks: None,
    }
}

/// The keys of all heads with columns first, and their values.
fn latent_heads(
    checkpoint: &Checkpoint,
    heads: usize,
    sizes: LatentSizes,
    layer: usize,
) -> [ConvertedTensor; 2] {
    let name = Naming::Hub.weight(Role::Layer(layer, Part::LatentUp));
    let numbers = floats(checkpoint, checkpoint.tensor(&name).unwrap());
    let (key, rank) = (sizes.plain_dim * sizes.rank, sizes.rank);
    let each = || numbers.chunks(key + sizes.value_dim * rank);
    let columns = |rows: &[f32]| -> Vec<f32> {
        let column = |col: usize| rows.iter().skip(col).step_by(rank).copied();
        (0..rank).flat_map(column).collect()
    };
    let tensor = |part, shape, numbers| ConvertedTensor {
        name: Naming::Gguf.weight(Role::Layer(layer, part)),
        shape,
        numbers,
        blocks: None,
    };
    let keys = each().flat_map(|rows| columns(&rows[..key])).collect();
    let values = each().flat_map(|rows| rows[key..].to_vec()).collect();
    [
        tensor(Part::LatentKeys, vec![heads, rank, sizes.plain_dim], keys),
        tensor(
            Part::LatentValues,
            vec![heads, sizes.value_dim, rank],
            values,
        ),
    ]
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
    let naming = checkpoint.naming();
    let names = naming.experts_apart(layer, part);
    let apart = |expert: usize| {
        let headers = names
            .iter()
            .map(|name| checkpoint.tensor(&name.named(expert)));
        floats(checkpoint, headers.flatten().next().unwrap())
    };
    let stem = |part| naming.weight(Role::Layer(layer, part));
    let hub = |part| checkpoint.tensor(&stem(part));
    let name = Naming::Gguf.weight(Role::Layer(layer, part.stacked()));
    let shape = vec![experts.count, rows, cols];
    if spec.family == Family::GptOss {
        let fused = match part {
            ExpertPart::Down => Part::DownExperts,
            ExpertPart::Gate | ExpertPart::Up => Part::GateUpExperts,
        };
        let blocks = packed_blocks(checkpoint, &stem(fused), part, cols);
        let numbers = match &blocks {
            Some(_) => Vec::new(),
            None => by_rows(&floats(checkpoint, hub(fused).unwrap()), part, (rows, cols)),
        };
        return ConvertedTensor {
            name,
            shape,
            numbers,
            blocks,
        };
    }
    if spec.family == Family::Llama4 {
        let (fused, first, width) = match part {
            ExpertPart::Gate => (Part::GateUpExperts, 0, 2 * rows),
            ExpertPart::Up => (Part::GateUpExperts, rows, 2 * rows),
            ExpertPart::Down => (Part::DownExperts, 0, rows),
        };
        let all = floats(checkpoint, hub(fused).unwrap());
        let each = all.chunks(width * cols);
        let numbers = each.flat_map(|each| {
            let row = move |row: usize| (0..cols).map(move |col| each[col * width + first + row]);
            (0..rows).flat_map(row)
        });
        return ConvertedTensor {
            name,
            shape,
            numbers: numbers.collect(),
            blocks: None,
        };
    }
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
        name,
        shape,
        numbers,
        blocks: None,
    }
}

/// The offset and stride of a part's rows, where gates and ups are interleaved.
fn turns(part: ExpertPart) -> (usize, usize) {
    match part {
        ExpertPart::Gate => (0, 2),
        ExpertPart::Up => (1, 2),
        ExpertPart::Down => (0, 1),
    }
}

/// gpt-oss's dense experts have columns first.
fn by_rows(numbers: &[f32], part: ExpertPart, (rows, cols): (usize, usize)) -> Vec<f32> {
    let (first, step) = turns(part);
    let width = rows * step;
    let each = numbers.chunks(width * cols);
    let rows = each.flat_map(|each| {
        let row =
            move |row: usize| (0..cols).map(move |col| each[col * width + first + row * step]);
        (0..rows).flat_map(row)
    });
    rows.collect()
}

/// Blocks as GGUF has them, of codes and exponents on the hub.
fn packed_blocks(
    checkpoint: &Checkpoint,
    stem: &str,
    part: ExpertPart,
    cols: usize,
) -> Option<Vec<u8>> {
    let bytes = |end: &str| Some(checkpoint.bytes(checkpoint.tensor(&format!("{stem}_{end}"))?));
    let (codes, exponents) = (bytes("blocks")?, bytes("scales")?);
    let (first, step) = turns(part);
    let rows = codes.chunks(cols / 2).zip(exponents.chunks(cols / 32));
    let rows = rows.skip(first).step_by(step);
    Some(
        rows.flat_map(|(codes, exponents)| mxfp4::from_hub(codes, exponents))
            .collect(),
    )
}

fn expert_biases(
    checkpoint: &Checkpoint,
    spec: &DecoderSpec,
    layer: usize,
    part: ExpertPart,
) -> Option<ConvertedTensor> {
    let experts = spec
        .layer_experts(layer)
        .filter(|experts| experts.has_biases)?;
    let fused = match part {
        ExpertPart::Down => Part::DownExperts,
        ExpertPart::Gate | ExpertPart::Up => Part::GateUpExperts,
    };
    let header = checkpoint.tensor(&Naming::Hub.bias(Role::Layer(layer, fused)))?;
    let (first, step) = turns(part);
    let numbers = floats(checkpoint, header);
    let numbers: Vec<f32> = numbers.into_iter().skip(first).step_by(step).collect();
    Some(ConvertedTensor {
        name: Naming::Gguf.bias(Role::Layer(layer, part.stacked())),
        shape: vec![experts.count, numbers.len() / experts.count],
        numbers,
        blocks: None,
    })
}

#[test]
fn blocks_of_mxfp4_are_the_same_in_both_kinds_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let hub = Checkpoint::open(&fixture("golden/gpt-oss-mxfp4")).unwrap();
    write(&hub, &as_converted(hub.spec().unwrap()), &path);
    let converted = Checkpoint::open(&path).unwrap();
    let stacked = converted.tensor("blk.1.ffn_down_exps.weight").unwrap();
    assert_eq!(
        (stacked.dtype, stacked.bytes),
        (TensorType::MxFp4, 5 * 64 * 17)
    );
    let tokens = Golden::open("gpt-oss").tokens("prompt");
    let [wanted, found] = [&hub, &converted].map(|checkpoint| {
        let options = LoadOptions {
            dtype: Some(candle_core::DType::F32),
            ..LoadOptions::default()
        };
        let device = candle_core::Device::Cpu;
        let decoder = Decoder::load(checkpoint, &device, &options, &mut |_, _| {}).unwrap();
        let mut pages = decoder.new_pages(6, KvDtype::F32).unwrap();
        decoder
            .forward(&one_sequence(&tokens, 0), &mut pages)
            .unwrap()
    });
    assert_eq!(gap(&found, &wanted), 0.0);
}

pub fn floats(checkpoint: &Checkpoint, header: &TensorHeader) -> Vec<f32> {
    let TensorType::Weight(dtype) = header.dtype else {
        panic!("{} is no weight", header.name);
    };
    convert::floats(dtype, &checkpoint.bytes(header)).unwrap()
}

/// Interleaves the rows of the two halves of each head.
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
