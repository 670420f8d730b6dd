//! Paged attention on NVIDIA GPUs: writes new keys and values; single tokens attend directly to the pages, prompts to
//! gathered keys and values.

#![expect(unsafe_code, reason = "kernels are launched with raw arguments")]

use candle_core::cuda_backend::cudarc::driver::{
    CudaSlice, DevicePtrMut, DeviceRepr, LaunchConfig, PushKernelArg,
};
use candle_core::cuda_backend::{CudaDType, WrapErr};
use candle_core::{CudaDevice, DType, Result, Tensor, WithDType, bail};
use half::{bf16, f16};

use super::launch::{
    DeviceOperand, THREADS, blocks, device_for, floats, function, launch, narrowed, result_number,
    room, tensor,
};
use super::native::{ScoreShape, attend_into};
use super::text::of_type;
use super::trial::Operation;
use super::{AttentionScope, PagePart, Pages, Plan, SingleTokens, context};
use crate::cpu::Mask;
use crate::{AttentionOptions, AttentionReach, KvDtype};

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
    new: Option<[&Tensor; 2]>,
    pages: &Pages,
    plan: &Plan,
    seen: &AttentionScope<'_>,
) -> Result<Option<Tensor>> {
    let Some((device, group)) = taken(q, pages, plan)? else {
        return Ok(None);
    };
    if let Some([k, v]) = new {
        write(device, k, v, pages, plan)?;
    }
    attend(device, q, q.dtype(), pages, plan, seen, group).map(Some)
}

/// The GPU of these queries, and a group of heads that its kernels have, if they take them.
pub(super) fn taken<'a>(
    q: &'a Tensor,
    pages: &Pages,
    plan: &Plan,
) -> Result<Option<(&'a CudaDevice, usize)>> {
    let (_, heads, size) = q.dims3()?;
    let shared = heads / pages.kv_heads;
    let group = GROUPS.into_iter().find(|group| shared <= *group);
    // Prompts attend with f16 operands, too imprecise for f32 pages.
    let prompts_fit = pages.stored != KvDtype::F32 && super::native::takes_heads_of(size);
    let fits =
        size <= MOST_SIZE && size.is_multiple_of(8) && (plan.prompts.is_empty() || prompts_fit);
    let device = device_for(Operation::PagedAttention, q).filter(|_| fits);
    Ok(device.zip(group))
}

/// The queries' attention to pages that have their keys, as this type.
pub(super) fn attend(
    device: &CudaDevice,
    q: &Tensor,
    wanted: DType,
    pages: &Pages,
    plan: &Plan,
    seen: &AttentionScope<'_>,
    group: usize,
) -> Result<Tensor> {
    let (Some(single), true) = (&plan.single, plan.prompts.is_empty()) else {
        return attend_with_prompts(device, q, wanted, pages, plan, seen, group);
    };
    of_type!(
        wanted,
        attend_single_only(device, &floats(q)?, pages, plan, single, seen, group)
    )
}

fn attend_single_only<R: WithDType + CudaDType + DeviceRepr>(
    device: &CudaDevice,
    q: &Tensor,
    pages: &Pages,
    plan: &Plan,
    single: &SingleTokens,
    seen: &AttentionScope<'_>,
    group: usize,
) -> Result<Tensor> {
    let mut result = room::<R>(device, q.elem_count())?;
    attend_single(device, q, pages, plan, single, seen, group, &mut result)?;
    Ok(tensor(result, device, q.dims()))
}

fn attend_with_prompts(
    device: &CudaDevice,
    q: &Tensor,
    wanted: DType,
    pages: &Pages,
    plan: &Plan,
    seen: &AttentionScope<'_>,
    group: usize,
) -> Result<Tensor> {
    let options = seen.options;
    let (tokens, heads, size) = q.dims3()?;
    let mut result = room::<f32>(device, tokens * heads * size)?;
    if let Some(single) = &plan.single {
        attend_single(
            device,
            &floats(q)?,
            pages,
            plan,
            single,
            seen,
            group,
            &mut result,
        )?;
    }
    for prompt in &plan.prompts {
        let total = context(&prompt.span);
        let gathered = |part| gather(device, pages, part, &prompt.pages, total);
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
                &gathered(PagePart::Keys)?,
                &gathered(PagePart::Values)?,
            ],
            ScoreShape {
                scale: options.scale,
                cap: options.softcap,
                chunk: chunk_of(options),
                sinks: seen.sinks,
            },
            mask,
            &mut result,
            prompt.first * heads * size,
        )?;
    }
    tensor(result, device, q.dims()).to_dtype(wanted)
}

/// Tokens of a chunk, 0 without chunks.
fn chunk_of(options: AttentionOptions) -> usize {
    match options.reach {
        AttentionReach::Chunk(tokens) => tokens,
        AttentionReach::Past | AttentionReach::Sequence => 0,
    }
}

fn write(device: &CudaDevice, k: &Tensor, v: &Tensor, pages: &Pages, plan: &Plan) -> Result<()> {
    if let Some(scales) = &pages.scales {
        return write_blocks(device, [&floats(k)?, &floats(v)?], pages, scales, plan);
    }
    let dtype = pages.keys.dtype();
    let (k, v) = (
        k.to_dtype(dtype)?.contiguous()?,
        v.to_dtype(dtype)?.contiguous()?,
    );
    of_type!(dtype, write_as(device, &k, &v, pages, plan))
}

pub(super) fn check_rows(k: &Tensor, v: &Tensor, pages: &Pages, rows: usize) -> Result<()> {
    if k.elem_count() != rows * pages.kv_heads * pages.head_dim || k.dims() != v.dims() {
        bail!(
            "keys of shape {:?} do not fit {rows} rows of the pages",
            k.dims()
        );
    }
    Ok(())
}

/// Writes new keys and values to eight-bit pages.
fn write_blocks(
    device: &CudaDevice,
    [k, v]: [&Tensor; 2],
    pages: &Pages,
    [key_scales, value_scales]: &[Tensor; 2],
    plan: &Plan,
) -> Result<()> {
    let rows = plan.slots.elem_count();
    check_rows(k, v, pages, rows)?;
    let each = pages.kv_heads * pages.head_dim / KvDtype::BLOCK;
    let config = blocks(rows * each * KvDtype::BLOCK, THREADS)?;
    let (k, v, slots) = (
        DeviceOperand::of(k)?,
        DeviceOperand::of(v)?,
        DeviceOperand::of(&plan.slots)?,
    );
    let (keys, values) = (
        DeviceOperand::of(&pages.keys)?,
        DeviceOperand::of(&pages.values)?,
    );
    let (key_scales, value_scales) = (
        DeviceOperand::of(key_scales)?,
        DeviceOperand::of(value_scales)?,
    );
    launch!(
        device,
        "write_blocks",
        config,
        &k.view::<f32>()?,
        &v.view::<f32>()?,
        &slots.view::<u32>()?,
        &keys.view::<u8>()?,
        &values.view::<u8>()?,
        &key_scales.view::<f16>()?,
        &value_scales.view::<f16>()?,
        &(rows as u32),
        &(each as u32),
    );
    Ok(())
}

/// The keys or values of the first tokens of pages, f16 `[1, tokens, heads, size]`.
fn gather(
    device: &CudaDevice,
    pages: &Pages,
    part: PagePart,
    ids: &Tensor,
    tokens: usize,
) -> Result<Tensor> {
    let width = pages.kv_heads * pages.head_dim;
    let count = tokens * width;
    let mut to = room::<f16>(device, count)?;
    let config = blocks(count / 8, THREADS)?;
    let (numbers, ids) = (
        DeviceOperand::of(pages.numbers(part))?,
        DeviceOperand::of(ids)?,
    );
    let (ids, most, wide) = (ids.view::<u32>()?, count as u64, width as u32);
    match (pages.stored, pages.scales_of(part)) {
        (_, Some(scales)) => {
            let scales = DeviceOperand::of(scales)?;
            launch!(
                device,
                "gather_q8_0",
                config,
                &numbers.view::<u8>()?,
                &scales.view::<f16>()?,
                &ids,
                &mut to,
                &most,
                &wide,
            );
        }
        (KvDtype::F16, None) => {
            let numbers = numbers.view::<f16>()?;
            launch!(
                device,
                "gather_f16",
                config,
                &numbers,
                &ids,
                &mut to,
                &most,
                &wide
            );
        }
        (KvDtype::Bf16, None) => {
            let numbers = numbers.view::<bf16>()?;
            launch!(
                device,
                "gather_bf16",
                config,
                &numbers,
                &ids,
                &mut to,
                &most,
                &wide
            );
        }
        (stored @ (KvDtype::F32 | KvDtype::Q8_0), None) => {
            bail!("prompts are not read from pages of {stored}")
        }
    }
    let shape = [1, tokens, pages.kv_heads, pages.head_dim];
    Ok(tensor(to, device, &shape))
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
    check_rows(k, v, pages, rows)?;
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
fn attend_single<R: WithDType + CudaDType + DeviceRepr>(
    device: &CudaDevice,
    q: &Tensor,
    pages: &Pages,
    plan: &Plan,
    single: &SingleTokens,
    seen: &AttentionScope<'_>,
    group: usize,
    result: &mut CudaSlice<R>,
) -> Result<()> {
    let (_, heads, size) = q.dims3()?;
    let options = seen.options;
    let items = single.rows.elem_count();
    let parts = single.longest.div_ceil(PART_KEYS);
    let (_, most_pages) = plan.page_table.dims2()?;
    let name = format!("attend_pages_{}_{group}", pages.stored.name());
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
    // Without sinks, `has_sinks` keeps the kernels from reading this operand.
    let sinks = DeviceOperand::of(seen.sinks.unwrap_or(q))?;
    let (sinks, has_sinks) = (sinks.view::<f32>()?, u32::from(seen.sinks.is_some()));
    let chunk = int(chunk_of(options));
    let stream = device.cuda_stream();
    let (into, written) = match parts {
        1 => result.device_ptr_mut(&stream),
        _ => parts_of.device_ptr_mut(&stream),
    };
    let as_number = result_number(R::DTYPE);
    // Kernels for every page type have the same operands after the pages.
    macro_rules! attend {
        ($($stored:expr),+) => {
            launch!(
                device,
                &name,
                config,
                &held.view::<f32>()?,
                $($stored,)+
                &rows.view::<u32>()?,
                &spans.view::<u32>()?,
                &positions.view::<u32>()?,
                &table.view::<u32>()?,
                &into,
                &mut sums,
                &int(heads),
                &int(pages.kv_heads),
                &int(size),
                &int(most_pages),
                &options.scale,
                &window,
                &cap,
                &chunk,
                &sinks,
                &has_sinks,
                &as_number,
            )
        };
    }
    match (pages.stored, &pages.scales) {
        (_, Some([key_scales, value_scales])) => {
            let (of_keys, of_values) = (
                DeviceOperand::of(key_scales)?,
                DeviceOperand::of(value_scales)?,
            );
            attend!(
                &keys.view::<u8>()?,
                &values.view::<u8>()?,
                &of_keys.view::<f16>()?,
                &of_values.view::<f16>()?
            );
        }
        (KvDtype::F32, None) => attend!(&keys.view::<f32>()?, &values.view::<f32>()?),
        (KvDtype::F16, None) => attend!(&keys.view::<f16>()?, &values.view::<f16>()?),
        (KvDtype::Bf16, None) => attend!(&keys.view::<bf16>()?, &values.view::<bf16>()?),
        (KvDtype::Q8_0, None) => bail!("pages of eight bits have scales"),
    }
    drop(written);
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
            &sinks,
            &has_sinks,
            &as_number,
        );
    }
    Ok(())
}
