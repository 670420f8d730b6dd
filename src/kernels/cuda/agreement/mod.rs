//! Compares kernels of a GPU with the CPU's, and times them; run on the machine that `./test gpu` prepares.

#![expect(
    clippy::print_stdout,
    reason = "figures are what these tests are run for"
)]

mod blocks;
mod layers;
mod rotary;
mod transfer;

use std::time::Instant;

use candle_core::{DType, Device, Tensor};

use crate::{
    AttentionOptions, AttentionPlan, AttentionReach, Axis, Convolution, Edges, KvDtype, LayerPages,
    Mask, RopeStyle, RopeTable, Span, dense_attention, dense_product, group_norm, layer_norm,
    paged_attention, rotate,
};

fn gpu() -> Device {
    // A kernel that fails must be seen here, and not be replaced.
    super::text::open_untried(0).unwrap()
}

/// Whether the GPU is that of `cuda/emulator`, which is about a million times slower than hardware.
fn is_emulated() -> bool {
    std::env::var_os("EMULATED").is_some()
}

fn random(shape: &[usize]) -> Tensor {
    Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap()
}

/// The norm of the difference, relative to the expected one.
fn gap(found: &Tensor, wanted: &Tensor) -> f32 {
    assert_eq!(found.dims(), wanted.dims());
    let wide = |x: &Tensor| {
        let x = x.to_device(&Device::Cpu).unwrap();
        x.to_dtype(DType::F64).unwrap()
    };
    let (found, wanted) = (wide(found), wide(wanted));
    let length = |x: &Tensor| {
        let sum = x.sqr().unwrap().sum_all().unwrap();
        sum.to_scalar::<f64>().unwrap().sqrt()
    };
    (length(&(found - &wanted).unwrap()) / length(&wanted)) as f32
}

/// Operands of f32 agree to their last bits; narrow ones are rounded on both sides.
fn tolerance(dtype: DType) -> f32 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        _ => 1e-2,
    }
}

/// Median seconds of a run.
fn seconds(gpu: &Device, work: impl Fn() -> Tensor) -> f64 {
    let mut all: Vec<f64> = (0..12)
        .map(|_| {
            gpu.synchronize().unwrap();
            let start = Instant::now();
            let found = work();
            gpu.synchronize().unwrap();
            drop(found);
            start.elapsed().as_secs_f64()
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn a_sound_gpu_has_no_faults() {
    crate::open_gpu(0).unwrap();
    let faults = crate::gpu_faults();
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn convolutions_agree() {
    let gpu = gpu();
    let edges = [
        Edges::Zeros,
        Edges::Circular,
        Edges::Replicate,
        Edges::Reflect,
    ];
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (edges, groups, stride, is_transposed) in [
            (edges[0], 1, 1, false),
            (edges[1], 1, 2, false),
            (edges[2], 2, 1, false),
            (edges[3], 4, 1, false),
            (edges[0], 1, 2, true),
            (edges[0], 4, 2, true),
        ] {
            let axis = Axis {
                stride,
                padding: [2, 1],
                edges,
                ..Axis::default()
            };
            let weight = match is_transposed {
                false => random(&[24, 16 / groups, 3, 3]),
                true => random(&[16, 24 / groups, 3, 3]),
            };
            let weight = weight.to_dtype(dtype).unwrap();
            let (x, bias) = (random(&[2, 13, 18, 16]), random(&[24]));
            let of = |device: &Device| {
                let (weight, bias) = (weight.to_device(device), bias.to_device(device));
                let make = match is_transposed {
                    false => Convolution::new,
                    true => Convolution::transposed,
                };
                let made = make(&weight.unwrap(), Some(&bias.unwrap()), [axis; 2], groups);
                made.unwrap().apply(&x.to_device(device).unwrap()).unwrap()
            };
            let gap = gap(&of(&gpu), &of(&Device::Cpu));
            assert!(gap < tolerance(dtype), "{dtype:?} {axis:?} {groups}: {gap}");
        }
    }
}

#[test]
fn products_agree() {
    let gpu = gpu();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let (x, weight) = (random(&[2, 37, 72]), random(&[53, 72]));
        let weight = weight.to_dtype(dtype).unwrap();
        let wanted = x.broadcast_matmul(&weight.to_dtype(DType::F32).unwrap().t().unwrap());
        let found = dense_product(
            &x.to_device(&gpu).unwrap(),
            &weight.to_device(&gpu).unwrap(),
        );
        let gap = gap(&found.unwrap(), &wanted.unwrap());
        assert!(gap < tolerance(dtype), "{dtype:?}: {gap}");
    }
}

#[test]
fn large_numbers_stay_numbers_as_halves() {
    let gpu = gpu();
    let x = Tensor::new(&[[1e6f32, -1e6, 1.0]], &gpu).unwrap();
    let weight = Tensor::new(&[[1f32, 0.0, 0.0], [0.0, 1.0, 1.0]], &gpu).unwrap();
    let weight = weight.to_dtype(DType::F16).unwrap();
    let found = dense_product(&x, &weight)
        .unwrap()
        .to_vec2::<f32>()
        .unwrap();
    assert_eq!(found, [[65504.0, -65503.0]]);
    let x = Tensor::new(&[[f32::NAN, 0.0, 1.0]], &gpu).unwrap();
    let found = dense_product(&x, &weight)
        .unwrap()
        .to_vec2::<f32>()
        .unwrap();
    assert!(found[0][0].is_nan());
}

/// The norm in f64 with candle's operations: sums in f32 on a CPU are as inexact as a GPU's.
fn normed(x: &Tensor, groups: usize, affine: Option<[&Tensor; 2]>) -> Tensor {
    let (batch, channels) = (x.dims()[0], x.dims()[x.rank() - 1]);
    let wide = |x: &Tensor| x.to_dtype(DType::F64).unwrap();
    let grouped = wide(x)
        .reshape((batch, (), groups, channels / groups))
        .unwrap();
    let mean_of = |x: &Tensor| x.mean_keepdim(1).unwrap().mean_keepdim(3).unwrap();
    let centered = grouped.broadcast_sub(&mean_of(&grouped)).unwrap();
    let variance = (mean_of(&centered.sqr().unwrap()) + 1e-6).unwrap();
    let normed = centered.broadcast_div(&variance.sqrt().unwrap()).unwrap();
    let normed = normed.reshape(x.dims()).unwrap();
    match affine {
        Some([weight, bias]) => {
            let scaled = normed.broadcast_mul(&wide(weight)).unwrap();
            scaled.broadcast_add(&wide(bias)).unwrap()
        }
        None => normed,
    }
}

#[test]
fn norms_agree() {
    let gpu = gpu();
    for (shape, groups) in [
        (vec![2, 9, 7, 64], 32),
        (vec![1, 70, 50, 320], 32),
        (vec![3, 5, 12], 4),
        (vec![2, 33, 2560], 32),
    ] {
        let channels = shape[shape.len() - 1];
        // Far from zero, where careless sums lose their digits.
        let x = (random(&shape) + 30.0).unwrap();
        let (weight, bias) = (random(&[channels]), random(&[channels]));
        let on = |x: &Tensor| x.to_device(&gpu).unwrap();
        for affine in [Some([&weight, &bias]), None] {
            let there = affine.map(|both| both.map(on));
            let [weight, bias] = match &there {
                Some([weight, bias]) => [Some(weight), Some(bias)],
                None => [None, None],
            };
            let found = group_norm(&on(&x), groups, weight, bias, 1e-6).unwrap();
            let off = gap(&found, &normed(&x, groups, affine));
            assert!(off < 1e-5, "{shape:?} in groups: {off}");
            let found = layer_norm(&on(&x), weight, bias, 1e-6).unwrap();
            let rows = x.reshape(((), channels)).unwrap();
            let wanted = normed(&rows, 1, affine).reshape(x.dims()).unwrap();
            let off = gap(&found, &wanted);
            assert!(off < 1e-5, "{shape:?} in layers: {off}");
        }
    }
}

#[test]
fn what_lies_between_products_agrees() {
    let gpu = gpu();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let rounded = |shape: &[usize]| {
            let x = random(shape).to_dtype(dtype).unwrap();
            (x.to_dtype(DType::F32).unwrap(), x.to_device(&gpu).unwrap())
        };
        let tolerance = if dtype == DType::F32 {
            1e-5
        } else {
            tolerance(dtype)
        };
        let ((x, x_there), (y, y_there)) = (rounded(&[3, 5, 192]), rounded(&[3, 5, 192]));
        let (weight, weight_there) = rounded(&[192]);
        let (sum, normed) = crate::add_rms_norm(&x, &y, &weight, 1e-5).unwrap();
        let found = crate::add_rms_norm(&x_there, &y_there, &weight_there, 1e-5).unwrap();
        assert!(gap(&found.0, &sum) < tolerance && gap(&found.1, &normed) < tolerance);
        for function in [crate::silu_mul, crate::gelu_mul, crate::gelu_erf_mul] {
            let (wanted, found) = (function(&x, &y).unwrap(), function(&x_there, &y_there));
            assert!(gap(&found.unwrap(), &wanted) < tolerance, "{dtype:?}");
        }
        for style in [RopeStyle::Halves, RopeStyle::Pairs] {
            let table = |device: &Device| {
                let frequencies = (0..16).map(|i| 1e4f64.powf(f64::from(i) / -16.0));
                RopeTable::new(frequencies.collect(), 999, style, 1.0, device).unwrap()
            };
            let ((x, there), positions) = (rounded(&[4, 3, 48]), [7u32, 0, 998, 12]);
            let turned = |x: &Tensor, device: &Device| {
                let positions = Tensor::new(&positions, device).unwrap();
                rotate(x, &table(device), &positions).unwrap()
            };
            let wanted = turned(&x, &Device::Cpu);
            assert!(
                gap(&turned(&there, &gpu), &wanted) < tolerance,
                "{dtype:?} {style:?}"
            );
        }
    }
}

#[test]
fn text_in_pages_agrees() {
    let gpu = gpu();
    let span = |new_tokens, past_tokens, pages: std::ops::Range<u32>| Span {
        new_tokens,
        past_tokens,
        pages: pages.collect(),
    };
    let shapes: &[(usize, usize, usize)] = match is_emulated() {
        true => &[(2, 2, 64), (3, 1, 96), (8, 1, 128), (4, 2, 40), (2, 1, 256)],
        false => &[
            (8, 8, 64),
            (12, 4, 96),
            (8, 1, 128),
            (32, 8, 64),
            (4, 2, 40),
            (8, 4, 256),
        ],
    };
    let long = if is_emulated() { 270 } else { 700 };
    for (at, &(heads, kv_heads, size)) in shapes.iter().enumerate() {
        let all = [KvDtype::F16, KvDtype::Bf16, KvDtype::F32, KvDtype::Q8_0];
        for (which, stored) in all.into_iter().enumerate() {
            if !stored.takes(size) {
                continue;
            }
            // With prompts, f32 pages fall back to candle's operations.
            if is_emulated() && stored != KvDtype::Q8_0 && (at + which) % 3 != 0 {
                continue;
            }
            for (window, softcap) in [(None, None), (Some(70), None), (None, Some(5.0))] {
                let options = AttentionOptions {
                    scale: 0.2,
                    window,
                    softcap,
                    reach: AttentionReach::Past,
                };
                let open =
                    |device: &Device| LayerPages::new(80, kv_heads, size, stored, device).unwrap();
                let (mut here, mut there) = (open(&Device::Cpu), open(&gpu));
                // Prompts first, then single tokens batched with a prompt's next chunk, some with a context of several
                // partitions.
                let steps = [
                    vec![
                        span(long, 0, 0..23),
                        span(3, 0, 23..24),
                        span(40, 0, 24..28),
                    ],
                    vec![
                        span(1, long, 0..23),
                        span(1, 3, 23..24),
                        span(50, 40, 24..28),
                    ],
                    vec![span(2, long + 1, 0..23), span(1, 4, 23..24)],
                ];
                for spans in steps {
                    let rows = spans.iter().map(|span| span.new_tokens).sum::<usize>();
                    let [q, k, v] =
                        [heads, kv_heads, kv_heads].map(|heads| random(&[rows, heads, size]));
                    let run = |pages: &mut LayerPages, device: &Device| {
                        let plan = AttentionPlan::new(spans.clone(), device).unwrap();
                        let on = |x: &Tensor| x.to_device(device).unwrap();
                        paged_attention(&on(&q), &on(&k), &on(&v), pages, &plan, options).unwrap()
                    };
                    let (wanted, found) = (run(&mut here, &Device::Cpu), run(&mut there, &gpu));
                    let gap = gap(&found, &wanted);
                    assert!(
                        gap < 4e-3,
                        "{heads} {kv_heads} {size} {stored} {options:?} {spans:?}: {gap}"
                    );
                }
            }
        }
    }
}

#[test]
fn attention_agrees() {
    let gpu = gpu();
    let band = Mask::Band {
        before: 100,
        after: 9,
    };
    let shapes: &[(usize, usize, usize, usize)] = match is_emulated() {
        true => &[
            (32, 1, 77, 4),
            (40, 150, 300, 4),
            (64, 130, 200, 2),
            (80, 64, 130, 4),
            (96, 100, 190, 1),
            (128, 70, 233, 2),
            (160, 50, 99, 4),
            (256, 65, 140, 2),
        ],
        false => &[
            (32, 333, 1000, 4),
            (40, 700, 700, 4),
            (64, 1030, 1100, 2),
            (80, 512, 512, 4),
            (96, 512, 700, 1),
            (128, 640, 801, 2),
            (160, 500, 999, 4),
            (256, 333, 700, 2),
        ],
    };
    for &(size, queries, keys, kv_heads) in shapes {
        for mask in [Mask::None, Mask::Causal, band] {
            let q = random(&[2, queries, 4, size]);
            let (k, v) = (
                random(&[2, keys, kv_heads, size]),
                random(&[2, keys, kv_heads, size]),
            );
            let scale = (size as f32).powf(-0.5);
            let wanted = dense_attention(&q, &k, &v, scale, mask).unwrap();
            let on = |x: &Tensor| x.to_device(&gpu).unwrap();
            let found = super::attention(&on(&q), &on(&k), &on(&v), scale, mask).unwrap();
            let gap = gap(&found.unwrap(), &wanted);
            assert!(gap < 3e-3, "{size} {mask:?}: {gap}");
            let few = |x: &Tensor| on(&x.narrow(1, 0, x.dims()[1].min(50)).unwrap());
            let written = dense_attention(&few(&q), &few(&k), &few(&v), scale, mask);
            assert_eq!(written.unwrap().dims(), [2, queries.min(50), 4, size]);
        }
    }
}

/// Prints timings without asserting any, since they depend on the GPU.
#[test]
fn figures() {
    if is_emulated() {
        return;
    }
    let gpu = gpu();
    let on = |shape: &[usize], dtype: DType| {
        let x = random(shape).to_device(&gpu).unwrap();
        x.to_dtype(dtype).unwrap()
    };
    for (side, channels) in [(64, 320), (32, 640), (16, 1280), (512, 128)] {
        let axis = Axis {
            padding: [1, 1],
            ..Axis::default()
        };
        for dtype in [DType::F16, DType::F32] {
            let weight = on(&[channels, channels, 3, 3], dtype);
            let bias = on(&[channels], DType::F32);
            let layer = Convolution::new(&weight, Some(&bias), [axis; 2], 1).unwrap();
            let x = on(&[2, side, side, channels], DType::F32);
            let time = seconds(&gpu, || layer.apply(&x).unwrap());
            let work = 2.0 * 2.0 * 9.0 * (side * side * channels * channels) as f64;
            println!(
                "convolution {side}x{side}x{channels} {dtype:?}: {:.3} ms, {:.1} TFLOP/s",
                1e3 * time,
                work / time / 1e12
            );
        }
        let x = on(&[2, side, side, channels], DType::F32);
        let time = seconds(&gpu, || group_norm(&x, 32, None, None, 1e-6).unwrap());
        let bytes = 8.0 * x.elem_count() as f64;
        println!(
            "group norm {side}x{side}x{channels}: {:.3} ms, {:.2} TB/s",
            1e3 * time,
            bytes / time / 1e12
        );
    }
    for (tokens, heads, size) in [
        (4096, 8, 40),
        (1024, 8, 80),
        (4096, 10, 64),
        (8192, 12, 128),
    ] {
        let [q, k, v] = [(); 3].map(|()| on(&[2, tokens, heads, size], DType::F32));
        let time = seconds(&gpu, || {
            dense_attention(&q, &k, &v, 0.1, Mask::None).unwrap()
        });
        let work = 2.0 * 4.0 * (tokens * tokens * heads * size) as f64;
        println!(
            "attention {tokens} tokens, {heads} heads of {size}: {:.3} ms, {:.1} TFLOP/s",
            1e3 * time,
            work / time / 1e12
        );
    }
    for (rows, inputs, outputs) in [(8192, 320, 1280), (2048, 1280, 5120), (65536, 1536, 1536)] {
        let (x, weight) = (
            on(&[rows, inputs], DType::F32),
            on(&[outputs, inputs], DType::F16),
        );
        let time = seconds(&gpu, || dense_product(&x, &weight).unwrap());
        let work = 2.0 * (rows * inputs * outputs) as f64;
        println!(
            "product {rows}x{inputs}x{outputs}: {:.3} ms, {:.1} TFLOP/s",
            1e3 * time,
            work / time / 1e12
        );
    }
}
