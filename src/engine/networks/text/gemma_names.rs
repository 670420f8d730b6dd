//! Tensor names of the layer parts that only Gemma 3n and 4 have.

use super::family::Part;

/// A part, its name on the hub and in GGUF files.
pub const GEMMA_PARTS: &[(Part, &str, &str)] = &[
    (Part::InputGate, "per_layer_input_gate", "inp_gate"),
    (Part::InputProjection, "per_layer_projection", "proj"),
    (Part::InputNorm, "post_per_layer_input_norm", "post_norm"),
    (Part::LayerScale, "layer_scalar", "layer_output_scale"),
    (Part::GemmaRouter, "router.proj", "ffn_gate_inp"),
    (Part::RouterScale, "router.scale", "ffn_gate_inp.scale"),
    (
        Part::ExpertScales,
        "router.per_expert_scale",
        "ffn_down_exps.scale",
    ),
    (
        Part::ExpertsPreNorm,
        "pre_feedforward_layernorm_2",
        "pre_ffw_norm_2",
    ),
    (
        Part::DensePostNorm,
        "post_feedforward_layernorm_1",
        "post_ffw_norm_1",
    ),
    (
        Part::ExpertsPostNorm,
        "post_feedforward_layernorm_2",
        "post_ffw_norm_2",
    ),
    (Part::StreamRouter, "altup.modality_router", "altup_router"),
    (
        Part::StreamRouterNorm,
        "altup.router_norm",
        "altup_router_norm",
    ),
    (
        Part::Prediction,
        "altup.prediction_coefs",
        "altup_predict_coef",
    ),
    (
        Part::StreamCorrection,
        "altup.correction_coefs",
        "altup_correct_coef",
    ),
    (
        Part::StreamScale,
        "altup.correct_output_scale",
        "altup_correct_scale",
    ),
    (Part::ResidualLeft, "laurel.linear_left", "laurel_l"),
    (Part::ResidualRight, "laurel.linear_right", "laurel_r"),
    (
        Part::ResidualNorm,
        "laurel.post_laurel_norm",
        "laurel_post_norm",
    ),
];

/// Gemma 4's tensor names of parts that other families have, too.
pub const GEMMA4_PARTS: &[(Part, &str)] = &[
    (Part::GateUpExperts, "experts.gate_up_proj"),
    (Part::DownExperts, "experts.down_proj"),
];
