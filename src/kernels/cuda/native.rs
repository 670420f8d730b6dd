//! Our own kernels on NVIDIA GPUs, and products of narrow operands with f32 results.

#![expect(
    unsafe_code,
    reason = "kernels are launched and the vendor's products are called with raw arguments"
)]

use std::ffi::c_int;

use candle_core::cuda_backend::cudarc::cublas::{result::gemm_ex, sys};
use candle_core::cuda_backend::cudarc::driver::{
    CudaSlice, CudaView, DevicePtr, DevicePtrMut, DeviceRepr, LaunchConfig, PushKernelArg,
};
use candle_core::cuda_backend::{CudaDType, WrapErr};
use candle_core::{CudaDevice, DType, Result, Tensor, bail};
use half::{bf16, f16};

use super::launch::{
    DeviceOperand, THREADS, WARP, blocks, device_for, device_of, floats, function, launch,
    narrowed, room, tensor,
};
use super::trial::Operation;
use super::{LOWERED_BYTES, Lowering};
use crate::cpu::Mask;

/// The layout of a product's rows in its result.
#[derive(Clone, Copy)]
struct ProductPlace {
    rows: usize,
    outputs: usize,
    inputs: usize,
    /// Numbers of a row of the result.
    stride: usize,
    /// Offset of the result.
    at: usize,
    /// Offset of the weights.
    weights_at: usize,
    /// Whether the result is added to the destination.
    adds: bool,
}

/// `rows · weightsᵀ`, in f32.
fn multiply<T: CudaDType>(
    device: &CudaDevice,
    rows: &CudaView<'_, T>,
    weights: &CudaView<'_, T>,
    result: &mut CudaSlice<f32>,
    place: ProductPlace,
    dtype: DType,
) -> Result<()> {
    let kind = match dtype {
        DType::F16 => sys::cudaDataType_t::CUDA_R_16F,
        DType::BF16 => sys::cudaDataType_t::CUDA_R_16BF,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    };
    let int = |size: usize| match c_int::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => bail!("a product of size {size} is too large for the GPU's library"),
    };
    let (outputs, count, inputs) = (int(place.outputs)?, int(place.rows)?, int(place.inputs)?);
    let stride = int(place.stride)?;
    let alpha = 1f32;
    let beta = if place.adds { 1f32 } else { 0f32 };
    let stream = device.cuda_stream();
    let needed = place.at + (place.rows - 1) * place.stride + place.outputs;
    if needed > result.len()
        || place.rows * place.inputs > rows.len()
        || place.weights_at + place.outputs * place.inputs > weights.len()
    {
        bail!("a product's operands are smaller than its sizes say");
    }
    let weights = weights.slice(place.weights_at..);
    let mut result = result.slice_mut(place.at..);
    let (a, _held) = weights.device_ptr(&stream);
    let (b, _held_rows) = rows.device_ptr(&stream);
    let (c, _held_result) = result.device_ptr_mut(&stream);
    // SAFETY: the pointers are to operands of at least these sizes, as was checked, on the stream of the handle.
    unsafe {
        gemm_ex(
            *device.cublas_handle().handle(),
            sys::cublasOperation_t::CUBLAS_OP_T,
            sys::cublasOperation_t::CUBLAS_OP_N,
            outputs,
            count,
            inputs,
            (&raw const alpha).cast(),
            a as *const _,
            kind,
            inputs,
            b as *const _,
            kind,
            inputs,
            (&raw const beta).cast(),
            c as *mut _,
            sys::cudaDataType_t::CUDA_R_32F,
            stride,
            sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT_TENSOR_OP,
        )
    }
    .w()
}

/// Rows filled with the bias, or uninitialized rows for the result of a product.
fn rows_of(
    device: &CudaDevice,
    bias: Option<&Tensor>,
    rows: usize,
    columns: usize,
) -> Result<CudaSlice<f32>> {
    let mut result = room::<f32>(device, rows * columns)?;
    if let Some(bias) = bias {
        let held = DeviceOperand::of(bias)?;
        let from = held.view::<f32>()?;
        if from.len() != columns {
            bail!("a bias of {} does not fit {columns} outputs", from.len());
        }
        let (count, columns) = ((rows * columns) as u64, columns as u32);
        let config = blocks(rows * columns as usize, THREADS)?;
        launch!(
            device,
            "fill_rows",
            config,
            &from,
            &mut result,
            &count,
            &columns
        );
    }
    Ok(result)
}

/// `x · weightᵀ + bias` in f32; the last dimension of `x` is the weight's. Operands have the weight's type. `None` if
/// the type or the device is unsupported.
pub fn product(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Option<Tensor>> {
    let Some(device) = device_for(Operation::Product, x) else {
        return Ok(None);
    };
    let (outputs, inputs) = weight.dims2()?;
    let rows = x.elem_count() / inputs.max(1);
    if x.dims().last() != Some(&inputs) {
        bail!(
            "rows of shape {:?} do not fit weights of {outputs} by {inputs}",
            x.dims()
        );
    }
    let mut shape = x.dims().to_vec();
    shape.pop();
    shape.push(outputs);
    if rows == 0 {
        return Tensor::zeros(shape, DType::F32, x.device()).map(Some);
    }
    let dtype = weight.dtype();
    let x = narrowed(x, dtype)?;
    let mut result = rows_of(device, bias, rows, outputs)?;
    let place = ProductPlace {
        rows,
        outputs,
        inputs,
        stride: outputs,
        at: 0,
        weights_at: 0,
        adds: bias.is_some(),
    };
    let weight = weight.contiguous()?;
    let (x, weight) = (DeviceOperand::of(&x)?, DeviceOperand::of(&weight)?);
    match dtype {
        DType::F32 => multiply::<f32>(
            device,
            &x.view()?,
            &weight.view()?,
            &mut result,
            place,
            dtype,
        )?,
        DType::F16 => multiply::<f16>(
            device,
            &x.view()?,
            &weight.view()?,
            &mut result,
            place,
            dtype,
        )?,
        DType::BF16 => multiply::<bf16>(
            device,
            &x.view()?,
            &weight.view()?,
            &mut result,
            place,
            dtype,
        )?,
        other => bail!("weights of products are f32, f16 or bf16, not {other:?}"),
    }
    Ok(Some(tensor(result, device, &shape)))
}

/// `x` is `[batch, height, width, channels]`, the weights `[outputs, taps * inputs]` with the inputs of a tap together.
pub fn convolve(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    lowering: &Lowering,
) -> Result<Option<Tensor>> {
    if device_for(Operation::Convolution, x).is_none() {
        return Ok(None);
    }
    match weight.dtype() {
        DType::F32 => convolve_as::<f32>(x, weight, bias, lowering, "f32"),
        DType::F16 => convolve_as::<f16>(x, weight, bias, lowering, "f16"),
        DType::BF16 => convolve_as::<bf16>(x, weight, bias, lowering, "bf16"),
        other => bail!("weights of a convolution are f32, f16 or bf16, not {other:?}"),
    }
    .map(Some)
}

fn convolve_as<T: CudaDType + DeviceRepr>(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    lowering: &Lowering,
    name: &str,
) -> Result<Tensor> {
    let (batch, height, width, channels) = x.dims4()?;
    let (outputs, depth) = weight.dims2()?;
    let ([out_height, out_width], [tall, wide]) = (lowering.outputs, lowering.taps);
    let groups = lowering.groups;
    let inputs = channels / groups;
    if depth != tall * wide * inputs || !outputs.is_multiple_of(groups) {
        bail!(
            "weights of {outputs} by {depth} do not fit {channels} channels in {groups} groups and {tall} by {wide} taps"
        );
    }
    let x = floats(x)?;
    let Some(device) = device_of(&x) else {
        bail!("a kernel of GPUs takes tensors on a GPU");
    };
    let rows = batch * out_height * out_width;
    let mut result = rows_of(device, bias, rows, outputs)?;
    let [ys, xs] = &lowering.seen;
    let (ys, xs) = (DeviceOperand::of(ys)?, DeviceOperand::of(xs)?);
    let (ys, xs) = (ys.view::<u32>()?, xs.view::<u32>()?);
    if ys.len() != out_height * tall || xs.len() != out_width * wide {
        bail!("the places that a convolution sees do not fit its sizes");
    }
    let at_once = (LOWERED_BYTES / (depth * size_of::<T>())).clamp(1, rows);
    let mut lowered = room::<T>(device, at_once * depth)?;
    let weight = weight.contiguous()?;
    let (from, weights) = (DeviceOperand::of(&x)?, DeviceOperand::of(&weight)?);
    let (from, weights) = (from.view::<f32>()?, weights.view::<T>()?);
    let vector = if inputs.is_multiple_of(4) && channels.is_multiple_of(4) {
        4
    } else {
        1
    };
    let kernel = format!("lower_{name}_{vector}");
    let size = |size: usize| size as u32;
    for first in (0..rows).step_by(at_once) {
        let count = at_once.min(rows - first);
        for group in 0..groups {
            let config = blocks(count * depth / vector, THREADS)?;
            launch!(
                device,
                &kernel,
                config,
                &from,
                &mut lowered,
                &ys,
                &xs,
                &size(first),
                &size(count),
                &size(height),
                &size(width),
                &size(channels),
                &size(group * inputs),
                &size(inputs),
                &size(out_height),
                &size(out_width),
                &size(tall),
                &size(wide),
            );
            let place = ProductPlace {
                rows: count,
                outputs: outputs / groups,
                inputs: depth,
                stride: outputs,
                at: first * outputs + group * (outputs / groups),
                weights_at: group * (outputs / groups) * depth,
                adds: bias.is_some(),
            };
            let rows = lowered.slice(..);
            multiply::<T>(device, &rows, &weights, &mut result, place, weight.dtype())?;
        }
    }
    Ok(tensor(
        result,
        device,
        &[batch, out_height, out_width, outputs],
    ))
}

/// The most parts of an image, each summed by one thread block.
const MOST_PARTS: usize = 128;
/// Numbers that a part has at least.
const LEAST_PART: usize = 1 << 13;

/// See [`crate::group_norm()`].
pub fn group_norm(
    x: &Tensor,
    groups: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f32,
) -> Result<Option<Tensor>> {
    let Some(device) = device_for(Operation::GroupNorm, x) else {
        return Ok(None);
    };
    let x = floats(x)?;
    let batch = x.dim(0)?;
    let channels = x.dims().last().copied().unwrap_or(0);
    let count = x.elem_count();
    if count == 0 || groups == 0 || !channels.is_multiple_of(groups) {
        bail!("{channels} channels do not make {groups} groups");
    }
    let places = count / batch / channels;
    let parts = (places * channels / LEAST_PART).clamp(1, MOST_PARTS.min(places));
    let part = places.div_ceil(parts);
    let parts = places.div_ceil(part);
    let lanes = (THREADS as usize / channels).max(1);
    let config = |shared: usize| LaunchConfig {
        grid_dim: (parts as u32, batch as u32, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: (shared * 2 * size_of::<f32>()) as u32,
    };
    let mut sums = room::<f32>(device, 2 * batch * groups * parts)?;
    let mut result = room::<f32>(device, count)?;
    let held = DeviceOperand::of(&x)?;
    let from = held.view::<f32>()?;
    let size = |size: usize| size as u32;
    launch!(
        device,
        "group_sums",
        config(lanes * channels),
        &from,
        &mut sums,
        &size(places),
        &size(channels),
        &size(groups),
        &size(part),
    );
    with_affine(device, weight, bias, channels, |weight, bias| {
        launch!(
            device,
            "group_apply",
            config(groups),
            &from,
            &sums,
            weight,
            bias,
            &mut result,
            &size(places),
            &size(channels),
            &size(groups),
            &size(part),
            &size(parts),
            &eps,
        );
        Ok(())
    })?;
    Ok(Some(tensor(result, device, x.dims())))
}

/// See [`crate::layer_norm()`].
pub fn layer_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f32,
) -> Result<Option<Tensor>> {
    let Some(device) = device_for(Operation::LayerNorm, x) else {
        return Ok(None);
    };
    let x = floats(x)?;
    let columns = x.dims().last().copied().unwrap_or(0);
    let count = x.elem_count();
    if count == 0 {
        return Ok(Some(x));
    }
    let rows = count / columns;
    let mut result = room::<f32>(device, count)?;
    let held = DeviceOperand::of(&x)?;
    let from = held.view::<f32>()?;
    let (rows, size) = (rows as u32, columns as u32);
    let config = blocks(rows as usize * WARP as usize, THREADS)?;
    with_affine(device, weight, bias, columns, |weight, bias| {
        launch!(
            device,
            "layer_norm",
            config,
            &from,
            weight,
            bias,
            &mut result,
            &rows,
            &size,
            &eps
        );
        Ok(())
    })?;
    Ok(Some(tensor(result, device, x.dims())))
}

/// Runs `work` with the device addresses of a weight and a bias of `count` numbers; a missing tensor has address zero.
fn with_affine(
    device: &CudaDevice,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    count: usize,
    work: impl FnOnce(&u64, &u64) -> Result<()>,
) -> Result<()> {
    let held = [weight, bias].map(|given| given.map(floats).transpose());
    let [weight, bias] = held;
    let (weight, bias) = (weight?, bias?);
    let held = |given: &Option<Tensor>| match given {
        Some(given) if given.elem_count() != count => {
            bail!("{} factors do not fit {count} channels", given.elem_count())
        }
        _ => Ok(()),
    };
    held(&weight)?;
    held(&bias)?;
    let (weight, bias) = (
        weight.as_ref().map(DeviceOperand::of).transpose()?,
        bias.as_ref().map(DeviceOperand::of).transpose()?,
    );
    let (weight, bias) = (
        weight
            .as_ref()
            .map(DeviceOperand::view::<f32>)
            .transpose()?,
        bias.as_ref().map(DeviceOperand::view::<f32>).transpose()?,
    );
    let stream = device.cuda_stream();
    let weight = weight.as_ref().map(|view| view.device_ptr(&stream));
    let bias = bias.as_ref().map(|view| view.device_ptr(&stream));
    let address = |held: &Option<(u64, _)>| held.as_ref().map_or(0, |held| held.0);
    work(&address(&weight), &address(&bias))
}

/// Sizes of heads that `kernels.cu` has attention for.
const HEAD_SIZES: [usize; 8] = [32, 48, 64, 80, 96, 128, 160, 256];
/// Queries of one block of it, fewer of the largest heads.
fn queries_of_block(padded: usize) -> usize {
    if padded == 256 { 64 } else { 128 }
}
/// Queries of a warp.
const QUERIES_OF_WARP: usize = 16;

/// See [`crate::dense_attention()`]. `None` for heads and masks that these kernels do not take.
pub fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    scale: f32,
    mask: Mask,
) -> Result<Option<Tensor>> {
    let Some(device) = device_for(Operation::Attention, q) else {
        return Ok(None);
    };
    let (batch, queries, heads, size) = q.dims4()?;
    let (_, keys, kv_heads, _) = k.dims4()?;
    if !takes_heads_of(size) || matches!(mask, Mask::Bias(_)) {
        return Ok(None);
    }
    let fits = k.dims() == v.dims() && k.dim(0)? == batch && k.dim(3)? == size;
    if !fits || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        bail!(
            "keys of shape {:?} do not fit queries of {:?}",
            k.dims(),
            q.dims()
        );
    }
    if queries == 0 || keys == 0 || batch == 0 {
        return Ok(None);
    }
    let [q, k, v] = [q, k, v].map(|x| narrowed(x, DType::F16));
    let (q, k, v) = (q?, k?, v?);
    let mut result = room::<f32>(device, q.elem_count())?;
    let shape = ScoreShape {
        scale,
        ..ScoreShape::default()
    };
    attend_into(device, [&q, &k, &v], shape, mask, &mut result, 0)?;
    Ok(Some(tensor(result, device, q.dims())))
}

/// Whether [`attend_into`] takes heads of this size.
pub fn takes_heads_of(size: usize) -> bool {
    size.is_multiple_of(8) && HEAD_SIZES.iter().any(|padded| size <= *padded)
}

/// How scores are made of products.
#[derive(Clone, Copy, Default)]
pub struct ScoreShape<'a> {
    pub scale: f32,
    /// See [`crate::AttentionOptions`].
    pub cap: Option<f32>,
    /// Tokens of a chunk, 0 without chunks.
    pub chunk: usize,
    /// A score of each head that no key has, f32 `[heads]`.
    pub sinks: Option<&'a Tensor>,
}

/// Attention of f16 operands that fit each other, written to a place of `result`.
pub fn attend_into(
    device: &CudaDevice,
    [q, k, v]: [&Tensor; 3],
    shape: ScoreShape<'_>,
    mask: Mask,
    result: &mut CudaSlice<f32>,
    at: usize,
) -> Result<()> {
    let (batch, queries, heads, size) = q.dims4()?;
    let (_, keys, kv_heads, _) = k.dims4()?;
    let Some(padded) = HEAD_SIZES.iter().find(|padded| size <= **padded) else {
        bail!("no kernel attends with heads of {size}");
    };
    let all = -1i32;
    let narrow = |count: usize| i32::try_from(count).unwrap_or(all);
    let (before, after) = match mask {
        Mask::None => (all, all),
        Mask::Causal => (all, 0),
        Mask::Band { before, after } => (narrow(before), narrow(after)),
        Mask::Bias(_) => bail!("no kernel adds a bias to scores"),
    };
    if at + q.elem_count() > result.len() {
        bail!("the room for the result of attention is too small");
    }
    let (held_q, held_k, held_v) = (
        DeviceOperand::of(q)?,
        DeviceOperand::of(k)?,
        DeviceOperand::of(v)?,
    );
    let of_block = queries_of_block(*padded);
    let threads = of_block / QUERIES_OF_WARP * WARP as usize;
    let config = LaunchConfig {
        grid_dim: (
            queries.div_ceil(of_block) as u32,
            heads as u32,
            batch as u32,
        ),
        block_dim: (threads as u32, 1, 1),
        shared_mem_bytes: 0,
    };
    let int = |size: usize| size as i32;
    // Without sinks the kernel gets another operand, and a flag keeps it from reading it.
    let held_sinks = shape.sinks.map(DeviceOperand::of).transpose()?;
    let sinks = held_sinks.as_ref().map(DeviceOperand::view::<f32>);
    let none = held_q.view::<f16>()?;
    let mut result = result.slice_mut(at..);
    let name = format!("attend_{padded}");
    macro_rules! attend {
        ($sinks:expr) => {
            launch!(
                device,
                &name,
                config,
                &held_q.view::<f16>()?,
                &held_k.view::<f16>()?,
                &held_v.view::<f16>()?,
                &mut result,
                &int(queries),
                &int(keys),
                &int(heads),
                &int(kv_heads),
                &int(size),
                &shape.scale,
                &before,
                &after,
                &shape.cap.unwrap_or(0.0),
                &int(shape.chunk),
                $sinks,
                &i32::from(shape.sinks.is_some()),
            )
        };
    }
    match sinks.transpose()? {
        Some(sinks) => attend!(&sinks),
        None => attend!(&none),
    }
    Ok(())
}
