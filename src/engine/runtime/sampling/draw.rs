//! Stateless random numbers: the draw for token `index` of choice `choice` depends only on these and the seed, so that
//! any worker can continue an interrupted text.

/// A number in `[0, 1)` from three rounds of the SplitMix64 finalizer over seed, choice and index, each multiplied by
/// an odd constant first. A stable interface: a change would change every seeded text.
pub fn uniform(seed: u64, choice: u32, index: u64) -> f64 {
    let choice = u64::from(choice).wrapping_mul(0xd1b5_4a32_d192_ed03);
    let index = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = mix(mix(mix(seed ^ 0x6d75_7374_6572_2031) ^ choice).wrapping_add(index));
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::uniform;

    #[test]
    fn a_seed_means_the_same_draws_for_ever() {
        let drawn: Vec<u64> = (0..3).map(|i| (uniform(42, 0, i) * 1e9) as u64).collect();
        assert_eq!(drawn, EXPECTED);
    }

    const EXPECTED: [u64; 3] = [222_746_637, 571_048_264, 510_784_387];

    #[test]
    fn neighbours_in_every_direction_are_unrelated() {
        let mean = |draws: Vec<f64>| draws.iter().sum::<f64>() / draws.len() as f64;
        let means = [
            mean((0..10_000).map(|i| uniform(7, 0, i)).collect()),
            mean((0..10_000).map(|c| uniform(7, c, 0)).collect()),
            mean((0..10_000).map(|seed| uniform(seed, 0, 0)).collect()),
            mean(
                (0..10_000)
                    .map(|i| uniform(7, 0, i) * uniform(7, 1, i) * 2.0)
                    .collect(),
            ),
        ];
        for mean in means {
            assert!((mean - 0.5).abs() < 0.02, "{means:?}");
        }
    }
}
