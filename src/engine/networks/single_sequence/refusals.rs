//! Tests that settings which the networks do not follow, and sizes that they cannot have, are refused by name.

use std::fs;

use candle_core::Device;
use serde_json::{Value, json};

use super::{SingleSequenceFamily, SingleSequenceSpec, golden::FAMILIES, load};
use crate::networks::text::golden::fixture;
use crate::networks::weights::Checkpoint;

fn config(name: &str) -> Value {
    let path = fixture("golden/single-sequence")
        .join(name)
        .join("config.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The error for a family with these fields changed; `null` removes one.
fn refusal(name: &str, changes: &Value) -> String {
    let mut config = config(name);
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    let family = SingleSequenceFamily::of_config(&config).unwrap();
    match SingleSequenceSpec::from_config(family, &config) {
        Ok(spec) => panic!("{name} with {changes} is {spec:?}"),
        Err(flaw) => flaw.in_file("config.json".as_ref()).to_string(),
    }
}

#[track_caller]
fn check(name: &str, changes: Value, expected: &str) {
    let message = refusal(name, &changes);
    assert!(message.contains(expected), "{message}");
}

#[test]
fn sizes_that_no_network_has_are_refused_by_name() {
    for name in FAMILIES {
        for (field, value) in [
            ("num_hidden_layers", json!(0)),
            ("num_hidden_layers", json!(1_000_000_000)),
            ("vocab_size", json!(0)),
            ("vocab_size", json!(u64::MAX)),
            ("hidden_size", json!(0)),
            ("hidden_size", json!(1_u64 << 40)),
        ] {
            check(name, json!({field: value}), field_of(field, &value));
        }
        if *name == "mamba" {
            continue;
        }
        for (field, value) in [
            ("num_attention_heads", json!(0)),
            ("num_attention_heads", Value::Null),
            ("num_key_value_heads", json!(0)),
            ("num_key_value_heads", json!(3)),
            ("intermediate_size", json!(0)),
            ("intermediate_size", Value::Null),
            ("max_position_embeddings", json!(0)),
            ("max_position_embeddings", Value::Null),
            ("max_position_embeddings", json!(1_u64 << 32)),
        ] {
            check(name, json!({field: value}), field);
        }
    }
    for name in ["gemma", "glm4"] {
        check(name, json!({"head_dim": 0}), "head_dim: found 0");
        check(name, json!({"head_dim": null}), "head_dim: found nothing");
    }
    check("olmo", json!({"hidden_size": 33}), "hidden_size: found 33");
    check("helium", json!({"head_dim": 16}), "hidden_size: found 32");
}

/// A number that is too large for the field's type is named by the type's error.
fn field_of(field: &'static str, value: &Value) -> &'static str {
    match value.as_u64() {
        Some(u64::MAX) => "found",
        _ => field,
    }
}

#[test]
fn settings_that_a_network_ignores_are_refused_by_name() {
    let rope = |kind: &str| json!({"rope_parameters": {"rope_type": kind, "rope_theta": 1e4}});
    for name in ["gemma", "glm4", "helium", "olmo", "phi", "stablelm"] {
        check(name, rope("yarn"), "rope_scaling: found yarn");
        let scaling = json!({"rope_scaling": {"type": "linear", "factor": 2.0}});
        check(name, scaling, "rope_scaling: found linear");
        check(name, json!({"sliding_window": 64}), "sliding_window");
        check(
            name,
            json!({"hidden_act": "relu"}),
            "hidden_act: found relu",
        );
    }
    for (name, changes, expected) in [
        ("phi", json!({"qk_layernorm": true}), "qk_layernorm"),
        ("phi", json!({"tie_word_embeddings": true}), "tie_word"),
        ("gemma", json!({"tie_word_embeddings": false}), "tie_word"),
        ("gemma", json!({"attention_bias": true}), "attention_bias"),
        (
            "stablelm",
            json!({"use_parallel_residual": true}),
            "use_parallel_residual",
        ),
        ("stablelm", json!({"qk_layernorm": true}), "qk_layernorm"),
        ("helium", json!({"mlp_bias": true}), "mlp_bias"),
        ("helium", json!({"rms_norm_eps": null}), "rms_norm_eps"),
        ("olmo", json!({"rms_norm_eps": 1e-6}), "epsilon"),
        ("olmo", json!({"clip_qkv": -1.0}), "clip_qkv: found -1"),
        ("mamba", json!({"state_size": 128}), "state_size: found 128"),
        ("mamba", json!({"conv_kernel": 3}), "conv_kernel: found 3"),
        ("mamba", json!({"expand": 4}), "expand: found 4"),
        ("mamba", json!({"time_step_rank": 7}), "time_step_rank"),
        ("mamba", json!({"use_bias": true}), "use_bias"),
        ("mamba", json!({"use_conv_bias": false}), "use_conv_bias"),
        ("mamba", json!({"layer_norm_epsilon": 1e-6}), "epsilon"),
        (
            "starcoder2",
            json!({"quantization_config": {"quant_method": "awq"}}),
            "quantization_config: found awq",
        ),
        ("starcoder2", json!({"norm_epsilon": -1.0}), "epsilon"),
        ("starcoder2", json!({"sliding_window": 0}), "sliding_window"),
        (
            "stablelm",
            json!({"rope_parameters": {"partial_rotary_factor": 1.0}}),
            "the rope dimensions: found 8",
        ),
        (
            "phi",
            json!({"rope_parameters": {"partial_rotary_factor": 0.4}}),
            "the rope dimensions: found 3",
        ),
        (
            "gemma",
            json!({"rope_parameters": {"rope_theta": 0.0}}),
            "rope_theta: found 0",
        ),
    ] {
        check(name, changes, expected);
    }
}

#[test]
fn gelu_of_gemma_is_its_approximation() {
    let mut config = config("gemma");
    let spec = |config: &Value| {
        SingleSequenceSpec::from_config(SingleSequenceFamily::Gemma, config).unwrap()
    };
    let newer = spec(&config);
    config["hidden_act"] = json!("gelu");
    assert_eq!(spec(&config), newer);
}

/// A copy of a golden model with another configuration, loaded.
fn load_changed(name: &str, changes: &Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("golden/single-sequence").join(name);
    let weights = "model.safetensors";
    fs::copy(from.join(weights), folder.path().join(weights)).unwrap();
    let mut config = config(name);
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    let text = serde_json::to_vec(&config).unwrap();
    fs::write(folder.path().join("config.json"), text).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let spec = SingleSequenceSpec::of(&checkpoint).unwrap().unwrap();
    match load(&spec, &checkpoint, 64, &Device::Cpu, &mut |_, _| {}) {
        Ok(_) => "loaded".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn files_whose_tensors_are_others_are_refused_by_name() {
    for (name, changes, expected) in [
        (
            "olmo",
            json!({"num_hidden_layers": 3}),
            "no \"model.layers.2.self_attn.q_proj.weight\"",
        ),
        (
            "olmo",
            json!({"num_hidden_layers": 1}),
            "the tensor \"model.layers.1.",
        ),
        (
            "phi",
            json!({"intermediate_size": 47}),
            "fc1.weight\" of shape [48, 32], where the network has [47, 32]",
        ),
        (
            "stablelm-biased",
            json!({"use_qkv_bias": false}),
            "a tensor that a StableLM network does not use",
        ),
        ("glm4", json!({"attention_bias": true}), "q_proj.bias"),
        // The output matrix is then a copy of the embedding table.
        ("glm4", json!({"tie_word_embeddings": true}), "loaded"),
    ] {
        let message = load_changed(name, &changes);
        assert!(message.contains(expected), "{message}");
    }
}
