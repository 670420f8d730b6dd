//! The numbers that pages and dense weights store, and how sixteen of them become floats at once.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "F16C intrinsics widen halves")
)]

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m512, _mm256_loadu_si256, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps,
    _mm512_loadu_ps, _mm512_slli_epi32,
};

use half::{bf16, f16};

use super::memory::Plain;

/// Numbers that are read at once.
pub const LANES: usize = 16;

/// A number as it is stored.
pub trait Stored: Plain {
    fn from_f32(value: f32) -> Self;

    /// `FAST` promises F16C.
    fn widen<const FAST: bool>(values: &[Self; LANES]) -> [f32; LANES];

    /// Sixteen numbers from `from` on.
    ///
    /// # Safety
    /// The CPU has AVX-512, and the numbers can be read.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load(from: *const Self) -> __m512;
}

impl Stored for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn widen<const FAST: bool>(values: &[Self; LANES]) -> [f32; LANES] {
        *values
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load(from: *const Self) -> __m512 {
        // SAFETY: readable by the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }
}

impl Stored for bf16 {
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }

    #[inline(always)]
    fn widen<const FAST: bool>(values: &[Self; LANES]) -> [f32; LANES] {
        let mut wide = [0f32; LANES];
        for (wide, value) in wide.iter_mut().zip(values) {
            *wide = f32::from_bits(u32::from(value.to_bits()) << 16);
        }
        wide
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load(from: *const Self) -> __m512 {
        // SAFETY: readable by the caller's promise.
        let values = unsafe { _mm256_loadu_si256(from.cast()) };
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(values)))
    }
}

impl Stored for f16 {
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }

    #[inline(always)]
    fn widen<const FAST: bool>(values: &[Self; LANES]) -> [f32; LANES] {
        let mut wide = [0f32; LANES];
        #[cfg(target_arch = "x86_64")]
        if FAST {
            // SAFETY: `FAST` promises the instruction; sixteen halves are read and sixteen floats written.
            unsafe {
                use core::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
                let from = values.as_ptr().cast::<u16>();
                for half in [0, 8] {
                    let values = _mm256_cvtph_ps(_mm_loadu_si128(from.add(half).cast()));
                    _mm256_storeu_ps(wide.as_mut_ptr().add(half), values);
                }
            }
            return wide;
        }
        for (wide, value) in wide.iter_mut().zip(values) {
            *wide = value.to_f32();
        }
        wide
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load(from: *const Self) -> __m512 {
        // SAFETY: readable by the caller's promise.
        let values = unsafe { _mm256_loadu_si256(from.cast()) };
        _mm512_cvtph_ps(values)
    }
}
