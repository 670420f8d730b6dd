//! Parts that networks of several kinds have: tensors of a component by their names, norms, projections and convolutions, and
//! passes that stop.
//!
//! Forward passes are futures that stop after each block ([`block_end`]), so that the owner of the device can do other work in
//! between; [`run`] goes through without stopping.

mod clip_layer;
mod component;
mod view;

pub use self::{
    clip_layer::ClipActivation,
    component::{ComponentSource, Layout},
    view::{TensorView, layer_part},
};

pub(in crate::networks) use self::clip_layer::{ClipLayer, ClipLayerShape};
pub(in crate::networks) use self::component::{
    AffineNorm, ComponentReader, ConvolutionLayer, KNOWN_TYPES, Projection,
};

#[cfg(test)]
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use candle_core::{Result, Tensor};

#[cfg(test)]
thread_local! {
    /// Whether the next end of a block on this thread panics.
    pub static BLOCK_END_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// Yields once, so that the caller that polls the pass can do other work in between.
pub async fn block_end() {
    #[cfg(test)]
    assert!(!BLOCK_END_PANICS.take(), "a block panics on purpose");
    let mut has_stopped = false;
    poll_fn(|_| match std::mem::replace(&mut has_stopped, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Runs a pass without stopping.
pub fn run<T>(pass: impl Future<Output = T>) -> T {
    let mut pass = pin!(pass);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = pass.as_mut().poll(&mut context) {
            return result;
        }
    }
}

/// Cosines, then sines, of a number at `size / 2` frequencies that fall from 1 towards 1/10,000.
pub(in crate::networks) fn sinusoid(values: &[f32], size: usize, like: &Tensor) -> Result<Tensor> {
    let half = size / 2;
    let angles = |value: f32| {
        (0..half).map(move |at| {
            let frequency = (-(10_000f64.ln()) * at as f64 / half as f64).exp() as f32;
            value * frequency
        })
    };
    let rows = values.iter().flat_map(|&value| {
        let cosines = angles(value).map(f32::cos);
        cosines.chain(angles(value).map(f32::sin))
    });
    Tensor::from_vec(rows.collect(), (values.len(), size), like.device())?.to_dtype(like.dtype())
}

/// A name that begins with `from`, with `to` in its place.
pub(in crate::networks) fn replaced(name: &str, (from, to): &(&str, &str)) -> Option<String> {
    Some(format!("{to}{}", name.strip_prefix(from)?))
}
