//! The micro-kernels in plain Rust: the reference for the others, bit for bit where weights are quantized.

use half::bf16;

use super::PANEL_ROWS;
use super::activations::Group;
use super::blocks::{Code, Kind, codes, q2k, q4k, q5k, q6k, q8_0, six_bits};
use crate::cpu::memory::half_at;

/// `sums[row][column]` becomes the product of the group's rows with the panel's sixteen.
pub fn multiply(
    kind: Kind,
    panel: &[u8],
    cols: usize,
    group: &Group,
    sums: &mut [[f32; PANEL_ROWS]],
) {
    if matches!(kind, Kind::F32 | Kind::F16 | Kind::BF16) {
        return dense(kind, panel, cols, group, sums);
    }
    let blocks = panel
        .chunks_exact(kind.block_bytes())
        .take(cols.div_ceil(kind.block_cols()));
    for (index, block) in blocks.enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                let cell = Cell {
                    block,
                    index,
                    column,
                    group,
                    row,
                };
                *sum = cell.add_to(*sum, kind);
            }
        }
    }
}

/// Even and odd columns have separate sums, added at the end, so that kernels wait less for the last addition.
fn dense(kind: Kind, panel: &[u8], cols: usize, group: &Group, sums: &mut [[f32; PANEL_ROWS]]) {
    for (row, sums) in sums.iter_mut().enumerate() {
        for (column, sum) in sums.iter_mut().enumerate() {
            let mut parts = [0f32; 2];
            for (at, floats) in group.floats.chunks_exact(group.rows).take(cols).enumerate() {
                let part = &mut parts[at % 2];
                *part = dense_weight(kind, panel, at, column).mul_add(floats[row], *part);
            }
            *sum = parts[0] + parts[1];
        }
    }
}

/// The weight of a column of the matrix in one of the panel's rows.
fn dense_weight(kind: Kind, panel: &[u8], col: usize, row: usize) -> f32 {
    let at = col * PANEL_ROWS + row;
    match kind {
        Kind::F16 => half_at(panel, at * 2).to_f32(),
        Kind::BF16 => brain_at(panel, (col / 2 * PANEL_ROWS + row) * 4 + col % 2 * 2),
        _ => {
            let bytes = &panel[at * 4..at * 4 + 4];
            f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        }
    }
}

fn brain_at(bytes: &[u8], at: usize) -> f32 {
    bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// The contribution of one block of the panel to one sum: a column of the block times a row of the group.
struct Cell<'a> {
    block: &'a [u8],
    /// Index of the block in its panel.
    index: usize,
    column: usize,
    group: &'a Group<'a>,
    row: usize,
}

impl Cell<'_> {
    fn add_to(&self, sum: f32, kind: Kind) -> f32 {
        match kind {
            Kind::Q8_0 => self.add_q8_0(sum),
            Kind::Codes(code) => self.add_codes(sum, code),
            Kind::Q4K | Kind::Q5K => self.add_q4k(sum, kind),
            Kind::Q6K | Kind::Q2K => self.add_q6k(sum, kind),
            Kind::F32 | Kind::F16 | Kind::BF16 => unreachable!("dense panels have no blocks"),
        }
    }

    fn add_q8_0(&self, mut sum: f32) -> f32 {
        for half in 0..2 {
            let sub = self.index * 2 + half;
            let mut integer = self.of_row(self.group.offsets, sub);
            for line in 0..8 {
                let weights = self.four(q8_0::QUANTS + half * 512 + line * 4 * PANEL_ROWS);
                integer += dot(weights, self.activations(sub * 8 + line));
            }
            let scale = self.half(q8_0::SCALES + half * 32) * self.of_row(self.group.scales, sub);
            sum = (integer as f32).mul_add(scale, sum);
        }
        sum
    }

    fn add_codes(&self, mut sum: f32, code: Code) -> f32 {
        for half in 0..2 {
            let sub = self.index * 2 + half;
            let offset = self.of_row(self.group.offsets, sub);
            let activation = self.of_row(self.group.scales, sub);
            let mut integer = code.start(offset);
            let fifth = match code.has_fifth_bits() {
                true => self.four(code.fifth_bits() + half * 64),
                false => [0; 4],
            };
            for line in 0..4 {
                let packed = self.four(code.quants() + half * 256 + line * 64);
                for (four, shift) in [(line * 2, 0), (line * 2 + 1, 4)] {
                    let weights = [0, 1, 2, 3].map(|i| {
                        let nibble = packed[i] >> shift & 15;
                        let low = code.table().map_or(nibble, |all| all[usize::from(nibble)]);
                        low | (fifth[i] >> q5k::bit(four) & 1) << 4
                    });
                    integer += dot(weights, self.activations(sub * 8 + four));
                }
            }
            if code.has_minima() {
                let minimum = self.half(codes::MINIMA + half * 32) * activation;
                sum = (-((offset >> 7) as f32)).mul_add(minimum, sum);
            }
            let scale = match code.has_wide_scales() {
                true => self.brain(codes::SCALES + half * 32),
                false => self.half(codes::SCALES + half * 32),
            };
            sum = (integer as f32).mul_add(scale * activation, sum);
        }
        sum
    }

    fn add_q4k(&self, sum: f32, kind: Kind) -> f32 {
        let (mut quants, mut minima) = (0f32, 0i32);
        for sub in 0..8 {
            let mut integer = 0;
            for line in sub * 4..sub * 4 + 4 {
                let packed = self.four(q4k::QUANTS + line * 4 * PANEL_ROWS);
                let at = self.index * 64 + line * 2;
                let [low, high] = self.fifth_bits(kind, line);
                let add = |four: [u8; 4], fifth: [u8; 4]| [0, 1, 2, 3].map(|i| four[i] | fifth[i]);
                let low = add(packed.map(|byte| byte & 15), low);
                let high = add(packed.map(|byte| byte >> 4), high);
                integer += dot(low, self.activations(at));
                integer += dot(high, self.activations(at + 1));
            }
            let scale = f32::from(self.head(sub * PANEL_ROWS + self.column));
            quants = (integer as f32).mul_add(scale, quants);
            minima += self.minimum(sub);
        }
        let activation = self.of_row(self.group.scales, self.index);
        let scale = self.half(q4k::SCALES) * activation;
        let min_scale = self.half(q4k::MIN_SCALES) * activation;
        let sum = (-(minima as f32)).mul_add(min_scale, sum);
        quants.mul_add(scale, sum)
    }

    /// The minimum of a sub-block of Q4_K, times the sum of its activations.
    fn minimum(&self, sub: usize) -> i32 {
        let (pair, second) = (sub / 2, sub % 2);
        let minimum = self.head(q4k::MINIMA + (pair * PANEL_ROWS + self.column) * 2 + second);
        let at = ((self.index * 4 + pair) * self.group.rows + self.row) * 2 + second;
        i32::from(minimum) * i32::from(self.group.sums[at])
    }

    /// A sub-scale or minimum of Q4_K.
    fn head(&self, index: usize) -> u8 {
        self.six_bits(q4k::HEADS, index / 64, index % 64)
    }

    /// A number of six bits in the lines that begin at `at`.
    fn six_bits(&self, at: usize, line: usize, column: usize) -> u8 {
        let (low, left) = six_bits::low(line);
        let low = self.block[at + low + column] >> left & 15;
        let high = self.block[at + six_bits::HIGH + column] >> (2 * line) & 3;
        low | high << 4
    }

    /// The fifth bits of a line's two groups of four; zeros for types without them.
    fn fifth_bits(&self, kind: Kind, line: usize) -> [[u8; 4]; 2] {
        if kind != Kind::Q5K {
            return [[0; 4]; 2];
        }
        let plane = self.four(q5k::FIFTH_BITS + line / 4 * 4 * PANEL_ROWS);
        let first = line % 4 * 2;
        [first, first + 1].map(|g| plane.map(|byte| (byte >> q5k::bit(g) & 1) << 4))
    }

    fn add_q6k(&self, mut sum: f32, kind: Kind) -> f32 {
        let (mut quants, mut minima) = (0f32, 0i32);
        for sub in 0..16 {
            let offset = self.of_row(self.group.offsets, self.index * 16 + sub);
            let mut integer = offset;
            let at = q6k::QUANTS + sub * six_bits::BYTES;
            for g in 0..4 {
                let column = self.column * 4;
                let weights = [0, 1, 2, 3].map(|i| self.six_bits(at, g, column + i));
                integer += dot(weights, self.activations(self.index * 64 + sub * 4 + g));
            }
            let scale = self.block[q6k::SUB_SCALES + sub * PANEL_ROWS + self.column] as i8;
            quants = (integer as f32).mul_add(f32::from(scale), quants);
            if kind == Kind::Q2K {
                let minimum = self.block[q2k::MINIMA + sub * PANEL_ROWS + self.column];
                // The offset is minus the weights' zero point times the sum of the activations.
                minima += i32::from(minimum) * (offset >> 5);
            }
        }
        let activation = self.of_row(self.group.scales, self.index);
        if kind == Kind::Q2K {
            sum = (minima as f32).mul_add(self.float(q2k::MIN_SCALES) * activation, sum);
        }
        let scale = self.float(q6k::SCALES) * activation;
        quants.mul_add(scale, sum)
    }

    /// This column's four bytes of the line at offset `line`.
    fn four(&self, line: usize) -> [u8; 4] {
        let at = line + self.column * 4;
        let bytes = &self.block[at..at + 4];
        [bytes[0], bytes[1], bytes[2], bytes[3]]
    }

    fn float(&self, line: usize) -> f32 {
        f32::from_le_bytes(self.four(line))
    }

    fn half(&self, line: usize) -> f32 {
        half_at(self.block, line + self.column * 2).to_f32()
    }

    fn brain(&self, line: usize) -> f32 {
        brain_at(self.block, line + self.column * 2)
    }

    /// This row's value among the interleaved values of the group.
    fn of_row<T: Copy>(&self, values: &[T], index: usize) -> T {
        values[index * self.group.rows + self.row]
    }

    /// Four activations of this row.
    fn activations(&self, index: usize) -> [i32; 4] {
        let at = (index * self.group.rows + self.row) * 4;
        let quants = &self.group.quants[at..at + 4];
        [quants[0], quants[1], quants[2], quants[3]].map(i32::from)
    }
}

fn dot(weights: [u8; 4], activations: [i32; 4]) -> i32 {
    let terms = weights.into_iter().zip(activations);
    terms
        .map(|(weight, activation)| i32::from(weight) * activation)
        .sum()
}
