//! Adapters that cannot be used are refused in words, before their numbers are read.

use std::fs;
use std::path::Path;

use candle_core::quantized::GgmlDType;
use serde_json::{Value, json};

use super::TextAdapterFile;
use super::golden::path_of;
use crate::networks::text::DecoderSpec;
use crate::networks::text::golden::fixture;
use crate::networks::weights::{Checkpoint, GgufWriter, TensorType};

type NamedTensors = Vec<(String, Vec<usize>, f32)>;

fn spec(base: &str) -> DecoderSpec {
    let checkpoint = Checkpoint::open(&fixture(&format!("golden/{base}"))).unwrap();
    checkpoint.spec().unwrap()
}

/// Why an adapter cannot be used with a base.
fn refusal_at(path: &Path, base: &str) -> String {
    let opened = TextAdapterFile::open(path).and_then(|file| {
        let device = candle_core::Device::Cpu;
        file.bytes_beside(&spec(base))?;
        file.load(&spec(base), &device, None).map(drop)
    });
    opened.expect_err("the adapter is broken").to_string()
}

fn change(module: &str, rank: usize, outputs: usize, inputs: usize) -> NamedTensors {
    let name = |half: &str| format!("base_model.model.{module}.lora_{half}.weight");
    vec![
        (name("A"), vec![rank, inputs], 0.1),
        (name("B"), vec![outputs, rank], 0.1),
    ]
}

fn query() -> NamedTensors {
    change("model.layers.0.self_attn.q_proj", 2, 64, 64)
}

fn write(folder: &Path, settings: Value, tensors: &NamedTensors) {
    let mut config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 4});
    for (key, value) in settings.as_object().unwrap() {
        config[key] = value.clone();
    }
    fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    let mut header = json!({});
    let mut data = Vec::new();
    for (name, shape, number) in tensors {
        let start = data.len();
        let count: usize = shape.iter().product();
        data.extend((0..count).flat_map(|_| number.to_le_bytes()));
        header[name] = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
    }
    let header = header.to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    fs::write(folder.join("adapter_model.safetensors"), file).unwrap();
}

fn refusal(base: &str, settings: Value, tensors: &NamedTensors) -> String {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), settings, tensors);
    refusal_at(folder.path(), base)
}

#[test]
fn settings_that_change_what_is_computed_are_refused_by_name() {
    for (settings, words) in [
        (json!({"peft_type": "IA3"}), "peft_type: found IA3"),
        (json!({"use_dora": true}), "use_dora"),
        (json!({"modules_to_save": ["lm_head"]}), "modules_to_save"),
        (json!({"bias": "all"}), "bias"),
        (json!({"fan_in_fan_out": true}), "fan_in_fan_out"),
        (
            json!({"init_lora_weights": "pissa_niter_4"}),
            "init_lora_weights",
        ),
        (
            json!({"alora_invocation_tokens": [1, 2]}),
            "alora_invocation_tokens",
        ),
        (
            json!({"target_parameters": ["mlp.experts"]}),
            "target_parameters",
        ),
        (json!({"lora_alpha": 1e300}), "lora_alpha"),
        (json!({"lora_alpha": "x"}), "the configuration"),
        (json!({"r": -1}), "the configuration"),
        (json!({"r": 1_000_000_000}), "found 2, expected 1000000000"),
        (
            json!({"rank_pattern": {"q_proj": 3}}),
            "found 2, expected 3",
        ),
        (
            json!({"rank_pattern": {"(": 3}}),
            "rank_pattern: found \"(\"",
        ),
        (
            json!({"alpha_pattern": {"a{1000}{1000}{1000}": 3}}),
            "alpha_pattern",
        ),
    ] {
        let refusal = refusal("llama-3", settings, &query());
        assert!(refusal.contains(words), "{refusal}");
    }
    let harmless = json!({"bias": "none", "init_lora_weights": "gaussian", "use_dora": false, "modules_to_save": null});
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), harmless, &query());
    let file = TextAdapterFile::open(folder.path()).unwrap();
    assert!(file.bytes_beside(&spec("llama-3")).is_ok());
}

#[test]
fn tensors_that_do_not_fit_the_base_are_refused_by_name() {
    let layer = "model.layers.0";
    for (base, tensors, words) in [
        (
            "llama-3",
            change(&format!("{layer}.self_attn.q_proj"), 2, 64, 32),
            "q_proj",
        ),
        (
            "llama-3",
            change("model.layers.9.self_attn.q_proj", 2, 64, 64),
            "layers.9",
        ),
        (
            "llama-3",
            change("lm_head", 2, 128, 64),
            "embeddings or the output matrix",
        ),
        (
            "llama-3",
            change(&format!("{layer}.mlp.experts.0.up_proj"), 2, 96, 64),
            "no such matrix",
        ),
        (
            "qwen3-moe",
            change(&format!("{layer}.mlp.experts.0.up_proj"), 2, 32, 64),
            "experts",
        ),
        (
            "qwen3-next",
            change(&format!("{layer}.linear_attn.out_proj"), 2, 32, 32),
            "without attention",
        ),
        (
            "deepseek-v2",
            change(&format!("{layer}.self_attn.q_a_proj"), 2, 8, 60),
            "latent attention",
        ),
        (
            "qwen3-vl",
            change("model.visual.blocks.0.attn.qkv", 2, 8, 8),
            "a vision tower",
        ),
        ("llama-3", query()[..1].to_vec(), "one of its two matrices"),
        ("llama-3", Vec::new(), "no tensors"),
        (
            "llama-3",
            vec![(
                "base_model.model.lm_head.weight".to_owned(),
                vec![128, 64],
                0.0,
            )],
            "beside the changes",
        ),
        (
            "llama-3",
            vec![(
                "base_model.model.model.embed_tokens.lora_embedding_A".to_owned(),
                vec![2, 128],
                0.0,
            )],
            "a change of embeddings",
        ),
    ] {
        let refusal = refusal(base, json!({}), &tensors);
        assert!(refusal.contains(words), "{base}: {refusal}");
    }
    let wide = change(&format!("{layer}.self_attn.q_proj"), 257, 64, 64);
    let refusal = refusal("llama-3", json!({"r": 257}), &wide);
    assert!(refusal.contains("1 to 256"), "{refusal}");
}

#[test]
fn changes_of_one_matrix_twice_and_numbers_that_are_none_are_refused() {
    let other = "model.language_model.layers.0.self_attn.q_proj";
    let twice = [query(), change(other, 2, 64, 64)].concat();
    let refused = refusal("llama-3", json!({}), &twice);
    assert!(
        refused.contains("Query of layer 0: found two changes"),
        "{refused}"
    );
    let mut odd = query();
    odd[1].2 = f32::NAN;
    let refused = refusal("llama-3", json!({}), &odd);
    assert!(refused.contains("found NaN"), "{refused}");
}

#[test]
fn an_adapter_for_another_base_says_for_which() {
    let settings = json!({"base_model_name_or_path": "org/other"});
    let tensors = change("model.layers.0.self_attn.q_proj", 2, 128, 128);
    let refused = refusal("llama-3", settings, &tensors);
    assert!(
        refused.contains("for another model (\"org/other\")"),
        "{refused}"
    );
    let gguf = path_of("llama-3", "all").with_extension("gguf");
    let refused = refusal_at(&gguf, "qwen2");
    assert!(
        refused.contains("general.architecture: found llama, expected qwen2"),
        "{refused}"
    );
    let refused = refusal_at(&path_of("qwen2", "all"), "phi3");
    assert!(refused.contains("made for another model"), "{refused}");
}

#[test]
fn pickles_and_models_are_no_adapters() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("adapter_config.json"), "{}").unwrap();
    fs::write(folder.path().join("adapter_model.bin"), "\u{80}").unwrap();
    let refused = refusal_at(folder.path(), "llama-3");
    assert!(refused.contains("pickled weights"), "{refused}");
    fs::remove_file(folder.path().join("adapter_model.bin")).unwrap();
    let refused = refusal_at(folder.path(), "llama-3");
    assert!(refused.contains("adapter_model.safetensors"), "{refused}");
    let refused = refusal_at(&fixture("tiny-llama.gguf"), "llama-3");
    assert!(refused.contains("general.type: found"), "{refused}");
    let path = folder.path().join("a.gguf");
    let mut writer = GgufWriter::default();
    writer
        .text("general.architecture", "llama")
        .text("general.type", "adapter")
        .text("adapter.type", "lora")
        .tensor(
            "blk.0.attn_norm.weight",
            &[64],
            TensorType::Weight(GgmlDType::F32),
        );
    let file = fs::File::create(&path).unwrap();
    writer.write(file, |_| Ok(vec![0; 256])).unwrap();
    let refused = refusal_at(&path, "llama-3");
    assert!(refused.contains("beside the changes"), "{refused}");
}
