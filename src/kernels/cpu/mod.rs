//! The CPU's operations: the reference for other devices, and as fast as the machine allows.
//!
//! Results are the same bits at every instruction level for quantized weights: integer sums are exact and
//! the few roundings that remain happen in one order everywhere.

mod attention;
mod dense;
mod draw;
mod gates;
mod level;
mod math;
mod memory;
mod mixture;
mod norm;
mod normal;
mod pool;
mod products;
mod reading;
mod recurrence;
mod resample;
mod rope;
mod short_convolution;
mod snake;
mod stored;
mod tensors;
mod threads;

pub use attention::{
    KvTiles, Mask, Pages, dense_attention, paged_attention, paged_attention_in_blocks,
    shared_attention,
};
pub use dense::{Axis, Edges, PackedConvolution, Walk};
pub use draw::{largest, log_sum_exp, weigh};
pub use gates::{Gate, activate, gate, soft_cap, swiglu_oai};
pub use level::{LEVEL_VARIABLE, Level};
pub use math::exp;
pub use mixture::weighted_sums;
pub use norm::{add_rms_norm, rms_norm};
pub use normal::{group_norm, layer_norm};
pub use pool::{THREAD_VARIABLES, enter_background, threads};
pub use products::{Matrix, MatrixSpan, WeightType, products, products_of_spans};
pub use reading::sum;
pub use recurrence::{STATE_LANES, delta_rule, state_space};
pub use resample::{Resampling, resample};
pub use rope::rotate;
pub use short_convolution::{ChannelTaps, short_convolution};
pub use snake::snake;
pub use threads::each;
