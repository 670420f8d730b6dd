//! The micro-kernels in AVX-512 with VNNI: one register holds four columns of all sixteen rows of a panel, and
//! `vpdpbusd` multiplies it with four activations broadcast from memory.

#![expect(
    unsafe_code,
    reason = "panels and activations are read through pointers"
)]

#[allow(
    clippy::wildcard_imports,
    reason = "the imported names are the intrinsics"
)]
use core::arch::x86_64::*;

use super::activations::Group;
use super::blocks::{Code, Kind, codes, q2k, q4k, q5k, q6k, q8_0, six_bits};
use super::{FETCHED_AHEAD, PANEL_ROWS, Place};

/// The truth table of `a | (b & c)`.
const LOW_OR_MASKED: i32 = 0xF8;

/// Leaves the products of the group's rows with the panel's sixteen at `place`.
///
/// # Safety
/// The CPU has the features of [`crate::cpu::Level::Avx512`]; the panel and the group have the
/// blocks that `cols` calls for; the place can be written.
pub unsafe fn multiply(kind: Kind, panel: &[u8], cols: usize, group: &Group, place: Place) {
    let blocks = cols.div_ceil(kind.block_cols());
    assert!(panel.len() >= blocks * kind.block_bytes());
    // SAFETY: the caller's promise.
    unsafe {
        match group.rows {
            1 => multiply_rows::<1>(kind, panel.as_ptr(), blocks, group, place),
            2 => multiply_rows::<2>(kind, panel.as_ptr(), blocks, group, place),
            3 => multiply_rows::<3>(kind, panel.as_ptr(), blocks, group, place),
            4 => multiply_rows::<4>(kind, panel.as_ptr(), blocks, group, place),
            5 => multiply_rows::<5>(kind, panel.as_ptr(), blocks, group, place),
            6 => multiply_rows::<6>(kind, panel.as_ptr(), blocks, group, place),
            7 => multiply_rows::<7>(kind, panel.as_ptr(), blocks, group, place),
            _ => multiply_rows::<8>(kind, panel.as_ptr(), blocks, group, place),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn multiply_rows<const R: usize>(
    kind: Kind,
    panel: *const u8,
    blocks: usize,
    group: &Group,
    place: Place,
) {
    // SAFETY: the caller's promise.
    let totals: [__m512; R] = unsafe {
        match kind {
            Kind::F32 => dense::<R, 4>(panel, blocks, group, |at| _mm512_loadu_ps(at.cast())),
            Kind::F16 => dense::<R, 2>(panel, blocks, group, |at| {
                _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()))
            }),
            Kind::BF16 => bf16_rows(panel, blocks, group),
            Kind::Q8_0 => q8_0_rows(panel, blocks, group),
            Kind::Codes(Code::Q4_0) => code_rows(Code::Q4_0, panel, blocks, group),
            Kind::Codes(Code::Q4_1) => code_rows(Code::Q4_1, panel, blocks, group),
            Kind::Codes(Code::Q5_0) => code_rows(Code::Q5_0, panel, blocks, group),
            Kind::Codes(Code::Q5_1) => code_rows(Code::Q5_1, panel, blocks, group),
            Kind::Codes(Code::MxFp4) => code_rows(Code::MxFp4, panel, blocks, group),
            Kind::Q4K => q4k_rows::<R, false>(panel, blocks, group),
            Kind::Q5K => q4k_rows::<R, true>(panel, blocks, group),
            Kind::Q6K => q6k_rows::<R, false>(panel, blocks, group),
            Kind::Q2K => q6k_rows::<R, true>(panel, blocks, group),
        }
    };
    // SAFETY: the caller's promise.
    unsafe { store(totals, place) };
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store<const R: usize>(totals: [__m512; R], place: Place) {
    let columns = (0xFFFFu32 >> (PANEL_ROWS - place.width)) as __mmask16;
    for (row, total) in totals.into_iter().enumerate() {
        // SAFETY: by the caller's contract; the mask excludes columns of other matrices.
        unsafe {
            let at = place.start.add(row * place.stride);
            _mm512_mask_storeu_ps(at, columns, total);
        }
    }
}

/// Asks for the weights of a page later while the first rows go through a panel, which the others find in the cache: the
/// CPU's own guess stops at the end of each page. Q4_K at one row: 15 GB/s a thread instead of 10. (For f32 it is no help.)
#[inline]
#[target_feature(enable = "avx512f")]
fn fetch_ahead(group: &Group, at: *const u8) {
    if group.first == 0 {
        _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(FETCHED_AHEAD).cast());
    }
}

/// Four quants of a row in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn four(at: *const i8) -> __m512i {
    // SAFETY: the caller points at four quants.
    _mm512_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller points at sixteen halves.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn brains(at: *const u8) -> __m512 {
    // SAFETY: the caller points at sixteen numbers.
    let wide = _mm512_cvtepu16_epi32(unsafe { _mm256_loadu_si256(at.cast()) });
    _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))
}

/// Even and odd columns have separate sums, so that a row does not wait for its last addition.
#[inline(always)]
unsafe fn dense<const R: usize, const BYTES: usize>(
    panel: *const u8,
    cols: usize,
    group: &Group,
    widen: impl Fn(*const u8) -> __m512,
) -> [__m512; R] {
    // SAFETY: reads `cols` columns of the panel and of the group, by the caller's promise.
    unsafe {
        let mut parts = [[_mm512_setzero_ps(); R]; 2];
        for pair in 0..cols / 2 {
            for (odd, part) in parts.iter_mut().enumerate() {
                let col = pair * 2 + odd;
                let at = panel.add(col * BYTES * PANEL_ROWS);
                if BYTES == 2 && odd == 0 {
                    fetch_ahead(group, at);
                }
                add_column(part, widen(at), group.floats.as_ptr().add(col * R));
            }
        }
        if cols % 2 == 1 {
            let col = cols - 1;
            let weights = widen(panel.add(col * BYTES * PANEL_ROWS));
            add_column(&mut parts[0], weights, group.floats.as_ptr().add(col * R));
        }
        added(parts)
    }
}

/// Like [`dense`]: a register of the panel holds two columns, one in its high halves and one in its low ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn bf16_rows<const R: usize>(panel: *const u8, blocks: usize, group: &Group) -> [__m512; R] {
    let mut parts = [[_mm512_setzero_ps(); R]; 2];
    let odd = _mm512_set1_epi32(-0x10000);
    for block in 0..blocks {
        // SAFETY: the panel and the group have two columns for each block.
        unsafe {
            let at = panel.add(block * 4 * PANEL_ROWS);
            fetch_ahead(group, at);
            let pairs = _mm512_loadu_si512(at.cast());
            let columns = [_mm512_slli_epi32(pairs, 16), _mm512_and_si512(pairs, odd)];
            let mut floats = group.floats.as_ptr().add(block * 2 * R);
            for (part, weights) in parts.iter_mut().zip(columns) {
                add_column(part, _mm512_castsi512_ps(weights), floats);
                floats = floats.add(R);
            }
        }
    }
    added(parts)
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add_column<const R: usize>(part: &mut [__m512; R], weights: __m512, floats: *const f32) {
    for (row, sum) in part.iter_mut().enumerate() {
        // SAFETY: the caller points at a column of as many rows.
        *sum = _mm512_fmadd_ps(weights, _mm512_set1_ps(unsafe { *floats.add(row) }), *sum);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn added<const R: usize>([mut even, odd]: [[__m512; R]; 2]) -> [__m512; R] {
    for (even, odd) in even.iter_mut().zip(odd) {
        *even = _mm512_add_ps(*even, odd);
    }
    even
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn q8_0_rows<const R: usize>(panel: *const u8, blocks: usize, group: &Group) -> [__m512; R] {
    let mut totals = [_mm512_setzero_ps(); R];
    let (mut quants, mut offsets) = (group.quants.as_ptr(), group.offsets.as_ptr());
    let mut scales = group.scales.as_ptr();
    for sub in 0..blocks * 2 {
        // SAFETY: the panel has `blocks` blocks of two halves, the group as many scales and quants.
        unsafe {
            let block = panel.add(sub / 2 * q8_0::BYTES);
            let lines = block.add(q8_0::QUANTS + sub % 2 * 512);
            let mut integers = [_mm512_setzero_si512(); R];
            for (row, integer) in integers.iter_mut().enumerate() {
                *integer = _mm512_set1_epi32(*offsets.add(row));
            }
            for line in 0..8 {
                let weights = _mm512_loadu_si512(lines.add(line * 64).cast());
                fetch_ahead(group, lines.wrapping_add(line * 64));
                for (row, integer) in integers.iter_mut().enumerate() {
                    *integer = _mm512_dpbusd_epi32(
                        *integer,
                        weights,
                        four(quants.add((line * R + row) * 4)),
                    );
                }
            }
            let scale = halves(block.add(q8_0::SCALES + sub % 2 * 32));
            for (row, total) in totals.iter_mut().enumerate() {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*scales.add(row)));
                *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[row]), scale, *total);
            }
            quants = quants.add(32 * R);
            offsets = offsets.add(R);
            scales = scales.add(R);
        }
    }
    totals
}

/// Inlined where the code is known, so that each code gets its own loop.
#[inline(always)]
unsafe fn code_rows<const R: usize>(
    code: Code,
    panel: *const u8,
    blocks: usize,
    group: &Group,
) -> [__m512; R] {
    // SAFETY: the panel has `blocks` blocks of two halves, the group as many scales, offsets and quants.
    unsafe {
        let mut totals = [_mm512_setzero_ps(); R];
        let mut quants = group.quants.as_ptr();
        for sub in 0..blocks * 2 {
            let block = panel.add(sub / 2 * Kind::Codes(code).block_bytes());
            let lines = block.add(code.quants() + sub % 2 * 256);
            let (offsets, scales) = (
                group.offsets.as_ptr().add(sub * R),
                group.scales.as_ptr().add(sub * R),
            );
            let mut integers = [_mm512_setzero_si512(); R];
            for (row, integer) in integers.iter_mut().enumerate() {
                *integer = _mm512_set1_epi32(code.start(*offsets.add(row)));
            }
            let fifth = match code.has_fifth_bits() {
                true => _mm512_loadu_si512(block.add(code.fifth_bits() + sub % 2 * 64).cast()),
                false => _mm512_setzero_si512(),
            };
            for line in 0..4 {
                fetch_ahead(group, lines.wrapping_add(line * 64));
                let packed = _mm512_loadu_si512(lines.add(line * 64).cast());
                let fours = [packed, _mm512_srli_epi16(packed, 4)];
                for (four_index, nibbles) in fours.into_iter().enumerate() {
                    let weights = worth(code, nibbles, fifth, line * 2 + four_index);
                    for (row, integer) in integers.iter_mut().enumerate() {
                        let quants = four(quants.add(row * 4));
                        *integer = _mm512_dpbusd_epi32(*integer, weights, quants);
                    }
                    quants = quants.add(4 * R);
                }
            }
            if code.has_minima() {
                let minima = halves(block.add(codes::MINIMA + sub % 2 * 32));
                for (row, total) in totals.iter_mut().enumerate() {
                    let minima = _mm512_mul_ps(minima, _mm512_set1_ps(*scales.add(row)));
                    let sum = _mm512_set1_ps((*offsets.add(row) >> 7) as f32);
                    *total = _mm512_fnmadd_ps(sum, minima, *total);
                }
            }
            let at = block.add(codes::SCALES + sub % 2 * 32);
            let scale = match code.has_wide_scales() {
                true => brains(at),
                false => halves(at),
            };
            for (row, total) in totals.iter_mut().enumerate() {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*scales.add(row)));
                *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[row]), scale, *total);
            }
        }
        totals
    }
}

/// Numbers from the low nibbles, the g-th four columns of a sub-block.
#[inline(always)]
unsafe fn worth(code: Code, nibbles: __m512i, fifth: __m512i, g: usize) -> __m512i {
    // SAFETY: callers of `multiply` guarantee these instructions.
    unsafe {
        let low = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
        match code.table() {
            Some(table) => {
                let table = _mm_loadu_si128(table.as_ptr().cast());
                _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), low)
            }
            None if code.has_fifth_bits() => with_fifth_bit(low, fifth, g),
            None => low,
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn q4k_rows<const R: usize, const FIVE: bool>(
    panel: *const u8,
    blocks: usize,
    group: &Group,
) -> [__m512; R] {
    let low_bits = _mm512_set1_epi8(15);
    let mut totals = [_mm512_setzero_ps(); R];
    for index in 0..blocks {
        // SAFETY: the panel has `blocks` blocks, the group as many scales, sums and quants.
        unsafe {
            let bytes = if FIVE { q5k::BYTES } else { q4k::BYTES };
            let block = panel.add(index * bytes);
            let scales = group.scales.as_ptr().add(index * R);
            let heads = q4k_heads(block);
            let heads = heads.0.as_ptr();
            q4k_minima(
                block,
                heads,
                group.sums.as_ptr().add(index * 8 * R),
                scales,
                &mut totals,
            );
            let mut products = [_mm512_setzero_ps(); R];
            let mut quants = group.quants.as_ptr().add(index * 256 * R);
            for sub in 0..8 {
                let lines = block.add(q4k::QUANTS + sub * 256);
                let mut integers = [_mm512_setzero_si512(); R];
                let fifth = match FIVE {
                    true => _mm512_loadu_si512(block.add(q5k::FIFTH_BITS + sub * 64).cast()),
                    false => _mm512_setzero_si512(),
                };
                for line in 0..4 {
                    let packed = _mm512_loadu_si512(lines.add(line * 64).cast());
                    fetch_ahead(group, lines.wrapping_add(line * 64));
                    let mut low = _mm512_and_si512(packed, low_bits);
                    let mut high = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low_bits);
                    if FIVE {
                        low = with_fifth_bit(low, fifth, line * 2);
                        high = with_fifth_bit(high, fifth, line * 2 + 1);
                    }
                    for (row, integer) in integers.iter_mut().enumerate() {
                        *integer = _mm512_dpbusd_epi32(*integer, low, four(quants.add(row * 4)));
                    }
                    for (row, integer) in integers.iter_mut().enumerate() {
                        *integer =
                            _mm512_dpbusd_epi32(*integer, high, four(quants.add((R + row) * 4)));
                    }
                    quants = quants.add(8 * R);
                }
                let scale = _mm_loadu_si128(heads.add(sub * 16).cast());
                let scale = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(scale));
                for (row, product) in products.iter_mut().enumerate() {
                    *product = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[row]), scale, *product);
                }
            }
            let scale = halves(block.add(q4k::SCALES));
            for (row, total) in totals.iter_mut().enumerate() {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*scales.add(row)));
                *total = _mm512_fmadd_ps(products[row], scale, *total);
            }
        }
    }
    totals
}

/// Adds the fifth bits of the g-th four columns of a sub-block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn with_fifth_bit(low: __m512i, plane: __m512i, g: usize) -> __m512i {
    let plane = match q5k::bit(g).checked_sub(4) {
        Some(right) => _mm512_srl_epi16(plane, _mm_cvtsi32_si128(right as i32)),
        None => _mm512_sll_epi16(plane, _mm_cvtsi32_si128(4 - q5k::bit(g) as i32)),
    };
    _mm512_ternarylogic_epi32::<LOW_OR_MASKED>(low, plane, _mm512_set1_epi8(0x10))
}

/// The sub-scales and minima of a block, a byte each.
#[repr(align(64))]
struct Heads([u8; 256]);

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn q4k_heads(block: *const u8) -> Heads {
    let mut heads = Heads([0; 256]);
    let (lines, _) = heads.0.as_chunks_mut::<64>();
    // SAFETY: the caller points at a block.
    let found = unsafe { six_bit_lines(block.add(q4k::HEADS)) };
    for (line, found) in lines.iter_mut().zip(found) {
        // SAFETY: a line takes 64 bytes.
        unsafe { _mm512_store_si512(line.as_mut_ptr().cast(), found) };
    }
    heads
}

/// Takes off the minima: each times the sum of its sub-block's activations.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn q4k_minima<const R: usize>(
    block: *const u8,
    heads: *const u8,
    sums: *const i16,
    scales: *const f32,
    totals: &mut [__m512; R],
) {
    // SAFETY: reads one block and its heads, and the group's sums and scales for it.
    unsafe {
        let mut integers = [_mm512_setzero_si512(); R];
        for pair in 0..4 {
            let minima = _mm256_loadu_si256(heads.add(q4k::MINIMA + pair * 32).cast());
            let minima = _mm512_cvtepu8_epi16(minima);
            for (row, integer) in integers.iter_mut().enumerate() {
                let sums = sums
                    .add((pair * R + row) * 2)
                    .cast::<i32>()
                    .read_unaligned();
                *integer = _mm512_dpwssd_epi32(*integer, minima, _mm512_set1_epi32(sums));
            }
        }
        let scale = halves(block.add(q4k::MIN_SCALES));
        for (row, total) in totals.iter_mut().enumerate() {
            let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*scales.add(row)));
            *total = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(integers[row]), scale, *total);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn q6k_rows<const R: usize, const MINIMA: bool>(
    panel: *const u8,
    blocks: usize,
    group: &Group,
) -> [__m512; R] {
    let bytes = if MINIMA { q2k::BYTES } else { q6k::BYTES };
    let mut totals = [_mm512_setzero_ps(); R];
    for index in 0..blocks {
        // SAFETY: the panel has `blocks` blocks, the group as many scales, offsets and quants.
        unsafe {
            let block = panel.add(index * bytes);
            let mut products = [_mm512_setzero_ps(); R];
            let mut minima = [_mm512_setzero_si512(); R];
            let mut quants = group.quants.as_ptr().add(index * 256 * R);
            let mut offsets = group.offsets.as_ptr().add(index * 16 * R);
            for sub in 0..16 {
                let lines = block.add(q6k::QUANTS + sub * six_bits::BYTES);
                for line in 0..six_bits::BYTES / 64 {
                    fetch_ahead(group, lines.wrapping_add(line * 64));
                }
                let weights = six_bit_lines(lines);
                let mut integers = [_mm512_setzero_si512(); R];
                for (row, integer) in integers.iter_mut().enumerate() {
                    *integer = _mm512_set1_epi32(*offsets.add(row));
                }
                for weights in weights {
                    for (row, integer) in integers.iter_mut().enumerate() {
                        *integer =
                            _mm512_dpbusd_epi32(*integer, weights, four(quants.add(row * 4)));
                    }
                    quants = quants.add(4 * R);
                }
                if MINIMA {
                    let minimum = _mm_loadu_si128(block.add(q2k::MINIMA + sub * 16).cast());
                    let minimum = _mm512_cvtepu8_epi32(minimum);
                    for (row, minima) in minima.iter_mut().enumerate() {
                        // Both fit in sixteen bits, and the upper halves of the minima are zeros.
                        let sum = _mm512_set1_epi32(*offsets.add(row) >> 5);
                        *minima = _mm512_add_epi32(*minima, _mm512_madd_epi16(minimum, sum));
                    }
                }
                offsets = offsets.add(R);
                let scale = _mm_loadu_si128(block.add(q6k::SUB_SCALES + sub * 16).cast());
                let scale = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scale));
                for (row, product) in products.iter_mut().enumerate() {
                    *product = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers[row]), scale, *product);
                }
            }
            let scale = _mm512_loadu_ps(block.add(q6k::SCALES).cast());
            let activations = group.scales.as_ptr().add(index * R);
            if MINIMA {
                let scale = _mm512_loadu_ps(block.add(q2k::MIN_SCALES).cast());
                for (row, total) in totals.iter_mut().enumerate() {
                    let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*activations.add(row)));
                    *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(minima[row]), scale, *total);
                }
            }
            for (row, total) in totals.iter_mut().enumerate() {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*activations.add(row)));
                *total = _mm512_fmadd_ps(products[row], scale, *total);
            }
        }
    }
    totals
}

/// Four lines of 64 numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn six_bit_lines(at: *const u8) -> [__m512i; 4] {
    let (low_bits, high_bits) = (_mm512_set1_epi8(0x0F), _mm512_set1_epi8(0x30));
    // SAFETY: the caller points at the three lines that they are kept in.
    let (a, b, high) = unsafe {
        (
            _mm512_loadu_si512(at.cast()),
            _mm512_loadu_si512(at.add(64).cast()),
            _mm512_loadu_si512(at.add(128).cast()),
        )
    };
    let low = [a, _mm512_srli_epi16(a, 4), b, _mm512_srli_epi16(b, 4)];
    let high = [
        _mm512_slli_epi16(high, 4),
        _mm512_slli_epi16(high, 2),
        high,
        _mm512_srli_epi16(high, 2),
    ];
    let mut weights = [_mm512_setzero_si512(); 4];
    for (weights, (low, high)) in weights.iter_mut().zip(low.into_iter().zip(high)) {
        let low = _mm512_and_si512(low, low_bits);
        *weights = _mm512_ternarylogic_epi32::<LOW_OR_MASKED>(low, high, high_bits);
    }
    weights
}
