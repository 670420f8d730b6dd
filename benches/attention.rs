//! Attention over pages with the heads of Llama-3.2-1B: tokens of running streams, and prompts.
//!
//! `cargo bench --bench attention [FILTER]`.

use std::time::Duration;

use candle_core::{Device, Result, Tensor};
use criterion::{BenchmarkId, Criterion, Throughput};
use muster_kernels::{
    AttentionOptions, AttentionPlan, AttentionReach, KvDtype, LayerPages, PAGE_TOKENS, Span,
    paged_attention,
};

const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 64;

/// Streams, new tokens of each, and tokens each has already.
const STEPS: [(usize, usize, usize); 9] = [
    (1, 1, 1023),
    (8, 1, 1023),
    (1, 1, 8191),
    (8, 1, 4095),
    (8, 1, 8191),
    (1, 128, 0),
    (1, 512, 0),
    (1, 512, 1536),
    (1, 512, 7680),
];

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    for dtype in [KvDtype::F16, KvDtype::Q8_0, KvDtype::Bf16, KvDtype::F32] {
        for step in STEPS {
            bench_step(&mut criterion, dtype, step)?;
        }
    }
    criterion.final_summary();
    Ok(())
}

fn bench_step(
    criterion: &mut Criterion,
    dtype: KvDtype,
    (streams, new_tokens, past_tokens): (usize, usize, usize),
) -> Result<()> {
    let device = Device::Cpu;
    let count = (new_tokens + past_tokens).div_ceil(PAGE_TOKENS);
    let spans = (0..streams).map(|stream| Span {
        new_tokens,
        past_tokens,
        pages: (stream * count..(stream + 1) * count)
            .map(|page| page as u32)
            .collect(),
    });
    let plan = AttentionPlan::new(spans.collect(), &device)?;
    let mut pages = LayerPages::new(streams * count, KV_HEADS, HEAD_DIM, dtype, &device)?;
    let random = |heads| Tensor::randn(0f32, 1.0, (streams * new_tokens, heads, HEAD_DIM), &device);
    let (q, k, v) = (random(HEADS)?, random(KV_HEADS)?, random(KV_HEADS)?);
    let options = AttentionOptions {
        scale: 0.125,
        window: None,
        softcap: None,
        reach: AttentionReach::Past,
    };
    let mut group = criterion.benchmark_group(format!("attention {dtype}"));
    group.throughput(Throughput::Elements((streams * new_tokens) as u64));
    let id = BenchmarkId::from_parameter(format!("{streams} x {new_tokens} after {past_tokens}"));
    group.bench_function(id, |bencher| {
        bencher.iter(|| paged_attention(&q, &k, &v, &mut pages, &plan, options));
    });
    group.finish();
    Ok(())
}
