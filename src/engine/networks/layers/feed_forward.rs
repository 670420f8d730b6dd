//! The feed-forward part of a layer: a gated one, or experts.

use candle_core::{D, Result, Tensor};

use super::{AdapterTarget, Experts, LayerAdaptation, Linear, RmsNorm};
use crate::networks::weights::Weight;
use muster_kernels::{self as kernels, GateKind};

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of these in a layer"
)]
pub enum FeedForward {
    Dense(GatedFeedForward),
    Experts(Box<Experts>),
    Parallel(Box<ParallelFeedForward>),
}

/// Gemma 4's: a dense part and experts in parallel. The experts and their router read the residual stream, each through
/// a separate norm.
#[derive(Debug)]
pub struct ParallelFeedForward {
    pub dense: GatedFeedForward,
    pub experts: Experts,
    pub router_norm: RmsNorm,
    pub experts_norm: RmsNorm,
    /// Norms after the dense part and after the experts.
    pub after: [RmsNorm; 2],
}

#[derive(Debug)]
pub struct GatedFeedForward {
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
    pub activation: GateActivation,
    /// Activation sparsity (Gemma 3n): the number of standard deviations above the row's mean below which a gate's
    /// number is zero.
    pub cutoff: Option<f64>,
}

/// The function that a gate goes through before it multiplies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GateActivation {
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
    /// gpt-oss's: see [`kernels::swiglu_oai`].
    SwigluOai {
        alpha: f32,
        limit: f32,
    },
}

impl FeedForward {
    /// The result for normalized rows `x`; `sum` is the residual before the norm. Adapters do not change experts.
    pub fn forward(
        &self,
        x: &Tensor,
        sum: &Tensor,
        adaptation: LayerAdaptation<'_>,
    ) -> Result<Tensor> {
        match self {
            Self::Dense(dense) => dense.adapted(x, adaptation),
            Self::Experts(experts) => experts.forward(x, x),
            Self::Parallel(parallel) => parallel.forward(x, sum),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Self::Dense(dense) => dense.bytes(),
            Self::Experts(experts) => experts.bytes(),
            Self::Parallel(parallel) => parallel.dense.bytes() + parallel.experts.bytes(),
        }
    }

    /// Bytes of weights that a step of this many rows reads.
    pub fn step_bytes(&self, rows: u64) -> u64 {
        match self {
            Self::Dense(dense) => dense.bytes(),
            Self::Experts(experts) => experts.step_bytes(rows),
            Self::Parallel(parallel) => parallel.dense.bytes() + parallel.experts.step_bytes(rows),
        }
    }
}

impl ParallelFeedForward {
    fn forward(&self, x: &Tensor, sum: &Tensor) -> Result<Tensor> {
        let dense = self.after[0].forward(&self.dense.forward(x)?)?;
        let routed = self.router_norm.forward(sum)?;
        let experts = self
            .experts
            .forward(&self.experts_norm.forward(sum)?, &routed)?;
        dense + self.after[1].forward(&experts)?
    }
}

impl GatedFeedForward {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.adapted(x, LayerAdaptation::NONE)
    }

    fn adapted(&self, x: &Tensor, adaptation: LayerAdaptation<'_>) -> Result<Tensor> {
        if adaptation.rows.is_empty()
            && let Some(gated) = self.gated_together(x)?
        {
            return self.down.forward(&gated);
        }
        let [gate, up] = Linear::together([&self.gate, &self.up], x)?;
        let mut gate = adaptation.add(AdapterTarget::Gate, x, gate)?;
        if let Some(deviations) = self.cutoff {
            gate = above_cutoff(&gate, deviations)?;
        }
        let up = adaptation.add(AdapterTarget::Up, x, up)?;
        let gated = self.activation.gated(&gate, &up)?;
        adaptation.add(AdapterTarget::Down, &gated, self.down.forward(&gated)?)
    }

    /// Gates and ups with their activation, where the device computes them in one operation.
    fn gated_together(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let is_plain = self.cutoff.is_none() && self.gate.bias.is_none() && self.up.bias.is_none();
        match self.activation.kind().filter(|_| is_plain) {
            Some(kind) => Weight::gated([&self.gate.weight, &self.up.weight], x, kind),
            None => Ok(None),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.gate.bytes() + self.up.bytes() + self.down.bytes()
    }
}

/// The part of each number above its row's mean plus this many standard deviations, or zero.
fn above_cutoff(x: &Tensor, deviations: f64) -> Result<Tensor> {
    let mean = x.mean_keepdim(D::Minus1)?;
    let variance = x.broadcast_sub(&mean)?.sqr()?.mean_keepdim(D::Minus1)?;
    let cutoff = (mean + (variance.sqrt()? * deviations)?)?;
    x.broadcast_sub(&cutoff)?.relu()
}

impl GateActivation {
    /// The function of the gate alone; `None` for a formula of gate and up.
    fn kind(self) -> Option<GateKind> {
        match self {
            Self::Silu => Some(GateKind::Silu),
            Self::GeluTanh => Some(GateKind::GeluTanh),
            Self::SwigluOai { .. } => None,
        }
    }

    /// `activation(gate) * up`, or the activation's own formula.
    pub fn gated(self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        match self {
            Self::Silu => kernels::silu_mul(gate, up),
            Self::GeluTanh => kernels::gelu_mul(gate, up),
            Self::SwigluOai { alpha, limit } => kernels::swiglu_oai(gate, up, alpha, limit),
        }
    }
}
