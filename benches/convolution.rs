//! Convolutions and dense products in the shapes of Stable Diffusion and Wan.
//!
//! `cargo bench --bench convolution [FILTER]`; `benches/compare-torch` runs them beside PyTorch. As a test it takes an eighth
//! of the channels.

use std::time::Duration;

use candle_core::{DType, Device, Result, Tensor};
use criterion::{Criterion, Throughput};
use muster_kernels::{Axis, Convolution};

/// Name, pictures, height and width, inputs, outputs, kernel.
type ConvolutionShape = (&'static str, usize, [usize; 2], usize, usize, usize);

const SHAPES: [ConvolutionShape; 4] = [
    ("conv 3x3 320 at 64", 2, [64, 64], 320, 320, 3),
    ("conv 3x3 1280 at 16", 2, [16, 16], 1280, 1280, 3),
    ("conv 3x3 512 at 128", 1, [128, 128], 512, 512, 3),
    ("product 4096x1536x8960", 1, [1, 4096], 1536, 8960, 1),
];

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let part = if is_measured { 1 } else { 8 };
    for dtype in [DType::F32, DType::BF16] {
        for (name, batch, [height, width], inputs, outputs, kernel) in SHAPES {
            let (inputs, outputs) = (inputs / part, outputs / part);
            let device = Device::Cpu;
            let x = Tensor::randn(0f32, 1.0, (batch, height, width, inputs), &device)?;
            let weight = Tensor::randn(0f32, 1.0, (outputs, inputs, kernel, kernel), &device)?;
            let axis = Axis {
                padding: [kernel / 2; 2],
                ..Axis::default()
            };
            let weight = weight.to_dtype(dtype)?;
            let convolution = Convolution::new(&weight, None, [axis; 2], 1)?;
            let operations = 2 * batch * height * width * inputs * outputs * kernel * kernel;
            let mut group = criterion.benchmark_group("convolution");
            group.throughput(Throughput::Elements(operations as u64));
            group.bench_function(format!("{name} {dtype:?}"), |bencher| {
                bencher.iter(|| convolution.apply(&x));
            });
            group.finish();
        }
    }
    criterion.final_summary();
    Ok(())
}
