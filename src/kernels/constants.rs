//! Constant numbers of a layer on the host, with a copy on the one device that uses them.

use std::ops::Deref;
use std::sync::OnceLock;

use candle_core::{Device, Result, Tensor};

#[derive(Debug, Clone, Default)]
pub struct Constants {
    numbers: Vec<f32>,
    there: OnceLock<Tensor>,
}

impl Constants {
    /// The copy on the only device that uses it, f32 in one dimension.
    pub fn on(&self, device: &Device) -> Result<&Tensor> {
        if let Some(there) = self.there.get() {
            return Ok(there);
        }
        let made = Tensor::new(&self.numbers[..], device)?;
        Ok(self.there.get_or_init(|| made))
    }
}

impl From<Vec<f32>> for Constants {
    fn from(numbers: Vec<f32>) -> Self {
        Self {
            numbers,
            there: OnceLock::new(),
        }
    }
}

impl Deref for Constants {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers
    }
}
