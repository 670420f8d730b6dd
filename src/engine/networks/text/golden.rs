//! Every family against the reference implementation: seeded checkpoints in `tests/fixtures/golden`, made by
//! `tests/fixtures/make/golden.py`.

use std::path::PathBuf;

use candle_core::{DType, Tensor, quantized::GgmlDType};
use safetensors::SafeTensors;

use super::{Batch, Decoder, LoadOptions};
use crate::networks::test_device::device;
use crate::networks::weights::{Checkpoint, TensorType, tensor_floats};
use muster_kernels::{KvDtype, PAGE_TOKENS, Span};

pub const FAMILIES: &[&str] = &[
    "llama-1",
    "llama-3",
    "llama-biased",
    "llama4",
    "llama4-dense",
    "llama4-tower",
    "mistral",
    "qwen2",
    "qwen2-window",
    "qwen3",
    "llama-yarn",
    "qwen3-yarn",
    "ministral",
    "ministral3",
    "gemma2",
    "gemma3",
    "gemma3n",
    "gemma3n-odd",
    "gemma4",
    "gemma4-shared",
    "gemma4-biased",
    "gemma4-moe",
    "gemma4-towers",
    "gemma4-unified",
    "phi3",
    "phi4-mini",
    "olmo2",
    "olmo3",
    "granite",
    "smollm3",
    "qwen3-moe",
    "qwen3-moe-sparse",
    "qwen3-moe-fused",
    "mixtral",
    "olmoe",
    "gpt-oss",
    "qwen2-moe",
    "glm4-moe",
    "qwen3-next",
    "qwen3.5",
    "qwen3.5-grouped",
    "qwen3.5-moe",
    "lfm2",
    "lfm2-moe",
    "granite4",
    "granite4-moe",
    "deepseek-v2-lite",
    "deepseek-v2",
    "deepseek-v3",
    "deepseek-v3-halves",
    "glm4-moe-lite",
    "qwen3-fp8",
    "qwen3-fp8-rows",
    "qwen3-gptq-ordered",
];

pub fn fixture(name: &str) -> PathBuf {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join("tests/fixtures").join(name)
}

pub fn load(name: &str, dtype: Option<DType>) -> Decoder {
    let checkpoint = Checkpoint::open(&fixture(name)).unwrap();
    let options = LoadOptions {
        dtype,
        ..LoadOptions::default()
    };
    Decoder::load(&checkpoint, device(), &options, &mut |_, _| {}).unwrap()
}

/// A sequence after `past` tokens, in the first pages.
pub fn one_sequence(tokens: &[u32], past: usize) -> Batch {
    let pages = (past + tokens.len()).div_ceil(PAGE_TOKENS);
    Batch {
        tokens: tokens.to_vec(),
        spans: vec![Span {
            new_tokens: tokens.len(),
            past_tokens: past,
            pages: (0..pages as u32).collect(),
        }],
        states: vec![0],
        logit_rows: (0..tokens.len() as u32).collect(),
        ..Batch::default()
    }
}

pub fn best(logits: &Tensor) -> Vec<u32> {
    let best = logits.argmax(candle_core::D::Minus1).unwrap();
    best.to_vec1().unwrap()
}

#[test]
fn a_sequence_is_no_longer_than_somebody_wants() {
    let checkpoint = Checkpoint::open(&fixture("tiny-llama")).unwrap();
    let options = LoadOptions {
        context: Some(4),
        ..LoadOptions::default()
    };
    let decoder = Decoder::load(&checkpoint, device(), &options, &mut |_, _| {}).unwrap();
    let mut pages = decoder.new_pages(1, KvDtype::F32).unwrap();
    let mut run = |tokens: &[u32]| decoder.forward(&one_sequence(tokens, 0), &mut pages);
    run(&[1, 2, 3, 4]).unwrap();
    let error = run(&[1, 2, 3, 4, 5]).unwrap_err().to_string();
    assert!(
        error.contains("a sequence of 5 tokens does not fit the context of 4"),
        "{error}"
    );
}

pub struct Golden {
    bytes: Vec<u8>,
}

impl Golden {
    pub fn open(name: &str) -> Self {
        let path = fixture("golden").join(name).join("golden.tensors");
        let bytes = std::fs::read(path).unwrap();
        Self { bytes }
    }

    pub fn has(&self, name: &str) -> bool {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        file.tensor(name).is_ok()
    }

    pub fn tokens(&self, name: &str) -> Vec<u32> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let eights = file.tensor(name).unwrap().data().as_chunks().0;
        eights
            .iter()
            .map(|eight| i64::from_le_bytes(*eight) as u32)
            .collect()
    }

    pub fn tensor(&self, name: &str) -> Tensor {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).unwrap();
        Tensor::from_raw_buffer(view.data(), DType::F32, view.shape(), device()).unwrap()
    }
}

/// The largest difference, relative to the largest expected number.
pub fn gap(found: &Tensor, wanted: &Tensor) -> f32 {
    let largest = |tensor: &Tensor| {
        let largest = tensor.abs().unwrap().max_all().unwrap();
        largest.to_scalar::<f32>().unwrap()
    };
    largest(&(found - wanted).unwrap()) / largest(wanted)
}

#[test]
fn logits_are_those_of_the_reference() {
    for name in FAMILIES {
        let golden = Golden::open(name);
        let decoder = load(&format!("golden/{name}"), Some(DType::F32));
        let mut pages = decoder.new_pages(6, KvDtype::F32).unwrap();
        let batch = one_sequence(&golden.tokens("prompt"), 0);
        let logits = decoder.forward(&batch, &mut pages).unwrap();
        let gap = gap(&logits, &golden.tensor("logits"));
        assert!(gap < 1e-4, "{name}: {gap}");
    }
}

/// Matrices of AWQ, GPTQ and compressed-tensors become blocks of as many bits. Products with such blocks round activations.
#[test]
fn packed_matrices_hold_the_numbers_of_the_reference() {
    for (name, held) in [
        ("qwen3-awq", GgmlDType::Q4_1),
        ("qwen3-gptq", GgmlDType::Q4_1),
        ("qwen3-gptq-ordered", GgmlDType::F16),
        ("qwen3-w4a16", GgmlDType::Q4_0),
        ("qwen3-w4a16-zeros", GgmlDType::Q4_1),
        ("qwen3-w8a16", GgmlDType::Q8_0),
    ] {
        let golden = Golden::open(name);
        let checkpoint = Checkpoint::open(&fixture(&format!("golden/{name}"))).unwrap();
        for matrix in ["0.self_attn.q_proj", "1.mlp.down_proj"] {
            let matrix = format!("model.layers.{matrix}.weight");
            let header = checkpoint.tensor(&matrix).unwrap();
            assert_eq!(header.dtype, TensorType::Weight(held), "{name}");
            let found = tensor_floats(held, &checkpoint.bytes(header)).unwrap();
            let wanted = golden.tensor(&matrix).flatten_all().unwrap();
            assert_eq!(found, wanted.to_vec1::<f32>().unwrap(), "{name} {matrix}");
        }
        let decoder = load(&format!("golden/{name}"), None);
        let mut pages = decoder.new_pages(6, KvDtype::F32).unwrap();
        let batch = one_sequence(&golden.tokens("prompt"), 0);
        let logits = decoder.forward(&batch, &mut pages).unwrap();
        let gap = gap(&logits, &golden.tensor("logits"));
        assert!(gap < 0.05, "{name}: {gap}");
    }
}

#[test]
fn logits_of_eight_bit_keys_and_values_are_near_the_reference() {
    let golden = Golden::open("qwen3");
    let decoder = load("golden/qwen3", Some(DType::F32));
    let wanted = golden.tensor("logits");
    let mut pages = decoder.new_pages(4, KvDtype::Q8_0).unwrap();
    let batch = one_sequence(&golden.tokens("prompt"), 0);
    let found = decoder.forward(&batch, &mut pages).unwrap();
    let product = |a: &Tensor, b: &Tensor| {
        let sum = (a * b).unwrap().sum_all().unwrap();
        sum.to_scalar::<f32>().unwrap()
    };
    let lengths = (product(&found, &found) * product(&wanted, &wanted)).sqrt();
    let cosine = product(&found, &wanted) / lengths;
    let gap = gap(&found, &wanted);
    assert!(gap < 0.02 && cosine > 0.9999, "{gap}, cosine {cosine}");
    let exact = gap < 1e-5;
    assert!(!exact, "eight bits cannot be exact: {gap}");
}

#[test]
fn sixty_four_greedy_tokens_are_those_of_the_reference() {
    // The GPU of `cuda/emulator` takes its time.
    let is_emulated = std::env::var_os("EMULATED").is_some();
    let count = if is_emulated { 5 } else { 64 };
    for name in FAMILIES {
        let golden = Golden::open(name);
        let decoder = load(&format!("golden/{name}"), Some(DType::F32));
        let mut pages = decoder.new_pages(6, KvDtype::F32).unwrap();
        let mut next = golden.tokens("prompt");
        let (mut past, mut drawn) = (0, Vec::<u32>::new());
        for _ in 0..count {
            let logits = decoder
                .forward(&one_sequence(&next, past), &mut pages)
                .unwrap();
            past += next.len();
            next = vec![*best(&logits).last().unwrap()];
            drawn.extend(&next);
        }
        assert_eq!(drawn, golden.tokens("greedy")[..count], "{name}");
    }
}

#[test]
fn hidden_states_are_those_of_the_reference() {
    for name in FAMILIES {
        let golden = Golden::open(name);
        let decoder = load(&format!("golden/{name}"), Some(DType::F32));
        let states = decoder
            .hidden_states(&golden.tokens("prompt"), &[2, 0, 1])
            .unwrap();
        for (state, layer) in states.iter().zip([2, 0, 1]) {
            let gap = gap(state, &golden.tensor(&format!("hidden.{layer}")));
            assert!(gap < 1e-4, "{name}, layer {layer}: {gap}");
        }
    }
}

#[test]
fn last_states_are_those_of_the_reference_whatever_is_beside_them() {
    for name in FAMILIES {
        let golden = Golden::open(name);
        let decoder = load(&format!("golden/{name}"), Some(DType::F32));
        let prompt = golden.tokens("prompt");
        let states = decoder.last_states(&[&prompt[..7], &prompt]).unwrap();
        let wanted = golden.tensor(&format!("hidden.{}", decoder.spec().layers));
        let last = wanted.narrow(0, prompt.len() - 1, 1).unwrap();
        let gap = gap(&states.narrow(0, 1, 1).unwrap(), &last);
        assert!(gap < 1e-4, "{name}: {gap}");
    }
}
