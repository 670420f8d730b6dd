//! Products of few rows with matrices in the blocks of GGUF on NVIDIA GPUs: `block_products.cuh`.

#![expect(unsafe_code, reason = "kernels are launched with raw arguments")]

use candle_core::cuda_backend::cudarc::driver::{
    CudaSlice, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg,
};
use candle_core::cuda_backend::{CudaDType, WrapErr};
use candle_core::quantized::GgmlDType;
use candle_core::{CudaDevice, DType, Result, Tensor, bail};
use half::{bf16, f16};

use super::launch::{
    DeviceOperand, THREADS, WARP, blocks, device_for, function, launch, result_number, room, tensor,
};
use super::text::{gate_number, of_type, type_name};
use super::trial::Operation;
use crate::{BlockMatrix, GateKind};

/// The most rows of activations.
const MOST_ROWS: usize = 8;
/// Matrices of a launch.
const MOST_MATRICES: usize = 4;
/// Numbers of activations with the same scale.
const ROUNDED: usize = 32;
/// Threads of a block, a warp for each pair of rows of a matrix. One row of activations goes to warps of single rows.
const PRODUCT_THREADS: u32 = 128;
const ONE_ROW_THREADS: u32 = 256;
/// `block_products.cuh: kept_at`
const KEPT_TOGETHER: usize = 64;
/// The longest row that a kernel rounds.
const MOST_COLUMNS: usize = 16_384;

/// `block_products.cuh: BlockMatrices`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct BlockMatrices {
    weights: [u64; MOST_MATRICES],
    rows: [u32; MOST_MATRICES],
    ends: [u32; MOST_MATRICES],
    results: [u64; MOST_MATRICES],
    count: u32,
}

// SAFETY: the layout is that of the kernels' parameter.
unsafe impl DeviceRepr for BlockMatrices {}

/// The rows of a product.
struct ProductRows<'a> {
    device: &'a CudaDevice,
    given: &'a Tensor,
    /// In eight bits. `None` for one row, which the kernel rounds.
    rounded: Option<RoundedRows>,
    rows: usize,
    columns: usize,
}

struct RoundedRows {
    numbers: CudaSlice<u8>,
    scales: CudaSlice<f32>,
}

/// The products of `x [t, cols]` with each matrix. `None` off GPUs, for many rows and for other matrices than the
/// kernels take.
pub fn few_rows(matrices: &[&BlockMatrix], x: &Tensor) -> Result<Option<Vec<Tensor>>> {
    let Some(device) = device_for(Operation::BlockProduct, x) else {
        return Ok(None);
    };
    if !takes(matrices, x)? {
        return Ok(None);
    }
    let x = x.contiguous()?;
    of_type!(x.dtype(), few_rows_as(device, matrices, &x)).map(Some)
}

/// See [`BlockMatrix::gated`].
pub fn few_gated_rows(
    matrices: [&BlockMatrix; 2],
    x: &Tensor,
    activation: GateKind,
) -> Result<Option<Tensor>> {
    let Some(device) = device_for(Operation::BlockProduct, x) else {
        return Ok(None);
    };
    let [gate, up] = matrices;
    let are_alike = gate.dtype() == up.dtype() && gate.shape()? == up.shape()?;
    if !are_alike || !takes(&matrices, x)? {
        return Ok(None);
    }
    let x = x.contiguous()?;
    of_type!(x.dtype(), gated_as(device, matrices, &x, activation)).map(Some)
}

fn takes(matrices: &[&BlockMatrix], x: &Tensor) -> Result<bool> {
    if x.rank() != 2 || type_name(x.dtype()).is_none() {
        return Ok(false);
    }
    let (rows, columns) = x.dims2()?;
    for matrix in matrices {
        let (_, inputs) = matrix.shape()?;
        if block_name(matrix.dtype()).is_none() || inputs != columns {
            return Ok(false);
        }
    }
    Ok((1..=MOST_ROWS).contains(&rows) && columns.is_multiple_of(ROUNDED) && !matrices.is_empty())
}

/// The name of a format in `block_products.cuh`.
fn block_name(dtype: GgmlDType) -> Option<&'static str> {
    Some(match dtype {
        GgmlDType::Q4_0 => "q4_0",
        GgmlDType::Q4_1 => "q4_1",
        GgmlDType::Q5_0 => "q5_0",
        GgmlDType::Q5_1 => "q5_1",
        GgmlDType::Q8_0 => "q8_0",
        GgmlDType::Q2K => "q2_k",
        GgmlDType::Q3K => "q3_k",
        GgmlDType::Q4K => "q4_k",
        GgmlDType::Q5K => "q5_k",
        GgmlDType::Q6K => "q6_k",
        _ => return None,
    })
}

fn few_rows_as<T: CudaDType + DeviceRepr>(
    device: &CudaDevice,
    matrices: &[&BlockMatrix],
    x: &Tensor,
) -> Result<Vec<Tensor>> {
    let rows = ProductRows::of::<T>(device, x)?;
    let outputs = matrices.iter().map(|matrix| Ok(matrix.shape()?.0));
    let outputs = outputs.collect::<Result<Vec<_>>>()?;
    let result = room::<T>(device, rows.rows * outputs.iter().sum::<usize>())?;
    let stream = device.cuda_stream();
    let (address, guard) = result.device_ptr(&stream);
    let mut starts = Vec::with_capacity(outputs.len());
    let mut all = 0;
    for count in &outputs {
        starts.push(all);
        all += rows.rows * count;
    }
    let mut left: Vec<usize> = (0..matrices.len()).collect();
    while let Some(&first) = left.first() {
        let dtype = matrices[first].dtype();
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for at in left {
            let is_own = matrices[at].dtype() == dtype && own.len() < MOST_MATRICES;
            if is_own { &mut own } else { &mut others }.push(at);
        }
        let of_launch = own.iter().map(|&at| {
            let into = address + (starts[at] * size_of::<T>()) as u64;
            (matrices[at], into)
        });
        rows.launch::<T>(&of_launch.collect::<Vec<_>>(), None)?;
        left = others;
    }
    drop(guard);
    let result = tensor(result, device, &[all]);
    let parts = starts.iter().zip(&outputs).map(|(start, count)| {
        let part = result.narrow(0, *start, rows.rows * count)?;
        part.reshape((rows.rows, *count))
    });
    parts.collect()
}

fn gated_as<T: CudaDType + DeviceRepr>(
    device: &CudaDevice,
    [gate, up]: [&BlockMatrix; 2],
    x: &Tensor,
    activation: GateKind,
) -> Result<Tensor> {
    let rows = ProductRows::of::<T>(device, x)?;
    let (outputs, _) = gate.shape()?;
    let result = room::<T>(device, rows.rows * outputs)?;
    let stream = device.cuda_stream();
    let (address, guard) = result.device_ptr(&stream);
    rows.launch::<T>(&[(gate, address), (up, address)], Some(activation))?;
    drop(guard);
    Ok(tensor(result, device, &[rows.rows, outputs]))
}

impl<'a> ProductRows<'a> {
    fn of<T: CudaDType + DeviceRepr>(device: &'a CudaDevice, x: &'a Tensor) -> Result<Self> {
        let (rows, columns) = x.dims2()?;
        let rounded = match rows == 1 && columns <= MOST_COLUMNS {
            true => None,
            false => Some(RoundedRows::of::<T>(device, x)?),
        };
        Ok(Self {
            device,
            given: x,
            rounded,
            rows,
            columns,
        })
    }

    /// Products with matrices of one type, each into an address. With an activation the first matrix has the gates of
    /// the second.
    fn launch<T: CudaDType + DeviceRepr>(
        &self,
        matrices: &[(&BlockMatrix, u64)],
        activation: Option<GateKind>,
    ) -> Result<()> {
        let Some(&(first, _)) = matrices.first() else {
            bail!("a launch of products has a matrix at least");
        };
        let (each, threads) = match self.rounded {
            None => (1, ONE_ROW_THREADS),
            Some(_) => (2, PRODUCT_THREADS),
        };
        let mut operands = BlockMatrices {
            count: matrices.len() as u32,
            ..BlockMatrices::default()
        };
        let mut end = 0;
        for (at, (matrix, into)) in matrices.iter().enumerate() {
            let (rows, _) = matrix.shape()?;
            end += (rows as u32).div_ceil(each);
            operands.weights[at] = matrix.blocks().device_ptr()? as u64;
            operands.rows[at] = rows as u32;
            operands.ends[at] = end;
            operands.results[at] = *into;
        }
        let warps = match activation {
            Some(_) => operands.ends[0],
            None => end,
        };
        let config = LaunchConfig {
            grid_dim: (warps.div_ceil(threads / WARP), 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        let (name, columns) = (
            block_name(first.dtype()).unwrap_or_default(),
            self.columns as u32,
        );
        let as_number = result_number(self.given.dtype());
        let activation = activation.map_or(-1, gate_number);
        match &self.rounded {
            None => {
                let x = DeviceOperand::of(self.given)?;
                launch!(
                    self.device,
                    &format!("one_row_{name}"),
                    config,
                    &operands,
                    &x.view::<T>()?,
                    &as_number,
                    &columns,
                    &as_number,
                    &activation,
                );
            }
            Some(rounded) => {
                let most = self.rows.next_power_of_two().max(2);
                launch!(
                    self.device,
                    &format!("few_rows_{name}_{most}"),
                    config,
                    &operands,
                    &rounded.numbers,
                    &rounded.scales,
                    &(self.rows as u32),
                    &columns,
                    &as_number,
                    &activation,
                );
            }
        }
        Ok(())
    }
}

impl RoundedRows {
    fn of<T: CudaDType + DeviceRepr>(device: &CudaDevice, x: &Tensor) -> Result<Self> {
        let count = x.elem_count() / ROUNDED;
        let mut numbers = room::<u8>(device, x.elem_count().next_multiple_of(KEPT_TOGETHER))?;
        let mut scales = room::<f32>(device, 2 * count)?;
        let name = format!("round_rows_{}", type_name(x.dtype()).unwrap_or_default());
        let config = blocks(count * WARP as usize, THREADS)?;
        let held = DeviceOperand::of(x)?;
        launch!(
            device,
            &name,
            config,
            &held.view::<T>()?,
            &mut numbers,
            &mut scales,
            &(count as u32),
        );
        Ok(Self { numbers, scales })
    }
}
