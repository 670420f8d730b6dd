//! The operations of text decoders between their products, on NVIDIA GPUs, each in one launch.

#![expect(unsafe_code, reason = "kernels are launched with raw arguments")]

use std::sync::{Mutex, PoisonError};

use candle_core::cuda_backend::cudarc::driver::{
    CudaContext, DeviceRepr, LaunchConfig, PushKernelArg, result, sys,
};
use candle_core::cuda_backend::{CudaDType, WrapErr};
use candle_core::{CudaDevice, DType, Device, Result, Tensor, bail};
use half::{bf16, f16};

use super::launch::{DeviceOperand, THREADS, blocks, device_for, function, launch, room, tensor};
use super::trial::{Operation, try_kernels};
use super::trial_record::kept;
use crate::{GateKind, RopeStyle};

/// Opens a GPU with one stream for all threads, so that work runs in the order of submission. The first open tests the
/// kernels, unless [`crate::keep_gpu_trials`] has the result of an earlier test.
pub fn open_gpu(index: usize) -> Result<Device> {
    static TRIED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let device = open_untried(index)?;
    let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    if !tried.contains(&index) {
        try_kernels(index, &device, kept().as_ref());
        tried.push(index);
    }
    Ok(device)
}

pub fn open_untried(index: usize) -> Result<Device> {
    if !super::products::has_driver() {
        bail!(
            "libcuda.so.1 was not found: install the NVIDIA driver with its CUDA library (Debian: libcuda1), or start the container with the GPU (docker: --gpus all)"
        );
    }
    super::products::stand_in();
    let device = Device::new_cuda_with_stream(index)?;
    if let Device::Cuda(device) = &device {
        // SAFETY: all work is in one stream, so no events are needed.
        unsafe { device.disable_event_tracking() };
        keep_pool(device)?;
    }
    Ok(device)
}

/// Gives memory that was freed back to the driver, for other programs.
pub fn give_back_gpu_memory(index: usize) -> Result<()> {
    let context = CudaContext::new(index).w()?;
    context.synchronize().w()?;
    // SAFETY: the pool is that of an open device.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device()).w()?;
        result::mem_pool::trim_to(pool, 0).w()
    }
}

/// Keeps freed memory in the pool: by default each synchronization returns all of it to the driver, and the next step
/// allocates it again.
fn keep_pool(device: &CudaDevice) -> Result<()> {
    let stream = device.cuda_stream();
    let context = stream.context();
    context.bind_to_thread().w()?;
    let threshold = u64::MAX;
    // SAFETY: the pool is that of an open device, and the attribute is a number of 64 bits.
    unsafe {
        let pool = result::device::get_default_mem_pool(context.cu_device()).w()?;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        result::mem_pool::set_attribute(pool, attribute, (&raw const threshold).cast_mut().cast())
            .w()
    }
}

/// Free memory of a GPU.
pub fn gpu_free_bytes(index: usize) -> Result<u64> {
    let context = CudaContext::new(index).w()?;
    let (free_bytes, _) = context.mem_get_info().w()?;
    Ok(free_bytes as u64)
}

/// The name of a type in `kernels.cu`.
pub(super) fn type_name(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("f32"),
        DType::F16 => Some("f16"),
        DType::BF16 => Some("bf16"),
        _ => None,
    }
}

/// Calls a function for the type of a tensor.
macro_rules! of_type {
    ($dtype:expr, $function:ident ( $($argument:expr),* $(,)? )) => {
        match $dtype {
            DType::F32 => $function::<f32>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            other => bail!("activations are f32, f16 or bf16, not {other:?}"),
        }
    };
}

pub(super) use of_type;

/// The rows of a matrix with these indices. `None` off GPUs and for other tensors than float matrices.
pub fn select_rows(x: &Tensor, rows: &Tensor) -> Result<Option<Tensor>> {
    let Some(device) = device_for(Operation::Selection, x) else {
        return Ok(None);
    };
    let is_empty = x.elem_count() == 0 || rows.elem_count() == 0;
    if x.rank() != 2 || is_empty || type_name(x.dtype()).is_none() {
        return Ok(None);
    }
    let (x, rows) = (x.contiguous()?, rows.contiguous()?);
    of_type!(x.dtype(), select_as(device, &x, &rows)).map(Some)
}

/// Bytes per copy of a thread, for rows of a multiple of them.
const PIECE_BYTES: usize = 16;

fn select_as<T: CudaDType + DeviceRepr>(
    device: &CudaDevice,
    x: &Tensor,
    rows: &Tensor,
) -> Result<Tensor> {
    let (count, columns) = (rows.elem_count(), x.dim(1)?);
    let (row_bytes, start) = (
        columns * size_of::<T>(),
        x.layout().start_offset() * size_of::<T>(),
    );
    let is_wide = row_bytes.is_multiple_of(PIECE_BYTES) && start.is_multiple_of(PIECE_BYTES);
    let (name, piece_bytes) = match is_wide {
        true => ("select_rows_16", PIECE_BYTES),
        false => ("select_rows_2", size_of::<f16>()),
    };
    let pieces = row_bytes / piece_bytes;
    let mut result = room::<T>(device, count * columns)?;
    let config = blocks(count * pieces, THREADS)?;
    let (held, held_rows) = (DeviceOperand::of(x)?, DeviceOperand::of(rows)?);
    launch!(
        device,
        name,
        config,
        &held.view::<T>()?,
        &held_rows.view::<u32>()?,
        &mut result,
        &(count as u32),
        &(pieces as u32),
    );
    Ok(tensor(result, device, &[count, columns]))
}

/// `[tokens, heads, size]` turned by the angles of its positions. `None` off GPUs.
pub fn rotate(
    x: &Tensor,
    style: RopeStyle,
    cosines: &Tensor,
    sines: &Tensor,
    positions: &Tensor,
) -> Result<Option<Tensor>> {
    match device_for(Operation::Rotation, x) {
        Some(device) => of_type!(
            x.dtype(),
            rotate_as(device, &x.contiguous()?, style, [cosines, sines], positions)
        )
        .map(Some),
        None => Ok(None),
    }
}

fn rotate_as<T: CudaDType + DeviceRepr>(
    device: &CudaDevice,
    x: &Tensor,
    style: RopeStyle,
    [cosines, sines]: [&Tensor; 2],
    positions: &Tensor,
) -> Result<Tensor> {
    let (rows, heads, size) = x.dims3()?;
    let (_, half) = cosines.dims2()?;
    if 2 * half > size || positions.elem_count() != rows {
        bail!(
            "a rope of {} values does not fit {rows} rows of heads of {size}",
            2 * half
        );
    }
    let mut result = room::<T>(device, x.elem_count())?;
    let config = blocks(rows * heads * (size - half), THREADS)?;
    let apart = match style {
        RopeStyle::Halves => half,
        RopeStyle::Pairs => 1,
    };
    let held = [x, cosines, sines, positions].map(DeviceOperand::of);
    let [x_held, cosines, sines, positions] = held;
    let (x_held, cosines, sines, positions) = (x_held?, cosines?, sines?, positions?);
    let name = format!("rotate_{}", type_name(x.dtype()).unwrap_or_default());
    let int = |size: usize| size as u32;
    launch!(
        device,
        &name,
        config,
        &x_held.view::<T>()?,
        &cosines.view::<f32>()?,
        &sines.view::<f32>()?,
        &positions.view::<u32>()?,
        &mut result,
        &int(rows),
        &int(heads),
        &int(size),
        &int(half),
        &int(apart),
    );
    Ok(tensor(result, device, x.dims()))
}

/// `activation(gate) * up`. `None` off GPUs.
pub fn gate(gates: &Tensor, ups: &Tensor, kind: GateKind) -> Result<Option<Tensor>> {
    let Some(device) = device_for(Operation::Gate, gates) else {
        return Ok(None);
    };
    if gates.dims() != ups.dims() || gates.dtype() != ups.dtype() {
        bail!(
            "gates of shape {:?} do not fit {:?}",
            gates.dims(),
            ups.dims()
        );
    }
    let (gates, ups) = (gates.contiguous()?, ups.contiguous()?);
    of_type!(gates.dtype(), gate_as(device, &gates, &ups, kind)).map(Some)
}

/// The number of an activation in `kernels.cu`.
pub(super) fn gate_number(kind: GateKind) -> i32 {
    match kind {
        GateKind::Silu => 0,
        GateKind::GeluTanh => 1,
        GateKind::Gelu => 2,
    }
}

fn gate_as<T: CudaDType + DeviceRepr>(
    device: &CudaDevice,
    gates: &Tensor,
    ups: &Tensor,
    kind: GateKind,
) -> Result<Tensor> {
    let count = gates.elem_count();
    if count == 0 {
        return Ok(gates.clone());
    }
    let mut result = room::<T>(device, count)?;
    let (held, held_ups) = (DeviceOperand::of(gates)?, DeviceOperand::of(ups)?);
    let name = format!("gate_{}", type_name(gates.dtype()).unwrap_or_default());
    let kind = gate_number(kind);
    let config = blocks(count, THREADS)?;
    launch!(
        device,
        &name,
        config,
        &held.view::<T>()?,
        &held_ups.view::<T>()?,
        &mut result,
        &(count as u64),
        &kind,
    );
    Ok(tensor(result, device, gates.dims()))
}

/// The sum of both, and the sum normed by its root mean square. `None` off GPUs, or for several types.
pub fn add_rms_norm(
    x: &Tensor,
    delta: &Tensor,
    weight: &Tensor,
    eps: f32,
) -> Result<Option<(Tensor, Tensor)>> {
    let dtype = x.dtype();
    let Some(device) = device_for(Operation::AddRmsNorm, x) else {
        return Ok(None);
    };
    let columns = weight.elem_count();
    let fits = x.dims() == delta.dims() && x.dims().last() == Some(&columns);
    if !fits || delta.dtype() != dtype || weight.dtype() != dtype || x.elem_count() == 0 {
        return Ok(None);
    }
    let (x, delta) = (x.contiguous()?, delta.contiguous()?);
    of_type!(dtype, add_rms_as(device, &x, &delta, weight, eps)).map(Some)
}

fn add_rms_as<T: CudaDType + DeviceRepr>(
    device: &CudaDevice,
    x: &Tensor,
    delta: &Tensor,
    weight: &Tensor,
    eps: f32,
) -> Result<(Tensor, Tensor)> {
    let columns = weight.elem_count();
    let rows = x.elem_count() / columns;
    let (mut sum, mut normed) = (
        room::<T>(device, x.elem_count())?,
        room::<T>(device, x.elem_count())?,
    );
    let (held, held_delta, held_weight) = (
        DeviceOperand::of(x)?,
        DeviceOperand::of(delta)?,
        DeviceOperand::of(weight)?,
    );
    let name = format!("add_rms_{}", type_name(x.dtype()).unwrap_or_default());
    let config = LaunchConfig {
        grid_dim: (rows as u32, 1, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    launch!(
        device,
        &name,
        config,
        &held.view::<T>()?,
        &held_delta.view::<T>()?,
        &held_weight.view::<T>()?,
        &mut sum,
        &mut normed,
        &(columns as u32),
        &eps,
    );
    Ok((
        tensor(sum, device, x.dims()),
        tensor(normed, device, x.dims()),
    ))
}
