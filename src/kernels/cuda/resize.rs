//! Fewer or more pages, with the contents of those that stay.

use candle_core::{Device, Result, Tensor};

use super::Pages;
use crate::PAGE_TOKENS;

impl Pages {
    /// See [`crate::LayerPages::resize`].
    pub fn resize(&mut self, pages: usize, kept: &[u32]) -> Result<()> {
        match self.holds_latents() {
            // Latents are keys, and so are their values.
            true => {
                self.values = nothing(&self.keys)?;
                resize(&mut self.keys, pages, kept)?;
                self.values = self.keys.clone();
            }
            false => {
                resize(&mut self.keys, pages, kept)?;
                resize(&mut self.values, pages, kept)?;
            }
        }
        for scales in self.scales.iter_mut().flatten() {
            resize(scales, pages, kept)?;
        }
        Ok(())
    }
}

/// Copies on the device, or through the host if the device has no memory for both. An error leaves no pages.
fn resize(rows: &mut Tensor, pages: usize, kept: &[u32]) -> Result<()> {
    let device = rows.device().clone();
    let nothing = nothing(rows)?;
    let old = std::mem::replace(rows, nothing);
    *rows = match resized(&old, pages, kept, &device) {
        Ok(rows) => rows,
        Err(_) => {
            let there = old.to_device(&Device::Cpu)?;
            drop(old);
            resized(&there, pages, kept, &Device::Cpu)?.to_device(&device)?
        }
    };
    Ok(())
}

/// No rows, which take no memory.
fn nothing(rows: &Tensor) -> Result<Tensor> {
    Tensor::zeros((0, rows.dim(1)?), rows.dtype(), &Device::Cpu)
}

fn resized(rows: &Tensor, pages: usize, kept: &[u32], device: &Device) -> Result<Tensor> {
    let width = rows.dim(1)?;
    let resized = Tensor::zeros((pages * PAGE_TOKENS, width), rows.dtype(), device)?;
    if !kept.is_empty() {
        let ids = Tensor::new(kept, device)?;
        let old = rows.reshape(((), PAGE_TOKENS * width))?;
        let old = old.index_select(&ids, 0)?.reshape(((), width))?;
        resized.slice_set(&old, 0, 0)?;
    }
    Ok(resized)
}
