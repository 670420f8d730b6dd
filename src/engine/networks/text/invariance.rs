//! Batch invariance: a row's logits have the same bits, whatever the batch, the split of its prompt and its pages.

use candle_core::{DType, Device, Tensor};

use super::{
    Batch, Decoder, LoadOptions,
    golden::{fixture, load},
};
use crate::networks::weights::{Checkpoint, Quantize};
use muster_kernels::{KvDtype, PAGE_TOKENS, Span};

const SEQUENCES: usize = 16;

/// Sequences of different lengths that share nothing.
fn prompts() -> Vec<Vec<u32>> {
    let token =
        |sequence: usize, place: usize| ((sequence * 37 + place * 11 + place * place) % 120) as u32;
    let length = |sequence: usize| 1 + (sequence * 13) % 70;
    (0..SEQUENCES)
        .map(|sequence| {
            (0..length(sequence))
                .map(|place| token(sequence, place))
                .collect()
        })
        .collect()
}

fn span(tokens: usize, past: usize, first_page: u32) -> Span {
    let pages = (past + tokens).div_ceil(PAGE_TOKENS) as u32;
    Span {
        new_tokens: tokens,
        past_tokens: past,
        pages: (first_page..first_page + pages).collect(),
    }
}

fn bits(row: &Tensor) -> Vec<u32> {
    let numbers: Vec<f32> = row.flatten_all().unwrap().to_vec1().unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

/// The last row's logits of one sequence computed in chunks of this length, without other sequences.
fn alone(decoder: &Decoder, kv: KvDtype, tokens: &[u32], part: usize, first_page: u32) -> Vec<u32> {
    let mut pages = decoder.new_pages(16, kv).unwrap();
    let mut past = 0;
    let mut last = Vec::new();
    for tokens in tokens.chunks(part) {
        let batch = Batch {
            tokens: tokens.to_vec(),
            spans: vec![span(tokens.len(), past, first_page)],
            states: vec![first_page],
            logit_rows: vec![tokens.len() as u32 - 1],
            ..Batch::default()
        };
        last = bits(&decoder.forward(&batch, &mut pages).unwrap());
        past += tokens.len();
    }
    last
}

/// The same, where the pages move to the end of a larger cache and back before each part.
fn resized(decoder: &Decoder, kv: KvDtype, tokens: &[u32], part: usize) -> Vec<u32> {
    let mut pages = decoder.new_pages(8, kv).unwrap();
    let (mut past, mut last) = (0, Vec::new());
    for (tokens, turn) in tokens.chunks(part).zip(0..) {
        // The last three of 8 pages come first: the pages of the sequence begin at 3.
        match turn % 2 {
            0 => pages.resize(12, &[5, 6, 7, 0, 1, 2, 3, 4]).unwrap(),
            _ => pages.resize(8, &[3, 4, 5, 6, 7, 0, 1, 2]).unwrap(),
        }
        let batch = Batch {
            tokens: tokens.to_vec(),
            spans: vec![span(tokens.len(), past, if turn % 2 == 0 { 3 } else { 0 })],
            states: vec![0],
            logit_rows: vec![tokens.len() as u32 - 1],
            ..Batch::default()
        };
        last = bits(&decoder.forward(&batch, &mut pages).unwrap());
        past += tokens.len();
    }
    last
}

fn together(decoder: &Decoder, kv: KvDtype, prompts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut pages = decoder.new_pages(SEQUENCES * 4, kv).unwrap();
    let mut batch = Batch::default();
    for (sequence, tokens) in prompts.iter().enumerate() {
        batch.tokens.extend(tokens);
        batch.spans.push(span(tokens.len(), 0, sequence as u32 * 4));
        batch.states.push(sequence as u32);
        batch.logit_rows.push(batch.tokens.len() as u32 - 1);
    }
    let logits = decoder.forward(&batch, &mut pages).unwrap();
    (0..prompts.len())
        .map(|row| bits(&logits.get(row).unwrap()))
        .collect()
}

fn check(name: &str, decoder: &Decoder) {
    check_stored(name, decoder, decoder.kv_dtype());
}

fn check_stored(name: &str, decoder: &Decoder, kv: KvDtype) {
    let prompts = prompts();
    let batched = together(decoder, kv, &prompts);
    for (sequence, tokens) in prompts.iter().enumerate() {
        let whole = alone(decoder, kv, tokens, 1000, 0);
        assert!(
            whole == batched[sequence],
            "{name}: sequence {sequence} in a batch"
        );
        let parts: &[usize] = if sequence % 5 == 0 { &[1, 7, 32] } else { &[] };
        for &part in parts {
            let chunked = alone(decoder, kv, tokens, part, 3);
            assert!(
                whole == chunked,
                "{name}: sequence {sequence} in parts of {part}"
            );
        }
        if sequence % 5 == 0 {
            let moved = resized(decoder, kv, tokens, 20);
            assert!(whole == moved, "{name}: sequence {sequence} in moved pages");
        }
    }
    // Shared pages are not enough with recurrent states.
    if !decoder.spec().is_recurrent() {
        check_shared(name, decoder, kv, &prompts[5]);
    }
}

/// Two sequences continue from the same full pages.
fn check_shared(name: &str, decoder: &Decoder, kv: KvDtype, prefix: &[u32]) {
    let prefix = &prefix[..2 * PAGE_TOKENS];
    let mut pages = decoder.new_pages(16, kv).unwrap();
    let step = |tokens: &[u32], spans, logit_rows| Batch {
        tokens: tokens.to_vec(),
        spans,
        logit_rows,
        ..Batch::default()
    };
    let first = step(prefix, vec![span(prefix.len(), 0, 0)], vec![]);
    decoder.forward(&first, &mut pages).unwrap();
    let on = |own: u32, new_tokens| Span {
        new_tokens,
        past_tokens: prefix.len(),
        pages: vec![0, 1, own],
    };
    let tails: [&[u32]; 2] = [&[5, 6, 7], &[90]];
    let second = step(&tails.concat(), vec![on(9, 3), on(4, 1)], vec![2, 3]);
    let logits = decoder.forward(&second, &mut pages).unwrap();
    for (row, tail) in tails.iter().enumerate() {
        let whole = alone(decoder, kv, &[prefix, tail].concat(), 1000, 0);
        assert!(
            whole == bits(&logits.get(row).unwrap()),
            "{name}: shared pages, row {row}"
        );
    }
}

#[test]
fn dense_logits_do_not_depend_on_the_company() {
    for (name, dtype) in [
        ("llama-3", DType::F32),
        ("mistral", DType::BF16),
        ("qwen2-window", DType::F32),
        ("qwen3", DType::F16),
        ("qwen3-moe", DType::F32),
        ("gpt-oss", DType::F32),
        ("glm4-moe", DType::F32),
        ("qwen3-next", DType::F32),
        ("qwen3.5-grouped", DType::BF16),
        ("deepseek-v2", DType::F32),
        ("deepseek-v3", DType::BF16),
        ("gpt-oss-mxfp4", DType::BF16),
        ("qwen3-moe-sparse", DType::BF16),
        ("llama4", DType::BF16),
        ("gemma3n", DType::F32),
        ("gemma4", DType::BF16),
        ("gemma4-shared", DType::F32),
        ("gemma4-moe", DType::BF16),
    ] {
        let decoder = load(&format!("golden/{name}"), Some(dtype));
        check(&format!("{name} {dtype:?}"), &decoder);
    }
}

#[test]
fn logits_of_quantized_experts_do_not_depend_on_the_company() {
    let checkpoint = Checkpoint::open(&fixture("golden/qwen3-moe")).unwrap();
    let options = LoadOptions {
        quantize: Some(Quantize::Q8_0),
        ..LoadOptions::default()
    };
    let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, &mut |_, _| {}).unwrap();
    check("qwen3-moe Q8_0", &decoder);
}

#[test]
fn logits_of_eight_bit_keys_and_values_do_not_depend_on_the_company() {
    let decoder = load("golden/qwen3", Some(DType::BF16));
    check_stored("qwen3 q8_0", &decoder, KvDtype::Q8_0);
}

#[test]
fn quantized_logits_do_not_depend_on_the_company() {
    check("tiny-llama.gguf", &load("tiny-llama.gguf", None));
    for quantize in [Quantize::Q8_0, Quantize::Q4K] {
        let checkpoint = Checkpoint::open(&fixture("tiny-llama")).unwrap();
        let options = LoadOptions {
            quantize: Some(quantize),
            ..LoadOptions::default()
        };
        let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, &mut |_, _| {}).unwrap();
        check(&format!("{quantize:?}"), &decoder);
    }
}
