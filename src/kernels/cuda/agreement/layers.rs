//! Attention beyond windows, and recurrent layers.

use candle_core::{Device, Tensor};

use super::{gap, gpu, random};
use crate::{
    AttentionOptions, AttentionPlan, AttentionReach, Constants, DeltaRule, KvDtype, LayerPages,
    LayerStates, RecurrenceShape, ShortConvolution, Span, StateShape, StateSpace, StateSpan,
    paged_attention, paged_attention_with_sinks, paged_latent_attention, shared_attention,
};

/// Moves all pages to other places of a larger cache, and back.
fn move_pages(pages: &mut LayerPages) {
    let turned: Vec<u32> = (0..14).rev().collect();
    for count in [20, 14] {
        pages.resize(count, &turned).unwrap();
    }
}

/// Sinks, chunks, latents, keys and values that another layer has written, and pages that move.
#[test]
fn further_attention_agrees() {
    let gpu = gpu();
    let span = |new_tokens, past_tokens, pages: std::ops::Range<u32>| Span {
        new_tokens,
        past_tokens,
        pages: pages.collect(),
    };
    let steps = [
        vec![span(270, 0, 0..10), span(3, 0, 10..11), span(40, 0, 11..14)],
        vec![
            span(1, 270, 0..10),
            span(1, 3, 10..11),
            span(30, 40, 11..14),
        ],
    ];
    let (heads, kv_heads, size) = (4, 2, 64);
    let sinks = Constants::from(vec![-3.0, 0.5, 6.0, 40.0]);
    let past = AttentionReach::Past;
    for (stored, window, reach, sinks) in [
        (KvDtype::F16, None, past, Some(&sinks)),
        (KvDtype::Q8_0, Some(70), past, Some(&sinks)),
        (KvDtype::F32, None, past, Some(&sinks)),
        (KvDtype::F16, None, AttentionReach::Chunk(48), None),
        (KvDtype::Bf16, Some(20), AttentionReach::Chunk(100), None),
        (KvDtype::F16, Some(30), AttentionReach::Sequence, None),
    ] {
        let options = AttentionOptions {
            scale: 0.2,
            window,
            softcap: None,
            reach,
        };
        let open = |device: &Device| LayerPages::new(14, kv_heads, size, stored, device).unwrap();
        let (mut here, mut there) = (open(&Device::Cpu), open(&gpu));
        for spans in steps.clone() {
            [&mut here, &mut there].into_iter().for_each(move_pages);
            let rows = spans.iter().map(|span| span.new_tokens).sum::<usize>();
            let [q, k, v] = [heads, kv_heads, kv_heads].map(|heads| random(&[rows, heads, size]));
            let run = |pages: &mut LayerPages, device: &Device| {
                let plan = AttentionPlan::new(spans.clone(), device).unwrap();
                let on = |x: &Tensor| x.to_device(device).unwrap();
                let [q, k, v] = [on(&q), on(&k), on(&v)];
                let own = match sinks {
                    None => paged_attention(&q, &k, &v, pages, &plan, options),
                    Some(sinks) => {
                        let sinks = sinks.clone();
                        paged_attention_with_sinks([&q, &k, &v], pages, &plan, options, &sinks)
                    }
                };
                let shared = shared_attention(&q, pages, &plan, options).unwrap();
                [own.unwrap(), shared]
            };
            let (wanted, found) = (run(&mut here, &Device::Cpu), run(&mut there, &gpu));
            for (found, wanted) in found.iter().zip(&wanted) {
                let gap = gap(found, wanted);
                assert!(gap < 4e-3, "{stored} {options:?} {spans:?}: {gap}");
            }
        }
    }
    let open =
        |device: &Device| LayerPages::of_latents(14, [48, 32], KvDtype::F16, device).unwrap();
    let (mut here, mut there) = (open(&Device::Cpu), open(&gpu));
    let options = AttentionOptions {
        scale: 0.2,
        window: None,
        softcap: None,
        reach: past,
    };
    for spans in steps {
        [&mut here, &mut there].into_iter().for_each(move_pages);
        let rows = spans.iter().map(|span| span.new_tokens).sum::<usize>();
        let (q, latents) = (random(&[rows, heads, 48]), random(&[rows, 1, 48]));
        let run = |pages: &mut LayerPages, device: &Device| {
            let plan = AttentionPlan::new(spans.clone(), device).unwrap();
            let on = |x: &Tensor| x.to_device(device).unwrap();
            paged_latent_attention(&on(&q), &on(&latents), pages, &plan, options).unwrap()
        };
        let (wanted, found) = (run(&mut here, &Device::Cpu), run(&mut there, &gpu));
        let gap = gap(&found, &wanted);
        assert!(gap < 4e-3, "latents, {spans:?}: {gap}");
    }
}

#[test]
fn recurrent_layers_agree() {
    let gpu = gpu();
    for (key_heads, value_heads, key_dim, value_dim, is_tiled) in [
        (1, 2, 128, 128, false),
        (2, 6, 40, 72, true),
        (2, 4, 200, 33, false),
        (1, 3, 16, 64, false),
    ] {
        let shape = RecurrenceShape {
            key_heads,
            value_heads,
            key_dim,
            value_dim,
            is_tiled,
        };
        let width = 2 * shape.key_size() + shape.value_size();
        let numbers = |count: usize| random(&[count]).to_vec1::<f32>().unwrap();
        let bias = is_tiled.then(|| numbers(width));
        let kernel = if is_tiled { 3 } else { 4 };
        let taps = numbers(kernel * width);
        let of_heads = |factor: f32| -> Constants {
            let numbers = numbers(value_heads).into_iter().map(|x| x.abs() * factor);
            numbers.collect::<Vec<f32>>().into()
        };
        let (rates, step_bias, skips) = (of_heads(-0.3), of_heads(0.5), of_heads(1.0));
        let rows = [[9, 5], [1, 1], [1, 30]];
        let inputs = rows.map(|rows| {
            let count = rows[0] + rows[1];
            let x = random(&[count, width]);
            (
                x,
                random(&[count, value_heads]),
                random(&[count, value_heads]),
            )
        });
        let run = |device: &Device| {
            let convolution =
                ShortConvolution::new(&taps, bias.clone(), kernel, !is_tiled).unwrap();
            let rule = DeltaRule {
                shape,
                rates: rates.to_vec().into(),
                step_bias: step_bias.to_vec().into(),
            };
            let space = StateSpace {
                shape,
                rates: rates.to_vec().into(),
                step_bias: step_bias.to_vec().into(),
                step_limits: (0.3, 2.0),
                skips: skips.to_vec().into(),
            };
            let of_shape = |convolution| StateShape {
                convolution,
                recurrence: shape.state_numbers(),
            };
            let state = of_shape(convolution.state_numbers());
            let mut states = [(); 2].map(|()| LayerStates::new(state, device).unwrap());
            let mut results = Vec::new();
            for (step, (x, steps, betas)) in inputs.iter().enumerate() {
                let on = |x: &Tensor| x.to_device(device).unwrap();
                // The second sequence moves to a slot that another copy of it keeps.
                let slots = if step == 2 { [0, 9] } else { [0, 1] };
                let spans = [0, 1].map(|at| StateSpan {
                    new_tokens: rows[step][at],
                    // The second sequence allocates another slot.
                    is_first: step == 0 || (step, at) == (1, 1),
                    slot: slots[at],
                });
                for states in &mut states {
                    if step == 2 {
                        states.copy(1, 9).unwrap();
                    }
                    states.prepare(&spans).unwrap();
                }
                let [of_rule, of_space] = &mut states;
                let qkv = convolution.forward(&on(x), of_rule, &spans).unwrap();
                let (steps, betas) = (on(steps), on(betas));
                results.push(rule.forward(&qkv, &steps, &betas, of_rule, &spans).unwrap());
                results.push(space.forward(&on(x), &steps, of_space, &spans).unwrap());
                results.push(qkv);
            }
            results
        };
        for (found, wanted) in run(&gpu).iter().zip(&run(&Device::Cpu)) {
            let gap = gap(found, wanted);
            assert!(gap < 1e-4, "{shape:?}: {gap}");
        }
    }
}
