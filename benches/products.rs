//! Products of activations with packed weights: time, share of the memory's bandwidth, and candle beside it.
//!
//! The shapes are those of Llama-3.2-1B. `cargo bench --bench products [FILTER]`.

#![expect(clippy::print_stdout, reason = "a bench prints its numbers")]

use std::borrow::Cow;
use std::hint::black_box;
use std::time::{Duration, Instant};

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{Device, Module, Result, Tensor};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use muster_kernels::PackedMatrix;

const ROWS: usize = 8192;
const COLS: usize = 2048;

/// So many matrices that none is found in a cache when its turn comes again.
const WORKING_SET_BYTES: usize = 500 << 20;

const DTYPES: [GgmlDType; 6] = [
    GgmlDType::Q8_0,
    GgmlDType::Q4K,
    GgmlDType::Q6K,
    GgmlDType::F16,
    GgmlDType::BF16,
    GgmlDType::F32,
];

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let bandwidth = read_bandwidth();
    println!("memory read bandwidth: {:.1} GB/s", bandwidth / 1e9);
    for dtype in DTYPES {
        bench_dtype(&mut criterion, dtype, bandwidth)?;
    }
    criterion.final_summary();
    Ok(())
}

fn bench_dtype(criterion: &mut Criterion, dtype: GgmlDType, bandwidth: f64) -> Result<()> {
    let bytes = stored_weights(dtype)?;
    let count = (WORKING_SET_BYTES / bytes.len()).max(2);
    let packed: Vec<_> = (0..count)
        .map(|_| PackedMatrix::pack(dtype, &bytes, ROWS, COLS))
        .collect::<Result<_>>()?;
    let candle: Vec<_> = (0..count)
        .map(|_| {
            let storage = QStorage::from_data(Cow::Borrowed(&bytes), &Device::Cpu, dtype)?;
            QMatMul::from_qtensor(QTensor::new(storage, (ROWS, COLS))?)
        })
        .collect::<Result<_>>()?;
    for m in [1, 8, 128] {
        let x = Tensor::randn(0f32, 1.0, (m, COLS), &Device::Cpu)?;
        let mut group = criterion.benchmark_group(format!("{dtype:?}"));
        group.throughput(Throughput::Elements((m * ROWS * COLS) as u64));
        let ours = best(&mut group, BenchmarkId::new("muster", m), count, |turn| {
            packed[turn].product(&x)
        });
        let theirs = best(&mut group, BenchmarkId::new("candle", m), count, |turn| {
            candle[turn].forward(&x)
        });
        group.finish();
        let rate = packed[0].bytes() as f64 / ours;
        println!(
            "{dtype:?} m={m}: best {:.0} us, {:.1} GB/s ({:.0} % of reading), {:.0} GMAC/s, {:.2} x candle",
            ours * 1e6,
            rate / 1e9,
            100.0 * rate / bandwidth,
            (m * ROWS * COLS) as f64 / ours / 1e9,
            theirs / ours
        );
    }
    Ok(())
}

/// The weights of one matrix: a few quantized rows over and over.
fn stored_weights(dtype: GgmlDType) -> Result<Vec<u8>> {
    const DISTINCT: usize = 64;
    let dense = Tensor::randn(0f32, 0.02, (DISTINCT, COLS), &Device::Cpu)?;
    let bytes = QTensor::quantize(&dense, dtype)?.data()?.into_owned();
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
