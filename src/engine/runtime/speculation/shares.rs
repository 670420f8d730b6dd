//! The number of draft tokens that each stream verifies in the next step. Pure.
//!
//! A step with more tokens takes longer for all of its streams; a stream with accepted drafts gets several tokens out
//! of it. The shares maximize the product of the streams' speeds: a single stream verifies as many tokens as make its
//! own text faster, and several streams do not slow each other by more than they gain.

use super::costs::CostCurve;

/// The most tokens that all streams of a step propose: each takes the memory of a row of logits.
pub const MOST_PROPOSED: usize = 64;
/// The most that one stream proposes.
pub const MOST_OF_STREAM: usize = 16;
/// The longest step with drafts, relative to one without; the same limit as for steps with prompts.
const SLOWDOWN: f64 = 2.5;
/// A gain (as a logarithm) below this is lost in noise.
const LEAST_GAIN: f64 = 0.02;

/// The number of draft tokens that each stream verifies. `streams` of them compute `tokens` without drafts; `chances`
/// has, per stream with drafts, the probability of each token to be accepted if those before it are.
pub fn shares(
    streams: usize,
    tokens: usize,
    chances: &[Vec<f64>],
    costs: &CostCurve,
) -> Vec<usize> {
    let mut gains: Vec<(usize, f64)> = chances.iter().enumerate().flat_map(stream_gains).collect();
    // Each stream's own descend, and a stable sort keeps their order where they are equal.
    gains.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let plain = costs.seconds(tokens);
    let room = costs.most_tokens().saturating_sub(tokens);
    let (mut gain, mut best) = (0.0, (LEAST_GAIN, 0));
    for (at, (_, more)) in gains.iter().enumerate().take(room.min(MOST_PROPOSED)) {
        gain += more;
        let slowdown = costs.seconds(tokens + at + 1) / plain;
        let net = gain - streams as f64 * slowdown.ln();
        // Costs rise in steps of several tokens, so that a loss may be a gain further on.
        if slowdown <= SLOWDOWN && net > best.0 {
            best = (net, at + 1);
        }
    }
    let mut shares = vec![0; chances.len()];
    for (stream, _) in &gains[..best.1] {
        shares[*stream] += 1;
    }
    shares
}

/// The increase, by each draft token, of the logarithm of a stream's expected tokens per step.
fn stream_gains((stream, chances): (usize, &Vec<f64>)) -> impl Iterator<Item = (usize, f64)> {
    let (mut right, mut expected) = (1.0, 1.0_f64);
    let chances = chances.iter().take(MOST_OF_STREAM);
    let mut least = f64::INFINITY;
    chances.map(move |chance| {
        right *= chance;
        let more = (expected + right).ln() - expected.ln();
        expected += right;
        least = more.min(least);
        (stream, least)
    })
}

#[cfg(test)]
mod tests {
    use super::super::costs::StepCosts;
    use super::{MOST_OF_STREAM, MOST_PROPOSED, shares};

    fn check(samples: &[(usize, f64)], streams: usize, chances: &[&[f64]], wanted: &[usize]) {
        let mut costs = StepCosts::default();
        for &(tokens, seconds) in samples {
            costs.record(tokens, seconds);
        }
        let chances: Vec<Vec<f64>> = chances.iter().map(|all| all.to_vec()).collect();
        let curve = costs.curve(streams).unwrap();
        let found = shares(streams, streams, &chances, &curve);
        assert_eq!(found, wanted, "{samples:?} {streams} {chances:?}");
    }

    const FREE: &[(usize, f64)] = &[(1, 10.0), (32, 10.5)];
    const DEAR: &[(usize, f64)] = &[(1, 10.0), (2, 19.0), (4, 38.0)];

    #[test]
    fn a_sure_stream_takes_all_it_may_where_tokens_are_free() {
        check(FREE, 1, &[&[0.99; 30]], &[MOST_OF_STREAM]);
        check(FREE, 1, &[&[0.99; 3]], &[3]);
        check(FREE, 1, &[&[]], &[0]);
    }

    #[test]
    fn nothing_is_proposed_where_it_does_not_pay() {
        check(DEAR, 1, &[&[0.8; 8]], &[0]);
        check(&[(1, 10.0), (8, 20.0)], 1, &[&[0.05; 8]], &[0]);
        check(&[(1, 10.0), (8, 20.0)], 1, &[&[0.9; 7]], &[7]);
    }

    #[test]
    fn a_step_never_takes_much_longer() {
        check(&[(1, 10.0), (16, 50.0)], 1, &[&[1.0; 16]], &[5]);
    }

    #[test]
    fn costs_that_rise_in_stairs_are_climbed() {
        let stairs = &[(1, 10.0), (2, 16.0), (4, 16.5), (5, 30.0)];
        check(stairs, 1, &[&[0.9; 4]], &[3]);
    }

    #[test]
    fn what_many_cost_is_not_known_from_few() {
        check(&[(1, 10.0)], 1, &[&[1.0; 16]], &[1]);
        check(&[(1, 10.0), (2, 11.0)], 1, &[&[1.0; 16]], &[3]);
    }

    /// If each token has the same cost, eight streams would lose as much as one gains, so that none drafts.
    #[test]
    fn a_stream_does_not_gain_at_the_cost_of_others() {
        let even = &[(8, 80.0), (16, 160.0), (24, 240.0)];
        let mut chances: Vec<&[f64]> = vec![&[]; 7];
        chances.push(&[1.0; 8]);
        check(even, 8, &chances, &[0; 8]);
        let memory_bound = &[(8, 80.0), (16, 84.0)];
        check(memory_bound, 8, &chances, &[0, 0, 0, 0, 0, 0, 0, 8]);
    }

    #[test]
    fn all_streams_together_stay_within_the_rows_of_logits() {
        let chances: Vec<&[f64]> = vec![&[1.0; 16]; 16];
        check(&[(16, 10.0), (256, 10.1)], 16, &chances, &[4; 16]);
        assert_eq!(MOST_PROPOSED, 4 * 16);
    }
}
