//! Streams on a simulated clock, with the costs of real machines: proposals pay or are left out.

use super::costs::StepCosts;
use super::lookup::Lookup;
use super::shares::{MOST_OF_STREAM, shares};

/// Seconds of a step: reading the weights or computing the products of its tokens, and the logits of each token.
#[derive(Debug, Clone, Copy)]
struct Machine {
    weights: f64,
    token: f64,
    logits: f64,
}

/// A 1B model in Q4_K_M on two cores.
const CPU: Machine = Machine {
    weights: 0.018,
    token: 0.0050,
    logits: 0.0022,
};

/// A processor without fast products: a second token costs as much as the first.
const SLOW_PRODUCTS: Machine = Machine {
    weights: 0.001,
    token: 0.020,
    logits: 0.002,
};

/// An 8B model on a GPU: hundreds of tokens cost as much as one.
const GPU: Machine = Machine {
    weights: 0.009,
    token: 0.000_035,
    logits: 0.000_01,
};

impl Machine {
    fn seconds(&self, tokens: usize) -> f64 {
        self.weights.max(tokens as f64 * self.token) + tokens as f64 * self.logits
    }
}

/// SplitMix64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A text that repeats an earlier part of itself, then continues with new tokens.
fn text(noise: &mut Noise, length: usize, repeated: usize, words: u64) -> Vec<u32> {
    let mut text: Vec<u32> = Vec::new();
    while text.len() < length {
        let new = 1 + noise.below(20);
        text.extend((0..new).map(|_| noise.below(words) as u32));
        let from = noise.below(text.len() as u64) as usize;
        for at in from..from + repeated {
            text.push(text[at]);
        }
    }
    text.truncate(length);
    text
}

/// Seconds until each text is complete, with or without speculation. Streams that end free their share.
fn serve(machine: Machine, texts: &[Vec<u32>], speculates: bool) -> Vec<f64> {
    let mut noise = Noise(7);
    let mut costs = StepCosts::default();
    let mut lookups: Vec<Lookup> = texts.iter().map(|_| Lookup::default()).collect();
    let mut lengths = vec![1; texts.len()];
    let mut ends = vec![0.0; texts.len()];
    let mut clock = 0.0;
    loop {
        let running: Vec<usize> = (0..texts.len())
            .filter(|&at| lengths[at] < texts[at].len())
            .collect();
        if running.is_empty() {
            return ends;
        }
        let (mut proposals, mut chances) = (Vec::new(), Vec::new());
        for &at in &running {
            let known = &texts[at][..lengths[at]];
            lookups[at].follow(known);
            let left = texts[at].len() - known.len() - 1;
            let (proposed, chance) = lookups[at].propose(known, left.min(MOST_OF_STREAM));
            proposals.push(proposed);
            chances.push(chance);
        }
        let curve = costs.curve(running.len()).filter(|_| speculates);
        let shares = match curve {
            Some(curve) => shares(running.len(), running.len(), &chances, &curve),
            None => vec![0; running.len()],
        };
        let tokens = running.len() + shares.iter().sum::<usize>();
        // Up to 4 % more or less, and one step in fifty is disturbed.
        let disturbed = if noise.below(50) == 0 { 1.8 } else { 1.0 };
        let factor = disturbed * (0.96 + 0.08 * noise.below(1000) as f64 / 1000.0);
        let seconds = machine.seconds(tokens) * factor;
        clock += seconds;
        costs.record(tokens, seconds);
        for ((&at, proposed), share) in running.iter().zip(&proposals).zip(shares) {
            let rest = &texts[at][lengths[at]..];
            let pairs = proposed[..share].iter().zip(rest);
            let right = pairs.take_while(|(proposed, drawn)| proposed == drawn);
            lengths[at] += 1 + right.count();
            ends[at] = clock;
        }
    }
}

/// How many times faster each stream is than without proposals.
fn gains(machine: Machine, texts: &[Vec<u32>]) -> Vec<f64> {
    let plain = serve(machine, texts, false);
    let speculating = serve(machine, texts, true);
    plain.iter().zip(speculating).map(|(a, b)| a / b).collect()
}

#[test]
fn repetitive_text_is_faster_alone() {
    for (machine, wanted) in [(CPU, 1.7), (GPU, 3.0)] {
        let text = text(&mut Noise(1), 1500, 60, 30_000);
        let gain = gains(machine, &[text])[0];
        assert!(gain >= wanted, "{gain:.2} x, {machine:?}");
    }
}

/// Includes a text where short matches are frequent but useless.
#[test]
fn text_that_never_repeats_loses_nothing() {
    for machine in [CPU, GPU, SLOW_PRODUCTS] {
        for words in [30_000, 20] {
            let text = text(&mut Noise(2), 1500, 0, words);
            let gain = gains(machine, &[text])[0];
            assert!(gain >= 0.98, "{gain:.3} x, {words} words, {machine:?}");
        }
    }
}

#[test]
fn speculation_is_off_where_a_token_costs_as_much_as_a_step() {
    let text = text(&mut Noise(3), 1500, 60, 30_000);
    let gain = gains(SLOW_PRODUCTS, &[text])[0];
    assert!(gain >= 0.98, "{gain:.3} x");
}

/// Half of the streams repeat themselves: they gain, and the others lose little.
#[test]
fn streams_in_company_gain_more_than_others_lose() {
    for (machine, streams) in [(CPU, 2), (CPU, 8), (GPU, 8), (GPU, 24)] {
        let mut noise = Noise(4);
        let repeated = |stream: usize| if stream.is_multiple_of(2) { 60 } else { 0 };
        let texts: Vec<_> = (0..streams)
            .map(|stream| text(&mut noise, 1000, repeated(stream), 30_000))
            .collect();
        let gains = gains(machine, &texts);
        let product: f64 = gains.iter().map(|gain| gain.ln()).sum();
        assert!(
            product >= -0.02 * streams as f64,
            "{gains:.2?}, {machine:?}"
        );
        let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least >= 0.7, "{gains:.2?}, {machine:?}");
    }
}
