//! Files of models with recurrent layers: settings that cannot be followed are refused by name, and tensors without a use stay in
//! the file.

use std::fs;

use candle_core::Device;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::{
    Decoder, LoadOptions, config,
    golden::{Golden, fixture, gap, one_sequence},
};
use crate::networks::weights::{Checkpoint, CheckpointError};
use muster_kernels::KvDtype;

fn qwen(changes: Value) -> Value {
    let mut config = json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": {
            "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 8,
            "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4, "linear_num_key_heads": 16,
            "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "attn_output_gate": true, "full_attention_interval": 4,
        },
    });
    for (key, value) in changes.as_object().unwrap() {
        config["text_config"][key] = value.clone();
    }
    config
}

fn check(config: &Value, expected: &str) {
    let flaw = config::spec(config).unwrap_err();
    let message = flaw.in_file("config.json".as_ref()).to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn layers_attend_as_often_as_files_say() {
    let recurrent = |changes| {
        let spec = config::spec(&qwen(changes)).unwrap();
        spec.recurrent.map(|recurrent| recurrent.layers)
    };
    assert_eq!(recurrent(json!({})), Some(vec![0, 1, 2, 4, 5, 6]));
    let every_other = json!({"full_attention_interval": 2});
    assert_eq!(recurrent(every_other), Some(vec![0, 2, 4, 6]));
    let mut types = vec!["full_attention"; 8];
    assert_eq!(recurrent(json!({"layer_types": types})), None);
    types[7] = "linear_attention";
    assert_eq!(recurrent(json!({"layer_types": types})), Some(vec![7]));
}

#[test]
fn lists_of_layers_that_do_not_match_are_refused() {
    for (types, expected) in [
        (
            vec!["linear_attention"; 7],
            "layer_types: found 7 types, expected one for each of 8",
        ),
        (
            vec!["linear_attention"; 8],
            "layer_types: found 8 recurrent layers",
        ),
        (
            vec!["conv"; 8],
            "layer_types: found conv; supported: linear_attention and full_attention",
        ),
        (vec![], "layer_types: found 0 types"),
    ] {
        check(&qwen(json!({"layer_types": types})), expected);
    }
    check(
        &qwen(json!({"full_attention_interval": 0})),
        "full_attention_interval: found 0, expected 1 or more",
    );
    check(
        &qwen(json!({"full_attention_interval": 9})),
        "layer_types: found 8 recurrent layers",
    );
}

#[test]
fn delta_nets_that_cannot_be_are_refused() {
    let named = [
        ("linear_conv_kernel_dim", "the kernel of the convolution"),
        ("linear_num_key_heads", "the key heads of the delta net"),
        ("linear_num_value_heads", "the value heads of the delta net"),
        ("linear_key_head_dim", "the size of a key of the delta net"),
        (
            "linear_value_head_dim",
            "the size of a value of the delta net",
        ),
    ];
    for (field, name) in named {
        for size in [0_u64, 1_000_000_000, 1 << 60] {
            check(
                &qwen(json!({field: size})),
                &format!("{name}: found {size}"),
            );
        }
        check(
            &qwen(json!({field: null})),
            &format!("{field}: found nothing"),
        );
    }
    check(
        &qwen(json!({"linear_num_value_heads": 24})),
        "24 value heads and 16 key heads",
    );
    check(
        &qwen(json!({
            "linear_num_value_heads": 4096, "linear_key_head_dim": 4096, "linear_value_head_dim": 4096,
        })),
        "the state of a layer: found 68719476736",
    );
    check(
        &qwen(json!({"attn_output_gate": false})),
        "attn_output_gate: found false; supported: true",
    );
}

fn of_text(changes: &Value) -> Value {
    let mut config = json!({
        "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

#[test]
fn convolutions_that_cannot_be_are_refused() {
    let lfm = |changes: Value| {
        let mut config = of_text(&json!({
            "architectures": ["Lfm2ForCausalLM"], "conv_L_cache": 3, "norm_eps": 1e-5, "block_multiple_of": 256,
            "layer_types": ["conv", "full_attention", "conv", "conv"],
        }));
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    };
    let spec = config::spec(&lfm(json!({}))).unwrap();
    assert_eq!((spec.intermediate_size, spec.tied_embeddings), (2816, true));
    let older = lfm(json!({"layer_types": null, "full_attn_idxs": [3], "block_ff_dim": 384}));
    let spec = config::spec(&older).unwrap();
    assert_eq!(spec.recurrent.unwrap().layers, [0, 1, 2]);
    assert_eq!(spec.intermediate_size, 256);
    for size in [0_u64, 65, 1_000_000_000] {
        let expected = format!("the kernel of the convolution: found {size}");
        check(&lfm(json!({"conv_L_cache": size})), &expected);
    }
    check(
        &lfm(json!({"block_multiple_of": 0})),
        "block_multiple_of: found 0",
    );
    check(
        &lfm(json!({"block_ffn_dim_multiplier": 1e30})),
        "the feed-forward size: found",
    );
    check(
        &lfm(json!({"layer_types": ["conv", "full_attention", "conv"]})),
        "layer_types: found 3 types",
    );
    check(
        &lfm(json!({"layer_types": null, "full_attn_idxs": [9]})),
        "layer_types: found 4 recurrent layers",
    );
}

#[test]
fn state_spaces_that_cannot_be_are_refused() {
    let granite = |changes: Value| {
        let mut config = of_text(&json!({
            "architectures": ["GraniteMoeHybridForCausalLM"], "num_local_experts": 0, "shared_intermediate_size": 2048,
            "mamba_n_heads": 32, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_expand": 2,
            "layer_types": ["mamba", "mamba", "attention", "mamba"], "position_embedding_type": "nope",
        }));
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    };
    let spec = config::spec(&granite(json!({"mamba_d_head": "auto"}))).unwrap();
    assert_eq!(spec.recurrent.as_ref().unwrap().layers, [0, 1, 3]);
    assert!(spec.rope(2).is_none() && spec.intermediate_size == 2048);
    let attending = granite(json!({"layer_types": vec!["attention"; 4], "mamba_n_heads": null}));
    assert_eq!(config::spec(&attending).unwrap().recurrent, None);
    for (changes, expected) in [
        (json!({"mamba_n_heads": 0}), "mamba_n_heads: found 0 heads"),
        (
            json!({"mamba_n_heads": 33}),
            "mamba_n_heads: found 33 heads of 64",
        ),
        (
            json!({"mamba_n_heads": 1_000_000_000}),
            "mamba_n_heads: found 1000000000 heads",
        ),
        (
            json!({"mamba_d_state": 0}),
            "the states of the state space: found 0",
        ),
        (
            json!({"mamba_d_state": 1_000_000_000}),
            "the states of the state space: found 1000000000",
        ),
        (
            json!({"mamba_d_conv": 0}),
            "the kernel of the convolution: found 0",
        ),
        (
            json!({"mamba_n_groups": 0}),
            "the groups of the state space: found 0",
        ),
        (json!({"mamba_n_groups": 5}), "32 heads and 5 groups"),
        (
            json!({"time_step_limit": [2.0, 1.0]}),
            "time_step_limit: found 2 to 1",
        ),
        (
            json!({"time_step_limit": [0.0]}),
            "time_step_limit: found 1 values",
        ),
        (
            json!({"time_step_limit": ["a", 1.0]}),
            "time_step_limit: found",
        ),
        (
            json!({"position_embedding_type": "alibi"}),
            "position_embedding_type: found alibi",
        ),
        (
            json!({"shared_intermediate_size": null}),
            "shared_intermediate_size: found nothing",
        ),
        (
            json!({"layer_types": ["mamba"]}),
            "layer_types: found 1 types",
        ),
    ] {
        check(&granite(changes), expected);
    }
}

/// The checkpoint of a text model as files of a model that sees hold it, with these tensors besides.
fn beside_tower(besides: &[&str]) -> Result<f32, CheckpointError> {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("golden/qwen3.5");
    let text = fs::read(from.join("config.json")).unwrap();
    let text: Value = serde_json::from_slice(&text).unwrap();
    let config = json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": text,
        "vision_config": {"depth": 2},
    });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let bytes = fs::read(from.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let renamed = |name: String| match name.strip_prefix("model.") {
        Some(rest) => format!("model.language_model.{rest}"),
        None => name,
    };
    let tensors = file.tensors().into_iter();
    let tensors = tensors.map(|(name, view)| (renamed(name), view));
    let spare = file.tensor("model.norm.weight").unwrap();
    let besides = besides
        .iter()
        .map(|name| ((*name).to_owned(), spare.clone()));
    let tensors: Vec<_> = tensors.chain(besides).collect();
    let weights = folder.path().join("model.safetensors");
    safetensors::serialize_to_file(tensors, None, &weights).unwrap();
    let checkpoint = Checkpoint::open(folder.path())?;
    let options = LoadOptions::default();
    let told = checkpoint.weight_bytes(true, &options)?;
    let decoder = Decoder::load(&checkpoint, &Device::Cpu, &options, &mut |_, _| {})?;
    let held = decoder.weight_bytes();
    // The taps of convolutions count nothing once loaded, and matrices are padded.
    assert!(told.abs_diff(held) * 5 <= held, "{told}, {held}");
    let golden = Golden::open("qwen3.5");
    let mut pages = decoder.new_pages(4, KvDtype::F32).unwrap();
    let batch = one_sequence(&golden.tokens("prompt"), 0);
    let logits = decoder.forward(&batch, &mut pages).unwrap();
    Ok(gap(&logits, &golden.tensor("logits")))
}

#[test]
fn a_decoder_opens_beside_a_tower_and_layers_that_stay_in_the_file() {
    let left = [
        "mtp.fc.weight",
        "mtp.layers.0.self_attn.q_proj.weight",
        "model.visual.blocks.0.attn.qkv.weight",
    ];
    let gap = beside_tower(&left).unwrap();
    // Products of bf16 weights.
    assert!(gap < 2e-2, "{gap}");
    let error = beside_tower(&["model.audio.weight"])
        .unwrap_err()
        .to_string();
    assert!(
        error
            .contains("\"model.audio.weight\": found a tensor that a Qwen3.5 decoder does not use"),
        "{error}"
    );
}
