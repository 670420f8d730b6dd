//! Tests that unsupported settings are refused by name.

use serde_json::{Value, json};

use super::{RopeScaling, config, golden::fixture};
use crate::networks::weights::{Checkpoint, CheckpointError};
use muster_kernels::KvDtype;

fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
    })
}

/// The error for a Llama with these fields changed.
fn refusal(changes: Value) -> String {
    let flaw = config::spec(&changed(changes)).unwrap_err();
    flaw.in_file("config.json".as_ref()).to_string()
}

fn changed(changes: Value) -> Value {
    let mut config = llama();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn check(changes: Value, expected: &str) {
    let message = refusal(changes);
    assert!(message.contains(expected), "{message}");
}

#[test]
fn old_files_leave_out_what_goes_without_saying() {
    let spec = config::spec(&llama()).unwrap();
    assert_eq!(
        (spec.kv_heads, spec.head_dim, spec.rope.theta),
        (32, 128, 10_000.0)
    );
    assert_eq!(spec.rope.scaling, RopeScaling::None);
    assert!(!spec.tied_embeddings && spec.windows.is_empty());
}

#[test]
fn what_older_and_newer_files_call_rope_scaling_is_the_same() {
    let scaling = json!({"type": "linear", "factor": 4.0});
    let older = config::spec(&changed(
        json!({"rope_scaling": scaling, "rope_theta": 5.0}),
    ));
    let scaling = json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 5.0});
    let newer = config::spec(&changed(json!({"rope_parameters": scaling})));
    assert_eq!(older.unwrap(), newer.unwrap());
}

#[test]
fn an_unknown_architecture_is_named_beside_those_we_know() {
    check(
        json!({"architectures": ["RwkvForCausalLM"]}),
        "architectures: found RwkvForCausalLM; supported: LlamaForCausalLM, Llama4",
    );
    check(
        json!({"architectures": ["MambaForCausalLM"]}),
        "the decoder: found Mamba; supported: texts alone",
    );
    check(json!({"architectures": null}), "architectures: found none");
}

#[test]
fn values_that_would_be_ignored_are_refused() {
    check(
        json!({"hidden_act": "gelu"}),
        "hidden_act: found gelu; supported: silu and gelu_pytorch_tanh",
    );
    check(
        json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
        "the rope_scaling type: found dynamic",
    );
    check(
        json!({"rope_scaling": {"type": "linear"}}),
        "rope_scaling.factor: found nothing",
    );
    check(
        json!({"quantization_config": {"quant_method": "bitsandbytes"}}),
        "quantization_config: found bitsandbytes",
    );
    check(
        json!({"quantization_config": {"quant_method": "mxfp4"}}),
        "quantization_config: found mxfp4",
    );
    check(
        json!({
            "architectures": ["OlmoeForCausalLM"], "clip_qkv": 8.0, "num_experts": 8,
            "num_experts_per_tok": 2,
        }),
        "clip_qkv: found 8; supported: null",
    );
    let gpt_oss = |changes: Value| {
        let mut all = json!({
            "architectures": ["GptOssForCausalLM"], "num_local_experts": 8, "experts_per_token": 2,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 64},
        });
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    };
    config::spec(&changed(gpt_oss(json!({})))).unwrap();
    check(
        gpt_oss(json!({"rope_scaling": null})),
        "rope_parameters: found nothing",
    );
    check(
        gpt_oss(json!({"swiglu_limit": 0.0})),
        "the gate of experts: found alpha 1.702 and limit 0",
    );
    check(
        gpt_oss(json!({"hidden_act": "gelu_pytorch_tanh"})),
        "hidden_act: found",
    );
    check(
        json!({
            "architectures": ["Qwen2ForCausalLM"], "sliding_window": 4, "use_sliding_window": true,
            "layer_types": ["chunked_attention"],
        }),
        "layer_types: found chunked_attention",
    );
}

#[test]
fn absurd_sizes_are_refused() {
    for layers in [0, 1025, 1_000_000_000] {
        check(
            json!({"num_hidden_layers": layers}),
            &format!("num_hidden_layers: found {layers}, expected 1 to 1024"),
        );
    }
    check(
        json!({"num_attention_heads": 0}),
        "the number of heads: found 0",
    );
    check(
        json!({"hidden_size": 1u64 << 60}),
        "the hidden size: found 1152921504606846976",
    );
    check(
        json!({"num_key_value_heads": 5}),
        "32 heads and 5 key heads",
    );
    check(json!({"head_dim": 7}), "the rope dimensions: found 7");
    check(json!({"rope_theta": 0.0}), "the rope");
    check(
        json!({"vocab_size": "many"}),
        "config.json: config.json: found invalid type",
    );
}

#[test]
fn experts_that_cannot_be_are_refused() {
    let experts = |changes: Value| {
        let mut all = json!({
            "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 128, "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        });
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    };
    config::spec(&changed(experts(json!({})))).unwrap();
    let check = |changes: Value, expected: &str| check(experts(changes), expected);
    for count in [0_u64, 4097, 1_000_000_000, 1 << 60] {
        let found = format!("the number of experts: found {count}, expected 1 to 4096");
        check(json!({"num_experts": count}), &found);
    }
    check(json!({"num_experts": null}), "num_experts: found nothing");
    check(
        json!({"num_experts_per_tok": 129}),
        "the experts of a token: found 129, expected 1 to 128",
    );
    check(
        json!({"num_experts_per_tok": 0}),
        "the experts of a token: found 0",
    );
    check(
        json!({"num_experts_per_tok": null}),
        "num_experts_per_tok: found nothing",
    );
    check(
        json!({"moe_intermediate_size": 0}),
        "the size of an expert: found 0",
    );
    check(
        json!({"moe_intermediate_size": null}),
        "moe_intermediate_size: found nothing",
    );
    check(
        json!({"decoder_sparse_step": 0}),
        "decoder_sparse_step: found 0, expected 1 or more",
    );
    check(
        json!({"num_experts": -1}),
        "found invalid value: integer `-1`",
    );
}

#[test]
fn groups_of_experts_that_cannot_be_are_refused() {
    let glm = |changes: Value| {
        let mut all = json!({
            "architectures": ["Glm4MoeForCausalLM"], "n_routed_experts": 12, "num_experts_per_tok": 3,
            "moe_intermediate_size": 64, "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
        });
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    };
    config::spec(&changed(glm(json!({})))).unwrap();
    for (changes, found) in [
        (json!({"n_group": 5}), "2 of 5 groups for 3 of 12 experts"),
        (json!({"n_group": 0}), "2 of 0 groups"),
        (json!({"topk_group": 5}), "5 of 4 groups"),
        (json!({"topk_group": 0}), "0 of 4 groups"),
        (
            json!({"num_experts_per_tok": 7}),
            "2 of 4 groups for 7 of 12 experts",
        ),
    ] {
        check(
            glm(changes),
            &format!("the groups of experts: found {found}"),
        );
    }
    check(
        glm(json!({"n_shared_experts": 1_u64 << 40})),
        "n_shared_experts: found 1099511627776",
    );
    check(
        glm(json!({"n_shared_experts": 1 << 20})),
        "the size of the shared expert: found 67108864",
    );
    check(
        glm(json!({"routed_scaling_factor": 0.0})),
        "the scale of experts: found 0",
    );
    check(
        glm(json!({"num_nextn_predict_layers": 1_u64 << 40})),
        "num_nextn_predict_layers: found 1099511627776",
    );
}

#[test]
fn latents_that_cannot_be_are_refused() {
    let deepseek = |changes: Value| {
        let mut all = json!({
            "architectures": ["DeepseekV3ForCausalLM"], "n_routed_experts": 8, "num_experts_per_tok": 3,
            "moe_intermediate_size": 64, "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
            "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "num_key_value_heads": 32, "head_dim": 64,
        });
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        all
    };
    let spec = config::spec(&changed(deepseek(json!({})))).unwrap();
    // A latent and the key part with rope, in each of 32 layers, and nothing per head.
    assert_eq!(spec.kv_bytes_per_token(KvDtype::F16), 32 * (512 + 64) * 2);
    assert_eq!(spec.head_dim, 192);
    let check = |changes: Value, expected: &str| check(deepseek(changes), expected);
    for (field, name, most) in [
        ("q_lora_rank", "the rank of queries", 65536),
        ("kv_lora_rank", "the rank of latents", 65536),
        (
            "qk_nope_head_dim",
            "the part of a head that does not turn",
            4096,
        ),
        ("qk_rope_head_dim", "the part of a head that turns", 4096),
        ("v_head_dim", "the size of a head's value", 4096),
    ] {
        for size in [0_u64, 1_000_000_000, 1 << 60] {
            let found = format!("{name}: found {size}, expected 1 to {most}");
            check(json!({field: size}), &found);
        }
        if field != "q_lora_rank" {
            check(json!({field: null}), &format!("{field}: found nothing"));
        }
    }
    check(
        json!({"qk_head_dim": 128}),
        "qk_head_dim: found 128, expected 192, the sum of",
    );
    check(
        json!({"qk_rope_head_dim": 63}),
        "the rope dimensions: found 63",
    );
    check(
        json!({"partial_rotary_factor": 1.5}),
        "the rope dimensions: found 96, expected an even number up to the head size 64",
    );
    check(
        json!({"scoring_func": "softmax"}),
        "scoring_func: found softmax",
    );
    check(
        json!({"topk_method": "greedy"}),
        "topk_method: found greedy",
    );
    check(
        json!({"moe_layer_freq": 2}),
        "moe_layer_freq: found 2; supported: 1",
    );
    check(
        json!({"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 128]}}),
        "quantization_config: found fp8 with weight_block_size [64,128]",
    );
    check(
        json!({"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized"}}),
        "quantization_config: found compressed-tensors in the format \"int-quantized\"",
    );
    let v2 = |changes: Value, expected: &str| {
        let mut all = changes;
        all["architectures"] = json!(["DeepseekV2ForCausalLM"]);
        check(all, expected);
    };
    v2(
        json!({"scoring_func": "sigmoid"}),
        "scoring_func: found sigmoid",
    );
    v2(
        json!({"topk_method": "noaux_tc"}),
        "topk_method: found noaux_tc",
    );
    v2(
        json!({"norm_topk_prob": true}),
        "norm_topk_prob: found true",
    );
    v2(
        json!({"rope_interleave": false}),
        "rope_interleave: found false",
    );
    let glm = |changes: Value, expected: &str| {
        let mut all = changes;
        all["architectures"] = json!(["Glm4MoeLiteForCausalLM"]);
        check(all, expected);
    };
    glm(
        json!({"mlp_layer_types": ["dense"]}),
        "mlp_layer_types: found 1 entries, expected one for each of 32 layers",
    );
    glm(
        json!({"mlp_layer_types": vec!["other"; 32]}),
        "mlp_layer_types: found other; supported: dense and sparse",
    );
}

#[test]
fn layers_that_predict_further_tokens_stay_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("golden/glm4-moe");
    let text = std::fs::read(from.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    std::fs::copy(
        from.join("model.safetensors"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    let mut load = |layers: usize, predicting: usize| {
        config["num_hidden_layers"] = layers.into();
        config["num_nextn_predict_layers"] = predicting.into();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let options = super::LoadOptions::default();
        let told = checkpoint.weight_bytes(true, &options).unwrap();
        let device = candle_core::Device::Cpu;
        let decoder = super::Decoder::load(&checkpoint, &device, &options, &mut |_, _| {});
        decoder.map(|decoder| (decoder.weight_bytes(), told))
    };
    let (whole, whole_told) = load(3, 0).unwrap();
    let (fewer, fewer_told) = load(2, 1).unwrap();
    assert!(fewer < whole && fewer_told < whole_told);
    let error = load(2, 0).unwrap_err().to_string();
    assert!(error.contains("\"model.layers.2."), "{error}");
}

#[test]
fn experts_without_their_tensors_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let check = |family: &str, changes: Value, expected: &str| {
        let from = fixture("golden").join(family);
        let text = std::fs::read(from.join("config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&text).unwrap();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let weights = folder.path().join("model.safetensors");
        std::fs::copy(from.join("model.safetensors"), weights).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let options = super::LoadOptions::default();
        let device = candle_core::Device::Cpu;
        let loaded = super::Decoder::load(&checkpoint, &device, &options, &mut |_, _| {});
        let message = loaded.map(drop).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(
        "qwen3-moe",
        json!({"num_local_experts": 8}),
        "\"model.layers.0.mlp.gate.weight\": found [7, 64], expected [8, 64]",
    );
    check(
        "qwen3-moe",
        json!({"num_local_experts": 4096}),
        "found [7, 64], expected [4096, 64]",
    );
    check(
        "qwen3-moe",
        json!({"moe_intermediate_size": 16}),
        "experts.0.gate_proj.weight\": found [32, 64], expected [16, 64]",
    );
    check(
        "qwen3-moe-fused",
        json!({"moe_intermediate_size": 32}),
        "experts.gate_up_proj\": found [4, 96, 64], expected [4, 64, 64]",
    );
    check(
        "gpt-oss-mxfp4",
        json!({"hidden_size": 64, "intermediate_size": 64}),
        "experts.gate_up_proj_blocks\": found U8 of shape [5, 64, 2, 16], expected U8 of shape [5, 128, 2, 16]",
    );
    check(
        "gpt-oss",
        json!({"num_local_experts": 4}),
        "mlp.router.weight\": found [5, 64], expected [4, 64]",
    );
    check(
        "qwen3-moe-sparse",
        json!({"mlp_only_layers": []}),
        "\"model.layers.1.mlp.gate.weight\": found nothing",
    );
    check(
        "qwen3-moe",
        json!({"mlp_only_layers": [1]}),
        "\"model.layers.1.mlp.gate_proj.weight\": found nothing",
    );
}

#[test]
fn tensors_that_do_not_fit_the_spec_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let load = |changes: Value| -> Result<(), CheckpointError> {
        let text = std::fs::read(fixture("tiny-llama/config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&text).unwrap();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let weights = folder.path().join("model.safetensors");
        std::fs::copy(fixture("tiny-llama/model.safetensors"), weights).unwrap();
        let checkpoint = Checkpoint::open(folder.path())?;
        let options = super::LoadOptions::default();
        let device = candle_core::Device::Cpu;
        super::Decoder::load(&checkpoint, &device, &options, &mut |_, _| {}).map(drop)
    };
    load(json!({})).unwrap();
    let check = |changes: Value, expected: &str| {
        let message = load(changes).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(
        json!({"vocab_size": 511}),
        "found [512, 64], expected [511, 64]",
    );
    check(
        json!({"attention_bias": true}),
        "the tensor \"model.layers.0.self_attn.q_proj.bias\": found nothing",
    );
    check(
        json!({"num_hidden_layers": 1}),
        "\"model.layers.1.input_layernorm.weight\": found a tensor that a Llama decoder does not use",
    );
    check(
        json!({"architectures": ["Qwen3ForCausalLM"]}),
        "q_norm.weight\": found nothing",
    );
}
