//! A product with weights, plus a bias.

use candle_core::{Result, Tensor};

use crate::networks::weights::Weight;

#[derive(Debug)]
pub struct Linear {
    pub weight: Weight,
    pub bias: Option<Tensor>,
}

impl Linear {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.biased(self.weight.product(x)?)
    }

    /// Several layers on the same rows.
    pub fn together<const N: usize>(layers: [&Self; N], x: &Tensor) -> Result<[Tensor; N]> {
        let products = Weight::products(&layers.map(|layer| &layer.weight), x)?;
        let biased = layers
            .iter()
            .zip(products)
            .map(|(layer, product)| layer.biased(product));
        let biased = biased.collect::<Result<Vec<_>>>()?;
        match <[Tensor; N]>::try_from(biased) {
            Ok(results) => Ok(results),
            Err(results) => candle_core::bail!("{N} layers gave {} results", results.len()),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.weight.bytes()
    }

    fn biased(&self, product: Tensor) -> Result<Tensor> {
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }
}
