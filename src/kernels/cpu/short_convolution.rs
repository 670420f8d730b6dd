//! Short causal convolutions of channels over the tokens of a sequence.

#![expect(unsafe_code, reason = "threads write disjoint channels of one result")]

use candle_core::{Result, Tensor};

use super::level::{Level, at_every_level};
use super::math::{multiply_add, sigmoid};
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};
use crate::recurrence::{SequenceState, StateSpan};

/// Channels that a thread takes at a time.
const BLOCK: usize = 256;

pub struct ChannelTaps<'a> {
    /// `[kernel, channels]`.
    pub weight: &'a [f32],
    pub bias: Option<&'a [f32]>,
    pub kernel: usize,
    pub channels: usize,
    pub has_silu: bool,
}

/// `states` are those of the spans.
pub fn short_convolution(
    convolution: &ChannelTaps<'_>,
    x: &Tensor,
    states: &mut [&mut SequenceState],
    spans: &[StateSpan],
) -> Result<Tensor> {
    let &ChannelTaps {
        kernel, channels, ..
    } = convolution;
    let pasts: Vec<_> = states
        .iter_mut()
        .map(|state| Disjoint::new(&mut state.convolution))
        .collect();
    with_floats(x, |x| {
        let mut result = vec![0f32; x.len()];
        let out = Disjoint::new(&mut result);
        let blocks = channels.div_ceil(BLOCK);
        share(spans.len() * blocks, x.len() * kernel, |items| {
            for item in items {
                let (at, block) = (item / blocks, item % blocks);
                let first: usize = spans[..at].iter().map(|span| span.new_tokens).sum();
                let span = ChannelBlock {
                    convolution,
                    x: &x[first * channels..],
                    tokens: spans[at].new_tokens,
                    first: block * BLOCK,
                    end: ((block + 1) * BLOCK).min(channels),
                };
                let place = |row: usize| {
                    let start = (first + row) * channels;
                    start + span.first..start + span.end
                };
                for row in 0..span.tokens {
                    // SAFETY: each block of each row is visited once.
                    let out = unsafe { out.part(place(row)) };
                    // SAFETY: a block of a sequence's past belongs to this item alone.
                    span.row(row, |row| unsafe { span.past(&pasts[at], row) }, out);
                }
                // SAFETY: as above.
                span.keep(|row| unsafe { span.past(&pasts[at], row) });
            }
        });
        from_floats(result, &[x.len() / channels, channels])
    })
}

/// Some channels of one span.
struct ChannelBlock<'a> {
    convolution: &'a ChannelTaps<'a>,
    /// Inputs from the span's first row on.
    x: &'a [f32],
    tokens: usize,
    first: usize,
    end: usize,
}

impl ChannelBlock<'_> {
    /// # Safety
    /// No other part of these channels' past is alive.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees disjoint parts")]
    unsafe fn past<'p>(&self, past: &'p Disjoint<'_, f32>, row: usize) -> &'p mut [f32] {
        let start = row * self.convolution.channels;
        // SAFETY: by the caller's promise.
        unsafe { past.part(start + self.first..start + self.end) }
    }

    fn input(&self, row: usize) -> &[f32] {
        &self.x[row * self.convolution.channels..][self.first..self.end]
    }

    fn row<'p>(&self, row: usize, past: impl Fn(usize) -> &'p mut [f32], out: &mut [f32]) {
        let &ChannelTaps {
            weight,
            bias,
            kernel,
            channels,
            has_silu,
        } = self.convolution;
        if let Some(bias) = bias {
            out.copy_from_slice(&bias[self.first..self.end]);
        }
        for tap in 0..kernel {
            let weight = &weight[tap * channels..][self.first..self.end];
            let level = Level::best();
            match (row + tap).checked_sub(kernel - 1) {
                Some(row) => add_product(level, weight, self.input(row), out),
                None => add_product(level, weight, past(row + tap), out),
            }
        }
        if has_silu {
            silu(Level::best(), out);
        }
    }

    /// Moves the last rows of the input into the past.
    fn keep<'p>(&self, past: impl Fn(usize) -> &'p mut [f32]) {
        let kept = self.convolution.kernel - 1;
        for row in 0..kept {
            // The row `tokens + row` of the past and the input together.
            match (self.tokens + row).checked_sub(kept) {
                Some(from) => past(row).copy_from_slice(self.input(from)),
                None => {
                    let from = past(self.tokens + row).to_vec();
                    past(row).copy_from_slice(&from);
                }
            }
        }
    }
}

at_every_level! {
    /// `out += a * b`.
    fn add_product(a: &[f32], b: &[f32], out: &mut [f32]) = add_product_as;
}

#[inline(always)]
fn add_product_as<const FAST: bool>(a: &[f32], b: &[f32], out: &mut [f32]) {
    for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = multiply_add::<FAST>(*a, *b, *out);
    }
}

at_every_level! {
    fn silu(x: &mut [f32]) = silu_as;
}

#[inline(always)]
fn silu_as<const FAST: bool>(x: &mut [f32]) {
    for x in x {
        *x *= sigmoid(*x);
    }
}
