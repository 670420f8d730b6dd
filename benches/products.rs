//! Products of activations with packed weights: time, share of the memory's bandwidth, and candle beside it.
//!
//! The shapes are those of Llama-3.2-1B. `cargo bench --bench products [FILTER]`; as a test it makes few matrices.

#![expect(clippy::print_stdout, reason = "a bench prints its numbers")]

use std::borrow::Cow;
use std::hint::black_box;
use std::time::{Duration, Instant};

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{Device, Module, Result, Tensor};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use muster_kernels::{PackedMatrix, WeightType};

const ROWS: usize = 8192;
const COLS: usize = 2048;

/// So many matrices that none is found in a cache when its turn comes again.
const WORKING_SET_BYTES: usize = 500 << 20;

const TYPES: [WeightType; 11] = [
    WeightType::Ggml(GgmlDType::Q8_0),
    WeightType::Ggml(GgmlDType::Q4_0),
    WeightType::Ggml(GgmlDType::Q5_0),
    WeightType::Ggml(GgmlDType::Q5_1),
    WeightType::Ggml(GgmlDType::Q4K),
    WeightType::Ggml(GgmlDType::Q5K),
    WeightType::Ggml(GgmlDType::Q6K),
    WeightType::MxFp4,
    WeightType::Ggml(GgmlDType::F16),
    WeightType::Ggml(GgmlDType::BF16),
    WeightType::Ggml(GgmlDType::F32),
];

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let bandwidth = read_bandwidth();
    println!("memory read bandwidth: {:.1} GB/s", bandwidth / 1e9);
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    for stored in TYPES {
        let name = name(stored);
        // Matrices that no measurement wants are not made.
        if filter.as_ref().is_none_or(|filter| filter.contains(&name)) {
            bench_type(&mut criterion, stored, &name, bandwidth)?;
        }
    }
    criterion.final_summary();
    Ok(())
}

fn name(stored: WeightType) -> String {
    match stored {
        WeightType::Ggml(dtype) => format!("{dtype:?}"),
        WeightType::MxFp4 => "MXFP4".to_owned(),
    }
}

fn bench_type(
    criterion: &mut Criterion,
    stored: WeightType,
    name: &str,
    bandwidth: f64,
) -> Result<()> {
    let bytes = stored_weights(stored)?;
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let working_set = if is_measured { WORKING_SET_BYTES } else { 0 };
    let count = (working_set / bytes.len()).max(2);
    let packed: Vec<_> = (0..count)
        .map(|_| PackedMatrix::pack(stored, &bytes, ROWS, COLS))
        .collect::<Result<_>>()?;
    let candle: Vec<_> = match stored {
        WeightType::Ggml(dtype) => (0..count)
            .map(|_| {
                let storage = QStorage::from_data(Cow::Borrowed(&bytes), &Device::Cpu, dtype)?;
                QMatMul::from_qtensor(QTensor::new(storage, (ROWS, COLS))?)
            })
            .collect::<Result<_>>()?,
        WeightType::MxFp4 => Vec::new(),
    };
    for m in [1, 8, 16, 128] {
        let x = Tensor::randn(0f32, 1.0, (m, COLS), &Device::Cpu)?;
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements((m * ROWS * COLS) as u64));
        let ours = best(&mut group, BenchmarkId::new("muster", m), count, |turn| {
            packed[turn].product(&x)
        });
        let rate = packed[0].bytes() as f64 / ours;
        println!(
            "{name} m={m}: best {:.0} us, {:.1} GB/s ({:.0} % of reading), {:.0} GMAC/s",
            ours * 1e6,
            rate / 1e9,
            100.0 * rate / bandwidth,
            (m * ROWS * COLS) as f64 / ours / 1e9,
        );
        if !candle.is_empty() {
            let theirs = best(&mut group, BenchmarkId::new("candle", m), count, |turn| {
                candle[turn].forward(&x)
            });
            println!("{name} m={m}: {:.2} x candle", theirs / ours);
        }
        group.finish();
    }
    Ok(())
}

/// The weights of one matrix: a few rows over and over.
fn stored_weights(stored: WeightType) -> Result<Vec<u8>> {
    const DISTINCT: usize = 64;
    let bytes = match stored {
        WeightType::Ggml(dtype) => {
            let dense = Tensor::randn(0f32, 0.02, (DISTINCT, COLS), &Device::Cpu)?;
            QTensor::quantize(&dense, dtype)?.data()?.into_owned()
        }
        WeightType::MxFp4 => {
            let blocks = DISTINCT * COLS / stored.block_size();
            // An exponent of 2^-7, then codes.
            let block = |at: usize| {
                [120]
                    .into_iter()
                    .chain((0..16).map(move |i| (at + i) as u8))
            };
            (0..blocks).flat_map(block).collect()
        }
    };
    Ok(bytes.repeat(ROWS / DISTINCT))
}

/// Benches `product` on each of `count` matrices in turn; the best time in seconds.
fn best(
    group: &mut BenchmarkGroup<WallTime>,
    id: BenchmarkId,
    count: usize,
    product: impl Fn(usize) -> Result<Tensor>,
) -> f64 {
    let (mut best, mut turn) = (f64::INFINITY, 0);
    group.bench_function(id, |bencher| {
        bencher.iter(|| {
            turn = (turn + 1) % count;
            let start = Instant::now();
            let result = product(turn);
            best = best.min(start.elapsed().as_secs_f64());
            black_box(result)
        });
    });
    best
}

/// Bytes per second of the fastest of several passes over memory with all threads.
fn read_bandwidth() -> f64 {
    let words = vec![1u64; WORKING_SET_BYTES / 8];
    let passes = (0..8).map(|_| {
        let start = Instant::now();
        let pool = candle_core::utils::barrier_pool();
        pool.execute_chunked(words.len() / 4096, |range| {
            let part = &words[range.start * 4096..range.end * 4096];
            black_box(part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        });
        start.elapsed().as_secs_f64()
    });
    let best = passes.fold(f64::INFINITY, f64::min);
    WORKING_SET_BYTES as f64 / best
}
