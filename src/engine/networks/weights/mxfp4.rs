//! MXFP4 (OCP microscaling formats, 2023): blocks of 32 numbers of four bits (e2m1) with a shared power of two (e8m0).
//!
//! GGUF stores a block as its exponent and sixteen bytes, whose low halves are the first sixteen numbers. The hub's
//! files have exponents and bytes in two tensors, and two neighbouring numbers in a byte.

use candle_core::{Result, bail};
use half::f16;

const BLOCK_BYTES: usize = 17;

/// GGUF's blocks of the hub's bytes, sixteen for each of the exponents.
pub fn from_hub(codes: &[u8], exponents: &[u8]) -> Vec<u8> {
    let mut blocks = Vec::with_capacity(exponents.len() * BLOCK_BYTES);
    for (codes, exponent) in codes.as_chunks::<16>().0.iter().zip(exponents) {
        let code = |at: usize| codes[at / 2] >> (at % 2 * 4) & 15;
        blocks.push(*exponent);
        blocks.extend((0..16).map(|at| code(at) | code(at + 16) << 4));
    }
    blocks
}

/// Twice the value of a code, plus 16: five-bit numbers, as in Q5_0.
const CODES: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

/// Converts to blocks of Q5_0, whose scale is an f16.
pub fn as_q5_0(blocks: &[u8]) -> Result<Vec<u8>> {
    let (blocks, _) = blocks.as_chunks::<BLOCK_BYTES>();
    let mut out = Vec::with_capacity(blocks.len() * 22);
    for block in blocks {
        let codes = &block[1..];
        let five = |at: usize| u32::from(CODES[usize::from(codes[at % 16] >> (at / 16 * 4) & 15)]);
        let is_zero = (0..32).all(|at| five(at) == 16);
        let scale = 2f32.powi(i32::from(block[0]) - 128);
        let half = f16::from_f32(scale);
        if !is_zero && half.to_f32() != scale {
            bail!(
                "a scale of MXFP4 is 2^{}, which Q5_0 cannot hold",
                i32::from(block[0]) - 127
            );
        }
        out.extend(if is_zero { f16::ZERO } else { half }.to_le_bytes());
        let fifth = (0..32).fold(0_u32, |bits, at| bits | (five(at) >> 4) << at);
        out.extend(fifth.to_le_bytes());
        out.extend((0..16).map(|at| (five(at) & 15 | (five(at + 16) & 15) << 4) as u8));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::GgmlDType;

    use super::*;
    use crate::networks::weights::convert;

    /// The values of the codes 0 to 15.
    const VALUES: [f32; 16] = [
        0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
    ];

    #[test]
    fn the_hubs_blocks_hold_the_same_numbers_in_q5_0() {
        // The codes in order, then in order backwards.
        let codes: Vec<u8> = (0..16)
            .map(|byte| match byte {
                0..8 => (2 * byte) | ((2 * byte + 1) << 4),
                _ => (31 - 2 * byte) | ((30 - 2 * byte) << 4),
            })
            .collect();
        let blocks = from_hub(&[&codes[..], &codes[..]].concat(), &[127, 120]);
        assert_eq!(blocks[..3], [127, 0xf0, 0xe1]);
        let found = convert::floats(GgmlDType::Q5_0, &as_q5_0(&blocks).unwrap()).unwrap();
        let values = || VALUES.into_iter().chain(VALUES.into_iter().rev());
        let wanted: Vec<f32> = values()
            .chain(values().map(|value| value / 128.0))
            .collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn scales_that_f16_does_not_hold_are_refused_unless_they_scale_nothing() {
        let block = |exponent, byte| [&[exponent][..], &[byte; 16]].concat();
        assert!(as_q5_0(&block(104, 0x11)).is_ok());
        assert!(as_q5_0(&block(103, 0x11)).is_err());
        assert!(as_q5_0(&block(144, 0x11)).is_err());
        let zeros = as_q5_0(&block(0, 0x08)).unwrap();
        assert_eq!(convert::floats(GgmlDType::Q5_0, &zeros).unwrap(), [0.0; 32]);
    }
}
