//! Results of each setting, computed by hand.

use proptest::prelude::{Just, any, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy;

use super::super::{Sampler, Scratch, Settings, TokenMask};
use crate::runtime::Sampling;

/// Unsorted, to detect errors in the order.
const FOUR: [f32; 4] = [0.4, 0.1, 0.3, 0.2];
/// Probabilities whose entropy is 7/8 of the maximum for four tokens.
const HALVES: [f32; 4] = [0.5, 0.25, 0.125, 0.125];

fn asked() -> Sampling {
    Sampling {
        seed: Some(9),
        ..Sampling::default()
    }
}

fn sampler(sampling: &Sampling) -> Sampler {
    let settings = Settings::resolve(sampling, &Sampling::default(), 1000).unwrap();
    Sampler::new(settings, 0, None, &[], &[])
}

fn logits(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

/// The probability of each token.
fn left(sampling: &Sampling, logits: &[f32]) -> Vec<f64> {
    let sampler = sampler(sampling);
    let shaping = sampler.settings.shaping.expect("a setting acts");
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut scratch = Scratch::default();
    sampler.shape(&shaping, logits, best, &mut scratch);
    let weights = scratch.candidates.iter().map(|c| f64::from(c.weight));
    let total: f64 = weights.sum();
    let mut shares = vec![0.0; logits.len()];
    for candidate in &scratch.candidates {
        shares[candidate.id as usize] = f64::from(candidate.weight) / total;
    }
    shares
}

fn check_logits(sampling: Sampling, logits: &[f32], wanted: &[f64]) {
    let found = left(&sampling, logits);
    let is_close = |(found, wanted): (&f64, &f64)| (found - wanted).abs() < 1e-5;
    assert!(
        found.len() == wanted.len() && found.iter().zip(wanted).all(is_close),
        "{sampling:?}: {found:?} is not {wanted:?}"
    );
}

fn check(sampling: Sampling, probabilities: &[f32], wanted: &[f64]) {
    check_logits(sampling, &logits(probabilities), wanted);
}

fn shares<const N: usize>(weights: [f64; N]) -> [f64; N] {
    let total: f64 = weights.iter().sum();
    weights.map(|weight| weight / total)
}

#[test]
fn top_a_measures_by_the_square_of_the_best() {
    let top_a = |top_a| Sampling {
        top_a: Some(top_a),
        ..asked()
    };
    // The bar is 0.16, then 0.112, then 0.08.
    check(top_a(1.0), &FOUR, &shares([4.0, 0.0, 3.0, 2.0]));
    check(top_a(0.7), &FOUR, &shares([4.0, 0.0, 3.0, 2.0]));
    check(top_a(0.5), &FOUR, &shares([4.0, 1.0, 3.0, 2.0]));
    check(top_a(1.0), &[0.0, 1.0], &[0.0, 1.0]);
}

#[test]
fn top_a_comes_after_top_k_and_before_top_p_and_min_p() {
    let top_a = Sampling {
        top_a: Some(1.0),
        ..asked()
    };
    // Both 4/7 and 3/7 are above 16/49.
    let few = Sampling {
        top_k: Some(2),
        ..top_a.clone()
    };
    check(few, &FOUR, &shares([4.0, 0.0, 3.0, 0.0]));
    // 4/9 and 3/9 are enough; 0.4 and 0.3 would not be.
    let nucleus = Sampling {
        top_p: Some(0.75),
        ..top_a.clone()
    };
    check(nucleus, &FOUR, &shares([4.0, 0.0, 3.0, 0.0]));
    let near = Sampling {
        min_p: Some(0.8),
        ..top_a
    };
    check(near, &FOUR, &[1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn tfs_cuts_where_the_curve_has_bent_enough() {
    let tfs = |tfs| Sampling {
        tfs: Some(tfs),
        ..asked()
    };
    // Falls of 0.1, 0.1, 0.13, 0.04: bends of 0, 0.03, 0.09, together 0, a quarter, all.
    let falling = [0.4, 0.3, 0.2, 0.07, 0.03];
    check(tfs(0.5), &falling, &shares([4.0, 3.0, 0.0, 0.0, 0.0]));
    check(tfs(0.2), &falling, &[1.0, 0.0, 0.0, 0.0, 0.0]);
    // All bending is before the second; still the first stays.
    let steep = [0.5, 0.2, 0.15, 0.1, 0.05];
    check(tfs(0.1), &steep, &[1.0, 0.0, 0.0, 0.0, 0.0]);
    // Too few candidates for a tail.
    check(tfs(0.1), &[0.5, 0.3, 0.2], &[0.5, 0.3, 0.2]);
    check(tfs(0.1), &[0.0, 1.0], &[0.0, 1.0]);
}

#[test]
fn tfs_goes_by_the_number_of_tokens_where_nothing_bends() {
    let tfs = Sampling {
        tfs: Some(0.45),
        ..asked()
    };
    // Eight bends that count alike: it is past 0.45 with the fourth, and three come before that.
    let mut wanted = [0.0; 10];
    wanted[..3].fill(1.0 / 3.0);
    check_logits(tfs, &[1.5; 10], &wanted);
}

#[test]
fn typical_keeps_what_tells_as_much_as_is_expected() {
    let typical = |typical| Sampling {
        typical: Some(typical),
        ..asked()
    };
    // The entropy is 1.280; from it 0.3 is 0.076 away, 0.2 is 0.330, 0.4 is 0.364, 0.1 is 1.023.
    check(typical(0.2), &FOUR, &[0.0, 0.0, 1.0, 0.0]);
    check(typical(0.45), &FOUR, &[0.0, 0.0, 0.6, 0.4]);
    check(typical(0.6), &FOUR, &shares([4.0, 0.0, 3.0, 2.0]));
    check(typical(0.95), &FOUR, &[0.4, 0.1, 0.3, 0.2]);
    check(typical(0.01), &[0.0, 1.0], &[0.0, 1.0]);
    // At temperature 2 it is 0.282, too little alone, and 0.230 comes next.
    let hot = Sampling {
        temperature: Some(2.0),
        ..typical(0.29)
    };
    let roots = shares([0.0, 0.0, 0.3_f64.sqrt(), 0.2_f64.sqrt()]);
    check(hot, &FOUR, &roots);
    check(typical(0.29), &FOUR, &[0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn typical_looks_at_what_the_others_left() {
    // 4/7 and 3/7 have the entropy 0.683; 4/7 is 0.123 away and 3/7 is 0.164.
    for cut in [
        Sampling {
            top_k: Some(2),
            ..asked()
        },
        Sampling {
            top_p: Some(0.65),
            ..asked()
        },
        Sampling {
            min_p: Some(0.7),
            ..asked()
        },
    ] {
        let both = Sampling {
            typical: Some(0.2),
            ..cut
        };
        check(both, &FOUR, &[1.0, 0.0, 0.0, 0.0]);
    }
}

#[test]
fn smoothing_squares_the_distance_from_the_best() {
    let smoothed = |smoothing_factor| Sampling {
        smoothing_factor: Some(smoothing_factor),
        ..asked()
    };
    let row = [1.0, 2.0, 0.0, f32::NEG_INFINITY];
    for factor in [0.5_f64, 1.0, 2.0] {
        let wanted = shares([(-factor).exp(), 1.0, (-4.0 * factor).exp(), 0.0]);
        check_logits(smoothed(factor as f32), &row, &wanted);
        let few = Sampling {
            top_k: Some(3),
            ..smoothed(factor as f32)
        };
        check_logits(few, &row, &wanted);
    }
    let hot = Sampling {
        temperature: Some(2.0),
        ..smoothed(1.0)
    };
    let wanted = shares([(-0.5_f64).exp(), 1.0, (-2.0_f64).exp(), 0.0]);
    check_logits(hot, &row, &wanted);
}

#[test]
fn the_temperature_follows_how_unsure_the_model_is() {
    let moving = |temperature, range, exponent| Sampling {
        temperature: Some(temperature),
        dynatemp_range: Some(range),
        dynatemp_exponent: exponent,
        ..asked()
    };
    let at = |temperature: f64| shares(HALVES.map(|p| f64::from(p).powf(1.0 / temperature)));
    // 7/8 of the way from 0.5 to 1.5, 49/64 of it, from 0 to 2.5, and from 0 to 2.
    check(moving(1.0, 0.5, None), &HALVES, &at(1.375));
    check(moving(1.0, 0.5, Some(2.0)), &HALVES, &at(1.265_625));
    check(moving(1.0, 0.5, Some(0.0)), &HALVES, &at(1.5));
    check(moving(0.5, 2.0, None), &HALVES, &at(2.1875));
    check(moving(0.0, 2.0, None), &HALVES, &at(1.75));
    // Masked tokens do not count in the entropy.
    let masked = [0.5, 0.0, 0.25, 0.125, 0.125, 0.0];
    let [a, b, c, d] = at(1.375);
    check(moving(1.0, 0.5, None), &masked, &[a, 0.0, b, c, d, 0.0]);
    // 2/3 and 1/3 have 0.918296 of the maximal entropy: 1.418296.
    let few = Sampling {
        top_k: Some(2),
        ..moving(1.0, 0.5, None)
    };
    check(few, &HALVES, &[0.619_804, 0.380_196, 0.0, 0.0]);
}

#[test]
fn a_model_that_is_sure_gets_the_lowest_temperature() {
    let moving = |temperature| Sampling {
        temperature: Some(temperature),
        dynatemp_range: Some(0.5),
        ..asked()
    };
    // 10 at about temperature 1/2 counts as 20.
    let near = left(&moving(1.0), &[0.0, -10.0]);
    assert!((1e-9..1e-8).contains(&near[1]), "{near:?}");
    // The range begins at 0, which leaves the best alone.
    check_logits(moving(0.5), &[-30.0, 0.0], &[0.0, 1.0]);
    check_logits(moving(0.0), &[f32::NEG_INFINITY, 3.0], &[0.0, 1.0]);
}

#[test]
fn a_setting_that_drops_nothing_changes_no_draw() {
    let row: Vec<f32> = (0..100).map(|i| ((i * 37) % 101) as f32 / 30.0).collect();
    let top_a = Sampling {
        top_a: Some(1e-30),
        ..asked()
    };
    let (mut plain, mut shaped) = (sampler(&asked()), sampler(&top_a));
    let mut scratch = Scratch::default();
    for index in 0..200 {
        let mut draw = |sampler: &mut Sampler| {
            let mut row = row.clone();
            sampler.sample(&mut row, None, index, &mut scratch).unwrap()
        };
        assert_eq!(draw(&mut plain), draw(&mut shaped));
    }
}

fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        // Coarse steps, to get ties.
        8 => (-20..4_i32).prop_map(|step| step as f32 / 4.0),
        4 => -9.0..9.0_f32,
        1 => Just(-1e30_f32),
    ]
}

/// Any number that is within the bounds, often their ends.
fn within(most: f32) -> impl Strategy<Value = Option<f32>> {
    prop_oneof![
        Just(None),
        Just(Some(0.0)),
        Just(Some(f32::MIN_POSITIVE)),
        Just(Some(most)),
        (0.0..most).prop_map(Some),
    ]
}

proptest! {
    #[test]
    fn whatever_is_asked_for_an_allowed_token_is_drawn(
        row in proptest::collection::vec(logit(), 2..200),
        (temperature, top_k, top_p, min_p) in (within(5.0), 0..300_usize, within(1.0), within(1.0)),
        (smoothing_factor, top_a, tfs, typical) in (within(10.0), within(1.0), within(1.0), within(1.0)),
        (dynatemp_range, dynatemp_exponent) in (within(5.0), within(5.0)),
        seed in any::<u64>(),
    ) {
        let mut sampler = sampler(&Sampling {
            temperature, top_k: Some(top_k), top_p, min_p, smoothing_factor, top_a, tfs, typical,
            dynatemp_range, dynatemp_exponent, seed: Some(seed), ..Sampling::default()
        });
        // Every other token, and not the first.
        let mask = TokenMask::allowing((0..row.len() as u32).filter(|id| id % 2 == 1));
        let mut scratch = Scratch::default();
        for index in 0..4 {
            let drawn = sampler.sample(&mut row.clone(), Some(&mask), index, &mut scratch).unwrap();
            prop_assert!(drawn.id % 2 == 1 && (drawn.id as usize) < row.len(), "{}", drawn.id);
        }
    }
}
