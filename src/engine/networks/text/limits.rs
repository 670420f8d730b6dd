//! Sizes that a decoder can have at all, so that arithmetic on them later needs no second thought.

use super::spec::DecoderSpec;
use crate::networks::weights::Flaw;

pub fn check(spec: &DecoderSpec) -> Result<(), Flaw> {
    for (name, size, most) in [
        ("the vocabulary size", spec.vocab_size, 1 << 24),
        ("the hidden size", spec.hidden_size, 1 << 20),
        ("the feed-forward size", spec.intermediate_size, 1 << 22),
        ("the number of layers", spec.layers, 1 << 12),
        ("the number of heads", spec.heads, 1 << 12),
        ("the number of key heads", spec.kv_heads, 1 << 12),
        ("the size of a head", spec.head_dim, 1 << 12),
        ("the context", spec.context, 1 << 26),
    ] {
        if !(1..=most).contains(&size) {
            return Err(Flaw::broken(name, size, format!("1 to {most}")));
        }
    }
    check_heads(spec)?;
    check_numbers(spec)
}

fn check_heads(spec: &DecoderSpec) -> Result<(), Flaw> {
    if !spec.heads.is_multiple_of(spec.kv_heads) {
        let found = format!("{} heads and {} key heads", spec.heads, spec.kv_heads);
        return Err(Flaw::broken(
            "attention",
            found,
            "a multiple of the key heads",
        ));
    }
    let dims = spec.rope.dims;
    if dims == 0 || !dims.is_multiple_of(2) || dims > spec.head_dim {
        let wanted = format!("an even number up to the head size {}", spec.head_dim);
        return Err(Flaw::broken("the rope dimensions", dims, wanted));
    }
    match spec.windows.iter().flatten().find(|&&window| window == 0) {
        Some(_) => Err(Flaw::broken("a sliding window", 0, "at least one token")),
        None => Ok(()),
    }
}

fn check_numbers(spec: &DecoderSpec) -> Result<(), Flaw> {
    let frequencies = spec.rope.inverse_frequencies();
    if !frequencies.iter().all(|f| f.is_finite() && *f >= 0.0) {
        let found = format!("{:?}", spec.rope);
        return Err(Flaw::broken("the rope", found, "finite frequencies"));
    }
    if !(spec.norm_eps.is_finite() && spec.norm_eps >= 0.0) {
        return Err(Flaw::broken(
            "the norm's epsilon",
            spec.norm_eps,
            "a finite number from 0",
        ));
    }
    Ok(())
}
