//! Sizes that a decoder can have at all, so that arithmetic on them later needs no second thought.

use super::{layer_kinds, rope::Rope, spec::DecoderSpec};
use crate::networks::{layers::GateActivation, weights::Flaw};

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
    if let Some(experts) = &spec.experts {
        experts.check()?;
    }
    if let Some(recurrent) = &spec.recurrent {
        recurrent.kind.check()?;
    }
    if let Some(latent) = &spec.latent {
        latent.check()?;
    }
    check_heads(spec)?;
    layer_kinds::check(spec)?;
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
    let seen = spec.windows.iter().chain(&spec.chunks).flatten();
    match seen.copied().find(|&tokens| tokens == 0) {
        Some(_) => Err(Flaw::broken(
            "a sliding window or a chunk",
            0,
            "at least one token",
        )),
        None => Ok(()),
    }
}

fn check_numbers(spec: &DecoderSpec) -> Result<(), Flaw> {
    let global = spec.global_heads.map(|heads| heads.head_dim);
    check_rope(&spec.rope, global.unwrap_or(spec.rope_head_dim()), spec)?;
    if let Some(rope) = &spec.window_rope {
        check_rope(rope, spec.rope_head_dim(), spec)?;
    }
    if !(spec.norm_eps.is_finite() && spec.norm_eps >= 0.0) {
        return Err(Flaw::broken(
            "the norm's epsilon",
            spec.norm_eps,
            "a finite number from 0",
        ));
    }
    let caps = spec.soft_caps;
    for (name, number) in [
        ("the embedding scale", spec.scales.embedding),
        ("the residual scale", spec.scales.residual),
        ("the logit scale", spec.scales.logits),
        ("the attention scale", spec.attention_scale()),
        ("the soft cap of attention", caps.attention.unwrap_or(1.0)),
        ("the soft cap of logits", caps.logits.unwrap_or(1.0)),
    ] {
        let is_normal = |number: f64| number.is_finite() && (number as f32).is_normal();
        if !(number > 0.0 && is_normal(number) && is_normal(number * number)) {
            return Err(Flaw::broken(name, number, "a finite number above 0"));
        }
    }
    if let GateActivation::SwigluOai { alpha, limit } = spec.activation
        && !(alpha.is_finite() && limit.is_finite() && limit > 0.0)
    {
        let found = format!("alpha {alpha} and limit {limit}");
        let wanted = "finite numbers, and a limit above 0";
        return Err(Flaw::broken("the gate of experts", found, wanted));
    }
    match spec.query_temperature {
        Some(temperature) if temperature.span == 0 || !temperature.weight.is_finite() => {
            let found = format!("{temperature:?}");
            let wanted = "a finite weight and a span of at least one token";
            Err(Flaw::broken("the attention temperature", found, wanted))
        }
        _ => Ok(()),
    }
}

fn check_rope(rope: &Rope, size: usize, spec: &DecoderSpec) -> Result<(), Flaw> {
    let dims = rope.dims;
    if dims == 0 || !dims.is_multiple_of(2) || dims > size {
        let wanted = format!("an even number up to the head size {size}");
        return Err(Flaw::broken("the rope dimensions", dims, wanted));
    }
    let frequencies = rope.inverse_frequencies(spec.context);
    let magnitude = rope.magnitude();
    let is_sound = frequencies.iter().all(|f| f.is_finite() && *f >= 0.0);
    if !(is_sound && magnitude.is_finite() && magnitude > 0.0) {
        let found = format!("{rope:?}");
        return Err(Flaw::broken("the rope", found, "finite frequencies"));
    }
    Ok(())
}
