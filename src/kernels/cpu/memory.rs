//! Memory that starts on a cache line, zeroed without being touched.

#![expect(unsafe_code, reason = "aligned memory is allocated and viewed by hand")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use candle_core::{Result, bail};

/// Types every bit pattern of which is a value, and which have no padding.
///
/// # Safety
/// Only implemented for such types.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}
// SAFETY: primitive numbers, or transparent wrappers of them.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i8 {}
// SAFETY: as above.
unsafe impl Plain for i16 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for half::f16 {}
// SAFETY: as above.
unsafe impl Plain for half::bf16 {}

/// Memory aligned to a cache line, or to a huge page if it is large.
#[derive(Debug)]
pub struct Aligned {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Aligned` owns its bytes as a `Vec<u8>` does.
unsafe impl Send for Aligned {}
// SAFETY: shared references only read.
unsafe impl Sync for Aligned {}

const CACHE_LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

impl Aligned {
    pub fn zeroed(bytes: usize) -> Result<Self> {
        let align = if bytes >= 2 * HUGE_PAGE {
            HUGE_PAGE
        } else {
            CACHE_LINE
        };
        let Ok(layout) = Layout::from_size_align(bytes.max(CACHE_LINE), align) else {
            bail!("{bytes} bytes exceed the largest allocation");
        };
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            bail!("allocating {bytes} bytes failed");
        };
        Ok(Self { start, layout })
    }

    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    pub fn view<T: Plain>(&self) -> &[T] {
        let len = self.layout.size() / size_of::<T>();
        // SAFETY: the memory is initialized, aligned for any plain type and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), len) }
    }

    pub fn view_mut<T: Plain>(&mut self) -> &mut [T] {
        let len = self.layout.size() / size_of::<T>();
        // SAFETY: as in `view`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), len) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Views bytes that need not be aligned as values, one at a time.
pub fn half_at(bytes: &[u8], offset: usize) -> half::f16 {
    half::f16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}
