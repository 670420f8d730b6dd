//! Converts blocks of a GGUF file to panels.

#![expect(unsafe_code, reason = "threads write disjoint panels")]

use candle_core::Result;
use candle_core::quantized::GgmlDType;
use half::bf16;

use super::PANEL_ROWS;
use super::blocks::{Code, Kind, WeightType, codes, q2k, q4k, q5k, q6k, q8_0, six_bits};
use crate::cpu::memory::{Aligned, half_at};
use crate::cpu::threads::{Disjoint, share};

/// Packs all rows. Rows that fill up the last panel, and columns that fill up its last block, are zeros.
pub fn pack(
    stored: WeightType,
    kind: Kind,
    bytes: &[u8],
    rows: usize,
    cols: usize,
) -> Result<Aligned> {
    let panel_bytes = kind.panel_bytes(cols);
    let count = rows.div_ceil(PANEL_ROWS);
    let mut memory = Aligned::zeroed(count * panel_bytes)?;
    let row_bytes = cols / stored.block_size() * stored.type_size();
    let panels = Disjoint::new(&mut memory.view_mut::<u8>()[..count * panel_bytes]);
    share(count, bytes.len(), |range| {
        for index in range {
            // SAFETY: each panel is visited once.
            let panel = unsafe { panels.part(index * panel_bytes..(index + 1) * panel_bytes) };
            let first = index * PANEL_ROWS;
            for row in first..rows.min(first + PANEL_ROWS) {
                let bytes = &bytes[row * row_bytes..(row + 1) * row_bytes];
                pack_row(stored, kind, bytes, row - first, panel);
            }
        }
    });
    Ok(memory)
}

fn pack_row(stored: WeightType, kind: Kind, bytes: &[u8], row: usize, panel: &mut [u8]) {
    let size = stored.type_size();
    let blocks = bytes.chunks_exact(size);
    if kind.block_cols() == 2 * stored.block_size() {
        for (index, block) in blocks.enumerate() {
            let place = &mut panel[index / 2 * kind.block_bytes()..][..kind.block_bytes()];
            match kind {
                Kind::Codes(code) => pack_codes(code, block, row, index % 2, place),
                Kind::BF16 => place[row * 4 + index % 2 * 2..][..2].copy_from_slice(block),
                _ => pack_q8_0(block, row, index % 2, place),
            }
        }
        return;
    }
    for (block, place) in blocks.zip(panel.chunks_exact_mut(kind.block_bytes())) {
        match stored {
            WeightType::Ggml(GgmlDType::Q4K) => pack_q4k(block, row, place),
            WeightType::Ggml(GgmlDType::Q5K) => pack_q5k(block, row, place),
            WeightType::Ggml(GgmlDType::Q6K) => pack_q6k(block, row, place),
            WeightType::Ggml(GgmlDType::Q3K) => pack_q3k(block, row, place),
            WeightType::Ggml(GgmlDType::Q2K) => pack_q2k(block, row, place),
            _ => place[row * size..(row + 1) * size].copy_from_slice(block),
        }
    }
}

/// Packs one stored block: scale, minimum, 32 fifth bits and 32 codes, if the type has them.
fn pack_codes(code: Code, block: &[u8], row: usize, half: usize, place: &mut [u8]) {
    let (scale, rest) = match code {
        Code::MxFp4 => (power_of_two(block[0]).to_le_bytes(), &block[1..]),
        _ => ([block[0], block[1]], &block[2..]),
    };
    let at = half * 32 + row * 2;
    place[codes::SCALES + at..][..2].copy_from_slice(&scale);
    let rest = if code.has_minima() {
        place[codes::MINIMA + at..][..2].copy_from_slice(&rest[..2]);
        &rest[2..]
    } else {
        rest
    };
    let (fifth, nibbles) = if code.has_fifth_bits() {
        let fifth = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        (fifth, &rest[4..])
    } else {
        (0, rest)
    };
    for column in 0..32 {
        let nibble = nibbles[column % 16] >> (column / 16 * 4) & 15;
        let (four, byte) = (column / 4, row * 4 + column % 4);
        let at = code.quants() + half * 256 + four / 2 * 64 + byte;
        place[at] |= nibble << (four % 2 * 4);
        if code.has_fifth_bits() {
            let at = code.fifth_bits() + half * 64 + byte;
            place[at] |= ((fifth >> column & 1) as u8) << q5k::bit(four);
        }
    }
}

/// Half of an e8m0 exponent's power of two, because MXFP4's table has doubled values.
fn power_of_two(exponent: u8) -> bf16 {
    bf16::from_bits(match exponent {
        0 => 0x20,
        1 => 0x40,
        _ => u16::from(exponent - 1) << 7,
    })
}

fn pack_q8_0(block: &[u8], row: usize, half: usize, place: &mut [u8]) {
    let scale = q8_0::SCALES + half * 32 + row * 2;
    place[scale..scale + 2].copy_from_slice(&block[..2]);
    for (four, quants) in block[2..].chunks_exact(4).enumerate() {
        let at = q8_0::QUANTS + half * 512 + (four * PANEL_ROWS + row) * 4;
        for (place, quant) in place[at..at + 4].iter_mut().zip(quants) {
            *place = quant ^ 0x80;
        }
    }
}

fn pack_q4k(block: &[u8], row: usize, place: &mut [u8]) {
    place_four_bits(&block[..16], &nibbles(&block[16..]), row, place);
}

fn pack_q5k(block: &[u8], row: usize, place: &mut [u8]) {
    let (head, fifth, low) = (&block[..16], &block[16..48], &block[48..]);
    place_four_bits(head, &nibbles(low), row, place);
    for sub in 0..8 {
        for (i, byte) in fifth.iter().enumerate() {
            let at = q5k::FIFTH_BITS + (sub * PANEL_ROWS + row) * 4 + i % 4;
            place[at] |= (byte >> sub & 1) << q5k::bit(i / 4);
        }
    }
}

/// Unpacks each 32 bytes into the low nibbles, then the high nibbles.
fn nibbles(bytes: &[u8]) -> [u8; 256] {
    let mut quants = [0u8; 256];
    for (quants, bytes) in quants.chunks_exact_mut(64).zip(bytes.chunks_exact(32)) {
        for (i, byte) in bytes.iter().enumerate() {
            quants[i] = byte & 15;
            quants[32 + i] = byte >> 4;
        }
    }
    quants
}

/// Scales and minima from the first 16 bytes of a block, and four bits of each quant.
fn place_four_bits(head: &[u8], quants: &[u8; 256], row: usize, place: &mut [u8]) {
    place[q4k::SCALES + row * 2..][..2].copy_from_slice(&head[..2]);
    place[q4k::MIN_SCALES + row * 2..][..2].copy_from_slice(&head[2..4]);
    let heads = &mut place[q4k::HEADS..][..six_bits::BYTES];
    for sub in 0..8 {
        let (scale, min) = scale_and_minimum(&head[4..], sub);
        place_six_bits(heads, sub * PANEL_ROWS + row, scale);
        let pair = (sub / 2 * PANEL_ROWS + row) * 2 + sub % 2;
        place_six_bits(heads, q4k::MINIMA + pair, min);
    }
    for (line, quants) in quants.chunks_exact(8).enumerate() {
        let at = q4k::QUANTS + (line * PANEL_ROWS + row) * 4;
        for i in 0..4 {
            place[at + i] = quants[i] | (quants[4 + i] << 4);
        }
    }
}

/// Adds one of the 256 numbers of six bits to places that were zeros.
fn place_six_bits(place: &mut [u8], index: usize, number: u8) {
    let (line, column) = (index / 64, index % 64);
    let (low, left) = six_bits::low(line);
    place[low + column] |= (number & 15) << left;
    place[six_bits::HIGH + column] |= number >> 4 << (2 * line);
}

/// The scale and the minimum of a sub-block, six bits each, out of twelve bytes.
fn scale_and_minimum(bytes: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        return (bytes[sub] & 63, bytes[sub + 4] & 63);
    }
    let low = bytes[sub + 4];
    (
        (low & 15) | (bytes[sub - 4] >> 6 << 4),
        (low >> 4) | (bytes[sub] >> 6 << 4),
    )
}

fn pack_q6k(block: &[u8], row: usize, place: &mut [u8]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let mut quants = [0u8; 256];
    for half in 0..2 {
        let (low, high) = (&low[half * 64..], &high[half * 32..]);
        let quants = &mut quants[half * 128..];
        for i in 0..32 {
            quants[i] = (low[i] & 15) | (high[i] & 3) << 4;
            quants[i + 32] = (low[i + 32] & 15) | (high[i] >> 2 & 3) << 4;
            quants[i + 64] = (low[i] >> 4) | (high[i] >> 4 & 3) << 4;
            quants[i + 96] = (low[i + 32] >> 4) | (high[i] >> 6) << 4;
        }
    }
    let scale = half_at(block, 208).to_f32();
    place_signed(scale, scales, &quants, row, place);
}

/// Q3_K is Q6_K with smaller numbers.
fn pack_q3k(block: &[u8], row: usize, place: &mut [u8]) {
    let (high, low, packed) = (&block[..32], &block[32..96], &block[96..108]);
    let mut quants = [0u8; 256];
    for (i, quant) in quants.iter_mut().enumerate() {
        let (half, part, byte) = (i / 128, i / 32 % 4, i % 32);
        let high = high[byte] >> (half * 4 + part) & 1;
        *quant = 32 + two_bits(low, i) + 4 * high - 4;
    }
    let mut scales = [0u8; 16];
    for (i, scale) in scales.iter_mut().enumerate() {
        let low = packed[i % 8] >> (i / 8 * 4) & 15;
        let high = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        *scale = (low | high << 4).wrapping_sub(32);
    }
    place_signed(half_at(block, 108).to_f32(), &scales, &quants, row, place);
}

/// Scales and minima of four bits, then quants of two.
fn pack_q2k(block: &[u8], row: usize, place: &mut [u8]) {
    let (packed, low) = (&block[..16], &block[16..80]);
    let mut quants = [0u8; 256];
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant = 32 + two_bits(low, i);
    }
    let mut scales = [0u8; 16];
    for (sub, (scale, packed)) in scales.iter_mut().zip(packed).enumerate() {
        *scale = packed & 15;
        place[q2k::MINIMA + sub * PANEL_ROWS + row] = packed >> 4;
    }
    let minimum = half_at(block, 82).to_f32();
    place[q2k::MIN_SCALES + row * 4..][..4].copy_from_slice(&minimum.to_le_bytes());
    place_signed(half_at(block, 80).to_f32(), &scales, &quants, row, place);
}

/// The low two bits of the i-th quant: of each 32 bytes, four quants in each byte, 32 apart.
fn two_bits(bytes: &[u8], i: usize) -> u8 {
    let (half, part, byte) = (i / 128, i / 32 % 4, i % 32);
    bytes[half * 32 + byte] >> (2 * part) & 3
}

fn place_signed(scale: f32, scales: &[u8], quants: &[u8; 256], row: usize, place: &mut [u8]) {
    place[q6k::SCALES + row * 4..][..4].copy_from_slice(&scale.to_le_bytes());
    for (sub, scale) in scales.iter().enumerate() {
        place[q6k::SUB_SCALES + sub * PANEL_ROWS + row] = *scale;
    }
    for (sub, quants) in quants.chunks_exact(16).enumerate() {
        let at = q6k::QUANTS + sub * six_bits::BYTES;
        let place = &mut place[at..at + six_bits::BYTES];
        for (i, quant) in quants.iter().enumerate() {
            place_six_bits(place, i / 4 * 64 + row * 4 + i % 4, *quant);
        }
    }
}
