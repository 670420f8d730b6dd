use candle_core::{DType, Device, Tensor};
use half::f16;
use proptest::prelude::*;

use super::*;
use crate::{AttentionPlan, AttentionReach};

/// Keys, values and queries of one sequence, `[tokens, heads, d]` each, and its pages.
struct Sequence {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pages: Vec<u32>,
}

fn random(tokens: usize, heads: usize, d: usize) -> Tensor {
    Tensor::randn(0f32, 1.0, (tokens, heads, d), &Device::Cpu).unwrap()
}

/// Numbers after they were stored as Q8_0: whole ones of eight bits with a scale in f16 for each block.
fn in_blocks(t: &Tensor) -> Tensor {
    let mut numbers: Vec<f32> = t.flatten_all().unwrap().to_vec1().unwrap();
    for block in numbers.chunks_exact_mut(BLOCK) {
        let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = f16::from_f32(largest / 127.0).to_f32();
        let inverse = scale.recip();
        for x in block {
            *x = (*x * inverse).round_ties_even().clamp(-127.0, 127.0) * scale;
        }
    }
    Tensor::from_vec(numbers, t.shape(), t.device()).unwrap()
}

/// Attention of one sequence in f64, straight from the definition.
fn naive(
    sequence: &Sequence,
    dtype: KvDtype,
    options: AttentionOptions,
    sinks: Option<&[f32]>,
) -> Vec<f64> {
    let rounded = |t: &Tensor| {
        let t = match dtype.dtype() {
            Some(dtype) => t.to_dtype(dtype).unwrap(),
            None => in_blocks(t),
        };
        let t = t.to_dtype(DType::F64).unwrap();
        t.flatten_all().unwrap().to_vec1::<f64>().unwrap()
    };
    let (tokens, heads, d) = sequence.q.dims3().unwrap();
    let kv_heads = sequence.k.dim(1).unwrap();
    let q = sequence
        .q
        .to_dtype(DType::F64)
        .unwrap()
        .flatten_all()
        .unwrap()
        .to_vec1::<f64>()
        .unwrap();
    let (k, v) = (rounded(&sequence.k), rounded(&sequence.v));
    let mut out = Vec::new();
    for token in 0..tokens {
        for head in 0..heads {
            let kv = head / (heads / kv_heads);
            let window = options.window.unwrap_or(tokens);
            let seen = (0..tokens).filter(|&past| {
                let (is_past, gap) = (past <= token, past.abs_diff(token));
                gap < window
                    && match options.reach {
                        AttentionReach::Past => is_past,
                        AttentionReach::Chunk(size) => is_past && past / size == token / size,
                        AttentionReach::Sequence => true,
                    }
            });
            let seen: Vec<usize> = seen.collect();
            let weights: Vec<f64> = seen
                .iter()
                .map(|&past| {
                    let (a, b) = ((token * heads + head) * d, (past * kv_heads + kv) * d);
                    let dot: f64 = (0..d).map(|i| q[a + i] * k[b + i]).sum();
                    let score = dot * f64::from(options.scale);
                    let cap = options.softcap.map(f64::from);
                    cap.map_or(score, |cap| cap * (score / cap).tanh()).exp()
                })
                .collect();
            let sink = sinks.map_or(0.0, |sinks| f64::from(sinks[head]).exp());
            let total = weights.iter().sum::<f64>() + sink;
            out.extend((0..d).map(|i| {
                let terms = weights.iter().zip(seen.iter());
                terms
                    .map(|(w, past)| w * v[(past * kv_heads + kv) * d + i])
                    .sum::<f64>()
                    / total
            }));
        }
    }
    out
}

/// Runs the sequences in steps of the given sizes (in turn, all sequences in one step), and returns each one's rows.
fn paged(
    level: Level,
    sequences: &[Sequence],
    steps: &[usize],
    mut pages: Pages,
    options: AttentionOptions,
    sinks: Option<&[f32]>,
) -> Vec<Vec<f32>> {
    let mut done = vec![0; sequences.len()];
    let mut rows = vec![Vec::new(); sequences.len()];
    for step in steps.iter().cycle() {
        let (mut spans, mut parts) = (Vec::new(), Vec::new());
        for (sequence, done) in sequences.iter().zip(&mut done) {
            let new_tokens = (*step).min(sequence.q.dim(0).unwrap() - *done);
            spans.push(Span {
                new_tokens,
                past_tokens: *done,
                pages: sequence.pages.clone(),
            });
            parts.push(
                [&sequence.q, &sequence.k, &sequence.v]
                    .map(|t| t.narrow(0, *done, new_tokens).unwrap()),
            );
            *done += new_tokens;
        }
        let [q, k, v] = [0, 1, 2].map(|i| {
            let parts: Vec<_> = parts.iter().map(|part| &part[i]).collect();
            Tensor::cat(&parts, 0).unwrap()
        });
        if q.dim(0).unwrap() == 0 {
            return rows;
        }
        let step = (&spans[..], &[][..]);
        let result = paged_attention_at(level, [&q, &k, &v], &mut pages, step, options, sinks);
        let result = result.unwrap();
        let mut at = 0;
        for (span, rows) in spans.iter().zip(&mut rows) {
            let part = result.narrow(0, at, span.new_tokens).unwrap();
            rows.extend(part.flatten_all().unwrap().to_vec1::<f32>().unwrap());
            at += span.new_tokens;
        }
    }
    rows
}

/// Sequences of these lengths on pages dealt out in a shuffled order.
fn sequences(lengths: &[usize], heads: usize, kv_heads: usize, d: usize) -> Vec<Sequence> {
    let needed = lengths.iter().map(|tokens| tokens.div_ceil(PAGE_TOKENS));
    let count: usize = needed.clone().sum();
    let mut free: Vec<u32> = (0..count as u32).rev().collect();
    free.rotate_left(count / 3);
    lengths
        .iter()
        .zip(needed)
        .map(|(&tokens, pages)| Sequence {
            q: random(tokens, heads, d),
            k: random(tokens, kv_heads, d),
            v: random(tokens, kv_heads, d),
            pages: free.drain(..pages).collect(),
        })
        .collect()
}

fn check(
    lengths: &[usize],
    shape: (usize, usize, usize),
    step: usize,
    dtype: KvDtype,
    options: AttentionOptions,
) {
    check_with_sinks(lengths, shape, step, dtype, options, None);
}

fn check_with_sinks(
    lengths: &[usize],
    shape: (usize, usize, usize),
    step: usize,
    dtype: KvDtype,
    options: AttentionOptions,
    sinks: Option<&[f32]>,
) {
    let (heads, kv_heads, d) = shape;
    let sequences = sequences(lengths, heads, kv_heads, d);
    let wanted: Vec<_> = sequences
        .iter()
        .map(|sequence| naive(sequence, dtype, options, sinks))
        .collect();
    let count = sequences.iter().map(|s| s.pages.len()).sum::<usize>();
    for level in Level::available() {
        let run = |steps: &[usize]| {
            let pages = Pages::new(count, kv_heads, d, dtype).unwrap();
            paged(level, &sequences, steps, pages, options, sinks)
        };
        let (found, in_other_chunks) = (run(&[step]), run(&[1, 64, 5, 13]));
        assert!(
            found == in_other_chunks,
            "bits depend on how the prompt was cut"
        );
        for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
            let gap = (f64::from(*found) - wanted).abs();
            assert!(gap < 2e-5, "{level:?}: found {found}, wanted {wanted}");
        }
    }
}

/// Values are the first numbers of keys, which all heads share.
fn check_latents(
    lengths: &[usize],
    (heads, d, value_dim): (usize, usize, usize),
    step: usize,
    dtype: KvDtype,
    options: AttentionOptions,
) {
    let sequences: Vec<_> = sequences(lengths, heads, 1, d)
        .into_iter()
        .map(|sequence| Sequence {
            v: sequence.k.clone(),
            ..sequence
        })
        .collect();
    let wanted = sequences.iter().flat_map(|sequence| {
        let rows = naive(sequence, dtype, options, None);
        let values = rows.chunks(d).flat_map(|value| &value[..value_dim]);
        values.copied().collect::<Vec<f64>>()
    });
    let wanted: Vec<f64> = wanted.collect();
    let count = sequences.iter().map(|s| s.pages.len()).sum::<usize>();
    for level in Level::available() {
        let run = |steps: &[usize]| {
            let pages = Pages::of_latents(count, d, value_dim, dtype).unwrap();
            assert_eq!(pages.bytes(), dtype.bytes(count * PAGE_TOKENS * d).max(64));
            paged(level, &sequences, steps, pages, options, None)
        };
        let (found, in_other_chunks) = (run(&[step]), run(&[1, 64, 5, 13]));
        assert!(
            found == in_other_chunks,
            "bits depend on how the prompt was cut"
        );
        let found: Vec<f32> = found.into_iter().flatten().collect();
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(&wanted) {
            let gap = (f64::from(*found) - wanted).abs();
            assert!(gap < 2e-5, "{level:?}: found {found}, wanted {wanted}");
        }
    }
}

const DTYPES: [KvDtype; 4] = [KvDtype::F32, KvDtype::F16, KvDtype::Bf16, KvDtype::Q8_0];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn paged_attention_is_attention(
        lengths in prop::collection::vec(1usize..100, 1..4),
        kv_heads in 1usize..3,
        group in 1usize..10,
        d in prop::sample::select(vec![8usize, 16, 32, 40, 64, 96, 128]),
        step in 1usize..80,
        dtype in prop::sample::select(DTYPES.to_vec()),
        window in prop::option::of(1usize..50),
        softcap in prop::option::of(5f32..30.0),
    ) {
        prop_assume!(dtype.takes(d));
        let options = AttentionOptions { scale: (d as f32).powf(-0.5), window, softcap, reach: AttentionReach::Past };
        check(&lengths, (kv_heads * group, kv_heads, d), step, dtype, options);
    }

    #[test]
    fn attention_to_latents_is_attention_to_keys_and_their_first_numbers(
        lengths in prop::collection::vec(1usize..100, 1..4),
        heads in 1usize..21,
        d in 2usize..90,
        share in 1usize..10,
        step in 1usize..80,
        dtype in prop::sample::select(vec![KvDtype::F32, KvDtype::F16, KvDtype::Bf16]),
        window in prop::option::of(1usize..50),
    ) {
        let value_dim = (d * share / 9).clamp(1, d);
        let options = AttentionOptions { scale: (d as f32).powf(-0.5), window, softcap: None, reach: AttentionReach::Past };
        check_latents(&lengths, (heads, d, value_dim), step, dtype, options);
    }
}

#[test]
fn latents_of_several_partitions_are_added_up() {
    let options = AttentionOptions {
        scale: 0.2,
        window: None,
        softcap: None,
        reach: AttentionReach::Past,
    };
    check_latents(&[1300, 3, 520], (5, 40, 32), 1300, KvDtype::F16, options);
}

#[test]
fn latents_that_cannot_be_stored_are_refused() {
    let refused = |dim, value_dim, dtype| {
        let pages = Pages::of_latents(1, dim, value_dim, dtype);
        pages.unwrap_err().to_string()
    };
    assert!(refused(64, 32, KvDtype::Q8_0).contains("not q8_0; use f16"));
    assert!(refused(64, 65, KvDtype::F16).contains("no value of 65"));
    assert!(refused(64, 0, KvDtype::F16).contains("no value of 0"));
}

#[test]
fn contexts_of_several_partitions_are_added_up() {
    for (dtype, window) in [(KvDtype::F16, None), (KvDtype::Q8_0, Some(700))] {
        let options = AttentionOptions {
            scale: 0.2,
            window,
            softcap: None,
            reach: AttentionReach::Past,
        };
        check(&[1300, 3, 520], (3, 1, 32), 1300, dtype, options);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn tokens_see_their_chunk_alone(
        lengths in prop::collection::vec(1usize..150, 1..3),
        chunk in 1usize..90,
        step in 1usize..80,
        window in prop::option::of(1usize..50),
    ) {
        let reach = AttentionReach::Chunk(chunk);
        let options = AttentionOptions { scale: 0.2, window, softcap: None, reach };
        check(&lengths, (6, 2, 32), step, KvDtype::F16, options);
    }

    #[test]
    fn tokens_of_sequences_that_are_read_whole_see_those_behind_them(
        lengths in prop::collection::vec(1usize..700, 1..3),
        window in prop::option::of(1usize..90),
    ) {
        let reach = AttentionReach::Sequence;
        let options = AttentionOptions { scale: 0.2, window, softcap: None, reach };
        let sequences = sequences(&lengths, 3, 1, 24);
        let count = sequences.iter().map(|s| s.pages.len()).sum::<usize>();
        for level in Level::available() {
            let pages = Pages::new(count, 1, 24, KvDtype::F32).unwrap();
            let found = paged(level, &sequences, &[700], pages, options, None);
            for (found, sequence) in found.iter().zip(&sequences) {
                let wanted = naive(sequence, KvDtype::F32, options, None);
                for (found, wanted) in found.iter().zip(wanted) {
                    prop_assert!((f64::from(*found) - wanted).abs() < 2e-5);
                }
            }
        }
    }
}

#[test]
fn a_sink_takes_its_share_of_each_head() {
    let sinks = [-3.0, 0.5, 2.0, 9.0, 40.0, -200.0];
    for (dtype, window) in [(KvDtype::F32, None), (KvDtype::Q8_0, Some(40))] {
        let options = AttentionOptions {
            scale: 0.2,
            window,
            softcap: None,
            reach: AttentionReach::Past,
        };
        check_with_sinks(&[600, 3, 70], (6, 2, 32), 600, dtype, options, Some(&sinks));
    }
}

#[test]
fn heads_that_no_block_divides_are_refused() {
    let error = Pages::new(1, 2, 40, KvDtype::Q8_0).unwrap_err().to_string();
    assert!(error.contains("q8_0 where 32 divides"), "{error}");
    let pages = Pages::new(3, 2, 64, KvDtype::Q8_0).unwrap();
    assert_eq!(pages.bytes(), KvDtype::Q8_0.bytes(3 * 32 * 2 * 2 * 64));
    assert_eq!(KvDtype::Q8_0.bytes(32), 34);
}

#[test]
fn what_is_not_finite_shows_in_the_result() {
    for dtype in DTYPES {
        for fault in [f32::NAN, f32::INFINITY] {
            let mut pages = Pages::new(1, 1, 32, dtype).unwrap();
            let q = random(1, 1, 32);
            let mut numbers = vec![0.5; 32];
            numbers[7] = fault;
            let x = Tensor::from_vec(numbers, (1, 1, 32), &Device::Cpu).unwrap();
            let span = Span {
                new_tokens: 1,
                past_tokens: 0,
                pages: vec![0],
            };
            let options = AttentionOptions {
                scale: 1.0,
                window: None,
                softcap: None,
                reach: AttentionReach::Past,
            };
            let found = paged_attention([&q, &q, &x], &mut pages, &[span], options, None).unwrap();
            let found = found.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert!(!found[7].is_finite(), "{dtype}: {fault} is {}", found[7]);
        }
    }
}

/// A row of a block attends to the same keys as the block's last row: the same bits as with its query in that row.
#[test]
fn rows_of_a_block_see_all_of_it() {
    let (tokens, blocks) = (90, [3..41, 50..52, 60..90]);
    let (q, k, v) = (
        random(tokens, 4, 16),
        random(tokens, 2, 16),
        random(tokens, 2, 16),
    );
    let options = AttentionOptions {
        scale: 0.25,
        window: None,
        softcap: None,
        reach: AttentionReach::Past,
    };
    let span = |past, new_tokens| Span {
        new_tokens,
        past_tokens: past,
        pages: vec![2, 0, 1],
    };
    let plan = AttentionPlan::new(vec![span(0, tokens)], &Device::Cpu).unwrap();
    let plan = plan.with_blocks(&blocks).unwrap();
    let mut pages = crate::LayerPages::new(3, 2, 16, KvDtype::F32, &Device::Cpu).unwrap();
    let whole = crate::paged_attention(&q, &k, &v, &mut pages, &plan, options).unwrap();
    let row = |x: &Tensor, at| x.narrow(0, at, 1).unwrap();
    let bits = |x: Tensor| {
        let numbers: Vec<f32> = x.flatten_all().unwrap().to_vec1().unwrap();
        numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    for at in 0..tokens {
        let last = blocks
            .iter()
            .find(|block| block.contains(&at))
            .map_or(at, |it| it.end - 1);
        let plan = AttentionPlan::new(vec![span(last, 1)], &Device::Cpu).unwrap();
        let (query, key, value) = (row(&q, at), row(&k, last), row(&v, last));
        let alone = crate::paged_attention(&query, &key, &value, &mut pages, &plan, options);
        assert!(bits(row(&whole, at)) == bits(alone.unwrap()), "row {at}");
    }
    let plan = AttentionPlan::new(vec![span(0, 4), span(0, 4)], &Device::Cpu).unwrap();
    assert!(plan.with_blocks(std::slice::from_ref(&(2..6))).is_err());
}

#[test]
fn pages_that_do_not_exist_are_refused() {
    let mut pages = Pages::new(1, 1, 8, KvDtype::F32).unwrap();
    let x = random(1, 1, 8);
    let span = Span {
        new_tokens: 1,
        past_tokens: 0,
        pages: vec![1],
    };
    let options = AttentionOptions {
        scale: 1.0,
        window: None,
        softcap: None,
        reach: AttentionReach::Past,
    };
    let error = paged_attention([&x, &x, &x], &mut pages, &[span], options, None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("page 1 is out of range (pages: 1)"),
        "{error}"
    );
}

/// Other queries, over the same pages, in a step that wrote them and in later ones.
#[test]
fn keys_and_values_of_another_layer_are_those_it_wrote() {
    let options = AttentionOptions {
        scale: 0.2,
        window: Some(40),
        softcap: None,
        reach: AttentionReach::Past,
    };
    for dtype in DTYPES {
        let [k, v] = [random(70, 2, 32), random(70, 2, 32)];
        let q = random(70, 6, 32);
        let span = Span {
            new_tokens: 70,
            past_tokens: 0,
            pages: vec![2, 0, 1],
        };
        let spans = [span];
        let mut pages = Pages::new(3, 2, 32, dtype).unwrap();
        let wanted = paged_attention([&q, &k, &v], &mut pages, &spans, options, None).unwrap();
        let found = shared_attention(&q, &pages, &spans, options).unwrap();
        let bits = |rows: &Tensor| rows.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(bits(&found), bits(&wanted));
        let last = Span {
            new_tokens: 1,
            past_tokens: 69,
            ..spans[0].clone()
        };
        let found = shared_attention(&q.narrow(0, 69, 1).unwrap(), &pages, &[last], options);
        let wanted = wanted.narrow(0, 69, 1).unwrap();
        assert_eq!(bits(&found.unwrap()), bits(&wanted));
        let wide = random(70, 6, 16);
        let error = shared_attention(&wide, &pages, &spans, options).unwrap_err();
        assert!(error.to_string().contains("do not fit keys"), "{error}");
    }
}
