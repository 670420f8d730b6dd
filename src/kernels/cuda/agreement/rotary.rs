//! Attention whose queries and keys are normed, turned and written in one launch.

use candle_core::{DType, Device, Tensor};

use super::{gap, gpu, random};
use crate::{
    AttentionOptions, AttentionPlan, AttentionReach, HeadNorm, KvDtype, LayerPages, RopeStyle,
    RopeTable, RotaryHeads, Span, rotary_attention,
};

struct RotaryCase {
    stored: KvDtype,
    dtype: DType,
    style: RopeStyle,
    /// Rotated pairs of a head of [`SIZE`]; 0 without a rotation.
    half: usize,
    /// Whether queries and keys are normed.
    norms: [bool; 2],
}

const SIZE: usize = 64;

#[test]
fn rotary_attention_agrees() {
    let gpu = gpu();
    let (halves, pairs) = (RopeStyle::Halves, RopeStyle::Pairs);
    let case = |stored, dtype, style, half, norms| RotaryCase {
        stored,
        dtype,
        style,
        half,
        norms,
    };
    for case in [
        case(KvDtype::F32, DType::F32, halves, 32, [false, false]),
        case(KvDtype::F16, DType::F32, pairs, 32, [true, true]),
        case(KvDtype::F16, DType::F16, halves, 10, [true, false]),
        case(KvDtype::Bf16, DType::BF16, halves, 32, [true, true]),
        case(KvDtype::F32, DType::BF16, pairs, 16, [false, false]),
        case(KvDtype::Bf16, DType::F32, halves, 0, [false, true]),
        case(KvDtype::Q8_0, DType::F32, halves, 32, [true, true]),
    ] {
        let gap = largest_gap(&case, &gpu);
        let most = match (case.dtype, case.stored) {
            (DType::F32, KvDtype::F32) => 1e-5,
            (DType::BF16, _) | (_, KvDtype::Bf16 | KvDtype::Q8_0) => 1e-2,
            _ => 2e-3,
        };
        let RotaryCase {
            stored,
            dtype,
            half,
            norms,
            ..
        } = case;
        assert!(gap < most, "{stored}, {dtype:?}, {half}, {norms:?}: {gap}");
    }
}

/// The largest gap of prompts and of single tokens after them.
fn largest_gap(case: &RotaryCase, gpu: &Device) -> f32 {
    let span = |new_tokens, past_tokens, pages: std::ops::Range<u32>| Span {
        new_tokens,
        past_tokens,
        pages: pages.collect(),
    };
    // Pages of f32 take no prompts in our kernels.
    let prompt = if case.stored == KvDtype::F32 { 8 } else { 40 };
    let steps = [
        vec![span(prompt, 0, 0..2), span(3, 0, 2..3)],
        vec![span(1, prompt, 0..2), span(1, 3, 2..3)],
        vec![span(2, prompt + 1, 0..2)],
    ];
    let (heads, kv_heads) = (4, 2);
    let options = AttentionOptions {
        scale: 0.2,
        window: None,
        softcap: None,
        reach: AttentionReach::Past,
    };
    let weights = [random(&[SIZE]), random(&[SIZE])];
    let rows_of = |spans: &[Span]| spans.iter().map(|span| span.new_tokens).sum::<usize>();
    let qkv: Vec<_> = steps
        .iter()
        .map(|spans| {
            [heads, kv_heads, kv_heads].map(|heads| random(&[rows_of(spans), heads, SIZE]))
        })
        .collect();
    let run = |device: &Device, dtype: DType| -> Vec<Tensor> {
        let on = |x: &Tensor| {
            let narrowed = x.to_dtype(case.dtype).unwrap().to_dtype(dtype).unwrap();
            narrowed.to_device(device).unwrap()
        };
        let frequencies = (0..case.half.max(1)).map(|i| 1e4f64.powf(i as f64 / -32.0));
        let frequencies = frequencies.collect();
        let table = RopeTable::new(frequencies, 99, case.style, 1.0, device).unwrap();
        let weights = [on(&weights[0]), on(&weights[1])];
        let mut pages = LayerPages::new(3, kv_heads, SIZE, case.stored, device).unwrap();
        let run = |(spans, qkv): (&Vec<Span>, &[Tensor; 3])| {
            let plan = AttentionPlan::new(spans.clone(), device).unwrap();
            let [q, k, v] = [0, 1, 2].map(|at| on(&qkv[at]));
            let norm = |at: usize| {
                case.norms[at].then_some(HeadNorm {
                    weight: &weights[at],
                    eps: 1e-5,
                })
            };
            let heads = RotaryHeads {
                norms: [norm(0), norm(1)],
                rope: (case.half > 0).then_some((&table, plan.positions())),
            };
            let found = rotary_attention([&q, &k, &v], &heads, &mut pages, &plan, options, None);
            let found = found.unwrap();
            assert_eq!(found.dtype(), dtype);
            found
        };
        steps.iter().zip(&qkv).map(run).collect()
    };
    // The CPU computes in f32, from the same narrow numbers.
    let (found, wanted) = (run(gpu, case.dtype), run(&Device::Cpu, DType::F32));
    let gaps = found.iter().zip(&wanted).map(|(a, b)| gap(a, b));
    gaps.fold(0.0, f32::max)
}
