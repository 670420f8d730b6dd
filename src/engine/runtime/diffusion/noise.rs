//! Seeded normal noise.
//!
//! The initial noise of an image is that of PyTorch's CPU generator, so that a seed gives the same noise as in other
//! programs. Later noise comes from a counter-based generator (Philox), so that it depends only on the seed, the number
//! of the draw and the position.

use std::f64::consts::TAU;

/// Numbers that PyTorch fills at once.
const BLOCK: usize = 16;
/// PyTorch generates shorter sequences with another algorithm.
const LEAST_FILLED: usize = 16;

/// The numbers of `torch.manual_seed(seed)` and `torch.randn` on a CPU in f32.
pub fn start(seed: u64, count: usize) -> Vec<f32> {
    // PyTorch keeps the low half of the seed.
    let mut twister = Twister::new(seed as u32);
    if count < LEAST_FILLED {
        return few(&mut twister, count);
    }
    let mut values: Vec<f32> = (0..count).map(|_| twister.uniform()).collect();
    let whole = count / BLOCK * BLOCK;
    for block in values[..whole].chunks_exact_mut(BLOCK) {
        to_normal(block);
    }
    if whole < count {
        let last = &mut values[count - BLOCK..];
        last.fill_with(|| twister.uniform());
        to_normal(last);
    }
    values
}

/// The noise of one latent of a batch: a batch is one stream of numbers, as in other programs.
pub fn of_series(seed: u64, index: u32, count: usize) -> Vec<f64> {
    let index = index as usize;
    let stream = start(seed, count * (index + 1));
    let own = stream.into_iter().skip(count * index);
    own.map(f64::from).collect()
}

/// Converts channels-first numbers to channels-last.
pub fn channels_last(numbers: &[f64], channels: usize) -> Vec<f64> {
    let area = numbers.len() / channels.max(1);
    let places = (0..area).flat_map(|place| (0..channels).map(move |it| it * area + place));
    places.map(|at| numbers[at]).collect()
}

/// Box and Muller's method on the pairs (j, j + 8).
fn to_normal(block: &mut [f32]) {
    let (radii, angles) = block.split_at_mut(BLOCK / 2);
    for (first, second) in radii.iter_mut().zip(angles) {
        let radius = (-2.0 * f64::from(1.0 - *first).ln()).sqrt();
        let (sin, cos) = (TAU * f64::from(*second)).sin_cos();
        (*first, *second) = ((radius * cos) as f32, (radius * sin) as f32);
    }
}

/// Box-Muller with pairs of 53-bit numbers; the second result of a pair is kept for the next draw.
fn few(twister: &mut Twister, count: usize) -> Vec<f32> {
    let pairs = std::iter::repeat_with(|| {
        let first = twister.uniform_long();
        let second = twister.uniform_long();
        let radius = (-2.0 * (1.0 - second).ln()).sqrt();
        let (sin, cos) = (TAU * first).sin_cos();
        [(radius * cos) as f32, (radius * sin) as f32]
    });
    pairs.flatten().take(count).collect()
}

/// Normal numbers from position `first` on, equal to those of PyTorch's CUDA generator at its `draw`-th call.
pub fn counted(seed: u64, draw: u32, first: u32, count: usize) -> Vec<f64> {
    let key = [seed as u32, (seed >> 32) as u32];
    let places = (0..count as u32).map(|place| first.wrapping_add(place));
    let numbers = places.map(|place| {
        let [first, second, ..] = philox([draw, 0, place, 0], key);
        let share = |word: u32| (f64::from(word) + 0.5) * 2f64.powi(-32);
        (-2.0 * share(first).ln()).sqrt() * (TAU * share(second)).sin()
    });
    numbers.collect()
}

/// Philox 4x32-10 (Salmon et al.: Parallel Random Numbers: As Easy as 1, 2, 3, 2011).
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let wide = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        ((product >> 32) as u32, product as u32)
    };
    for _ in 0..10 {
        let (high_0, low_0) = wide(MULTIPLIERS[0], counter[0]);
        let (high_1, low_1) = wide(MULTIPLIERS[1], counter[2]);
        counter = [
            high_1 ^ counter[1] ^ key[0],
            low_1,
            high_0 ^ counter[3] ^ key[1],
            low_0,
        ];
        for (key, step) in key.iter_mut().zip(KEY_STEPS) {
            *key = key.wrapping_add(step);
        }
    }
    counter
}

/// The Mersenne twister (Matsumoto and Nishimura, 1998).
struct Twister {
    state: [u32; Self::WORDS],
    at: usize,
}

impl Twister {
    const WORDS: usize = 624;
    const MIDDLE: usize = 397;

    fn new(seed: u32) -> Self {
        let mut state = [seed; Self::WORDS];
        for at in 1..Self::WORDS {
            let before = state[at - 1];
            state[at] = 1_812_433_253_u32
                .wrapping_mul(before ^ before >> 30)
                .wrapping_add(at as u32);
        }
        Self {
            state,
            at: Self::WORDS,
        }
    }

    fn refill(&mut self) {
        for at in 0..Self::WORDS {
            let next = self.state[(at + 1) % Self::WORDS];
            let joined = self.state[at] & 0x8000_0000 | next & 0x7FFF_FFFF;
            let odd = match joined & 1 {
                0 => 0,
                _ => 0x9908_B0DF,
            };
            self.state[at] = self.state[(at + Self::MIDDLE) % Self::WORDS] ^ joined >> 1 ^ odd;
        }
        self.at = 0;
    }

    fn next(&mut self) -> u32 {
        if self.at == Self::WORDS {
            self.refill();
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9D2C_5680;
        word ^= word << 15 & 0xEFC6_0000;
        word ^ word >> 18
    }

    /// 24 bits, in `[0, 1)`.
    fn uniform(&mut self) -> f32 {
        (self.next() & 0xFF_FFFF) as f32 * 2f32.powi(-24)
    }

    /// 53 bits, in `[0, 1)`.
    fn uniform_long(&mut self) -> f64 {
        let (high, low) = (self.next(), self.next());
        let bits = u64::from(high) << 32 | u64::from(low);
        (bits & ((1 << 53) - 1)) as f64 * 2f64.powi(-53)
    }
}

#[cfg(test)]
mod tests {
    use super::philox;

    /// Known-answer tests of the paper's library.
    #[test]
    fn philox_gives_the_published_words() {
        let zeros = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];
        assert_eq!(philox([0; 4], [0; 2]), zeros);
        let ones = [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd];
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), ones);
        let digits = philox(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
        );
        assert_eq!(digits, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }
}
