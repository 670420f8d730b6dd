//! The IQ types of GGUF: blocks of 32 or 256 numbers whose codes index points of a grid or levels of a table. Converted
//! to Q8_0, whose rounding error is small in comparison.
//!
//! `tests/fixtures/make/iq.py` generates the grids in `iq-grids.bin`.

use std::{num::NonZero, thread};

use half::f16;

/// How a tensor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IqType {
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
    Iq4Nl,
    Iq4Xs,
}

/// Type, number in GGUF files, name, numbers and bytes of a block.
const TYPES: [(IqType, u32, &str, usize, usize); 7] = [
    (IqType::Iq2Xxs, 16, "IQ2_XXS", 256, 66),
    (IqType::Iq2Xs, 17, "IQ2_XS", 256, 74),
    (IqType::Iq2S, 22, "IQ2_S", 256, 82),
    (IqType::Iq3Xxs, 18, "IQ3_XXS", 256, 98),
    (IqType::Iq3S, 21, "IQ3_S", 256, 110),
    (IqType::Iq4Nl, 20, "IQ4_NL", 32, 18),
    (IqType::Iq4Xs, 23, "IQ4_XS", 256, 136),
];

/// Numbers of one scale of Q8_0, and its bytes.
const OUT_NUMBERS: usize = 32;
const OUT_BYTES: usize = 34;

impl IqType {
    pub fn numbered(number: u32) -> Option<Self> {
        let found = TYPES.iter().find(|entry| entry.1 == number);
        found.map(|entry| entry.0)
    }

    pub fn name(self) -> &'static str {
        self.entry().2
    }

    pub fn block_size(self) -> usize {
        self.entry().3
    }

    pub fn block_bytes(self) -> usize {
        self.entry().4
    }

    fn entry(self) -> &'static (Self, u32, &'static str, usize, usize) {
        let entry = TYPES.iter().find(|entry| entry.0 == self);
        entry.unwrap_or(&TYPES[0])
    }

    /// The bytes of a tensor of this shape, when its rows are whole blocks and nothing overflows.
    pub fn bytes_of(self, shape: &[usize]) -> Option<u64> {
        let columns = shape.last().copied().unwrap_or(1);
        if !columns.is_multiple_of(self.block_size()) {
            return None;
        }
        let mut dims = shape.iter();
        let elements = dims.try_fold(1_u64, |product, &dim| product.checked_mul(dim as u64))?;
        (elements / self.block_size() as u64).checked_mul(self.block_bytes() as u64)
    }

    /// Whole blocks as blocks of Q8_0, on all the machine's threads.
    pub fn as_q8_0(self, blocks: &[u8]) -> Vec<u8> {
        let count = blocks.len() / self.block_bytes();
        let out_bytes = self.block_size() / OUT_NUMBERS * OUT_BYTES;
        let mut out = vec![0; count * out_bytes];
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        let each = count.div_ceil(threads).max(1);
        thread::scope(|scope| {
            let parts = blocks.chunks(each * self.block_bytes());
            for (part, out) in parts.zip(out.chunks_mut(each * out_bytes)) {
                scope.spawn(move || self.convert(part, out));
            }
        });
        out
    }

    fn convert(self, blocks: &[u8], out: &mut [u8]) {
        let mut numbers = [0.0; 256];
        let numbers = &mut numbers[..self.block_size()];
        let mut outs = out.chunks_mut(OUT_BYTES);
        for block in blocks.chunks_exact(self.block_bytes()) {
            self.widen(block, numbers);
            for (numbers, out) in numbers.chunks(OUT_NUMBERS).zip(&mut outs) {
                rounded(numbers, out);
            }
        }
    }

    /// The numbers of a block.
    fn widen(self, block: &[u8], out: &mut [f32]) {
        let (scale, rest) = (half(block), &block[2..]);
        match self {
            Self::Iq2Xxs => widen_iq2_xxs(scale, rest, out),
            Self::Iq2Xs => widen_iq2_xs(scale, rest, out),
            Self::Iq2S => widen_iq2_s(scale, rest, out),
            Self::Iq3Xxs => widen_iq3_xxs(scale, rest, out),
            Self::Iq3S => widen_iq3_s(scale, rest, out),
            Self::Iq4Nl => widen_levels(scale, rest, out),
            Self::Iq4Xs => widen_iq4_xs(scale, rest, out),
        }
    }
}

/// Rounds to Q8_0 like candle.
fn rounded(numbers: &[f32], out: &mut [u8]) {
    let largest = numbers
        .iter()
        .fold(0.0_f32, |most, one| most.max(one.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    out[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    for (number, code) in numbers.iter().zip(&mut out[2..]) {
        *code = ((number * inverse).round() as i8).cast_unsigned();
    }
}

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

fn sixteen(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]))
}

fn thirty_two(bytes: &[u8], at: usize) -> u32 {
    let four = [0, 1, 2, 3].map(|byte| bytes[4 * at + byte]);
    u32::from_le_bytes(four)
}

/// Two codes of four bits: of scales, and of levels.
fn nibble(bytes: &[u8], at: usize) -> u8 {
    bytes[at / 2] >> (at % 2 * 4) & 15
}

const GRIDS: &[u8] = include_bytes!("iq-grids.bin");
/// Offsets of the grids in the file, in points of two bytes.
const IQ2_XXS_GRID: usize = 0;
const IQ2_XS_GRID: usize = 256;
const IQ2_S_GRID: usize = 768;
const IQ3_XXS_GRID: usize = 1792;
const IQ3_S_GRID: usize = 2048;

/// The coordinates of a point by code: eight codes of two bits in IQ2's grids, four of three bits in IQ3's.
const IQ2_LEVELS: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
const IQ3_XXS_LEVELS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
const IQ3_S_LEVELS: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
const IQ4_LEVELS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

fn point(grid: usize, index: usize) -> usize {
    sixteen(GRIDS, grid + index)
}

/// Eight numbers: a point of a grid of IQ2, each coordinate with a sign.
fn put_eight(out: &mut [f32], point: usize, signs: u8, scale: f32) {
    for (at, number) in out.iter_mut().enumerate() {
        let level = IQ2_LEVELS[point >> (2 * at) & 3];
        *number = signed(scale * level, signs, at);
    }
}

/// Four numbers: a point of a grid of IQ3. `first` is the sign of the first of them.
fn put_four(
    out: &mut [f32],
    point: usize,
    levels: [f32; 8],
    (signs, first): (u8, usize),
    scale: f32,
) {
    for (at, number) in out.iter_mut().enumerate() {
        let level = levels[point >> (3 * at) & 7];
        *number = signed(scale * level, signs, first + at);
    }
}

fn signed(number: f32, signs: u8, at: usize) -> f32 {
    if signs >> at & 1 == 1 {
        -number
    } else {
        number
    }
}

/// Seven bits of signs and an eighth that makes their number even.
fn even_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() & 1) as u8) << 7
}

fn widen_iq2_xxs(scale: f32, codes: &[u8], out: &mut [f32]) {
    for (group, out) in out.chunks_mut(32).enumerate() {
        let bits = thirty_two(codes, 2 * group + 1);
        let scale = scale * (0.5 + (bits >> 28) as f32) * 0.25;
        for (at, out) in out.chunks_mut(8).enumerate() {
            let index = usize::from(codes[8 * group + at]);
            let signs = even_signs(bits >> (7 * at));
            put_eight(out, point(IQ2_XXS_GRID, index), signs, scale);
        }
    }
}

fn widen_iq2_xs(scale: f32, codes: &[u8], out: &mut [f32]) {
    let (codes, scales) = codes.split_at(64);
    for (at, out) in out.chunks_mut(8).enumerate() {
        let code = sixteen(codes, at);
        let scale = scale * (0.5 + f32::from(nibble(scales, at / 2))) * 0.25;
        let signs = even_signs((code >> 9) as u32);
        put_eight(out, point(IQ2_XS_GRID, code & 511), signs, scale);
    }
}

fn widen_iq2_s(scale: f32, codes: &[u8], out: &mut [f32]) {
    let (signs, high, scales) = (&codes[32..], &codes[64..], &codes[72..]);
    for (at, out) in out.chunks_mut(8).enumerate() {
        let high = usize::from(high[at / 4] >> (at % 4 * 2) & 3);
        let index = usize::from(codes[at]) | high << 8;
        let scale = scale * (0.5 + f32::from(nibble(scales, at / 2))) * 0.25;
        put_eight(out, point(IQ2_S_GRID, index), signs[at], scale);
    }
}

fn widen_iq3_xxs(scale: f32, codes: &[u8], out: &mut [f32]) {
    let (codes, bits) = codes.split_at(64);
    for (at, out) in out.chunks_mut(4).enumerate() {
        let bits = thirty_two(bits, at / 8);
        let scale = scale * (0.5 + (bits >> 28) as f32) * 0.5;
        let signs = even_signs(bits >> (7 * (at / 2 % 4)));
        let point = point(IQ3_XXS_GRID, usize::from(codes[at]));
        put_four(out, point, IQ3_XXS_LEVELS, (signs, at % 2 * 4), scale);
    }
}

fn widen_iq3_s(scale: f32, codes: &[u8], out: &mut [f32]) {
    let (high, signs, scales) = (&codes[64..], &codes[72..], &codes[104..]);
    for (at, out) in out.chunks_mut(4).enumerate() {
        let index = usize::from(codes[at]) | usize::from(high[at / 8] >> (at % 8) & 1) << 8;
        let scale = scale * f32::from(1 + 2 * nibble(scales, at / 8));
        let point = point(IQ3_S_GRID, index);
        put_four(out, point, IQ3_S_LEVELS, (signs[at / 2], at % 2 * 4), scale);
    }
}

/// Codes of four bits: the low halves of the bytes come first.
fn widen_levels(scale: f32, codes: &[u8], out: &mut [f32]) {
    for (at, number) in out.iter_mut().enumerate() {
        let code = codes[at % 16] >> (at / 16 * 4) & 15;
        *number = scale * IQ4_LEVELS[usize::from(code)];
    }
}

fn widen_iq4_xs(scale: f32, rest: &[u8], out: &mut [f32]) {
    let (high, low, codes) = (sixteen(rest, 0), &rest[2..], &rest[6..]);
    let groups = out.chunks_mut(32).zip(codes.chunks(16));
    for (at, (out, codes)) in groups.enumerate() {
        let high = (high >> (2 * at) & 3) as u8;
        let own = f32::from(nibble(low, at) | high << 4) - 32.0;
        widen_levels(scale * own, codes, out);
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::GgmlDType;

    use super::{IqType, TYPES};
    use crate::networks::golden::GoldenTensors;
    use crate::networks::weights::convert;

    #[test]
    fn numbers_are_those_of_the_reference() {
        let golden = GoldenTensors::open("golden/iq.tensors");
        for (iq, _, name, size, bytes) in TYPES {
            let blocks = golden.numbers(&format!("{name}.blocks")).into_iter();
            let blocks: Vec<u8> = blocks.map(|byte| byte as u8).collect();
            let wanted = golden.numbers(&format!("{name}.numbers"));
            assert_eq!(blocks.len() / bytes * size, wanted.len(), "{name}");
            let mut found = vec![0.0; wanted.len()];
            for (block, out) in blocks.chunks(bytes).zip(found.chunks_mut(size)) {
                iq.widen(block, out);
            }
            assert_eq!(found, wanted, "{name}");
            let held = iq.as_q8_0(&blocks);
            let held = convert::floats(GgmlDType::Q8_0, &held).unwrap();
            for (held, wanted) in held.chunks(32).zip(wanted.chunks(32)) {
                let most = wanted.iter().fold(0.0_f32, |most, one| most.max(one.abs()));
                // Half a step of 127, and half a step of the scale's eleven bits.
                let gap = most / 254.0 + most / 2048.0;
                let mut pairs = held.iter().zip(wanted);
                assert!(pairs.all(|(a, b)| (a - b).abs() <= gap * 1.01), "{name}");
            }
        }
        assert_eq!(IqType::numbered(19), None);
    }
}
