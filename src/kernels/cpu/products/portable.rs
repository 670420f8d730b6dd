//! The micro-kernels in plain Rust: what the others must agree with, bit for bit where weights are quantized.

use half::bf16;

use super::PANEL_ROWS;
use super::activations::Group;
use super::blocks::{Kind, q4k, q5k, q6k, q8_0};
use crate::kernels::cpu::memory::half_at;

/// `sums[row][column]` becomes the product of the group's rows with the panel's sixteen.
pub fn multiply(
    kind: Kind,
    panel: &[u8],
    cols: usize,
    group: &Group,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    let blocks = panel
        .chunks_exact(kind.block_bytes())
        .take(cols.div_ceil(kind.block_cols()));
    for (index, block) in blocks.enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = match kind {
                    Kind::F32 | Kind::F16 | Kind::BF16 => {
                        let weight = dense(kind, block, column);
                        weight.mul_add(group.floats[index * group.rows + row], *sum)
                    }
                    Kind::Q8_0 => q8_0_block(block, column, group, row, index, *sum),
                    Kind::Q4K | Kind::Q5K => {
                        q4k_block(kind, block, column, group, row, index, *sum)
                    }
                    Kind::Q6K => q6k_block(block, column, group, row, index, *sum),
                };
            }
        }
    }
}

fn dense(kind: Kind, block: &[u8], column: usize) -> f32 {
    match kind {
        Kind::F16 => half_at(block, column * 2).to_f32(),
        Kind::BF16 => bf16::from_le_bytes([block[column * 2], block[column * 2 + 1]]).to_f32(),
        _ => float_at(block, column * 4),
    }
}

fn float_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Four activations from the group's row.
fn four(group: &Group, row: usize, index: usize) -> [i32; 4] {
    let at = (index * group.rows + row) * 4;
    let quants = &group.quants[at..at + 4];
    [quants[0], quants[1], quants[2], quants[3]].map(i32::from)
}

fn dot(weights: [u8; 4], activations: [i32; 4]) -> i32 {
    let terms = weights.into_iter().zip(activations);
    terms
        .map(|(weight, activation)| i32::from(weight) * activation)
        .sum()
}

fn bytes_at(block: &[u8], at: usize) -> [u8; 4] {
    [block[at], block[at + 1], block[at + 2], block[at + 3]]
}

fn q8_0_block(
    block: &[u8],
    column: usize,
    group: &Group,
    row: usize,
    index: usize,
    sum: f32,
) -> f32 {
    let mut sum = sum;
    for half in 0..2 {
        let sub = index * 2 + half;
        let mut integer = group.offsets[sub * group.rows + row];
        for line in 0..8 {
            let at = q8_0::QUANTS + half * 512 + (line * PANEL_ROWS + column) * 4;
            integer += dot(bytes_at(block, at), four(group, row, sub * 8 + line));
        }
        let scale = half_at(block, q8_0::SCALES + half * 32 + column * 2).to_f32();
        sum = (integer as f32).mul_add(scale * group.scales[sub * group.rows + row], sum);
    }
    sum
}

fn q4k_block(
    kind: Kind,
    block: &[u8],
    column: usize,
    group: &Group,
    row: usize,
    index: usize,
    sum: f32,
) -> f32 {
    let (mut quants, mut minima) = (0f32, 0i32);
    for sub in 0..8 {
        let mut integer = 0;
        for line in sub * 4..sub * 4 + 4 {
            let packed = bytes_at(block, q4k::QUANTS + (line * PANEL_ROWS + column) * 4);
            let at = index * 64 + line * 2;
            let [low, high] = fifth_bits(kind, block, column, line);
            let add = |four: [u8; 4], fifth: [u8; 4]| [0, 1, 2, 3].map(|i| four[i] | fifth[i]);
            let low = add(packed.map(|byte| byte & 15), low);
            let high = add(packed.map(|byte| byte >> 4), high);
            integer += dot(low, four(group, row, at));
            integer += dot(high, four(group, row, at + 1));
        }
        let scale = f32::from(block[q4k::SUB_SCALES + sub * PANEL_ROWS + column]);
        quants = (integer as f32).mul_add(scale, quants);
        let min = block[q4k::MINIMA + (sub / 2 * PANEL_ROWS + column) * 2 + sub % 2];
        let at = ((index * 4 + sub / 2) * group.rows + row) * 2 + sub % 2;
        minima += i32::from(min) * i32::from(group.sums[at]);
    }
    let activation = group.scales[index * group.rows + row];
    let scale = half_at(block, q4k::SCALES + column * 2).to_f32() * activation;
    let min_scale = half_at(block, q4k::MIN_SCALES + column * 2).to_f32() * activation;
    let sum = (-(minima as f32)).mul_add(min_scale, sum);
    quants.mul_add(scale, sum)
}

/// The fifth bits of a line's two fours; zeros where there are none.
fn fifth_bits(kind: Kind, block: &[u8], column: usize, line: usize) -> [[u8; 4]; 2] {
    if kind != Kind::Q5K {
        return [[0; 4]; 2];
    }
    let plane = bytes_at(
        block,
        q5k::FIFTH_BITS + (line / 4 * PANEL_ROWS + column) * 4,
    );
    let first = line % 4 * 2;
    [first, first + 1].map(|g| plane.map(|byte| (byte >> q5k::bit(g) & 1) << 4))
}

fn q6k_block(
    block: &[u8],
    column: usize,
    group: &Group,
    row: usize,
    index: usize,
    sum: f32,
) -> f32 {
    let mut quants = 0f32;
    for sub in 0..16 {
        let mut integer = group.offsets[(index * 16 + sub) * group.rows + row];
        let at = q6k::QUANTS + sub * q6k::SUB_BLOCK_BYTES + column * 4;
        let high = bytes_at(block, at + 128);
        for g in 0..4 {
            let low = bytes_at(block, at + g / 2 * 64);
            let weights =
                [0, 1, 2, 3].map(|i| (low[i] >> (g % 2 * 4) & 15) | (high[i] >> (2 * g) & 3) << 4);
            integer += dot(weights, four(group, row, index * 64 + sub * 4 + g));
        }
        let scale = block[q6k::SUB_SCALES + sub * PANEL_ROWS + column] as i8;
        quants = (integer as f32).mul_add(f32::from(scale), quants);
    }
    let scale = float_at(block, q6k::SCALES + column * 4) * group.scales[index * group.rows + row];
    quants.mul_add(scale, sum)
}
