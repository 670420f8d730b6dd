//! Queries, keys and values on their way to attention, in one launch: norms, rotation, and writing to pages.

#![expect(unsafe_code, reason = "kernels are launched with raw arguments")]

use candle_core::cuda_backend::cudarc::driver::{DeviceRepr, PushKernelArg};
use candle_core::cuda_backend::{CudaDType, WrapErr};
use candle_core::{CudaDevice, DType, Result, Tensor, WithDType, bail};
use half::{bf16, f16};

use super::launch::{
    DeviceOperand, THREADS, WARP, blocks, device_for, function, launch, room, tensor,
};
use super::paged::{attend, check_rows, taken};
use super::text::{of_type, type_name};
use super::trial::Operation;
use super::{AttentionScope, Pages, Plan};
use crate::rope::RotaryHeads;
use crate::{KvDtype, RopeStyle};

/// See [`crate::rotary_attention`]. `None` for tensors and pages that the kernel does not take.
pub fn rotary_attention(
    [q, k, v]: [&Tensor; 3],
    heads: &RotaryHeads<'_>,
    pages: &Pages,
    plan: &Plan,
    seen: &AttentionScope<'_>,
) -> Result<Option<Tensor>> {
    let dtype = q.dtype();
    let are_alike = k.dtype() == dtype && v.dtype() == dtype && type_name(dtype).is_some();
    if !are_alike || pages.stored == KvDtype::Q8_0 || !heads.fit(q)? {
        return Ok(None);
    }
    let Some((device, group)) = taken(q, pages, plan)? else {
        return Ok(None);
    };
    if device_for(Operation::HeadsIntoPages, q).is_none() {
        return Ok(None);
    }
    check_rows(k, v, pages, plan.slots.elem_count())?;
    let (q, k, v) = (q.contiguous()?, k.contiguous()?, v.contiguous()?);
    let turned = of_type!(dtype, into_pages(device, [&q, &k, &v], heads, pages, plan))?;
    attend(device, &turned, dtype, pages, plan, seen, group).map(Some)
}

/// Gives the queries back, in f32.
fn into_pages<T: WithDType + CudaDType + DeviceRepr>(
    device: &CudaDevice,
    qkv: [&Tensor; 3],
    heads: &RotaryHeads<'_>,
    pages: &Pages,
    plan: &Plan,
) -> Result<Tensor> {
    let shape = qkv[0].dims3()?;
    let mut turned = room::<f32>(device, qkv[0].elem_count())?;
    let [q, k, v] = qkv.map(DeviceOperand::of);
    let (q, k, v) = (q?, k?, v?);
    let weight = |at: usize| {
        let norm = heads.norms[at].as_ref();
        norm.map(|norm| DeviceOperand::of(norm.weight)).transpose()
    };
    let (query_weight, key_weight) = (weight(0)?, weight(1)?);
    // The operands without a role are not read.
    let (half, apart, angles) = match heads.rope {
        Some((rope, positions)) => {
            let Some([cosines, sines]) = rope.angles_on_device() else {
                bail!("the angles of a rotation are on the CPU, and its heads are not");
            };
            let apart = match rope.style() {
                RopeStyle::Halves => rope.half(),
                RopeStyle::Pairs => 1,
            };
            (rope.half(), apart, Some([cosines, sines, positions]))
        }
        None => (0, 1, None),
    };
    let angle = |at: usize| {
        let operand = angles.map(|angles| DeviceOperand::of(angles[at]));
        operand.transpose()
    };
    let (cosines, sines, positions) = (angle(0)?, angle(1)?, angle(2)?);
    let (slots, keys, values) = (
        DeviceOperand::of(&plan.slots)?,
        DeviceOperand::of(&pages.keys)?,
        DeviceOperand::of(&pages.values)?,
    );
    let stream = device.cuda_stream();
    let name = format!(
        "heads_into_pages_{}_{}",
        type_name(T::DTYPE).unwrap_or_default(),
        pages.stored.name()
    );
    let (rows, count, size) = shape;
    let warps = rows * (count + 2 * pages.kv_heads);
    let config = blocks(warps * WARP as usize, THREADS)?;
    let int = |size: usize| size as u32;
    let page_address = |pages_of: &DeviceOperand<'_>| match pages.stored {
        KvDtype::F32 => pages_of.address::<f32>(&stream),
        KvDtype::F16 => pages_of.address::<f16>(&stream),
        KvDtype::Bf16 => pages_of.address::<bf16>(&stream),
        KvDtype::Q8_0 => bail!("pages of eight bits have blocks"),
    };
    // The pages are written although they are held to be read: candle knows no other way to write into a part.
    launch!(
        device,
        &name,
        config,
        &q.view::<T>()?,
        &k.view::<T>()?,
        &v.view::<T>()?,
        &DeviceOperand::address_or_zero::<T>(query_weight.as_ref(), &stream)?,
        &DeviceOperand::address_or_zero::<T>(key_weight.as_ref(), &stream)?,
        &DeviceOperand::address_or_zero::<f32>(cosines.as_ref(), &stream)?,
        &DeviceOperand::address_or_zero::<f32>(sines.as_ref(), &stream)?,
        &DeviceOperand::address_or_zero::<u32>(positions.as_ref(), &stream)?,
        &slots.view::<u32>()?,
        &mut turned,
        &page_address(&keys)?,
        &page_address(&values)?,
        &int(rows),
        &int(count),
        &int(pages.kv_heads),
        &int(size),
        &int(half),
        &int(apart),
        &heads.epsilon(),
    );
    Ok(tensor(turned, device, qkv[0].dims()))
}
