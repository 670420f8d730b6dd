//! Random weights as files store them, fast enough to fill a GPU with.

use std::{num::NonZero, thread};

use candle_core::quantized::GgmlDType;
use half::f16;

/// Random blocks of this type with a spread of `spread` around zero; the same bytes for the same name.
pub fn blocks(dtype: GgmlDType, bytes: usize, name: &str, spread: f32) -> Vec<u8> {
    let mut made = vec![0; bytes];
    let part_bytes = BLOCKS_AT_ONCE * dtype.type_size();
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let parts_each = bytes.div_ceil(part_bytes).div_ceil(threads).max(1);
    thread::scope(|scope| {
        let shares = made.chunks_mut(parts_each * part_bytes).enumerate();
        for (share, bytes) in shares {
            scope.spawn(move || {
                for (part, bytes) in bytes.chunks_mut(part_bytes).enumerate() {
                    let index = (share * parts_each + part) as u64;
                    fill(
                        dtype,
                        bytes,
                        Random(seed ^ index.wrapping_mul(MIXER)),
                        spread,
                    );
                }
            });
        }
    });
    made
}

/// Parts have separate seeds, so that the bytes do not depend on the number of threads.
const BLOCKS_AT_ONCE: usize = 1 << 16;
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

fn fill(dtype: GgmlDType, bytes: &mut [u8], mut random: Random, spread: f32) {
    for eight in bytes.chunks_mut(8) {
        eight.copy_from_slice(&random.next().to_le_bytes()[..eight.len()]);
    }
    for block in bytes.chunks_exact_mut(dtype.type_size()) {
        scale(dtype, block, spread);
    }
}

/// Turns random bits into plausible numbers: dense ones keep sign and mantissa and get the exponent of the spread,
/// quantized ones get a scale that normalizes their random integers.
fn scale(dtype: GgmlDType, block: &mut [u8], spread: f32) {
    let put = |block: &mut [u8], at: usize, number: f32| {
        block[at..at + 2].copy_from_slice(&f16::from_f32(number).to_le_bytes());
    };
    match dtype {
        GgmlDType::F32 => keep(block, &[0xff, 0xff, 0x7f, 0x80], &spread.to_le_bytes()),
        GgmlDType::F16 => keep(block, &[0xff, 0x83], &f16::from_f32(spread).to_le_bytes()),
        GgmlDType::BF16 => keep(block, &[0x7f, 0x80], &spread.to_le_bytes()[2..]),
        GgmlDType::Q8_0 => put(block, 0, spread / 74.0),
        GgmlDType::Q4_0 => put(block, 0, spread / 4.6),
        GgmlDType::Q5_0 => put(block, 0, spread / 9.2),
        GgmlDType::Q5_1 => {
            put(block, 0, spread / 9.2);
            put(block, 2, spread / 9.2 * -15.5);
        }
        GgmlDType::Q6K => put(block, 208, spread / 1369.0),
        GgmlDType::Q4K => {
            // The subtracted minimum equals the mean, which centers the numbers.
            put(block, 0, spread / 258.0);
            put(block, 2, spread / 258.0 * 7.5);
        }
        GgmlDType::Q5K => {
            put(block, 0, spread / 527.0);
            put(block, 2, spread / 527.0 * 15.5);
        }
        _ => block.fill(0),
    }
}

/// Random bits where the mask has ones, the pattern's elsewhere.
fn keep(block: &mut [u8], mask: &[u8], pattern: &[u8]) {
    for ((byte, mask), pattern) in block.iter_mut().zip(mask).zip(pattern) {
        *byte = (*byte & mask) | (pattern & !mask);
    }
}

/// xorshift64*: quick, and good enough for weights that mean nothing.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        let mut state = self.0 | 1;
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.0 = state;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::weights::convert;

    #[test]
    fn numbers_spread_as_asked_around_zero() {
        for dtype in [
            GgmlDType::F32,
            GgmlDType::F16,
            GgmlDType::BF16,
            GgmlDType::Q8_0,
            GgmlDType::Q4_0,
            GgmlDType::Q5_0,
            GgmlDType::Q5_1,
            GgmlDType::Q4K,
            GgmlDType::Q5K,
            GgmlDType::Q6K,
        ] {
            let bytes = blocks(dtype, 256 * dtype.type_size(), "a", 0.02);
            let numbers = convert::floats(dtype, &bytes).unwrap();
            let count = numbers.len() as f32;
            let mean = numbers.iter().sum::<f32>() / count;
            let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / count;
            let spread = variance.sqrt();
            assert!((0.01..0.04).contains(&spread), "{dtype:?}: {spread}");
            assert!(mean.abs() < 0.006, "{dtype:?}: {mean}");
        }
    }

    #[test]
    fn each_tensor_has_numbers_of_its_own_and_keeps_them() {
        let make = |name| blocks(GgmlDType::Q8_0, 34 * 70_000, name, 0.1);
        assert_eq!(make("a"), make("a"));
        assert_ne!(make("a")[..34], make("b")[..34]);
        let made = make("a");
        assert_ne!(made[..34], made[34 * (1 << 16)..][..34]);
    }
}
