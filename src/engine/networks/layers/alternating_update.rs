//! Alternating updates (AltUp, Baykal et al., 2023) and a learned augmented residual layer (LAuReL, Menghani et al., 2024) as
//! Gemma 3n has them: several streams of hidden states, of which a layer reads and computes one and predicts the others.
//!
//! Coefficients are few numbers of each row, and all sums are over the streams of a row, in their order.

use candle_core::{D, Result, Tensor};

use super::{Linear, RmsNorm};

/// The matrices that predict and correct a layer's streams, and those parallel to its attention.
#[derive(Debug)]
pub struct AlternatingUpdate {
    /// Maps the normalized active stream to a number per stream.
    pub router: Linear,
    /// The weights include the scale of the router's input.
    pub router_norm: RmsNorm,
    pub prediction: Linear,
    pub correction: Linear,
    /// Factor of the active stream before the layer.
    pub scale: Option<Tensor>,
    pub residual: LowRankResidual,
    /// Which stream the layer computes.
    pub active: usize,
}

/// A low-rank product parallel to attention.
#[derive(Debug)]
pub struct LowRankResidual {
    pub left: Linear,
    pub right: Linear,
    pub norm: RmsNorm,
}

/// Converts embeddings to streams, and streams to a hidden state.
#[derive(Debug)]
pub struct Streams {
    /// For all streams but the first.
    pub projections: Vec<Linear>,
    pub unembeddings: Vec<Linear>,
}

impl Streams {
    pub fn split(&self, embedded: &Tensor) -> Result<Vec<Tensor>> {
        let wanted = magnitude(embedded)?;
        let others = self.projections.iter();
        let others = others.map(|projection| scaled_to(&projection.forward(embedded)?, &wanted));
        let mut streams = vec![embedded.clone()];
        streams.extend(others.collect::<Result<Vec<_>>>()?);
        Ok(streams)
    }

    pub fn merge(&self, streams: &[Tensor]) -> Result<Tensor> {
        let Some((first, others)) = streams.split_first() else {
            candle_core::bail!("there are no streams");
        };
        let wanted = magnitude(first)?;
        let mut sum = first.clone();
        for (unembedding, stream) in self.unembeddings.iter().zip(others) {
            sum = (sum + scaled_to(&unembedding.forward(stream)?, &wanted)?)?;
        }
        sum / streams.len() as f64
    }

    pub fn bytes(&self) -> u64 {
        let all = self.projections.iter().chain(&self.unembeddings);
        all.map(Linear::bytes).sum()
    }
}

impl AlternatingUpdate {
    /// Predicts the streams before the layer.
    pub fn predict(&self, streams: &[Tensor]) -> Result<Vec<Tensor>> {
        let routed = self.routed(&streams[self.active])?;
        let coefficients = self.prediction.forward(&routed)?;
        let count = streams.len();
        let predicted = streams.iter().enumerate().map(|(to, stream)| {
            let mut sum = stream.clone();
            for (from, other) in streams.iter().enumerate() {
                let coefficient = coefficients.narrow(1, to * count + from, 1)?;
                sum = (sum + other.broadcast_mul(&coefficient)?)?;
            }
            Ok(sum)
        });
        predicted.collect()
    }

    /// Corrects the streams after the layer, whose output for the active one is `activated`.
    pub fn correct(&self, predicted: &[Tensor], activated: &Tensor) -> Result<Vec<Tensor>> {
        let coefficients = (self.correction.forward(&self.routed(activated)?)? + 1.0)?;
        let innovation = (activated - &predicted[self.active])?;
        let corrected = predicted.iter().enumerate().map(|(stream, predicted)| {
            let coefficient = coefficients.narrow(1, stream, 1)?;
            innovation.broadcast_mul(&coefficient)? + predicted
        });
        corrected.collect()
    }

    fn routed(&self, x: &Tensor) -> Result<Tensor> {
        self.router.forward(&self.router_norm.forward(x)?)?.tanh()
    }

    pub fn bytes(&self) -> u64 {
        let residual = [&self.residual.left, &self.residual.right];
        let all = [&self.router, &self.prediction, &self.correction];
        all.into_iter().chain(residual).map(Linear::bytes).sum()
    }
}

impl LowRankResidual {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let low = self.right.forward(&self.left.forward(x)?)?;
        x + self.norm.forward(&low)?
    }
}

/// The root of the mean of each row's squares.
fn magnitude(x: &Tensor) -> Result<Tensor> {
    x.sqr()?.mean_keepdim(D::Minus1)?.sqrt()
}

/// Rows of this magnitude.
fn scaled_to(x: &Tensor, wanted: &Tensor) -> Result<Tensor> {
    let found = x.sqr()?.mean_keepdim(D::Minus1)?.maximum(1e-5)?.sqrt()?;
    x.broadcast_mul(wanted)?.broadcast_div(&found)
}
