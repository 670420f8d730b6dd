//! Activations, gated or not, and soft caps.

#![expect(unsafe_code, reason = "threads write disjoint parts of one result")]

use candle_core::{Result, Tensor, bail};

use super::level::{Level, at_every_level};
use super::math::{normal_share, sigmoid, tanh};
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};

/// The activation function of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Silu,
    GeluTanh,
    Gelu,
}

at_every_level! {
    /// `out = gate(a) * b`.
    fn gate_slice(kind: Gate, a: &[f32], b: &[f32], out: &mut [f32]) = gate_slice_as;
}

#[inline(always)]
fn gate_slice_as<const FAST: bool>(kind: Gate, a: &[f32], b: &[f32], out: &mut [f32]) {
    let inputs = a.iter().zip(b);
    match kind {
        Gate::Silu => {
            for (out, (a, b)) in out.iter_mut().zip(inputs) {
                *out = a * sigmoid(*a) * b;
            }
        }
        Gate::GeluTanh => {
            for (out, (a, b)) in out.iter_mut().zip(inputs) {
                let inner = 0.797_884_6 * (a + 0.044_715 * a * a * a);
                *out = 0.5 * a * (1.0 + tanh(inner)) * b;
            }
        }
        Gate::Gelu => {
            for (out, (a, b)) in out.iter_mut().zip(inputs) {
                *out = a * normal_share(*a) * b;
            }
        }
    }
}

at_every_level! {
    /// `out = activation(x)`.
    fn activate_slice(kind: Gate, x: &[f32], out: &mut [f32]) = activate_slice_as;
}

#[inline(always)]
fn activate_slice_as<const FAST: bool>(kind: Gate, x: &[f32], out: &mut [f32]) {
    match kind {
        Gate::Silu => {
            for (out, x) in out.iter_mut().zip(x) {
                *out = x * sigmoid(*x);
            }
        }
        Gate::GeluTanh => {
            for (out, x) in out.iter_mut().zip(x) {
                let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
                *out = 0.5 * x * (1.0 + tanh(inner));
            }
        }
        Gate::Gelu => {
            for (out, x) in out.iter_mut().zip(x) {
                *out = x * normal_share(*x);
            }
        }
    }
}

/// `activation(x)`, value by value.
pub fn activate(x: &Tensor, kind: Gate) -> Result<Tensor> {
    with_floats(x, |values| {
        let mut result = vec![0f32; values.len()];
        let parts = Disjoint::new(&mut result);
        share(values.len().div_ceil(256), values.len() * 2, |chunks| {
            let range = chunks.start * 256..(chunks.end * 256).min(values.len());
            // SAFETY: `share` hands out ranges that do not overlap.
            let part = unsafe { parts.part(range.clone()) };
            activate_slice(Level::best(), kind, &values[range], part);
        });
        from_floats(result, x.dims())
    })
}

/// `gate(a) * b`, value by value.
pub fn gate(a: &Tensor, b: &Tensor, kind: Gate) -> Result<Tensor> {
    gated(a, b, |a, b, out| gate_slice(Level::best(), kind, a, b, out))
}

/// See [`crate::swiglu_oai`].
pub fn swiglu_oai(a: &Tensor, b: &Tensor, alpha: f32, limit: f32) -> Result<Tensor> {
    gated(a, b, |a, b, out| {
        swiglu_oai_slice(Level::best(), alpha, limit, a, b, out);
    })
}

fn gated(
    a: &Tensor,
    b: &Tensor,
    fill: impl Fn(&[f32], &[f32], &mut [f32]) + Sync,
) -> Result<Tensor> {
    if a.dims() != b.dims() {
        bail!("a gate of shape {:?} does not fit {:?}", a.dims(), b.dims());
    }
    with_floats(a, |gates| {
        with_floats(b, |values| {
            let mut result = vec![0f32; gates.len()];
            let parts = Disjoint::new(&mut result);
            share(gates.len().div_ceil(256), gates.len() * 2, |chunks| {
                let range = chunks.start * 256..(chunks.end * 256).min(gates.len());
                // SAFETY: `share` hands out ranges that do not overlap.
                let part = unsafe { parts.part(range.clone()) };
                fill(&gates[range.clone()], &values[range], part);
            });
            from_floats(result, a.dims())
        })
    })
}

at_every_level! {
    fn swiglu_oai_slice(alpha: f32, limit: f32, a: &[f32], b: &[f32], out: &mut [f32]) = swiglu_oai_slice_as;
}

#[inline(always)]
fn swiglu_oai_slice_as<const FAST: bool>(
    alpha: f32,
    limit: f32,
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
) {
    for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        // Comparisons that keep NaN.
        let a = if *a > limit { limit } else { *a };
        let b = if *b > limit { limit } else { *b };
        let b = if b < -limit { -limit } else { b };
        *out = a * sigmoid(alpha * a) * (b + 1.0);
    }
}

at_every_level! {
    /// `out = cap * tanh(x / cap)`.
    fn cap_slice(cap: f32, x: &[f32], out: &mut [f32]) = cap_slice_as;
}

#[inline(always)]
fn cap_slice_as<const FAST: bool>(cap: f32, x: &[f32], out: &mut [f32]) {
    let inverse = 1.0 / cap;
    for (out, x) in out.iter_mut().zip(x) {
        *out = cap * tanh(x * inverse);
    }
}

/// `cap * tanh(x / cap)`, value by value.
pub fn soft_cap(x: &Tensor, cap: f32) -> Result<Tensor> {
    with_floats(x, |values| {
        let mut result = vec![0f32; values.len()];
        let parts = Disjoint::new(&mut result);
        share(values.len().div_ceil(256), values.len(), |chunks| {
            let range = chunks.start * 256..(chunks.end * 256).min(values.len());
            // SAFETY: `share` hands out ranges that do not overlap.
            let part = unsafe { parts.part(range.clone()) };
            cap_slice(Level::best(), cap, &values[range], part);
        });
        from_floats(result, x.dims())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn gap(a: &Tensor, b: &Tensor) -> f32 {
        let gap = (a - b).unwrap().abs().unwrap().max_all().unwrap();
        gap.to_scalar().unwrap()
    }

    #[test]
    fn gates_agree_with_candle() {
        let a = Tensor::randn(0f32, 4.0, (3, 1000), &Device::Cpu).unwrap();
        let b = Tensor::randn(0f32, 1.0, (3, 1000), &Device::Cpu).unwrap();
        let silu = (a.silu().unwrap() * &b).unwrap();
        assert!(gap(&gate(&a, &b, Gate::Silu).unwrap(), &silu) < 1e-5);
        let gelu = (a.gelu().unwrap() * &b).unwrap();
        assert!(gap(&gate(&a, &b, Gate::GeluTanh).unwrap(), &gelu) < 1e-5);
        let gelu = a.gelu_erf().unwrap();
        assert!(gap(&activate(&a, Gate::Gelu).unwrap(), &gelu) < 2e-6);
        let gated = gate(&a, &b, Gate::Gelu).unwrap();
        assert!(gap(&gated, &(gelu * &b).unwrap()) < 1e-5);
    }

    #[test]
    fn the_clamped_gate_agrees_with_its_definition() {
        let a = Tensor::randn(0f32, 6.0, (3, 1000), &Device::Cpu).unwrap();
        let b = Tensor::randn(0f32, 6.0, (3, 1000), &Device::Cpu).unwrap();
        let found = swiglu_oai(&a, &b, 1.702, 7.0).unwrap();
        let numbers = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let inputs = numbers(&a).into_iter().zip(numbers(&b));
        for ((a, b), found) in inputs.zip(numbers(&found)) {
            let a = f64::from(a.min(7.0));
            let b = f64::from(b.clamp(-7.0, 7.0));
            let wanted = a / (1.0 + (-1.702 * a).exp()) * (b + 1.0);
            assert!((f64::from(found) - wanted).abs() < 1e-5, "{found} {wanted}");
        }
    }

    #[test]
    fn activations_agree_with_candle() {
        let x = Tensor::randn(0f32, 4.0, (3, 1000), &Device::Cpu).unwrap();
        let silu = activate(&x, Gate::Silu).unwrap();
        assert!(gap(&silu, &x.silu().unwrap()) < 1e-5);
        let gelu = activate(&x, Gate::GeluTanh).unwrap();
        assert!(gap(&gelu, &x.gelu().unwrap()) < 1e-5);
        // Far from zero they are zero or the value itself.
        let far = Tensor::new(&[-1e6f32, -100.0, 100.0, 1e6], &Device::Cpu).unwrap();
        for kind in [Gate::Silu, Gate::GeluTanh, Gate::Gelu] {
            let found = activate(&far, kind).unwrap().to_vec1::<f32>().unwrap();
            for (found, wanted) in found.iter().zip([0.0, 0.0, 100.0, 1e6]) {
                assert!((found - wanted).abs() < 1e-30, "{kind:?}: {found:e}");
            }
        }
    }

    #[test]
    fn soft_caps_agree_with_candle() {
        let x = Tensor::randn(0f32, 60.0, (3, 1000), &Device::Cpu).unwrap();
        let wanted = ((&x / 30.0).unwrap().tanh().unwrap() * 30.0).unwrap();
        let capped = soft_cap(&x, 30.0).unwrap();
        assert!(gap(&capped, &wanted) < 3e-5);
        let largest = capped.abs().unwrap().max_all().unwrap();
        assert!(largest.to_scalar::<f32>().unwrap() <= 30.0);
    }
}
