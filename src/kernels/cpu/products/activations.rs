//! Activations as the micro-kernels read them: in groups of rows, interleaved along the columns.

use super::GROUP_ROWS;

/// What kind of numbers activations become.
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
    fn block(self) -> usize {
        match self {
            Self::Floats => 1,
            Self::Blocks32 => 32,
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

    /// What weights were raised by to be unsigned.
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

/// Up to [`GROUP_ROWS`] neighbouring rows. In each array the rows of the group lie side by side.
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
    /// Sums of 32 quants, `[cols / 64][rows][2]` (two neighbouring sums side by side).
    pub sums: &'a [i16],
    /// What the products of a sub-block start from because weights were raised to be unsigned:
    /// `[sub-blocks][rows]`.
    pub offsets: &'a [i32],
}

impl Activations {
    pub fn new(form: Form, values: &[f32], cols: usize) -> Self {
        let rows = values.len() / cols;
        let padded = match form {
            Form::Floats => cols,
            Form::Blocks32 => cols.next_multiple_of(64),
            Form::Blocks256 => cols.next_multiple_of(256),
        };
        let mut new = Self::empty(form, rows, padded);
        for first in (0..rows).step_by(GROUP_ROWS) {
            let group = GROUP_ROWS.min(rows - first);
            for row in 0..group {
                let at = (first + row) * cols;
                new.place(first, group, row, &values[at..at + cols]);
            }
        }
        new
    }

    fn empty(form: Form, rows: usize, cols: usize) -> Self {
        let quantized = usize::from(form != Form::Floats);
        let wide = usize::from(form == Form::Blocks256);
        Self {
            form,
            rows,
            cols,
            floats: vec![0.0; (1 - quantized) * rows * cols],
            quants: vec![0; quantized * rows * cols],
            scales: vec![0.0; quantized * rows * cols / form.block()],
            sums: vec![0; wide * rows * cols / 32],
            offsets: vec![0; quantized * rows * cols / form.offset_block()],
        }
    }

    fn place(&mut self, first: usize, group: usize, row: usize, values: &[f32]) {
        if self.form == Form::Floats {
            let floats = &mut self.floats[first * self.cols..];
            for (col, value) in values.iter().enumerate() {
                floats[col * group + row] = *value;
            }
            return;
        }
        let block = self.form.block();
        for (index, values) in values.chunks(block).enumerate() {
            self.place_block(first, group, row, index, values);
        }
    }

    fn place_block(
        &mut self,
        first: usize,
        group: usize,
        row: usize,
        index: usize,
        values: &[f32],
    ) {
        let block = self.form.block();
        let largest = values
            .iter()
            .fold(0f32, |largest, value| largest.max(value.abs()));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut quants = [0i8; 256];
        for (quant, value) in quants.iter_mut().zip(values) {
            *quant = (value * inverse).round_ties_even() as i8;
        }
        let quants = &quants[..block];
        let scales = &mut self.scales[first * self.cols / block..];
        scales[index * group + row] = largest / 127.0;
        let places = &mut self.quants[first * self.cols..];
        for (four, quants) in quants.chunks_exact(4).enumerate() {
            let at = ((index * block / 4 + four) * group + row) * 4;
            places[at..at + 4].copy_from_slice(quants);
        }
        self.place_sums(first, group, row, index, quants);
    }

    fn place_sums(&mut self, first: usize, group: usize, row: usize, index: usize, quants: &[i8]) {
        let block = self.form.offset_block();
        let offsets = &mut self.offsets[first * self.cols / block..];
        for (sub, quants) in quants.chunks_exact(block).enumerate() {
            let sum: i32 = quants.iter().map(|quant| i32::from(*quant)).sum();
            let at = (index * self.form.block() / block + sub) * group + row;
            offsets[at] = -self.form.raised() * sum;
        }
        if self.form != Form::Blocks256 {
            return;
        }
        let sums = &mut self.sums[first * self.cols / 32..];
        for (sub, quants) in quants.chunks_exact(32).enumerate() {
            let sum = quants.iter().map(|quant| i16::from(*quant)).sum();
            sums[((index * 4 + sub / 2) * group + row) * 2 + sub % 2] = sum;
        }
    }

    pub fn form(&self) -> Form {
        self.form
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        (0..self.rows)
            .step_by(GROUP_ROWS)
            .map(|first| self.group(first))
    }

    fn group(&self, first: usize) -> Group<'_> {
        let rows = GROUP_ROWS.min(self.rows - first);
        let (from, to) = (first * self.cols, (first + rows) * self.cols);
        let quantized = self.form != Form::Floats;
        let wide = self.form == Form::Blocks256;
        let (scale, offset) = (self.form.block(), self.form.offset_block());
        Group {
            first,
            rows,
            floats: if quantized {
                &[]
            } else {
                &self.floats[from..to]
            },
            quants: if quantized {
                &self.quants[from..to]
            } else {
                &[]
            },
            scales: if quantized {
                &self.scales[from / scale..to / scale]
            } else {
                &[]
            },
            sums: if wide {
                &self.sums[from / 32..to / 32]
            } else {
                &[]
            },
            offsets: if quantized {
                &self.offsets[from / offset..to / offset]
            } else {
                &[]
            },
        }
    }
}
