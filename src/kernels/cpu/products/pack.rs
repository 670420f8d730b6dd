//! From the blocks of a GGUF file to panels.

#![expect(unsafe_code, reason = "threads write disjoint panels")]

use candle_core::Result;

use super::PANEL_ROWS;
use super::blocks::{Kind, q4k, q6k, q8_0};
use crate::kernels::cpu::memory::{Aligned, half_at};
use crate::kernels::cpu::threads::{Disjoint, share};

/// Packs all rows. Rows that fill up the last panel, and columns that fill up its last block, are zeros.
pub fn pack(kind: Kind, bytes: &[u8], rows: usize, cols: usize) -> Result<Aligned> {
    let panel_bytes = kind.panel_bytes(cols);
    let count = rows.div_ceil(PANEL_ROWS);
    let mut memory = Aligned::zeroed(count * panel_bytes)?;
    let row_bytes = cols / kind.stored_cols() * kind.stored_bytes();
    let panels = Disjoint::new(&mut memory.view_mut::<u8>()[..count * panel_bytes]);
    share(count, bytes.len(), |range| {
        for index in range {
            // SAFETY: each panel is visited once.
            let panel = unsafe { panels.part(index * panel_bytes..(index + 1) * panel_bytes) };
            let first = index * PANEL_ROWS;
            for row in first..rows.min(first + PANEL_ROWS) {
                let stored = &bytes[row * row_bytes..(row + 1) * row_bytes];
                pack_row(kind, stored, row - first, panel);
            }
        }
    });
    Ok(memory)
}

fn pack_row(kind: Kind, stored: &[u8], row: usize, panel: &mut [u8]) {
    let blocks = stored.chunks_exact(kind.stored_bytes());
    let places = panel.chunks_exact_mut(kind.block_bytes());
    match kind {
        Kind::F32 | Kind::F16 | Kind::BF16 => {
            let size = kind.stored_bytes();
            for (value, place) in blocks.zip(places) {
                place[row * size..(row + 1) * size].copy_from_slice(value);
            }
        }
        Kind::Q8_0 => {
            for (index, block) in blocks.enumerate() {
                let at = index / 2 * q8_0::BYTES;
                pack_q8_0(block, row, index % 2, &mut panel[at..at + q8_0::BYTES]);
            }
        }
        Kind::Q4K => {
            for (block, place) in blocks.zip(places) {
                pack_q4k(block, row, place);
            }
        }
        Kind::Q6K => {
            for (block, place) in blocks.zip(places) {
                pack_q6k(block, row, place);
            }
        }
    }
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
    place[q4k::SCALES + row * 2..][..2].copy_from_slice(&block[..2]);
    place[q4k::MIN_SCALES + row * 2..][..2].copy_from_slice(&block[2..4]);
    let scales = &block[4..16];
    for sub in 0..8 {
        let (scale, min) = six_bits(scales, sub);
        place[q4k::SUB_SCALES + sub * PANEL_ROWS + row] = scale;
        place[q4k::MINIMA + (sub / 2 * PANEL_ROWS + row) * 2 + sub % 2] = min;
    }
    let mut quants = [0u8; 256];
    for (chunk, bytes) in block[16..].chunks_exact(32).enumerate() {
        for (i, byte) in bytes.iter().enumerate() {
            quants[chunk * 64 + i] = byte & 15;
            quants[chunk * 64 + 32 + i] = byte >> 4;
        }
    }
    for (line, quants) in quants.chunks_exact(8).enumerate() {
        let at = q4k::QUANTS + (line * PANEL_ROWS + row) * 4;
        for i in 0..4 {
            place[at + i] = quants[i] | (quants[4 + i] << 4);
        }
    }
}

/// The scale and the minimum of a sub-block, six bits each, out of twelve bytes.
fn six_bits(bytes: &[u8], sub: usize) -> (u8, u8) {
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
    let scale = half_at(block, 208).to_f32();
    place[q6k::SCALES + row * 4..][..4].copy_from_slice(&scale.to_le_bytes());
    for (sub, scale) in scales.iter().enumerate() {
        place[q6k::SUB_SCALES + sub * PANEL_ROWS + row] = *scale;
    }
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
    for (sub, quants) in quants.chunks_exact(16).enumerate() {
        let at = q6k::QUANTS + sub * q6k::SUB_BLOCK_BYTES + row * 4;
        for i in 0..4 {
            let four = [quants[i], quants[4 + i], quants[8 + i], quants[12 + i]];
            place[at + i] = (four[0] & 15) | (four[1] & 15) << 4;
            place[at + 64 + i] = (four[2] & 15) | (four[3] & 15) << 4;
            let high = four.map(|quant| quant >> 4);
            place[at + 128 + i] = high[0] | high[1] << 2 | high[2] << 4 | high[3] << 6;
        }
    }
}
