//! Rotation of queries and keys by position.

#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use candle_core::{Result, Tensor, bail};

use super::tensors::{from_floats, with_floats, with_slice};
use super::threads::{Disjoint, share};
use crate::{RopeStyle, RopeTable};

pub fn rotate(x: &Tensor, rope: &RopeTable, positions: &Tensor) -> Result<Tensor> {
    let (tokens, heads, head_dim) = x.dims3()?;
    let half = rope.half();
    if 2 * half > head_dim {
        bail!(
            "a rope of {} values does not fit heads of {head_dim}",
            2 * half
        );
    }
    let positions = with_slice::<u32, _>(positions, |positions| Ok(positions.to_vec()))?;
    if positions.len() != tokens {
        bail!("got {} positions for {tokens} tokens", positions.len());
    }
    let needed = positions.iter().max().map_or(0, |last| *last as usize + 1);
    let angles = rope.angles(needed)?;
    with_floats(x, |values| {
        let mut result = values.to_vec();
        let width = heads * head_dim;
        let rows = Disjoint::new(&mut result);
        share(tokens, 2 * values.len(), |range| {
            for token in range {
                // SAFETY: each token is visited once.
                let row = unsafe { rows.part(token * width..(token + 1) * width) };
                let at = positions[token] as usize * half;
                let (cos, sin) = (&angles.cos[at..at + half], &angles.sin[at..at + half]);
                for head in row.chunks_exact_mut(head_dim) {
                    turn(&mut head[..2 * half], cos, sin, rope.style());
                }
            }
        });
        from_floats(result, x.dims())
    })
}

fn turn(head: &mut [f32], cos: &[f32], sin: &[f32], style: RopeStyle) {
    match style {
        RopeStyle::Halves => {
            let (first, second) = head.split_at_mut(cos.len());
            let pairs = first.iter_mut().zip(second);
            for ((a, b), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
        RopeStyle::Pairs => {
            let (pairs, _) = head.as_chunks_mut::<2>();
            for ([a, b], (cos, sin)) in pairs.iter_mut().zip(cos.iter().zip(sin)) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}
