use candle_core::{Device, Tensor};

use super::*;
use crate::recurrence::{LayerStates, ShortConvolution, StateShape};

fn random(shape: (usize, usize)) -> Tensor {
    Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap()
}

fn numbers(x: &Tensor) -> Vec<f32> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

fn span(new_tokens: usize, is_first: bool, slot: usize) -> StateSpan {
    StateSpan {
        new_tokens,
        is_first,
        slot,
    }
}

/// Runs parts of these lengths, in a slot with another sequence's state.
fn in_parts(
    numbers: StateShape,
    parts: &[usize],
    step: impl Fn(usize, usize, &mut LayerStates, &[StateSpan]) -> Tensor,
) -> Vec<f32> {
    let mut states = LayerStates::new(numbers, &Device::Cpu).unwrap();
    let mut found = Vec::new();
    let mut run = |first: usize, count: usize| {
        let spans = [span(count, first == 0, 2)];
        states.prepare(&spans).unwrap();
        let out = step(first, count, &mut states, &spans);
        found.extend(self::numbers(&out));
    };
    run(0, 3);
    let mut first = 0;
    for &count in parts {
        run(first, count);
        first += count;
    }
    let skipped = found.len() * 3 / (first + 3);
    found.split_off(skipped)
}

fn rule(shape: RecurrenceShape) -> DeltaRule {
    let heads = shape.value_heads;
    DeltaRule {
        shape,
        rates: (0..heads)
            .map(|head| -0.02 - 3.0 * head as f32)
            .collect::<Vec<f32>>()
            .into(),
        step_bias: (0..heads)
            .map(|head| 0.3 - 0.2 * head as f32)
            .collect::<Vec<f32>>()
            .into(),
    }
}

/// The paper's formula, one number after the other in f64.
fn wanted(rule: &DeltaRule, [qkv, steps, betas]: [&Tensor; 3]) -> Vec<f64> {
    let shape = rule.shape;
    let (dim, size) = (shape.key_dim, shape.key_size());
    let rows: Vec<Vec<f32>> = qkv.to_vec2().unwrap();
    let (steps, betas) = (numbers(steps), numbers(betas));
    let mut out = vec![0f64; rows.len() * shape.value_size()];
    for head in 0..shape.value_heads {
        let mut state = vec![vec![0f64; shape.value_dim]; dim];
        for (at, row) in rows.iter().enumerate() {
            let unit = |first: usize| {
                let key_head = match shape.is_tiled {
                    true => head % shape.key_heads,
                    false => head * shape.key_heads / shape.value_heads,
                };
                let part = &row[first + key_head * dim..][..dim];
                let part: Vec<f64> = part.iter().map(|x| f64::from(*x)).collect();
                let length = (part.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                part.iter().map(|x| x / length).collect::<Vec<f64>>()
            };
            let (query, key) = (unit(0), unit(size));
            let step = f64::from(steps[at * shape.value_heads + head] + rule.step_bias[head]);
            let decay = (f64::from(rule.rates[head]) * step.exp().ln_1p()).exp();
            let beta = f64::from(betas[at * shape.value_heads + head]);
            let beta = 1.0 / (1.0 + (-beta).exp());
            for column in 0..shape.value_dim {
                let value = row[2 * size + head * shape.value_dim + column];
                for row in &mut state {
                    row[column] *= decay;
                }
                let read: f64 = state.iter().zip(&key).map(|(row, k)| row[column] * k).sum();
                let written = beta * (f64::from(value) - read);
                for (row, k) in state.iter_mut().zip(&key) {
                    row[column] += k * written;
                }
                let said: f64 = state
                    .iter()
                    .zip(&query)
                    .map(|(row, q)| row[column] * q)
                    .sum();
                let place = at * shape.value_size() + head * shape.value_dim + column;
                out[place] = said / (dim as f64).sqrt();
            }
        }
    }
    out
}

fn shape(heads: (usize, usize), dims: (usize, usize), is_tiled: bool) -> RecurrenceShape {
    RecurrenceShape {
        key_heads: heads.0,
        value_heads: heads.1,
        key_dim: dims.0,
        value_dim: dims.1,
        is_tiled,
    }
}

#[test]
fn the_delta_rule_is_that_of_the_paper_however_a_prompt_is_cut() {
    for shape in [
        shape((1, 1), (1, 1), false),
        shape((3, 3), (5, 31), false),
        shape((2, 6), (8, 33), false),
        shape((2, 6), (8, 33), true),
        shape((2, 2), (128, 128), false),
    ] {
        let rule = rule(shape);
        let tokens = 131;
        let qkv = random((tokens, 2 * shape.key_size() + shape.value_size()));
        let steps = random((tokens, shape.value_heads));
        let betas = random((tokens, shape.value_heads));
        let sizes = StateShape {
            convolution: 0,
            recurrence: shape.state_numbers(),
        };
        let run = |parts: &[usize]| {
            in_parts(sizes, parts, |first, count, states, spans| {
                let [qkv, steps, betas] =
                    [&qkv, &steps, &betas].map(|x| x.narrow(0, first, count).unwrap());
                rule.forward(&qkv, &steps, &betas, states, spans).unwrap()
            })
        };
        let whole = run(&[tokens]);
        for (found, wanted) in whole.iter().zip(wanted(&rule, [&qkv, &steps, &betas])) {
            assert!((f64::from(*found) - wanted).abs() < 1e-5, "{shape:?}");
        }
        for parts in [&[1, 63, 64, 3][..], &[64, 67], &[100, 1, 1, 29]] {
            assert_eq!(run(parts), whole, "{shape:?} in parts of {parts:?}");
        }
    }
}

/// Token by token as the paper writes it, in f64.
fn wanted_of_space(space: &StateSpace, [inputs, steps]: [&Tensor; 2]) -> Vec<f64> {
    let shape = space.shape;
    let (dim, values, keys) = (shape.key_dim, shape.value_size(), shape.key_size());
    let rows: Vec<Vec<f32>> = inputs.to_vec2().unwrap();
    let steps = numbers(steps);
    let mut out = vec![0f64; rows.len() * values];
    for head in 0..shape.value_heads {
        let key_head = head * shape.key_heads / shape.value_heads;
        let mut state = vec![vec![0f64; dim]; shape.value_dim];
        for (at, row) in rows.iter().enumerate() {
            let step = f64::from(steps[at * shape.value_heads + head] + space.step_bias[head]);
            let (least, most) = space.step_limits;
            let step = step.exp().ln_1p().clamp(least.into(), most.into());
            let decay = (f64::from(space.rates[head]) * step).exp();
            let key = &row[values + key_head * dim..][..dim];
            let query = &row[values + keys + key_head * dim..][..dim];
            for (column, state) in state.iter_mut().enumerate() {
                let place = head * shape.value_dim + column;
                let value = f64::from(row[place]);
                let mut said = f64::from(space.skips[head]) * value;
                for ((state, key), query) in state.iter_mut().zip(key).zip(query) {
                    *state = decay * *state + step * value * f64::from(*key);
                    said += *state * f64::from(*query);
                }
                out[at * values + place] = said;
            }
        }
    }
    out
}

#[test]
fn a_state_space_is_that_of_the_paper_however_a_prompt_is_cut() {
    for (shape, step_limits) in [
        (shape((1, 1), (1, 1), false), (0.0, f32::INFINITY)),
        (shape((1, 6), (16, 20), false), (0.4, 0.9)),
        (shape((2, 6), (9, 64), false), (0.0, f32::INFINITY)),
    ] {
        let heads = shape.value_heads;
        let space = StateSpace {
            shape,
            rates: (0..heads)
                .map(|head| -0.1 - head as f32)
                .collect::<Vec<f32>>()
                .into(),
            step_bias: (0..heads)
                .map(|head| 0.3 - 0.2 * head as f32)
                .collect::<Vec<f32>>()
                .into(),
            step_limits,
            skips: (0..heads)
                .map(|head| 0.5 - head as f32)
                .collect::<Vec<f32>>()
                .into(),
        };
        let tokens = 75;
        let inputs = random((tokens, 2 * shape.key_size() + shape.value_size()));
        let steps = random((tokens, heads));
        let sizes = StateShape {
            convolution: 0,
            recurrence: shape.state_numbers(),
        };
        let run = |parts: &[usize]| {
            in_parts(sizes, parts, |first, count, states, spans| {
                let [inputs, steps] = [&inputs, &steps].map(|x| x.narrow(0, first, count).unwrap());
                space.forward(&inputs, &steps, states, spans).unwrap()
            })
        };
        let whole = run(&[tokens]);
        for (found, wanted) in whole.iter().zip(wanted_of_space(&space, [&inputs, &steps])) {
            assert!(
                (f64::from(*found) - wanted).abs() < 1e-4,
                "{shape:?}: {found} {wanted}"
            );
        }
        assert_eq!(run(&[1, 63, 11]), whole, "{shape:?}");
    }
}

#[test]
fn a_sequence_is_computed_as_if_it_were_alone() {
    let shape = shape((2, 4), (16, 40), false);
    let rule = rule(shape);
    let width = 2 * shape.key_size() + shape.value_size();
    let convolution = ShortConvolution::new(&numbers(&random((width, 4))), None, 4, true).unwrap();
    let sizes = StateShape {
        convolution: convolution.state_numbers(),
        recurrence: shape.state_numbers(),
    };
    let spans = [
        span(7, true, 3),
        span(1, true, 0),
        span(30, true, 1),
        span(2, true, 2),
    ];
    let rows = 40;
    let inputs = [width, shape.value_heads, shape.value_heads].map(|cols| random((rows, cols)));
    let run = |spans: &[StateSpan], first: usize| {
        let mut states = LayerStates::new(sizes, &Device::Cpu).unwrap();
        states.prepare(spans).unwrap();
        let count = spans.iter().map(|span| span.new_tokens).sum();
        let [x, steps, betas] = inputs
            .each_ref()
            .map(|x| x.narrow(0, first, count).unwrap());
        let qkv = convolution.forward(&x, &mut states, spans).unwrap();
        let out = rule.forward(&qkv, &steps, &betas, &mut states, spans);
        numbers(&out.unwrap())
    };
    let together = run(&spans, 0);
    let mut first = 0;
    for each in spans {
        let alone = run(&[each], first);
        let place = first * shape.value_size()..(first + each.new_tokens) * shape.value_size();
        assert_eq!(together[place], alone);
        first += each.new_tokens;
    }
}

#[test]
fn a_short_convolution_looks_back_over_the_borders_of_steps() {
    for (kernel, channels, has_silu) in [(1, 3, false), (3, 5, true), (4, 300, true)] {
        let weight = numbers(&random((channels, kernel)));
        let bias = has_silu.then(|| numbers(&random((1, channels))));
        let x = random((20, channels));
        let convolution = ShortConvolution::new(&weight, bias.clone(), kernel, has_silu).unwrap();
        let sizes = StateShape {
            convolution: convolution.state_numbers(),
            recurrence: 0,
        };
        let run = |parts: &[usize]| {
            in_parts(sizes, parts, |first, count, states, spans| {
                let x = x.narrow(0, first, count).unwrap();
                convolution.forward(&x, states, spans).unwrap()
            })
        };
        let whole = run(&[20]);
        let rows: Vec<Vec<f32>> = x.to_vec2().unwrap();
        for (place, found) in whole.iter().enumerate() {
            let (row, channel) = (place / channels, place % channels);
            let taps = (0..kernel).filter(|tap| row + tap + 1 >= kernel);
            let sum: f32 = taps
                .map(|tap| weight[channel * kernel + tap] * rows[row + tap + 1 - kernel][channel])
                .sum();
            let sum = sum + bias.as_ref().map_or(0.0, |bias| bias[channel]);
            let wanted = if has_silu {
                sum / (1.0 + (-sum).exp())
            } else {
                sum
            };
            assert!((found - wanted).abs() < 1e-5, "{kernel} {found} {wanted}");
        }
        for parts in [&[1; 20][..], &[2, 1, 17], &[5, 15]] {
            assert_eq!(run(parts), whole);
        }
    }
}

#[test]
fn a_copied_state_goes_on_by_itself() {
    let rule = rule(shape((1, 2), (4, 5), false));
    let sizes = StateShape {
        convolution: 0,
        recurrence: rule.shape.state_numbers(),
    };
    let inputs = [(3, 18), (3, 2), (3, 2)].map(random);
    let mut states = LayerStates::new(sizes, &Device::Cpu).unwrap();
    let run = |states: &mut LayerStates, first: usize, count: usize, slot: usize| {
        let spans = [span(count, first == 0, slot)];
        states.prepare(&spans).unwrap();
        let [qkv, steps, betas] = inputs
            .each_ref()
            .map(|x| x.narrow(0, first, count).unwrap());
        numbers(&rule.forward(&qkv, &steps, &betas, states, &spans).unwrap())
    };
    run(&mut states, 0, 2, 0);
    states.copy(0, 4).unwrap();
    let wanted = run(&mut states, 2, 1, 0);
    run(&mut states, 0, 1, 0);
    states.copy(4, 1).unwrap();
    assert_eq!(run(&mut states, 2, 1, 1), wanted);
    assert_eq!(states.bytes(), 5 * sizes.bytes());
    assert!(states.copy(9, 0).is_err());
}

#[test]
fn states_that_do_not_fit_are_refused() {
    let rule = rule(shape((1, 2), (4, 4), false));
    let sizes = StateShape {
        convolution: 0,
        recurrence: rule.shape.state_numbers(),
    };
    let mut states = LayerStates::new(sizes, &Device::Cpu).unwrap();
    let spans = [span(1, true, 0), span(1, true, 0)];
    states.prepare(&spans).unwrap();
    let inputs = [random((2, 16)), random((2, 2)), random((2, 2))];
    let error = rule.forward(&inputs[0], &inputs[1], &inputs[2], &mut states, &spans);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("two spans share the state 0"), "{error}");
    let narrow = random((2, 15));
    let error = rule.forward(&narrow, &inputs[1], &inputs[2], &mut states, &spans);
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("expected 2 rows of 16")
    );
    assert!(ShortConvolution::new(&[0.0; 7], None, 2, false).is_err());
}
