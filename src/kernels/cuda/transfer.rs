//! Copies between the host and an NVIDIA GPU through pinned memory. Copies of pageable memory go through a buffer of the
//! driver, and the caller waits.

#![expect(
    unsafe_code,
    reason = "pinned memory is not set, and this file waits for its copies by itself"
)]

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::{CudaEvent, CudaStream, PinnedHostSlice};
use candle_core::{CudaDevice, Device, Result, Tensor};

use super::launch::{DeviceOperand, device_of, room, tensor};

/// Pinned memory for uploads, with an event behind its last copy.
struct StagingBuffer {
    pinned: PinnedHostSlice<u32>,
    copied: CudaEvent,
}

/// The buffers of a GPU: one per thread, unless a step uploads before the copies of the last one are done.
type StagingBuffers = Vec<StagingBuffer>;

const FEWEST_NUMBERS: usize = 4096;
/// Pending copies before an upload waits for the oldest.
const MOST_BUFFERS: usize = 8;

/// Uploads a list. `None` off GPUs, and if no memory can be pinned.
pub fn upload(numbers: &[u32], device: &Device) -> Result<Option<Tensor>> {
    static BUFFERS: LazyLock<Mutex<HashMap<usize, StagingBuffers>>> = LazyLock::new(Mutex::default);
    let Device::Cuda(device) = device else {
        return Ok(None);
    };
    if numbers.is_empty() {
        return Ok(None);
    }
    let stream = device.cuda_stream();
    let mut all = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
    let buffers = all.entry(stream.context().ordinal()).or_default();
    // Limits on locked memory may refuse the buffer.
    let Ok(buffer) = free_buffer(buffers, &stream, numbers.len()) else {
        return Ok(None);
    };
    let mut to = room::<u32>(device, numbers.len())?;
    // SAFETY: the buffer is long enough, and its last copy is done.
    let staged =
        unsafe { std::slice::from_raw_parts_mut(buffer.pinned.as_mut_ptr().w()?, numbers.len()) };
    staged.copy_from_slice(numbers);
    stream.memcpy_htod(staged, &mut to).w()?;
    buffer.copied.record(&stream).w()?;
    Ok(Some(tensor(to, device, &[numbers.len()])))
}

/// An idle buffer for this many numbers.
fn free_buffer<'a>(
    buffers: &'a mut StagingBuffers,
    stream: &CudaStream,
    count: usize,
) -> Result<&'a mut StagingBuffer> {
    let is_free = |buffer: &StagingBuffer| buffer.copied.is_complete();
    let at = match buffers.iter().position(is_free) {
        Some(at) => at,
        None if buffers.len() < MOST_BUFFERS => {
            buffers.push(StagingBuffer::new(stream, count)?);
            buffers.len() - 1
        }
        None => {
            buffers[0].copied.synchronize().w()?;
            0
        }
    };
    if buffers[at].pinned.len() < count {
        buffers[at] = StagingBuffer::new(stream, count)?;
    }
    Ok(&mut buffers[at])
}

impl StagingBuffer {
    fn new(stream: &CudaStream, count: usize) -> Result<Self> {
        let context = stream.context();
        let count = count.next_power_of_two().max(FEWEST_NUMBERS);
        Ok(Self {
            // SAFETY: `upload` writes the numbers before it copies them.
            pinned: unsafe { context.alloc_pinned(count) }.w()?,
            copied: context.new_event(None).w()?,
        })
    }
}

/// Pinned memory for downloads, reused from copy to copy.
#[derive(Debug, Default)]
pub struct PinnedFloats(Option<PinnedHostSlice<f32>>);

impl PinnedFloats {
    /// The numbers of a contiguous f32 tensor. `None` off GPUs, and if no memory can be pinned.
    pub fn read(&mut self, x: &Tensor) -> Result<Option<&mut [f32]>> {
        let Some(device) = device_of(x) else {
            return Ok(None);
        };
        let count = x.elem_count();
        if count == 0 {
            return Ok(Some(&mut []));
        }
        let stream = device.cuda_stream();
        let held = DeviceOperand::of(x)?;
        let Ok(pinned) = self.for_numbers(device, count) else {
            return Ok(None);
        };
        // SAFETY: the buffer is long enough, and its last copy was waited for.
        let numbers = unsafe { std::slice::from_raw_parts_mut(pinned.as_mut_ptr().w()?, count) };
        stream.memcpy_dtoh(&held.view::<f32>()?, numbers).w()?;
        stream.synchronize().w()?;
        Ok(Some(numbers))
    }

    fn for_numbers(
        &mut self,
        device: &CudaDevice,
        count: usize,
    ) -> Result<&mut PinnedHostSlice<f32>> {
        if self.0.as_ref().is_none_or(|pinned| pinned.len() < count) {
            // Freed before the larger buffer is allocated.
            self.0 = None;
            let context = device.cuda_stream().context().clone();
            let count = count.next_power_of_two();
            // SAFETY: numbers are read only after a copy. Without write-combining: the CPU reads this memory.
            let pinned = unsafe { context.alloc_pinned_with_flags(count, 0) }.w()?;
            return Ok(self.0.insert(pinned));
        }
        match &mut self.0 {
            Some(pinned) => Ok(pinned),
            None => candle_core::bail!("no memory was pinned"),
        }
    }
}
