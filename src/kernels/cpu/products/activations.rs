//! Activations as the micro-kernels read them: in groups of rows, interleaved along the columns.

#![expect(unsafe_code, reason = "threads fill disjoint groups")]

use super::GROUP_ROWS;
use crate::cpu::level::{Level, at_every_level};
use crate::cpu::threads::{Disjoint, share};

/// Quantized formats of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// f32, as they are.
    Floats,
    /// Eight bits with a scale for every 32 columns.
    Blocks32,
    /// Eight bits with a scale for every 256 columns.
    Blocks256,
}

impl Form {
    /// Lengths of the arrays (floats, quants, scales, sums, offsets) for this many values.
    fn lengths(self, values: usize) -> [usize; 5] {
        match self {
            Self::Floats => [values, 0, 0, 0, 0],
            Self::Blocks32 => [0, values, values / 32, 0, values / 32],
            Self::Blocks256 => [0, values, values / 256, values / 32, values / 16],
        }
    }

    /// Values of a block; the last one is filled up with zeros.
    fn block(self) -> usize {
        match self {
            // Panels of bf16 store two columns together.
            Self::Floats => 2,
            Self::Blocks32 => 64,
            Self::Blocks256 => 256,
        }
    }

    /// Columns of a sub-block whose quants are summed up in `offsets`.
    fn offset_block(self) -> usize {
        match self {
            Self::Blocks32 => 32,
            _ => 16,
        }
    }

    /// The zero point that makes weights unsigned.
    fn raised(self) -> i32 {
        match self {
            Self::Blocks32 => 128,
            _ => 32,
        }
    }
}

/// All rows of a step in one form.
#[derive(Debug)]
pub struct Activations {
    form: Form,
    rows: usize,
    /// Columns, filled up with zeros to whole blocks of panels.
    cols: usize,
    floats: Vec<f32>,
    quants: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i16>,
    offsets: Vec<i32>,
}

/// Up to [`GROUP_ROWS`] neighbouring rows, interleaved in each array.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    pub first: usize,
    pub rows: usize,
    /// `[cols][rows]`.
    pub floats: &'a [f32],
    /// `[cols / 4][rows][4]`.
    pub quants: &'a [i8],
    /// `[blocks][rows]`.
    pub scales: &'a [f32],
    /// Sums of 32 quants, `[cols / 64][rows][2]`, in pairs.
    pub sums: &'a [i16],
    /// Initial sums of a sub-block's products, which subtract the weights' zero point: `[sub-blocks][rows]`.
    pub offsets: &'a [i32],
}

impl Activations {
    pub fn new(level: Level, form: Form, values: &[f32], cols: usize) -> Self {
        let rows = values.len() / cols;
        let padded = cols.next_multiple_of(form.block());
        let mut new = Self::empty(form, rows, padded);
        let arrays = Arrays {
            floats: Disjoint::new(&mut new.floats),
            quants: Disjoint::new(&mut new.quants),
            scales: Disjoint::new(&mut new.scales),
            sums: Disjoint::new(&mut new.sums),
            offsets: Disjoint::new(&mut new.offsets),
        };
        share(rows.div_ceil(GROUP_ROWS), values.len(), |groups| {
            for index in groups {
                let first = index * GROUP_ROWS;
                let count = GROUP_ROWS.min(rows - first);
                // SAFETY: each group is visited once.
                let mut group = unsafe { arrays.group(form, first, count, padded) };
                let values = &values[first * cols..(first + count) * cols];
                fill_at(level, form, &mut group, values, cols);
            }
        });
        new
    }

    fn empty(form: Form, rows: usize, cols: usize) -> Self {
        let [floats, quants, scales, sums, offsets] = form.lengths(rows * cols);
        Self {
            form,
            rows,
            cols,
            floats: vec![0.0; floats],
            quants: vec![0; quants],
            scales: vec![0.0; scales],
            sums: vec![0; sums],
            offsets: vec![0; offsets],
        }
    }

    pub fn form(&self) -> Form {
        self.form
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that one row takes, about.
    pub fn row_bytes(&self) -> usize {
        match self.form {
            Form::Floats => 4 * self.cols,
            _ => self.cols,
        }
    }

    /// The groups of the rows from `first` (a multiple of [`GROUP_ROWS`]) to before `end`.
    pub fn groups(&self, first: usize, end: usize) -> impl Iterator<Item = Group<'_>> {
        let end = end.min(self.rows);
        (first..end)
            .step_by(GROUP_ROWS)
            .map(|first| self.group(first))
    }

    fn group(&self, first: usize) -> Group<'_> {
        let rows = GROUP_ROWS.min(self.rows - first);
        let lengths = |rows: usize| self.form.lengths(rows * self.cols);
        let (from, to) = (lengths(first), lengths(first + rows));
        Group {
            first,
            rows,
            floats: &self.floats[from[0]..to[0]],
            quants: &self.quants[from[1]..to[1]],
            scales: &self.scales[from[2]..to[2]],
            sums: &self.sums[from[3]..to[3]],
            offsets: &self.offsets[from[4]..to[4]],
        }
    }
}

/// The arrays while groups are filled.
struct Arrays<'a> {
    floats: Disjoint<'a, f32>,
    quants: Disjoint<'a, i8>,
    scales: Disjoint<'a, f32>,
    sums: Disjoint<'a, i16>,
    offsets: Disjoint<'a, i32>,
}

/// A [`Group`] during quantization.
struct GroupMut<'a> {
    rows: usize,
    floats: &'a mut [f32],
    quants: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [i16],
    offsets: &'a mut [i32],
}

impl Arrays<'_> {
    /// # Safety Each group is requested once.
    unsafe fn group(&self, form: Form, first: usize, rows: usize, cols: usize) -> GroupMut<'_> {
        let from = form.lengths(first * cols);
        let to = form.lengths((first + rows) * cols);
        // SAFETY: groups do not overlap, and each is requested once.
        unsafe {
            GroupMut {
                rows,
                floats: self.floats.part(from[0]..to[0]),
                quants: self.quants.part(from[1]..to[1]),
                scales: self.scales.part(from[2]..to[2]),
                sums: self.sums.part(from[3]..to[3]),
                offsets: self.offsets.part(from[4]..to[4]),
            }
        }
    }
}

at_every_level! {
    fn fill_at(form: Form, group: &mut GroupMut, values: &[f32], cols: usize) = fill;
}

#[inline(always)]
fn fill<const FAST: bool>(form: Form, group: &mut GroupMut, values: &[f32], cols: usize) {
    for (row, values) in values.chunks_exact(cols).enumerate() {
        match form {
            Form::Floats => {
                let places = group.floats.chunks_exact_mut(group.rows);
                for (place, value) in places.zip(values) {
                    place[row] = *value;
                }
            }
            Form::Blocks32 => {
                for (index, values) in values.chunks_exact(32).enumerate() {
                    fill_block::<32>(group, row, index, values);
                }
            }
            Form::Blocks256 => {
                for (index, values) in values.chunks_exact(256).enumerate() {
                    fill_block::<256>(group, row, index, values);
                    fill_sums(group, row, index);
                }
            }
        }
    }
}

#[inline(always)]
fn fill_block<const BLOCK: usize>(group: &mut GroupMut, row: usize, index: usize, values: &[f32]) {
    let rows = group.rows;
    let (quants, scale) = quantized::<BLOCK>(values);
    group.scales[index * rows + row] = scale;
    let (fours, _) = quants.as_chunks::<4>();
    let (places, _) = group.quants.as_chunks_mut::<4>();
    let places = &mut places[index * BLOCK / 4 * rows..][..BLOCK / 4 * rows];
    for (place, four) in places.chunks_exact_mut(rows).zip(fours) {
        place[row] = *four;
    }
    let form = if BLOCK == 32 {
        Form::Blocks32
    } else {
        Form::Blocks256
    };
    let sub = form.offset_block();
    let places = &mut group.offsets[index * (BLOCK / sub) * rows..];
    for (place, quants) in places.chunks_exact_mut(rows).zip(quants.chunks_exact(sub)) {
        let sum: i32 = quants.iter().map(|quant| i32::from(*quant)).sum();
        place[row] = -form.raised() * sum;
    }
}

/// The sums of 32 quants from the offsets, each of which is `-raised` times the sum of sixteen.
#[inline(always)]
fn fill_sums(group: &mut GroupMut, row: usize, index: usize) {
    let (rows, raised) = (group.rows, Form::Blocks256.raised());
    for sub in 0..8 {
        let at = (index * 16 + sub * 2) * rows + row;
        let sum = (group.offsets[at] + group.offsets[at + rows]) / -raised;
        group.sums[((index * 4 + sub / 2) * rows + row) * 2 + sub % 2] = sum as i16;
    }
}

/// Adding this to a float of moderate size leaves it rounded to an integer, ties to even, in the low bits.
const ROUNDING: f32 = 12_582_912.0;

/// Smaller values than this are zero: their inverse would not be finite.
const SMALLEST: f32 = 1e-35;

#[inline(always)]
fn quantized<const BLOCK: usize>(values: &[f32]) -> ([i8; BLOCK], f32) {
    let mut lanes = [0f32; 16];
    let (chunks, _) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            let size = value.abs();
            *lane = if size > *lane { size } else { *lane };
        }
    }
    // A tree reduction: sixteen comparisons in a row would take longer than everything else here.
    let mut half = 8;
    while half > 0 {
        for lane in 0..half {
            let other = lanes[lane + half];
            if other > lanes[lane] {
                lanes[lane] = other;
            }
        }
        half /= 2;
    }
    let largest = lanes[0];
    let inverse = if largest > SMALLEST {
        127.0 / largest
    } else {
        0.0
    };
    let mut quants = [0i8; BLOCK];
    for (quant, value) in quants.iter_mut().zip(values) {
        let rounded = (value * inverse + ROUNDING).to_bits();
        *quant = rounded.wrapping_sub(ROUNDING.to_bits()) as i8;
    }
    (quants, largest / 127.0)
}
