//! Linear recurrences: states that keys write and queries read, token by token.
//!
//! A state is cut into independent blocks of value columns: one block stays in the L1 cache while the tokens of a
//! prompt pass through it.

#![expect(unsafe_code, reason = "threads write disjoint heads of one result")]

use candle_core::{Result, Tensor};

use super::level::{Level, at_every_level};
use super::math::{exp, multiply_add, sigmoid};
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, each, share};
use crate::recurrence::{DeltaRule, RecurrenceShape, SequenceState, StateSpace, StateSpan};

/// Value columns of a block of a state.
pub const STATE_LANES: usize = 32;

/// Added to the squared length of a key or query.
const LENGTH_EPS: f32 = 1e-6;

/// The effect of a token on the state of a head.
#[derive(Debug, Clone, Copy, Default)]
struct TokenGate {
    decay: f32,
    /// The share of the value that is written.
    write: f32,
}

/// `states` are those of the spans; the caller has checked their shapes.
pub fn delta_rule(
    rule: &DeltaRule,
    [qkv, steps, betas]: [&Tensor; 3],
    states: &mut [&mut SequenceState],
    spans: &[StateSpan],
) -> Result<Tensor> {
    let shape = rule.shape;
    let gates = with_floats(steps, |steps| {
        with_floats(betas, |betas| Ok(delta_gates(rule, steps, betas)))
    })?;
    with_floats(qkv, |qkv| {
        let width = 2 * shape.key_size() + shape.value_size();
        let keys = KeyRows::new(
            &shape,
            qkv,
            width,
            [0, shape.key_size()],
            |is_query, head| {
                let length = (dot(head, head) + LENGTH_EPS).sqrt();
                match is_query {
                    true => 1.0 / (length * (shape.key_dim as f32).sqrt()),
                    false => 1.0 / length,
                }
            },
        );
        let tokens = Tokens {
            shape,
            keys: &keys,
            values: qkv,
            width,
            value_offset: 2 * shape.key_size(),
            gates: &gates,
            skips: None,
        };
        from_floats(
            tokens.run::<true>(states, spans),
            &[qkv.len() / width, shape.value_size()],
        )
    })
}

/// `states` are those of the spans; the caller has checked their shapes.
pub fn state_space(
    space: &StateSpace,
    [inputs, steps]: [&Tensor; 2],
    states: &mut [&mut SequenceState],
    spans: &[StateSpan],
) -> Result<Tensor> {
    let shape = space.shape;
    let gates = with_floats(steps, |steps| Ok(step_gates(space, steps)))?;
    with_floats(inputs, |inputs| {
        let width = 2 * shape.key_size() + shape.value_size();
        let offsets = [shape.value_size() + shape.key_size(), shape.value_size()];
        let keys = KeyRows::new(&shape, inputs, width, offsets, |_, _| 1.0);
        let tokens = Tokens {
            shape,
            keys: &keys,
            values: inputs,
            width,
            value_offset: 0,
            gates: &gates,
            skips: Some(&space.skips),
        };
        from_floats(
            tokens.run::<false>(states, spans),
            &[inputs.len() / width, shape.value_size()],
        )
    })
}

/// Gates per row and head.
fn step_gates(space: &StateSpace, steps: &[f32]) -> Vec<TokenGate> {
    let rows = steps.chunks_exact(space.shape.value_heads);
    let gates = rows.flat_map(|steps| {
        let rates = space.rates.iter().zip(space.step_bias.iter());
        steps.iter().zip(rates).map(|(step, (rate, bias))| {
            let (least, most) = space.step_limits;
            let step = softplus(step + bias).max(least).min(most);
            TokenGate {
                decay: exp(rate * step),
                write: step,
            }
        })
    });
    gates.collect()
}

/// Gates per row and value head.
fn delta_gates(rule: &DeltaRule, steps: &[f32], betas: &[f32]) -> Vec<TokenGate> {
    let heads = rule.shape.value_heads;
    let rows = steps.chunks_exact(heads).zip(betas.chunks_exact(heads));
    let gates = rows.flat_map(|(steps, betas)| {
        let rates = rule.rates.iter().zip(rule.step_bias.iter());
        let inputs = steps.iter().zip(betas);
        inputs
            .zip(rates)
            .map(|((step, beta), (rate, bias))| TokenGate {
                decay: exp(rate * softplus(step + bias)),
                write: sigmoid(*beta),
            })
    });
    gates.collect()
}

/// `ln(1 + e^x)`.
pub fn softplus(x: f32) -> f32 {
    match x > 20.0 {
        true => x,
        false => x.exp().ln_1p(),
    }
}

/// Queries and keys of each key head, `[key heads, rows, query | key]`: the rows of a step are far apart, and a head's
/// rows are read once per block of its state.
struct KeyRows {
    numbers: Vec<f32>,
    /// The products of queries and keys, `[key heads, rows]`.
    overlaps: Vec<f32>,
    rows: usize,
    dim: usize,
}

impl KeyRows {
    /// Gathers queries and keys at these offsets of each row; `factor` scales each of them.
    fn new(
        shape: &RecurrenceShape,
        input: &[f32],
        width: usize,
        offsets: [usize; 2],
        factor: impl Fn(bool, &[f32]) -> f32 + Sync,
    ) -> Self {
        let (rows, dim) = (input.len() / width, shape.key_dim);
        let mut numbers = vec![0f32; shape.key_heads * rows * 2 * dim];
        let mut overlaps = vec![0f32; shape.key_heads * rows];
        let heads = numbers.chunks_exact_mut((rows * 2 * dim).max(1));
        let heads = heads
            .zip(overlaps.chunks_exact_mut(rows.max(1)))
            .enumerate();
        let mut heads: Vec<_> = heads.collect();
        let cost = 2 * shape.key_heads * rows * dim;
        each(&mut heads, cost, |(head, (numbers, overlaps))| {
            let outs = numbers.chunks_exact_mut(2 * dim).zip(overlaps.iter_mut());
            for (row, (out, overlap)) in input.chunks_exact(width).zip(outs) {
                for (at, out) in out.chunks_exact_mut(dim).enumerate() {
                    let part = &row[offsets[at] + *head * dim..][..dim];
                    let factor = factor(at == 0, part);
                    for (out, number) in out.iter_mut().zip(part) {
                        *out = number * factor;
                    }
                }
                let (query, key) = out.split_at(dim);
                *overlap = dot(query, key);
            }
        });
        Self {
            numbers,
            overlaps,
            rows,
            dim,
        }
    }

    /// The query and the key of a key head in a row, and their product.
    fn of(&self, head: usize, row: usize) -> (&[f32], &[f32], f32) {
        let place = head * self.rows + row;
        let both = &self.numbers[place * 2 * self.dim..][..2 * self.dim];
        let (query, key) = both.split_at(self.dim);
        (query, key, self.overlaps[place])
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The rows of a step on their way through the states.
struct Tokens<'a> {
    shape: RecurrenceShape,
    keys: &'a KeyRows,
    /// Rows of this width, with values from this offset on.
    values: &'a [f32],
    width: usize,
    value_offset: usize,
    gates: &'a [TokenGate],
    /// Per head, the factor of the value that is added to the query's result.
    skips: Option<&'a [f32]>,
}

impl Tokens<'_> {
    fn run<const DELTA: bool>(
        &self,
        states: &mut [&mut SequenceState],
        spans: &[StateSpan],
    ) -> Vec<f32> {
        let shape = &self.shape;
        let rows = self.values.len() / self.width;
        let mut result = vec![0f32; rows * shape.value_size()];
        let out = Disjoint::new(&mut result);
        let states: Vec<_> = states
            .iter_mut()
            .map(|state| Disjoint::new(&mut state.recurrence))
            .collect();
        let blocks = shape.value_dim.div_ceil(STATE_LANES);
        let items = shape.value_heads * blocks;
        let block_size = shape.key_dim * STATE_LANES;
        // With registers of 512 bits the compiler spills the sums of a step to memory, which is twenty times slower.
        let level = Level::best().min(Level::AvxVnni);
        let cost = rows * items * block_size / 4;
        share(spans.len() * items, cost, |range| {
            for item in range {
                let (at, item) = (item / items, item % items);
                let (head, block) = (item / blocks, item % blocks);
                let first: usize = spans[..at].iter().map(|span| span.new_tokens).sum();
                let place = item * block_size..(item + 1) * block_size;
                // SAFETY: spans have separate states, and each block of one is visited once.
                let state = unsafe { states[at].part(place) };
                let lanes = block * STATE_LANES..((block + 1) * STATE_LANES).min(shape.value_dim);
                for row in first..first + spans[at].new_tokens {
                    let start = row * shape.value_size() + head * shape.value_dim;
                    // SAFETY: each block of each row is visited once.
                    let out = unsafe { out.part(start + lanes.start..start + lanes.end) };
                    let value = row * self.width + self.value_offset + head * shape.value_dim;
                    let (query, key, overlap) = self.keys.of(shape.key_head(head), row);
                    let token = Token {
                        query,
                        key,
                        overlap,
                        value: &self.values[value + lanes.start..value + lanes.end],
                        gate: self.gates[row * shape.value_heads + head],
                    };
                    match DELTA {
                        true => delta_step(level, &token, state, out),
                        false => plain_step(level, &token, state, out),
                    }
                    if let Some(skips) = self.skips {
                        for (out, value) in out.iter_mut().zip(token.value) {
                            *out += skips[head] * value;
                        }
                    }
                }
            }
        });
        result
    }
}

/// A token at a block of a head's state.
struct Token<'a> {
    query: &'a [f32],
    key: &'a [f32],
    /// The product of both.
    overlap: f32,
    /// At most as many numbers as a block has lanes; so has the result.
    value: &'a [f32],
    gate: TokenGate,
}

at_every_level! {
    /// Delta rule: the decayed state replaces the key's old value by the new one, in the proportion `beta`.
    fn delta_step(token: &Token<'_>, state: &mut [f32], out: &mut [f32]) = delta_step_as;
}

at_every_level! {
    /// The value is added to the decayed state.
    fn plain_step(token: &Token<'_>, state: &mut [f32], out: &mut [f32]) = plain_step_as;
}

#[inline(always)]
fn delta_step_as<const FAST: bool>(token: &Token<'_>, state: &mut [f32], out: &mut [f32]) {
    step::<FAST, true>(token, state, out);
}

#[inline(always)]
fn plain_step_as<const FAST: bool>(token: &Token<'_>, state: &mut [f32], out: &mut [f32]) {
    step::<FAST, false>(token, state, out);
}

/// The old state is read once for both products, and once to be written: with `S' = decay S + k d`, the query reads
/// `decay (q S) + (q k) d`.
#[inline(always)]
fn step<const FAST: bool, const DELTA: bool>(
    token: &Token<'_>,
    state: &mut [f32],
    out: &mut [f32],
) {
    let (state, _) = state.as_chunks_mut::<STATE_LANES>();
    let TokenGate { decay, write } = token.gate;
    let mut by_key = [0f32; STATE_LANES];
    let mut by_query = [0f32; STATE_LANES];
    for ((row, key), query) in state.iter().zip(token.key).zip(token.query) {
        let sums = by_key.iter_mut().zip(&mut by_query);
        for (number, (read, said)) in row.iter().zip(sums) {
            if DELTA {
                *read = multiply_add::<FAST>(*number, *key, *read);
            }
            *said = multiply_add::<FAST>(*number, *query, *said);
        }
    }
    let mut written = [0f32; STATE_LANES];
    written[..token.value.len()].copy_from_slice(token.value);
    for ((value, said), read) in written.iter_mut().zip(&mut by_query).zip(by_key) {
        *value = write * (*value - decay * read);
        *said = multiply_add::<FAST>(token.overlap, *value, decay * *said);
    }
    for (row, key) in state.iter_mut().zip(token.key) {
        for (number, value) in row.iter_mut().zip(&written) {
            *number = multiply_add::<FAST>(*key, *value, decay * *number);
        }
    }
    out.copy_from_slice(&by_query[..out.len()]);
}

#[cfg(test)]
mod tests;
