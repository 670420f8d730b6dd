//! Replaces the module in builds without CUDA, where no GPU exists.

use candle_core::{Result, Tensor, bail};

use super::states::{DeviceTaps, StateStep, States};
use crate::recurrence::StateSpan;

pub fn short_convolution(
    states: &mut States,
    taps: &DeviceTaps<'_>,
    _: &Tensor,
    spans: &[StateSpan],
) -> Result<Tensor> {
    let (_, _) = (states.told(spans)?, states.numbers()?);
    let _ = (taps.weight, taps.bias, taps.channels, taps.has_silu);
    bail!("this build has no CUDA for recurrent layers")
}

pub fn run(
    step: &StateStep<'_>,
    states: &mut States,
    _: [&Tensor; 3],
    spans: &[StateSpan],
) -> Result<Tensor> {
    let (_, _) = (states.told(spans)?, states.numbers()?);
    let _ = (step.shape, step.rates, step.step_bias, step.skips);
    let (name, _, _) = (step.name, step.offsets, step.step_limits);
    bail!("this build has no CUDA for {name}")
}
