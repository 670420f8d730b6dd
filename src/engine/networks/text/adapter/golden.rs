//! Adapters against peft: seeded ones in `tests/fixtures/golden/text-adapters`, made by
//! `tests/fixtures/make/text_adapters.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::{DType, Device};

use super::TextAdapterFile;
use crate::networks::layers::DecoderAdapter;
use crate::networks::test_device::device;
use crate::networks::text::gguf::golden::convert_file;
use crate::networks::text::golden::{Golden, best, fixture, gap, load, one_sequence};
use crate::networks::text::{Batch, Decoder, LoadOptions};
use crate::networks::weights::{Checkpoint, Quantize};
use muster_kernels::{KvDtype, PAGE_TOKENS, Span};

const ADAPTERS: &[(&str, &str)] = &[
    ("llama-3", "all"),
    ("llama-3", "one"),
    ("llama-3", "patterns"),
    ("qwen2", "all"),
    ("phi3", "fused"),
    ("qwen3-moe", "attention"),
    ("qwen3-next", "attention"),
];

pub fn path_of(base: &str, name: &str) -> PathBuf {
    fixture("golden/text-adapters").join(base).join(name)
}

fn adapter_at(decoder: &Decoder, path: &Path) -> Arc<DecoderAdapter> {
    let file = TextAdapterFile::open(path).unwrap();
    Arc::new(decoder.load_adapter(&file).unwrap())
}

fn with(adapter: &Arc<DecoderAdapter>, batch: Batch) -> Batch {
    Batch {
        adapters: vec![Some(Arc::clone(adapter))],
        ..batch
    }
}

fn check_golden(decoder: &Decoder, adapter: &Arc<DecoderAdapter>, golden: &Golden, name: &str) {
    let mut pages = decoder.new_pages(4, KvDtype::F32).unwrap();
    let prompt = golden.tokens("prompt");
    let batch = with(adapter, one_sequence(&prompt, 0));
    let logits = decoder.forward(&batch, &mut pages).unwrap();
    let far = gap(&logits, &golden.tensor("logits"));
    assert!(far < 1e-4, "{name}: {far}");
    let (mut next, mut past, mut drawn) = (prompt, 0, Vec::<u32>::new());
    for _ in 0..32 {
        let batch = with(adapter, one_sequence(&next, past));
        let logits = decoder.forward(&batch, &mut pages).unwrap();
        past += next.len();
        next = vec![*best(&logits).last().unwrap()];
        drawn.extend(&next);
    }
    assert_eq!(drawn, golden.tokens("greedy"), "{name}");
}

fn golden_of(base: &str, name: &str) -> Golden {
    Golden::open(&format!("text-adapters/{base}/{name}"))
}

#[test]
fn logits_and_greedy_texts_are_those_of_peft() {
    for (base, name) in ADAPTERS {
        let decoder = load(&format!("golden/{base}"), Some(DType::F32));
        let path = path_of(base, name);
        let adapter = adapter_at(&decoder, &path);
        let file = TextAdapterFile::open(&path).unwrap();
        let counted = file.bytes_beside(decoder.spec()).unwrap();
        assert!(adapter.bytes() <= counted, "{base}/{name}: {counted}");
        let golden = golden_of(base, name);
        check_golden(&decoder, &adapter, &golden, &format!("{base}/{name}"));
    }
}

#[test]
fn a_gguf_adapter_computes_what_its_folder_computes() {
    for (base, name) in [("llama-3", "all"), ("llama-3", "one"), ("phi3", "fused")] {
        let decoder = load(&format!("golden/{base}"), Some(DType::F32));
        let adapter = adapter_at(&decoder, &path_of(base, name).with_extension("gguf"));
        check_golden(&decoder, &adapter, &golden_of(base, name), base);
    }
}

#[test]
fn both_forms_fit_a_gguf_base() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.gguf");
    for (base, name) in [
        ("llama-3", "all"),
        ("llama-3", "patterns"),
        ("phi3", "fused"),
    ] {
        let checkpoint = Checkpoint::open(&fixture(&format!("golden/{base}"))).unwrap();
        convert_file(&checkpoint, &path);
        let converted = Checkpoint::open(&path).unwrap();
        let options = LoadOptions::default();
        let decoder = Decoder::load(&converted, device(), &options, &mut |_, _| {}).unwrap();
        let folder = path_of(base, name);
        let gguf = folder.with_extension("gguf");
        for adapter in [folder, gguf].iter().filter(|path| path.exists()) {
            let found = adapter_at(&decoder, adapter);
            let name = format!("{} on GGUF", adapter.display());
            check_golden(&decoder, &found, &golden_of(base, name_of(adapter)), &name);
        }
    }
}

fn name_of(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

/// Prompts of different lengths.
fn prompt(sequence: usize) -> Vec<u32> {
    let token = |place: usize| ((sequence * 37 + place * 11 + place * place) % 120) as u32;
    (0..1 + (sequence * 13) % 40).map(token).collect()
}

struct AdaptedRow {
    tokens: Vec<u32>,
    adapter: Option<Arc<DecoderAdapter>>,
}

fn bits(decoder: &Decoder, rows: &[AdaptedRow]) -> Vec<Vec<u32>> {
    let mut pages = decoder.new_pages(rows.len() * 2, KvDtype::F32).unwrap();
    let mut batch = Batch::default();
    for (at, row) in (0..).zip(rows) {
        batch.tokens.extend(&row.tokens);
        let pages = row.tokens.len().div_ceil(PAGE_TOKENS) as u32;
        batch.spans.push(Span {
            new_tokens: row.tokens.len(),
            past_tokens: 0,
            pages: (at * 2..at * 2 + pages).collect(),
        });
        batch.states.push(at);
        batch.logit_rows.push(batch.tokens.len() as u32 - 1);
        batch.adapters.push(row.adapter.clone());
    }
    let logits = decoder.forward(&batch, &mut pages).unwrap();
    let logits: Vec<Vec<f32>> = logits.to_vec2().unwrap();
    let bits = |row: Vec<f32>| row.into_iter().map(f32::to_bits).collect();
    logits.into_iter().map(bits).collect()
}

/// Checks a batch with several adapters and with none: each row has the same bits as alone.
fn check_company(name: &str, decoder: &Decoder, adapters: &[Arc<DecoderAdapter>]) {
    let row = |sequence: usize| AdaptedRow {
        tokens: prompt(sequence),
        // No neighbours with the same adapter, and one in four without any.
        adapter: adapters.get(sequence % (adapters.len() + 1)).cloned(),
    };
    let rows: Vec<AdaptedRow> = (0..12).map(row).collect();
    let together = bits(decoder, &rows);
    for (sequence, found) in together.iter().enumerate() {
        let alone = bits(decoder, &[row(sequence)]);
        assert!(alone[0] == *found, "{name}: sequence {sequence}");
        let plain = bits(
            decoder,
            &[AdaptedRow {
                adapter: None,
                ..row(sequence)
            }],
        );
        let is_plain = row(sequence).adapter.is_none();
        assert_eq!(plain[0] == *found, is_plain, "{name}: {sequence}");
    }
    let same = |sequence: usize| AdaptedRow {
        adapter: Some(Arc::clone(&adapters[0])),
        ..row(sequence)
    };
    let together = bits(decoder, &[same(1), same(2)]);
    assert!(
        together[1] == bits(decoder, &[same(2)])[0],
        "{name}: one adapter"
    );
}

#[test]
fn rows_do_not_depend_on_the_adapters_of_others() {
    let load_all = |decoder: &Decoder| -> Vec<Arc<DecoderAdapter>> {
        let names = ["all", "one", "patterns"];
        let adapters = names.map(|name| adapter_at(decoder, &path_of("llama-3", name)));
        adapters.into()
    };
    let decoder = load("golden/llama-3", Some(DType::F32));
    check_company("f32", &decoder, &load_all(&decoder));
    let checkpoint = Checkpoint::open(&fixture("golden/llama-3")).unwrap();
    let options = LoadOptions {
        quantize: Some(Quantize::Q8_0),
        ..LoadOptions::default()
    };
    let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, &mut |_, _| {}).unwrap();
    check_company("Q8_0", &decoder, &load_all(&decoder));
    for (base, name) in [("qwen2", "all"), ("qwen3-next", "attention")] {
        let decoder = load(&format!("golden/{base}"), Some(DType::BF16));
        let adapter = adapter_at(&decoder, &path_of(base, name));
        check_company(base, &decoder, &[adapter]);
    }
}

#[test]
fn a_step_whose_adapters_do_not_fit_its_sequences_is_refused() {
    let decoder = load("golden/llama-3", Some(DType::F32));
    let adapter = adapter_at(&decoder, &path_of("llama-3", "one"));
    let mut pages = decoder.new_pages(4, KvDtype::F32).unwrap();
    let mut refused = |adapters| {
        let batch = Batch {
            adapters,
            ..one_sequence(&[1, 2], 0)
        };
        decoder.forward(&batch, &mut pages).unwrap_err().to_string()
    };
    let error = refused(vec![None, Some(adapter)]);
    assert!(error.contains("1 sequences has 2 adapters"), "{error}");
    let error = refused(vec![Some(Arc::new(DecoderAdapter::new(3)))]);
    assert!(error.contains("3 layers, but the decoder has 2"), "{error}");
}
