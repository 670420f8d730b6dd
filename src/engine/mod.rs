//! The engine: jobs in, events out, independent of any wire protocol.
//!
//! | folder | content | may use |
//! | --- | --- | --- |
//! | [`networks`] | networks only: tensors in, tensors out | `muster_kernels` |
//! | [`runtime`] | one thread per device: queue, batch, sample, report | [`networks`], `muster_kernels` |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

pub mod networks;
pub mod runtime;
