//! The effect of each setting on samples.

use proptest::prelude::proptest;

use super::{BadLogits, Sampler, Scratch, Settings, TokenMask};
use crate::runtime::{Sampling, TokenInfo};

fn sampler(sampling: Sampling) -> Sampler {
    let settings = Settings::resolve(&sampling, &Sampling::default(), 1000).unwrap();
    Sampler::new(settings, 0, None, &[], &[])
}

fn seeded(sampling: Sampling) -> Sampling {
    Sampling {
        seed: Some(9),
        ..sampling
    }
}

fn draw(sampler: &mut Sampler, logits: &[f32], index: usize) -> u32 {
    sampler
        .sample(&mut logits.to_vec(), None, index, &mut Scratch::default())
        .unwrap()
        .id
}

/// The frequency of each token in 20,000 samples.
fn shares(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
    let mut sampler = sampler(seeded(sampling));
    let mut counts = vec![0.0; logits.len()];
    for index in 0..20_000 {
        counts[draw(&mut sampler, logits, index) as usize] += 1.0 / 20_000.0;
    }
    counts
}

fn check_shares(sampling: Sampling, logits: &[f32], wanted: &[f64]) {
    let found = shares(sampling.clone(), logits);
    for (found_share, wanted_share) in found.iter().zip(wanted) {
        assert!(
            (found_share - wanted_share).abs() < 0.012,
            "{sampling:?}: {found:?} is not {wanted:?}"
        );
    }
}

/// Logits of these probabilities.
fn logits(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

#[test]
fn draws_follow_the_probabilities_that_each_setting_leaves() {
    let l = logits(&[0.4, 0.1, 0.3, 0.2]);
    let plain = Sampling::default();
    check_shares(plain.clone(), &l, &[0.4, 0.1, 0.3, 0.2]);
    check_shares(
        Sampling {
            top_k: Some(2),
            ..plain.clone()
        },
        &l,
        &[4.0 / 7.0, 0.0, 3.0 / 7.0, 0.0],
    );
    check_shares(
        Sampling {
            top_p: Some(0.75),
            ..plain.clone()
        },
        &l,
        &[4.0 / 9.0, 0.0, 3.0 / 9.0, 2.0 / 9.0],
    );
    check_shares(
        Sampling {
            top_p: Some(0.0),
            ..plain.clone()
        },
        &l,
        &[1.0, 0.0, 0.0, 0.0],
    );
    check_shares(
        Sampling {
            min_p: Some(0.6),
            ..plain.clone()
        },
        &l,
        &[4.0 / 7.0, 0.0, 3.0 / 7.0, 0.0],
    );
    // top_p applies after top_k: of 4/9, 3/9, 2/9 the first two are enough.
    let both = Sampling {
        top_k: Some(3),
        top_p: Some(0.7),
        ..plain.clone()
    };
    check_shares(both, &l, &[4.0 / 7.0, 0.0, 3.0 / 7.0, 0.0]);
    let hot = Sampling {
        temperature: Some(2.0),
        ..plain
    };
    let roots: Vec<f64> = [0.4_f64, 0.1, 0.3, 0.2].iter().map(|p| p.sqrt()).collect();
    let total: f64 = roots.iter().sum();
    check_shares(
        hot,
        &l,
        &roots.iter().map(|root| root / total).collect::<Vec<_>>(),
    );
}

#[test]
fn penalties_and_bias_move_single_tokens() {
    let greedy = Sampling {
        temperature: Some(0.0),
        ..Sampling::default()
    };
    let check = |sampling: Sampling, generated: &[u32], wanted: u32| {
        let settings = Settings::resolve(&sampling, &Sampling::default(), 4).unwrap();
        let mut sampler = Sampler::new(settings, 0, None, &[3], generated);
        assert_eq!(
            draw(&mut sampler, &[1.0, 2.0, 3.0, 4.0], 0),
            wanted,
            "{sampling:?}"
        );
    };
    check(greedy.clone(), &[3], 3);
    check(
        Sampling {
            repetition_penalty: Some(2.0),
            ..greedy.clone()
        },
        &[],
        2,
    );
    check(
        Sampling {
            presence_penalty: Some(1.5),
            ..greedy.clone()
        },
        &[3, 3],
        2,
    );
    check(
        Sampling {
            presence_penalty: Some(1.5),
            ..greedy.clone()
        },
        &[],
        3,
    );
    check(
        Sampling {
            frequency_penalty: Some(0.6),
            ..greedy.clone()
        },
        &[3],
        3,
    );
    check(
        Sampling {
            frequency_penalty: Some(0.6),
            ..greedy.clone()
        },
        &[3, 3],
        2,
    );
    check(
        Sampling {
            logit_bias: vec![(0, 5.0)],
            ..greedy
        },
        &[],
        0,
    );
}

#[test]
fn a_mask_leaves_only_what_it_allows() {
    let mut scratch = Scratch::default();
    let mask = TokenMask::allowing([1, 70]);
    for temperature in [0.0, 1.0] {
        let mut sampler = sampler(seeded(Sampling {
            temperature: Some(temperature),
            ..Sampling::default()
        }));
        for index in 0..100 {
            let mut row: Vec<f32> = (0..200).map(|i| (i % 50) as f32).collect();
            let drawn = sampler
                .sample(&mut row, Some(&mask), index, &mut scratch)
                .unwrap();
            assert!([1, 70].contains(&drawn.id));
        }
        let nothing = sampler.sample(
            &mut [1.0; 64],
            Some(&TokenMask::allowing([])),
            0,
            &mut scratch,
        );
        assert_eq!(nothing, Err(BadLogits::NothingAllowed));
    }
}

#[test]
fn log_probabilities_are_the_models_own_and_the_best_come_first() {
    let sampling = Sampling {
        temperature: Some(0.0),
        logit_bias: vec![(3, 100.0)],
        ..Sampling::default()
    };
    let settings = Settings::resolve(&sampling, &Sampling::default(), 4).unwrap();
    let mut sampler = Sampler::new(settings, 0, Some(2), &[], &[]);
    let mut row = logits(&[0.25, 0.25, 0.4, 0.1]);
    let TokenInfo { id, logprob, top } = sampler
        .sample(&mut row, None, 0, &mut Scratch::default())
        .unwrap();
    let close = |found: f32, wanted: f32| assert!((found - wanted.ln()).abs() < 1e-5, "{found}");
    assert_eq!(id, 3);
    close(logprob.unwrap(), 0.1);
    assert_eq!(top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 0]);
    close(top[0].1, 0.4);
    close(top[1].1, 0.25);
}

#[test]
fn bad_logits_fail_and_do_not_panic() {
    let mut sampler = sampler(Sampling {
        top_k: Some(3),
        top_p: Some(0.5),
        ..Sampling::default()
    });
    let mut scratch = Scratch::default();
    let result = sampler.sample(&mut [1.0, f32::NAN], None, 0, &mut scratch);
    assert_eq!(result, Err(BadLogits::NotANumber));
}

proptest! {
    #[test]
    fn a_draw_is_a_function_of_seed_choice_and_index(seed: u64, choice: u32, index in 0..10_000_usize) {
        let row: Vec<f32> = (0..300).map(|i| ((i * 37) % 101) as f32 / 30.0).collect();
        let settings = |top_p| Settings::resolve(
            &Sampling { seed: Some(seed), top_p, ..Sampling::default() }, &Sampling::default(), 300,
        ).unwrap();
        for top_p in [None, Some(0.8)] {
            let mut fresh = Sampler::new(settings(top_p), choice, None, &[], &[]);
            let mut used = Sampler::new(settings(top_p), choice, None, &[1, 2], &[3]);
            draw(&mut used, &row, index / 2);
            assert_eq!(draw(&mut fresh, &row, index), draw(&mut used, &row, index));
        }
    }
}
