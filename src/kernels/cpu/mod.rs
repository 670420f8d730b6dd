//! The CPU's operations: the reference for other devices, and as fast as the machine allows.
//!
//! Results are the same bits at every instruction level for quantized weights: integer sums are exact and
//! the few roundings that remain happen in one order everywhere.

mod attention;
mod draw;
mod gates;
mod level;
mod math;
mod memory;
mod norm;
mod pool;
mod products;
mod reading;
mod rope;
mod tensors;
mod threads;

pub use attention::{Pages, paged_attention};
pub use draw::weigh;
pub use gates::{Gate, gate};
pub use level::Level;
pub use math::exp;
pub use norm::{add_rms_norm, rms_norm};
pub use pool::{THREAD_VARIABLES, threads};
pub use products::{Matrix, products};
pub use reading::sum;
pub use rope::rotate;
pub use threads::each;
