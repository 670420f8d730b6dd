//! Compares quantized files with the same numbers stored in f32: only the rounding of activations may differ.

use std::{fs::File, path::Path};

use candle_core::{DType, Device, Tensor, quantized::GgmlDType};
use muster_kernels::KvDtype;

use super::{
    Decoder, DecoderSpec, LoadOptions, Synthetic, SyntheticQuant, gguf,
    golden::{Golden, fixture, load, one_sequence},
};
use crate::networks::test_device::device;
use crate::networks::weights::{
    Checkpoint, GgufWriter, Quantize, TensorHeader, TensorSource, TensorType, convert,
};

const TYPES: &[GgmlDType] = &[
    GgmlDType::F16,
    GgmlDType::BF16,
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];

/// Writes the file of a small decoder whose matrices were quantized to `dtype`, stored in that type or in f32.
fn write(path: &Path, dtype: GgmlDType, as_f32: bool) {
    let source = Synthetic::new(DecoderSpec::named("tiny").unwrap(), SyntheticQuant::F32);
    let stored = |header: &TensorHeader| match (header.shape.len(), as_f32) {
        (2, false) => dtype,
        _ => GgmlDType::F32,
    };
    let mut writer = GgufWriter::default();
    gguf::describe(&DecoderSpec::named("tiny").unwrap(), &mut writer);
    for header in source.headers() {
        writer.tensor(&header.name, &header.shape, stored(header));
    }
    let bytes = |index: usize| {
        let header: &TensorHeader = &source.headers()[index];
        let plain = source.bytes(header).to_vec();
        let [_, cols] = header.shape[..] else {
            return Ok(plain);
        };
        let quantized = match convert::dense_dtype(dtype) {
            Some(dense) => convert::dense_as(GgmlDType::F32, &plain, Some(dense))
                .unwrap()
                .1
                .into(),
            None => convert::quantized(GgmlDType::F32, &plain, cols, dtype).unwrap(),
        };
        if !as_f32 {
            return Ok(quantized);
        }
        let numbers = convert::floats(dtype, &quantized).unwrap().into_iter();
        Ok(numbers.flat_map(f32::to_le_bytes).collect())
    };
    writer.write(File::create(path).unwrap(), bytes).unwrap();
}

/// The root mean square difference, relative to the expected numbers.
fn gap(found: &Tensor, wanted: &Tensor) -> f32 {
    let power = |tensor: &Tensor| {
        let power = tensor.sqr().unwrap().mean_all().unwrap();
        power.to_scalar::<f32>().unwrap()
    };
    (power(&(found - wanted).unwrap()) / power(wanted)).sqrt()
}

fn logits(decoder: &Decoder, tokens: &[u32]) -> Tensor {
    let mut pages = decoder.new_pages(2, KvDtype::F32).unwrap();
    decoder
        .forward(&one_sequence(tokens, 0), &mut pages)
        .unwrap()
}

#[test]
fn every_type_of_gguf_computes_what_its_numbers_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let tokens: Vec<u32> = (0..40).map(|i| i * i % 1000).collect();
    let open = || {
        let checkpoint = Checkpoint::open(&path).unwrap();
        let options = LoadOptions::default();
        let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, &mut |_, _| {}).unwrap();
        let query = checkpoint.tensor("blk.0.attn_q.weight").unwrap();
        (logits(&decoder, &tokens), query.dtype)
    };
    for &dtype in TYPES {
        write(&path, dtype, false);
        let (found, stored) = open();
        assert_eq!(stored, TensorType::Weight(dtype));
        write(&path, dtype, true);
        let gap = gap(&found, &open().0);
        let most = if convert::is_dense(dtype) { 0.0 } else { 0.045 };
        assert!(gap <= most, "{dtype:?}: {gap}");
    }
}

/// Steps of few rows, whose products have kernels for each type on GPUs.
#[test]
fn few_rows_of_every_type_compute_what_their_numbers_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let tokens: Vec<u32> = (0..23).map(|i| i * i % 1000).collect();
    let steps = [8, 1, 5, 2, 3, 4];
    let stepwise = |device: &Device| {
        let checkpoint = Checkpoint::open(&path).unwrap();
        let options = LoadOptions {
            dtype: Some(DType::F32),
            ..LoadOptions::default()
        };
        let decoder = Decoder::load(&checkpoint, device, &options, &mut |_, _| {}).unwrap();
        let mut pages = decoder.new_pages(2, KvDtype::F32).unwrap();
        let mut past = 0;
        let logits = steps.map(|rows| {
            let batch = one_sequence(&tokens[past..past + rows], past);
            past += rows;
            let logits = decoder.forward(&batch, &mut pages).unwrap();
            logits.to_device(&Device::Cpu).unwrap()
        });
        Tensor::cat(&logits, 0).unwrap()
    };
    for &dtype in TYPES {
        write(&path, dtype, false);
        let found = stepwise(device());
        write(&path, dtype, true);
        let gap = gap(&found, &stepwise(&Device::Cpu));
        assert!(gap <= 0.045, "{dtype:?}: {gap}");
    }
}

#[test]
fn a_gguf_file_and_the_checkpoint_it_was_made_of_agree() {
    let tokens: Vec<u32> = (0..40).map(|i| i * 13 % 500).collect();
    let wanted = logits(&load("tiny-llama", None), &tokens);
    let gap = gap(&logits(&load("tiny-llama.gguf", None), &tokens), &wanted);
    assert!(gap < 0.08, "{gap}");
}

#[test]
fn experts_of_mxfp4_compute_what_their_numbers_say() {
    let golden = Golden::open("gpt-oss");
    let (tokens, wanted) = (golden.tokens("prompt"), golden.tensor("logits"));
    let dense = load("golden/gpt-oss", None);
    let packed = load("golden/gpt-oss-mxfp4", None);
    let kv = |decoder: &Decoder| {
        let mut pages = decoder.new_pages(2, KvDtype::F32).unwrap();
        decoder
            .forward(&one_sequence(&tokens, 0), &mut pages)
            .unwrap()
    };
    let (exact, found) = (gap(&kv(&dense), &wanted), gap(&kv(&packed), &wanted));
    assert!(
        exact < 1e-4 && found < 0.03 && found > 1e-4,
        "{exact}, {found}"
    );
    // 4.5 bits per number instead of 16; down projections, whose rows are half a block, take twice that.
    let numbers = 2 * 5 * 3 * 32 * 64;
    assert_eq!(
        packed.weight_bytes() + numbers * 5 / 4,
        dense.weight_bytes()
    );
}

#[test]
fn quantizing_while_loading_keeps_the_logits_near() {
    let tokens: Vec<u32> = (0..40).map(|i| i * 13 % 500).collect();
    let wanted = logits(&load("tiny-llama", None), &tokens);
    let checkpoint = Checkpoint::open(&fixture("tiny-llama")).unwrap();
    let check = |quantize, most| {
        let options = LoadOptions {
            quantize: Some(quantize),
            ..LoadOptions::default()
        };
        let (mut reports, mut whole) = (0, 0);
        let progress = &mut |done: u64, total: u64| {
            assert!(done <= total);
            (reports, whole) = (reports + 1, total);
        };
        let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, progress).unwrap();
        let gap = gap(&logits(&decoder, &tokens), &wanted);
        assert!(gap < most, "{quantize:?}: {gap}");
        assert!(
            reports > 20 && decoder.weight_bytes() < whole / 3,
            "{quantize:?}"
        );
    };
    check(Quantize::Q8_0, 0.08);
    check(Quantize::Q4K, 0.2);
}
