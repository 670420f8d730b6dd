//! The engine: jobs in, events out. It knows no protocol.
//!
//! | folder | what it is | may use |
//! | --- | --- | --- |
//! | [`networks`] | networks only: tensors in, tensors out | `muster_kernels` |
//! | [`runtime`] | one thread per device: queue, batch, sample, report | [`networks`], `muster_kernels` |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

pub mod networks;
pub mod runtime;
