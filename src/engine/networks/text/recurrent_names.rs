//! Tensor names of recurrent layers, and the other names of families that have them.

use super::family::Part;

/// A part, its name on the hub and in GGUF files.
pub const RECURRENT_PARTS: &[(Part, &str, &str)] = &[
    (Part::DeltaQkv, "linear_attn.in_proj_qkv", "attn_qkv"),
    (Part::DeltaGate, "linear_attn.in_proj_z", "attn_gate"),
    (Part::DeltaInputs, "linear_attn.in_proj_qkvz", "ssm_in"),
    (Part::DeltaBetas, "linear_attn.in_proj_b", "ssm_beta"),
    (Part::DeltaSteps, "linear_attn.in_proj_a", "ssm_alpha"),
    (Part::DeltaBetasAndSteps, "linear_attn.in_proj_ba", "ssm_ba"),
    (Part::DeltaStepBias, "linear_attn.dt", "ssm_dt"),
    (Part::DeltaConvolution, "linear_attn.conv1d", "ssm_conv1d"),
    (Part::DeltaRates, "linear_attn.A_log", "ssm_a"),
    (Part::DeltaNorm, "linear_attn.norm", "ssm_norm"),
    (Part::DeltaOutput, "linear_attn.out_proj", "ssm_out"),
    (Part::ConvolutionInputs, "conv.in_proj", "shortconv.in_proj"),
    (Part::Convolution, "conv.conv", "shortconv.conv"),
    (
        Part::ConvolutionOutput,
        "conv.out_proj",
        "shortconv.out_proj",
    ),
    (Part::SpaceInputs, "mamba.in_proj", "ssm_in"),
    (Part::SpaceConvolution, "mamba.conv1d", "ssm_conv1d"),
    (Part::SpaceStepBias, "mamba.dt", "ssm_dt"),
    (Part::SpaceRates, "mamba.A_log", "ssm_a"),
    (Part::SpaceSkips, "mamba.D", "ssm_d"),
    (Part::SpaceNorm, "mamba.norm", "ssm_norm"),
    (Part::SpaceOutput, "mamba.out_proj", "ssm_out"),
    (Part::SharedGateUp, "mlp.shared_experts.gate_up_proj", ""),
];

/// LFM2's tensor names of parts that other families have, too.
pub const LFM2_PARTS: &[(Part, &str)] = &[
    (Part::AttentionNorm, "operator_norm"),
    (Part::FeedNorm, "ffn_norm"),
    (Part::AttentionOutput, "self_attn.out_proj"),
    (Part::QueryNorm, "self_attn.q_layernorm"),
    (Part::KeyNorm, "self_attn.k_layernorm"),
    (Part::Gate, "feed_forward.w1"),
    (Part::Up, "feed_forward.w3"),
    (Part::Down, "feed_forward.w2"),
    (Part::Router, "feed_forward.gate"),
    (Part::Correction, "feed_forward.expert_bias"),
    (Part::GateUpExperts, "feed_forward.experts.gate_up_proj"),
    (Part::DownExperts, "feed_forward.experts.down_proj"),
];

/// The same of Granite 4.
pub const GRANITE_HYBRID_PARTS: &[(Part, &str)] = &[
    (Part::GateUp, "shared_mlp.input_linear"),
    (Part::Down, "shared_mlp.output_linear"),
    (Part::SharedGateUp, "shared_mlp.input_linear"),
    (Part::SharedDown, "shared_mlp.output_linear"),
    (Part::Router, "block_sparse_moe.router.layer"),
    (Part::GateUpExperts, "block_sparse_moe.input_linear.weight"),
    (Part::DownExperts, "block_sparse_moe.output_linear.weight"),
];
