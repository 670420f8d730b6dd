//! Lists of a step on their way to a device.

use std::ops::Range;

use candle_core::{Device, Result, Tensor};

use super::transfer;

/// Lists of numbers that go to a device together: an upload takes longer than its bytes.
#[derive(Default)]
pub struct Upload {
    numbers: Vec<u32>,
}

/// The same numbers there.
pub struct UploadedLists(Tensor);

/// Numbers of a list are read sixteen bytes at a time.
const LIST_ALIGNMENT: usize = 4;

impl Upload {
    pub fn add(&mut self, list: &[u32]) -> Range<usize> {
        let start = self.numbers.len().next_multiple_of(LIST_ALIGNMENT);
        self.numbers.resize(start, 0);
        self.numbers.extend_from_slice(list);
        start..self.numbers.len()
    }

    pub fn put(self, device: &Device) -> Result<UploadedLists> {
        match transfer::upload(&self.numbers, device)? {
            Some(numbers) => Ok(UploadedLists(numbers)),
            None => Tensor::new(self.numbers, device).map(UploadedLists),
        }
    }
}

impl UploadedLists {
    pub fn get(&self, list: Range<usize>) -> Result<Tensor> {
        self.0.narrow(0, list.start, list.len())
    }
}
