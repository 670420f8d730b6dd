//! The operations candle lacks, or does more slowly than the machine allows.
//!
//! One signature per operation; `cpu/` is the reference and the fast path of the CPU, `cuda/` its twin. Callers need
//! not know the device of their tensors.
//!
//! Every operation here is *batch-invariant*: the result for a row does not depend on how many other rows came with it,
//! so that greedy text is the same at batch 1 and 32 by construction.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

pub mod cpu;

mod attention;
mod block_matrix;
mod constants;
mod convolution;
mod cuda;
mod dense_attention;
mod gates;
mod gpu_trial;
mod host_floats;
mod kv_cache;
mod matrix;
mod mixture;
mod norm;
mod recurrence;
mod resample;
mod rope;
mod selection;
mod snake;

pub use attention::{
    AttentionOptions, AttentionPlan, AttentionReach, AttentionScratch, AttentionShape, KvDtype,
    LayerPages, Span, paged_attention, paged_attention_with_sinks, paged_latent_attention,
    rotary_attention, shared_attention,
};
pub use block_matrix::BlockMatrix;
pub use constants::Constants;
pub use convolution::{Axis, Convolution, Edges, convolution_scratch};
pub use cuda::{
    give_back_gpu_memory, gpu_faults, gpu_free_bytes, gpu_trials, keep_gpu_trials, open_gpu,
};
pub use dense_attention::{Mask, dense_attention};
pub use gates::{
    GateKind, gelu, gelu_erf, gelu_erf_mul, gelu_mul, silu, silu_mul, soft_cap, swiglu_oai,
};
pub use gpu_trial::GpuTrial;
pub use host_floats::HostFloats;
pub use kv_cache::KvCache;
pub use matrix::{PackedMatrix, PackedSpan, WeightType, dense_product};
pub use mixture::weighted_sums;
pub use norm::{add_rms_norm, group_norm, layer_norm, rms_norm};
pub use recurrence::{
    DeltaRule, LayerStates, RecurrenceShape, ShortConvolution, StateShape, StateSpace, StateSpan,
};
pub use resample::{Resampling, resample};
pub use rope::{HeadNorm, RopeStyle, RopeTable, RotaryHeads, rotate};
pub use selection::select_rows;
pub use snake::snake;

/// Tokens per page of the KV cache. Paged flash attention requires a multiple of 32.
pub const PAGE_TOKENS: usize = 32;
