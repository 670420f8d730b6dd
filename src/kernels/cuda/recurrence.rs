//! Recurrent layers on NVIDIA GPUs.

#![expect(unsafe_code, reason = "kernels are launched with raw arguments")]

use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::{DeviceRepr, LaunchConfig, PushKernelArg};
use candle_core::{CudaDevice, Result, Tensor, bail};

use super::launch::{DeviceOperand, device_for, floats, function, launch, room, tensor};
use super::states::{DeviceTaps, StateStep, States};
use super::trial::Operation;
use crate::recurrence::StateSpan;

/// Threads of a block with channels.
const CHANNEL_THREADS: u32 = 128;
/// `kernels.cu: STATE_COLUMNS` and `STATE_THREADS`
const STATE_COLUMNS: usize = 32;
const STATE_THREADS: u32 = 128;
/// Numbers of a key at most.
const MOST_KEY_DIM: usize = 256;
/// The sizes of keys that kernels are made for.
const KEY_DIMS: [usize; 3] = [64, 128, MOST_KEY_DIM];

/// `kernels.cu: RecurrenceSizes`
#[repr(C)]
#[derive(Clone, Copy)]
struct RecurrenceSizes {
    key_heads: u32,
    value_heads: u32,
    key_dim: u32,
    value_dim: u32,
    is_tiled: u32,
    width: u32,
    query_offset: u32,
    key_offset: u32,
    value_offset: u32,
    state_size: u32,
    least_step: f32,
    most_step: f32,
}

// SAFETY: numbers alone, in the order of the kernel's structure.
unsafe impl DeviceRepr for RecurrenceSizes {}

fn device(x: &Tensor) -> Result<&CudaDevice> {
    match device_for(Operation::Recurrence, x) {
        Some(device) => Ok(device),
        None => bail!("this GPU fails at recurrent layers; use the CPU"),
    }
}

fn int(size: usize) -> u32 {
    size as u32
}

pub fn short_convolution(
    states: &mut States,
    taps: &DeviceTaps<'_>,
    x: &Tensor,
    spans: &[StateSpan],
) -> Result<Tensor> {
    let device = device(x)?;
    if x.elem_count() == 0 {
        return Ok(x.clone());
    }
    let numbers = floats(x)?;
    let spans_there = states.told(spans)?;
    let mut result = room::<f32>(device, x.elem_count())?;
    let (held, weight) = (
        DeviceOperand::of(&numbers)?,
        DeviceOperand::of(taps.weight)?,
    );
    // Without a bias, a flag in the sizes keeps the kernel from reading this operand.
    let bias = DeviceOperand::of(taps.bias.unwrap_or(taps.weight))?;
    let [convolution, _] = states.numbers()?;
    let (of_spans, past) = (
        DeviceOperand::of(&spans_there)?,
        DeviceOperand::of(convolution)?,
    );
    let config = LaunchConfig {
        grid_dim: (
            int(taps.channels).div_ceil(CHANNEL_THREADS),
            int(spans.len()),
            1,
        ),
        block_dim: (CHANNEL_THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    // The states are written although they are held to be read, as pages are.
    launch!(
        device,
        "short_convolution",
        config,
        &held.view::<f32>()?,
        &weight.view::<f32>()?,
        &bias.view::<f32>()?,
        &of_spans.view::<u32>()?,
        &past.view::<f32>()?,
        &mut result,
        &int(taps.channels),
        &int(taps.kernel),
        &u32::from(taps.bias.is_some()),
        &u32::from(taps.has_silu),
    );
    tensor(result, device, x.dims()).to_dtype(x.dtype())
}

/// Returns values for rows, steps and shares; see [`crate::DeltaRule`] and [`crate::StateSpace`].
pub fn run(
    step: &StateStep<'_>,
    states: &mut States,
    [rows, steps, shares]: [&Tensor; 3],
    spans: &[StateSpan],
) -> Result<Tensor> {
    let device = device(rows)?;
    let shape = step.shape;
    let Some(size) = KEY_DIMS.iter().find(|size| shape.key_dim <= **size) else {
        let found = shape.key_dim;
        bail!("keys of {found} numbers on a GPU are not supported; at most {MOST_KEY_DIM}");
    };
    let (count, width) = rows.dims2()?;
    let dims = [count, shape.value_size()];
    if count == 0 {
        return Tensor::zeros(&dims[..], rows.dtype(), rows.device());
    }
    let [x, steps, shares] = [floats(rows)?, floats(steps)?, floats(shares)?];
    let spans_there = states.told(spans)?;
    let [_, recurrence] = states.numbers()?;
    let mut result = room::<f32>(device, count * shape.value_size())?;
    let sizes = RecurrenceSizes {
        key_heads: int(shape.key_heads),
        value_heads: int(shape.value_heads),
        key_dim: int(shape.key_dim),
        value_dim: int(shape.value_dim),
        is_tiled: u32::from(shape.is_tiled),
        width: int(width),
        query_offset: int(step.offsets[0]),
        key_offset: int(step.offsets[1]),
        value_offset: int(step.offsets[2]),
        state_size: int(recurrence.dim(1)?),
        least_step: step.step_limits.0,
        most_step: step.step_limits.1,
    };
    let config = LaunchConfig {
        grid_dim: (
            int(shape.value_dim.div_ceil(STATE_COLUMNS)),
            int(shape.value_heads),
            int(spans.len()),
        ),
        block_dim: (STATE_THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    let (held, of_steps, of_shares) = (
        DeviceOperand::of(&x)?,
        DeviceOperand::of(&steps)?,
        DeviceOperand::of(&shares)?,
    );
    let (rates, biases) = (
        DeviceOperand::of(step.rates)?,
        DeviceOperand::of(step.step_bias)?,
    );
    // Without skips, a flag in the sizes keeps the kernel from reading this operand.
    let skips = DeviceOperand::of(step.skips.unwrap_or(step.rates))?;
    let (of_spans, past) = (
        DeviceOperand::of(&spans_there)?,
        DeviceOperand::of(recurrence)?,
    );
    launch!(
        device,
        &format!("{}_{size}", step.name),
        config,
        &held.view::<f32>()?,
        &of_steps.view::<f32>()?,
        &of_shares.view::<f32>()?,
        &rates.view::<f32>()?,
        &biases.view::<f32>()?,
        &skips.view::<f32>()?,
        &of_spans.view::<u32>()?,
        &past.view::<f32>()?,
        &mut result,
        &sizes,
    );
    tensor(result, device, &dims).to_dtype(rows.dtype())
}
