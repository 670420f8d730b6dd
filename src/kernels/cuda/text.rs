//! The operations of text decoders between their products, on NVIDIA GPUs, each in one launch.

#![expect(unsafe_code, reason = "kernels are launched with raw arguments")]

use std::sync::{Mutex, PoisonError};

use candle_core::cuda_backend::cudarc::driver::{
    CudaContext, CudaSlice, DeviceRepr, LaunchConfig, PushKernelArg, result, sys,
};
use candle_core::cuda_backend::{CudaDType, WrapErr};
use candle_core::{CudaDevice, DType, Device, Result, Tensor, bail};
use half::{bf16, f16};

use super::launch::{
    DeviceOperand, THREADS, blocks, device_for, floats, function, launch, narrowed, room, tensor,
};
use super::native::attend_into;
use super::trial::{Operation, try_kernels};
use super::{Pages, Plan, SingleTokens, context};
use crate::cpu::Mask;
use crate::{AttentionOptions, GateKind, PAGE_TOKENS, RopeStyle};

/// Opens a GPU whose work is all in one stream, whatever thread asks for it: in the order in which it is asked for. The
/// first time its kernels are tried.
pub fn open_gpu(index: usize) -> Result<Device> {
    static TRIED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let device = open_untried(index)?;
    let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    if !tried.contains(&index) {
        try_kernels(&device);
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
        // SAFETY: there is one stream, so that nothing has to wait for another.
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

/// Has the pool keep what it once had: otherwise each synchronization gives all of it back to the driver, and the next
/// step asks for it again.
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

/// What an open GPU has free.
pub fn gpu_free_bytes(index: usize) -> Result<u64> {
    let context = CudaContext::new(index).w()?;
    let (free_bytes, _) = context.mem_get_info().w()?;
    Ok(free_bytes as u64)
}

/// The name of a type in `kernels.cu`.
fn type_name(dtype: DType) -> Option<&'static str> {
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
    let kind = match kind {
        GateKind::Silu => 0i32,
        GateKind::GeluTanh => 1,
        GateKind::Gelu => 2,
    };
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

/// The largest head that single queries attend with, and of how many heads that share keys.
const MOST_SIZE: usize = 256;
const GROUPS: [usize; 4] = [1, 2, 4, 8];
/// Keys of one block.
const PART_KEYS: usize = 256;
/// Threads of a block with single queries.
const SINGLE_THREADS: u32 = 128;

/// Writes keys and values into pages and attends; see [`crate::paged_attention`]. `None` off GPUs, and for heads and
/// options that the kernels do not take.
pub fn paged_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    pages: &Pages,
    plan: &Plan,
    options: AttentionOptions,
) -> Result<Option<Tensor>> {
    let Some(device) = device_for(Operation::PagedAttention, q) else {
        return Ok(None);
    };
    let (tokens, heads, size) = q.dims3()?;
    let shared = heads / pages.kv_heads;
    let group = GROUPS.into_iter().find(|group| shared <= *group);
    // Prompts attend with f16 operands, which is not what pages of f32 are for.
    let prompts_fit = pages.keys.dtype() != DType::F32 && super::native::takes_heads_of(size);
    let fits =
        size <= MOST_SIZE && size.is_multiple_of(8) && (plan.prompts.is_empty() || prompts_fit);
    let (Some(group), true) = (group, fits) else {
        return Ok(None);
    };
    write(device, k, v, pages, plan)?;
    let mut result = room::<f32>(device, tokens * heads * size)?;
    if let Some(single) = &plan.single {
        let wide = floats(q)?;
        of_type!(
            pages.keys.dtype(),
            attend_single(
                device,
                &wide,
                pages,
                plan,
                single,
                options,
                group,
                &mut result
            )
        )?;
    }
    for prompt in &plan.prompts {
        let total = context(&prompt.span);
        let gathered = |pages_of: &Tensor| {
            let rows = pages_of
                .reshape(((), PAGE_TOKENS * pages.kv_heads * size))?
                .index_select(&prompt.pages, 0)?;
            let rows = rows
                .reshape((1, (), pages.kv_heads, size))?
                .narrow(1, 0, total)?;
            narrowed(&rows, DType::F16)
        };
        let rows = q
            .narrow(0, prompt.first, prompt.span.new_tokens)?
            .unsqueeze(0)?;
        let mask = match options.window {
            Some(window) => Mask::Band {
                before: window.saturating_sub(1),
                after: 0,
            },
            None => Mask::Causal,
        };
        attend_into(
            device,
            [
                &narrowed(&rows, DType::F16)?,
                &gathered(&pages.keys)?,
                &gathered(&pages.values)?,
            ],
            (options.scale, options.softcap),
            mask,
            &mut result,
            prompt.first * heads * size,
        )?;
    }
    tensor(result, device, q.dims())
        .to_dtype(q.dtype())
        .map(Some)
}

fn write(device: &CudaDevice, k: &Tensor, v: &Tensor, pages: &Pages, plan: &Plan) -> Result<()> {
    let dtype = pages.keys.dtype();
    let (k, v) = (
        k.to_dtype(dtype)?.contiguous()?,
        v.to_dtype(dtype)?.contiguous()?,
    );
    of_type!(dtype, write_as(device, &k, &v, pages, plan))
}

fn write_as<T: CudaDType + DeviceRepr>(
    device: &CudaDevice,
    k: &Tensor,
    v: &Tensor,
    pages: &Pages,
    plan: &Plan,
) -> Result<()> {
    let rows = plan.slots.elem_count();
    let bytes = pages.kv_heads * pages.head_dim * size_of::<T>();
    if k.elem_count() != rows * pages.kv_heads * pages.head_dim || k.dims() != v.dims() {
        bail!(
            "keys of shape {:?} do not fit {rows} rows of the pages",
            k.dims()
        );
    }
    let pieces = bytes / 16;
    let (k, v, slots) = (
        DeviceOperand::of(k)?,
        DeviceOperand::of(v)?,
        DeviceOperand::of(&plan.slots)?,
    );
    let (keys, values) = (
        DeviceOperand::of(&pages.keys)?,
        DeviceOperand::of(&pages.values)?,
    );
    let config = blocks(rows * pieces, THREADS)?;
    // The pages are written although they are held to be read: candle knows no other way to write into a part.
    launch!(
        device,
        "write_rows",
        config,
        &k.view::<T>()?,
        &v.view::<T>()?,
        &slots.view::<u32>()?,
        &keys.view::<T>()?,
        &values.view::<T>()?,
        &(rows as u32),
        &(pieces as u32),
    );
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "a kernel's operands and sizes")]
fn attend_single<P: CudaDType + DeviceRepr>(
    device: &CudaDevice,
    q: &Tensor,
    pages: &Pages,
    plan: &Plan,
    single: &SingleTokens,
    options: AttentionOptions,
    group: usize,
    result: &mut CudaSlice<f32>,
) -> Result<()> {
    let (_, heads, size) = q.dims3()?;
    let items = single.rows.elem_count();
    let parts = single.longest.div_ceil(PART_KEYS);
    let (_, most_pages) = plan.page_table.dims2()?;
    let name = format!(
        "attend_pages_{}_{group}",
        type_name(pages.keys.dtype()).unwrap_or_default()
    );
    let of_parts = if parts == 1 { 0 } else { items * heads * parts };
    let mut parts_of = room::<f32>(device, (of_parts * size).max(1))?;
    let mut sums = room::<f32>(device, (2 * of_parts).max(1))?;
    let (held, keys, values) = (
        DeviceOperand::of(q)?,
        DeviceOperand::of(&pages.keys)?,
        DeviceOperand::of(&pages.values)?,
    );
    let (rows, spans) = (
        DeviceOperand::of(&single.rows)?,
        DeviceOperand::of(&single.spans)?,
    );
    let (positions, table) = (
        DeviceOperand::of(&single.positions)?,
        DeviceOperand::of(&plan.page_table)?,
    );
    let config = LaunchConfig {
        grid_dim: (pages.kv_heads as u32, items as u32, parts as u32),
        block_dim: (SINGLE_THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    let int = |size: usize| size as u32;
    let window = options
        .window
        .map_or(u32::MAX, |window| u32::try_from(window).unwrap_or(u32::MAX));
    let cap = options.softcap.unwrap_or(0.0);
    let target = if parts == 1 {
        &mut *result
    } else {
        &mut parts_of
    };
    launch!(
        device,
        &name,
        config,
        &held.view::<f32>()?,
        &keys.view::<P>()?,
        &values.view::<P>()?,
        &rows.view::<u32>()?,
        &spans.view::<u32>()?,
        &positions.view::<u32>()?,
        &table.view::<u32>()?,
        target,
        &mut sums,
        &int(heads),
        &int(pages.kv_heads),
        &int(size),
        &int(most_pages),
        &options.scale,
        &window,
        &cap,
    );
    if parts > 1 {
        let config = LaunchConfig {
            grid_dim: (heads as u32, items as u32, 1),
            block_dim: (SINGLE_THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        launch!(
            device,
            "join_parts",
            config,
            &parts_of,
            &sums,
            &rows.view::<u32>()?,
            &mut *result,
            &int(heads),
            &int(size),
            &int(parts),
        );
    }
    Ok(())
}
