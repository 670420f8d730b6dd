//! Limits of this machine, measured at run time: memory bandwidth and arithmetic speed.
//!
//! Text generation is bound by one of the two, so a measured speed means something only relative to them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Result, Tensor};
use serde::Serialize;

use crate::kernels::cpu::{sum, threads};
use crate::kernels::{Convolution, PackedMatrix};

/// The best of several runs, since disturbances only ever slow a machine down.
const TRIES: usize = 7;
/// Larger than any cache, small enough for a laptop.
const CPU_BYTES: usize = 1 << 30;
const CUDA_BYTES: usize = 4 << 30;
/// Side of the square matrices multiplied.
const CPU_SIDE: usize = 1536;
const CUDA_SIDE: usize = 8192;

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Limits {
    pub threads: usize,
    /// All threads reading a buffer larger than the caches; on a GPU a copy inside it, both ways counted.
    pub bytes_per_second: f64,
    /// Multiplications and additions of a large product: on a CPU the quicker of f32 and of 8-bit integers, on a GPU
    /// bf16. No network is faster.
    pub operations_per_second: f64,
}

impl Limits {
    pub fn measure(device: &Device) -> Result<Self> {
        let threads = threads();
        Ok(Self {
            threads,
            bytes_per_second: match device {
                Device::Cpu => reading_speed(threads),
                _ => copying_speed(device)?,
            },
            operations_per_second: match device {
                Device::Cpu => dense_speed()?.max(integer_speed()?),
                _ => multiplying_speed(device)?,
            },
        })
    }
}

fn reading_speed(threads: usize) -> f64 {
    // Not zeros: the kernel maps those to one shared page until they are written.
    let buffer = vec![1u64; CPU_BYTES / size_of::<u64>()];
    let quickest = quickest(|| {
        read_all(&buffer, threads);
        Ok(())
    });
    quickest.map_or(0.0, |time| CPU_BYTES as f64 / time.as_secs_f64())
}

fn read_all(buffer: &[u64], threads: usize) {
    let part = buffer.len().div_ceil(threads.max(1));
    std::thread::scope(|scope| {
        for part in buffer.chunks(part) {
            scope.spawn(move || black_box(sum(part)));
        }
    });
}

fn copying_speed(device: &Device) -> Result<f64> {
    // Both are there before: taking memory from the device would be measured along with the copy.
    let [from, to] = [(); 2].map(|()| Tensor::zeros(CUDA_BYTES, DType::U8, device));
    let (from, to) = (from?, to?);
    let time = quickest(|| {
        to.slice_set(&from, 0, 0)?;
        device.synchronize()
    })?;
    Ok(2.0 * CUDA_BYTES as f64 / time.as_secs_f64())
}

/// Products of f32, with the kernel of convolutions.
fn dense_speed() -> Result<f64> {
    let matrix = Tensor::ones((CPU_SIDE, CPU_SIDE), DType::F32, &Device::Cpu)?;
    let x = matrix.unsqueeze(0)?;
    let product = Convolution::product(&matrix, None)?;
    speed(CPU_SIDE, || product.apply(&x))
}

/// Products of 8-bit integers, with the kernel of quantized weights.
fn integer_speed() -> Result<f64> {
    let dtype = GgmlDType::Q8_0;
    let blocks = CPU_SIDE * CPU_SIDE / dtype.block_size();
    let weights = vec![0; blocks * dtype.type_size()];
    let matrix = PackedMatrix::pack(dtype, &weights, CPU_SIDE, CPU_SIDE)?;
    let x = Tensor::ones((CPU_SIDE, CPU_SIDE), DType::F32, &Device::Cpu)?;
    speed(CPU_SIDE, || matrix.product(&x))
}

fn multiplying_speed(device: &Device) -> Result<f64> {
    let matrix = Tensor::ones((CUDA_SIDE, CUDA_SIDE), DType::BF16, device)?;
    speed(CUDA_SIDE, || {
        let product = matrix.matmul(&matrix)?;
        device.synchronize()?;
        Ok(product)
    })
}

/// Multiplications and additions a second of a product of square matrices.
fn speed(side: usize, product: impl Fn() -> Result<Tensor>) -> Result<f64> {
    let time = quickest(|| {
        black_box(product()?);
        Ok(())
    })?;
    Ok(2.0 * (side as f64).powi(3) / time.as_secs_f64())
}

fn quickest(mut work: impl FnMut() -> Result<()>) -> Result<Duration> {
    work()?;
    let mut quickest = Duration::MAX;
    for _ in 0..TRIES {
        let began = Instant::now();
        work()?;
        quickest = quickest.min(began.elapsed());
    }
    Ok(quickest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_try_counts() {
        let mut tries = 0;
        quickest(|| {
            tries += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(tries, TRIES + 1);
    }
}
