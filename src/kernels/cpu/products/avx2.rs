//! The micro-kernels in AVX2, with VNNI where the CPU has it: a panel goes through in two halves of eight
//! columns, a group in parts of up to four rows.

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

/// Columns in a register.
const LANES: usize = 8;

/// Leaves the products of the group's rows with the panel's sixteen at `place`.
///
/// # Safety
/// The CPU has AVX2, FMA and F16C, and AVX-VNNI if `vnni`; the panel and the group have the blocks that `cols`
/// calls for; the place can be written.
pub unsafe fn multiply(
    vnni: bool,
    kind: Kind,
    panel: &[u8],
    cols: usize,
    group: &Group,
    place: Place,
) {
    let blocks = cols.div_ceil(kind.block_cols());
    assert!(panel.len() >= blocks * kind.block_bytes());
    for half in [0, 1] {
        let mut row = 0;
        while row < group.rows {
            let rows = if group.rows - row >= 4 { 4 } else { 1 };
            let part = Part {
                kind,
                panel: panel.as_ptr(),
                blocks,
                half,
                group,
                row,
            };
            // SAFETY: the caller's promise.
            unsafe {
                match (rows, vnni, group.first == 0 && row == 0 && half == 0) {
                    (4, true, true) => multiply_vnni::<4, true>(part, place),
                    (4, true, false) => multiply_vnni::<4, false>(part, place),
                    (4, false, true) => multiply_avx2::<4, true>(part, place),
                    (4, false, false) => multiply_avx2::<4, false>(part, place),
                    (_, true, true) => multiply_vnni::<1, true>(part, place),
                    (_, true, false) => multiply_vnni::<1, false>(part, place),
                    (_, false, true) => multiply_avx2::<1, true>(part, place),
                    (_, false, false) => multiply_avx2::<1, false>(part, place),
                }
            }
            row += rows;
        }
    }
}

/// Some rows of a group with half of a panel.
#[derive(Clone, Copy)]
struct Part<'a> {
    kind: Kind,
    panel: *const u8,
    blocks: usize,
    half: usize,
    group: &'a Group<'a>,
    row: usize,
}

/// Prefetches as in AVX-512, also for the first half. A check in each line would cost registers.
#[inline(always)]
fn fetch_ahead<const FIRST: bool>(at: *const u8) {
    if FIRST {
        // SAFETY: every x86-64 has the instruction, and it reads nothing that the program sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(FETCHED_AHEAD).cast()) };
    }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn multiply_vnni<const R: usize, const FIRST: bool>(part: Part, place: Place) {
    // SAFETY: the caller's promise.
    unsafe { multiply_rows::<R, true, FIRST>(part, place) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn multiply_avx2<const R: usize, const FIRST: bool>(part: Part, place: Place) {
    // SAFETY: the caller's promise.
    unsafe { multiply_rows::<R, false, FIRST>(part, place) }
}

#[inline(always)]
unsafe fn multiply_rows<const R: usize, const VNNI: bool, const FIRST: bool>(
    part: Part,
    place: Place,
) {
    let mut sums = [[0f32; LANES]; R];
    // SAFETY: the caller's promise.
    unsafe {
        let totals: [__m256; R] = match part.kind {
            Kind::F32 | Kind::F16 | Kind::BF16 => dense::<R, FIRST>(part),
            Kind::Q8_0 => q8_0_rows::<R, VNNI, FIRST>(part),
            Kind::Codes(Code::Q4_0) => code_rows::<R, VNNI, FIRST>(Code::Q4_0, part),
            Kind::Codes(Code::Q4_1) => code_rows::<R, VNNI, FIRST>(Code::Q4_1, part),
            Kind::Codes(Code::Q5_0) => code_rows::<R, VNNI, FIRST>(Code::Q5_0, part),
            Kind::Codes(Code::Q5_1) => code_rows::<R, VNNI, FIRST>(Code::Q5_1, part),
            Kind::Codes(Code::MxFp4) => code_rows::<R, VNNI, FIRST>(Code::MxFp4, part),
            Kind::Q4K | Kind::Q5K => q4k_rows::<R, VNNI, FIRST>(part),
            Kind::Q6K => q6k_rows::<R, VNNI, false, FIRST>(part),
            Kind::Q2K => q6k_rows::<R, VNNI, true, FIRST>(part),
        };
        for (sums, total) in sums.iter_mut().zip(totals) {
            _mm256_storeu_ps(sums.as_mut_ptr(), total);
        }
    }
    let first = part.half * LANES;
    let width = LANES.min(place.width.saturating_sub(first));
    for (row, sums) in sums.iter().enumerate() {
        for (column, sum) in sums[..width].iter().enumerate() {
            let at = (part.row + row) * place.stride + first + column;
            // SAFETY: the caller's promise.
            unsafe { place.start.add(at).write(*sum) };
        }
    }
}

/// Adds to each lane the products of four unsigned with four signed bytes. The unsigned ones are at most 127.
#[inline(always)]
unsafe fn dot<const VNNI: bool>(sum: __m256i, weights: __m256i, quants: __m256i) -> __m256i {
    // SAFETY: callers of `multiply` guarantee these instructions.
    unsafe {
        if VNNI {
            return _mm256_dpbusd_avx_epi32(sum, weights, quants);
        }
        let pairs = _mm256_maddubs_epi16(weights, quants);
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

/// The same for unsigned bytes that are signed ones plus 128. Without VNNI the offset is removed first, because pairs
/// of products would overflow; no correction is needed later.
#[inline(always)]
unsafe fn dot_raised<const VNNI: bool>(sum: __m256i, weights: __m256i, quants: __m256i) -> __m256i {
    // SAFETY: as in `dot`.
    unsafe {
        if VNNI {
            return _mm256_dpbusd_avx_epi32(sum, weights, quants);
        }
        let signed = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
        let quants = _mm256_sign_epi8(quants, signed);
        dot::<false>(sum, _mm256_abs_epi8(signed), quants)
    }
}

/// Four quants of a row in every lane.
#[inline(always)]
unsafe fn four(at: *const i8) -> __m256i {
    // SAFETY: the caller points at four quants.
    unsafe { _mm256_set1_epi32(at.cast::<i32>().read_unaligned()) }
}

#[inline(always)]
unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: the caller points at eight halves.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
}

#[inline(always)]
unsafe fn brains(at: *const u8) -> __m256 {
    // SAFETY: the caller points at eight numbers.
    unsafe {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))
    }
}

/// `total + integers * (scale * activation)` for each row.
#[inline(always)]
unsafe fn scaled<const R: usize>(
    totals: &mut [__m256; R],
    sums: [__m256; R],
    scale: __m256,
    activations: *const f32,
) {
    // SAFETY: the caller points at the activations' scales of as many rows.
    unsafe {
        for (row, total) in totals.iter_mut().enumerate() {
            let scale = _mm256_mul_ps(scale, _mm256_set1_ps(*activations.add(row)));
            *total = _mm256_fmadd_ps(sums[row], scale, *total);
        }
    }
}

/// Even and odd columns have separate sums, so that a row does not wait for its last addition.
#[inline(always)]
unsafe fn dense<const R: usize, const FIRST: bool>(part: Part) -> [__m256; R] {
    let cols = part.blocks * part.kind.block_cols();
    // SAFETY: by the caller's contract `cols` columns of the panel and of the group exist.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); R]; 2];
        for pair in 0..cols / 2 {
            if part.kind != Kind::F32 {
                fetch_ahead::<FIRST>(part.panel.wrapping_add(pair * 4 * PANEL_ROWS));
            }
            for (odd, sums) in sums.iter_mut().enumerate() {
                add_column(sums, part, pair * 2 + odd);
            }
        }
        if cols % 2 == 1 {
            add_column(&mut sums[0], part, cols - 1);
        }
        let [mut even, odd] = sums;
        for (even, odd) in even.iter_mut().zip(odd) {
            *even = _mm256_add_ps(*even, odd);
        }
        even
    }
}

#[inline(always)]
unsafe fn add_column<const R: usize>(sums: &mut [__m256; R], part: Part, col: usize) {
    // SAFETY: the caller's column is one of the panel and of the group.
    unsafe {
        let at = |col: usize, size: usize| {
            part.panel
                .add((col * PANEL_ROWS + part.half * LANES) * size)
        };
        let weights = match part.kind {
            Kind::F32 => _mm256_loadu_ps(at(col, 4).cast()),
            Kind::F16 => halves(at(col, 2)),
            _ => {
                // Two columns, one in the high halves and one in the low ones.
                let pairs = _mm256_loadu_si256(at(col / 2, 4).cast());
                _mm256_castsi256_ps(match col % 2 {
                    0 => _mm256_slli_epi32(pairs, 16),
                    _ => _mm256_and_si256(pairs, _mm256_set1_epi32(-0x10000)),
                })
            }
        };
        let floats = part
            .group
            .floats
            .as_ptr()
            .add(col * part.group.rows + part.row);
        for (row, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_fmadd_ps(weights, _mm256_set1_ps(*floats.add(row)), *sum);
        }
    }
}

#[inline(always)]
unsafe fn q8_0_rows<const R: usize, const VNNI: bool, const FIRST: bool>(
    part: Part,
) -> [__m256; R] {
    let (group, rows) = (part.group, part.group.rows);
    // SAFETY: the panel has as many blocks of two halves as the group has scales and quants for.
    unsafe {
        let mut totals = [_mm256_setzero_ps(); R];
        for sub in 0..part.blocks * 2 {
            let block = part.panel.add(sub / 2 * q8_0::BYTES);
            let lines = block.add(q8_0::QUANTS + sub % 2 * 512 + part.half * 32);
            let quants = group.quants.as_ptr().add((sub * 8 * rows + part.row) * 4);
            let mut integers = [_mm256_setzero_si256(); R];
            if VNNI {
                for (row, integer) in integers.iter_mut().enumerate() {
                    let at = sub * rows + part.row + row;
                    *integer = _mm256_set1_epi32(*group.offsets.as_ptr().add(at));
                }
            }
            for line in 0..8 {
                fetch_ahead::<FIRST>(lines.wrapping_add(line * 64));
                let weights = _mm256_loadu_si256(lines.add(line * 64).cast());
                for (row, integer) in integers.iter_mut().enumerate() {
                    let quants = four(quants.add((line * rows + row) * 4));
                    *integer = dot_raised::<VNNI>(*integer, weights, quants);
                }
            }
            let mut sums = [_mm256_setzero_ps(); R];
            for (sum, integer) in sums.iter_mut().zip(integers) {
                *sum = _mm256_cvtepi32_ps(integer);
            }
            let scale = halves(block.add(q8_0::SCALES + sub % 2 * 32 + part.half * 16));
            let activations = group.scales.as_ptr().add(sub * rows + part.row);
            scaled(&mut totals, sums, scale, activations);
        }
        totals
    }
}

/// Inlined where the code is known, so that each code gets its own loop.
#[inline(always)]
unsafe fn code_rows<const R: usize, const VNNI: bool, const FIRST: bool>(
    code: Code,
    part: Part,
) -> [__m256; R] {
    let (group, rows) = (part.group, part.group.rows);
    // SAFETY: the panel has as many blocks of two halves as the group has scales, offsets and quants for.
    unsafe {
        let mut totals = [_mm256_setzero_ps(); R];
        for sub in 0..part.blocks * 2 {
            let block = part.panel.add(sub / 2 * part.kind.block_bytes());
            let lines = block.add(code.quants() + sub % 2 * 256 + part.half * 32);
            let offsets = group.offsets.as_ptr().add(sub * rows + part.row);
            let scales = group.scales.as_ptr().add(sub * rows + part.row);
            let quants = group.quants.as_ptr().add((sub * 8 * rows + part.row) * 4);
            let mut integers = [_mm256_setzero_si256(); R];
            for (row, integer) in integers.iter_mut().enumerate() {
                *integer = _mm256_set1_epi32(code.start(*offsets.add(row)));
            }
            let fifth = match code.has_fifth_bits() {
                true => {
                    let at = code.fifth_bits() + sub % 2 * 64 + part.half * 32;
                    _mm256_loadu_si256(block.add(at).cast())
                }
                false => _mm256_setzero_si256(),
            };
            for line in 0..4 {
                fetch_ahead::<FIRST>(lines.wrapping_add(line * 64));
                let packed = _mm256_loadu_si256(lines.add(line * 64).cast());
                let fours = [packed, _mm256_srli_epi16(packed, 4)];
                for (index, nibbles) in fours.into_iter().enumerate() {
                    let g = line * 2 + index;
                    let weights = worth(code, nibbles, fifth, g);
                    for (row, integer) in integers.iter_mut().enumerate() {
                        let quants = four(quants.add((g * rows + row) * 4));
                        *integer = dot::<VNNI>(*integer, weights, quants);
                    }
                }
            }
            if code.has_minima() {
                let mut sums = [_mm256_setzero_ps(); R];
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_set1_ps(-((*offsets.add(row) >> 7) as f32));
                }
                let at = codes::MINIMA + sub % 2 * 32 + part.half * 16;
                scaled(&mut totals, sums, halves(block.add(at)), scales);
            }
            let mut sums = [_mm256_setzero_ps(); R];
            for (sum, integer) in sums.iter_mut().zip(integers) {
                *sum = _mm256_cvtepi32_ps(integer);
            }
            let at = block.add(codes::SCALES + sub % 2 * 32 + part.half * 16);
            let scale = match code.has_wide_scales() {
                true => brains(at),
                false => halves(at),
            };
            scaled(&mut totals, sums, scale, scales);
        }
        totals
    }
}

/// Numbers from the low nibbles, the g-th four columns of a sub-block.
#[inline(always)]
unsafe fn worth(code: Code, nibbles: __m256i, fifth: __m256i, g: usize) -> __m256i {
    // SAFETY: callers of `multiply` guarantee these instructions.
    unsafe {
        let low = _mm256_and_si256(nibbles, _mm256_set1_epi8(15));
        match code.table() {
            Some(table) => {
                let table = _mm_loadu_si128(table.as_ptr().cast());
                _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), low)
            }
            None if code.has_fifth_bits() => with_fifth_bit(low, fifth, g),
            None => low,
        }
    }
}

#[inline(always)]
unsafe fn q4k_rows<const R: usize, const VNNI: bool, const FIRST: bool>(part: Part) -> [__m256; R] {
    let (group, rows) = (part.group, part.group.rows);
    // SAFETY: the panel has as many blocks as the group has scales, sums and quants for.
    unsafe {
        let low_bits = _mm256_set1_epi8(15);
        let mut totals = [_mm256_setzero_ps(); R];
        for index in 0..part.blocks {
            let block = part.panel.add(index * part.kind.block_bytes());
            let activations = group.scales.as_ptr().add(index * rows + part.row);
            let scale = halves(block.add(q4k::MIN_SCALES + part.half * 16));
            let heads = q4k_heads(block);
            let heads = heads.0.as_ptr();
            let minima = q4k_minima(heads, index, part);
            scaled(&mut totals, minima, scale, activations);
            let mut products = [_mm256_setzero_ps(); R];
            for sub in 0..8 {
                let lines = block.add(q4k::QUANTS + sub * 256 + part.half * 32);
                let mut integers = [_mm256_setzero_si256(); R];
                for line in 0..4 {
                    fetch_ahead::<FIRST>(lines.wrapping_add(line * 64));
                    let packed = _mm256_loadu_si256(lines.add(line * 64).cast());
                    let mut low = _mm256_and_si256(packed, low_bits);
                    let mut high = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low_bits);
                    if part.kind == Kind::Q5K {
                        let at = q5k::FIFTH_BITS + sub * 64 + part.half * 32;
                        let fifth = _mm256_loadu_si256(block.add(at).cast());
                        low = with_fifth_bit(low, fifth, line * 2);
                        high = with_fifth_bit(high, fifth, line * 2 + 1);
                    }
                    let at = (index * 64 + sub * 8 + line * 2) * rows + part.row;
                    let quants = group.quants.as_ptr().add(at * 4);
                    for (row, integer) in integers.iter_mut().enumerate() {
                        *integer = dot::<VNNI>(*integer, low, four(quants.add(row * 4)));
                        *integer = dot::<VNNI>(*integer, high, four(quants.add((rows + row) * 4)));
                    }
                }
                let scale = _mm_loadl_epi64(heads.add(sub * 16 + part.half * 8).cast());
                let scale = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(scale));
                for (product, integer) in products.iter_mut().zip(integers) {
                    *product = _mm256_fmadd_ps(_mm256_cvtepi32_ps(integer), scale, *product);
                }
            }
            let scale = halves(block.add(q4k::SCALES + part.half * 16));
            scaled(&mut totals, products, scale, activations);
        }
        totals
    }
}

/// Adds the fifth bits of the g-th four columns of a sub-block.
#[inline(always)]
unsafe fn with_fifth_bit(low: __m256i, plane: __m256i, g: usize) -> __m256i {
    // SAFETY: callers of `multiply` guarantee these instructions.
    unsafe {
        let plane = match q5k::bit(g).checked_sub(4) {
            Some(right) => _mm256_srl_epi16(plane, _mm_cvtsi32_si128(right as i32)),
            None => _mm256_sll_epi16(plane, _mm_cvtsi32_si128(4 - q5k::bit(g) as i32)),
        };
        _mm256_or_si256(low, _mm256_and_si256(plane, _mm256_set1_epi8(0x10)))
    }
}

/// The sub-scales and minima of a block, a byte each.
#[repr(align(32))]
struct Heads([u8; 256]);

#[inline(always)]
unsafe fn q4k_heads(block: *const u8) -> Heads {
    let mut heads = Heads([0; 256]);
    for half in [0, 32] {
        // SAFETY: the caller points at a block.
        let lines = unsafe { six_bit_lines(block.add(q4k::HEADS + half)) };
        for (line, found) in lines.into_iter().enumerate() {
            // SAFETY: the buffer has four lines of 64 bytes.
            unsafe { _mm256_store_si256(heads.0.as_mut_ptr().add(line * 64 + half).cast(), found) };
        }
    }
    heads
}

/// Minus the minima, each times the sum of its sub-block's activations.
#[inline(always)]
unsafe fn q4k_minima<const R: usize>(heads: *const u8, index: usize, part: Part) -> [__m256; R] {
    // SAFETY: reads the heads of one block, and the group's sums for it.
    unsafe {
        let mut integers = [_mm256_setzero_si256(); R];
        for pair in 0..4 {
            let at = heads.add(q4k::MINIMA + pair * 32 + part.half * 16);
            let minima = _mm256_cvtepu8_epi16(_mm_loadu_si128(at.cast()));
            let at = (index * 4 + pair) * part.group.rows + part.row;
            let sums = part.group.sums.as_ptr().add(at * 2).cast::<i32>();
            for (row, integer) in integers.iter_mut().enumerate() {
                let sums = _mm256_set1_epi32(sums.add(row).read_unaligned());
                *integer = _mm256_sub_epi32(*integer, _mm256_madd_epi16(minima, sums));
            }
        }
        let mut sums = [_mm256_setzero_ps(); R];
        for (sum, integer) in sums.iter_mut().zip(integers) {
            *sum = _mm256_cvtepi32_ps(integer);
        }
        sums
    }
}

#[inline(always)]
unsafe fn q6k_rows<const R: usize, const VNNI: bool, const MINIMA: bool, const FIRST: bool>(
    part: Part,
) -> [__m256; R] {
    let bytes = if MINIMA { q2k::BYTES } else { q6k::BYTES };
    let (group, rows) = (part.group, part.group.rows);
    // SAFETY: the panel has as many blocks as the group has scales, offsets and quants for.
    unsafe {
        let mut totals = [_mm256_setzero_ps(); R];
        for index in 0..part.blocks {
            let block = part.panel.add(index * bytes);
            let mut products = [_mm256_setzero_ps(); R];
            let mut minima = [_mm256_setzero_si256(); R];
            for sub in 0..16 {
                let lines = block.add(q6k::QUANTS + sub * six_bits::BYTES + part.half * 32);
                for line in 0..six_bits::BYTES / 64 {
                    fetch_ahead::<FIRST>(lines.wrapping_add(line * 64));
                }
                let weights = six_bit_lines(lines);
                let at = (index * 16 + sub) * rows + part.row;
                let mut integers = [_mm256_setzero_si256(); R];
                for (row, integer) in integers.iter_mut().enumerate() {
                    *integer = _mm256_set1_epi32(*group.offsets.as_ptr().add(at + row));
                }
                for (line, weights) in weights.into_iter().enumerate() {
                    let at = (index * 64 + sub * 4 + line) * rows + part.row;
                    let quants = group.quants.as_ptr().add(at * 4);
                    for (row, integer) in integers.iter_mut().enumerate() {
                        *integer = dot::<VNNI>(*integer, weights, four(quants.add(row * 4)));
                    }
                }
                if MINIMA {
                    let at = q2k::MINIMA + sub * 16 + part.half * 8;
                    let minimum = _mm256_cvtepu8_epi32(_mm_loadl_epi64(block.add(at).cast()));
                    let at = (index * 16 + sub) * rows + part.row;
                    for (row, minima) in minima.iter_mut().enumerate() {
                        // Both fit in sixteen bits, and the upper halves of the minima are zeros.
                        let sum = _mm256_set1_epi32(*group.offsets.as_ptr().add(at + row) >> 5);
                        *minima = _mm256_add_epi32(*minima, _mm256_madd_epi16(minimum, sum));
                    }
                }
                let at = q6k::SUB_SCALES + sub * 16 + part.half * 8;
                let scale = _mm_loadl_epi64(block.add(at).cast());
                let scale = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(scale));
                for (product, integer) in products.iter_mut().zip(integers) {
                    *product = _mm256_fmadd_ps(_mm256_cvtepi32_ps(integer), scale, *product);
                }
            }
            let activations = group.scales.as_ptr().add(index * rows + part.row);
            if MINIMA {
                let at = q2k::MIN_SCALES + part.half * 32;
                let scale = _mm256_loadu_ps(block.add(at).cast());
                let minima = minima.map(|minima| _mm256_cvtepi32_ps(minima));
                scaled(&mut totals, minima, scale, activations);
            }
            let scale = _mm256_loadu_ps(block.add(q6k::SCALES + part.half * 32).cast());
            scaled(&mut totals, products, scale, activations);
        }
        totals
    }
}

/// Half of four lines of 64 numbers.
#[inline(always)]
unsafe fn six_bit_lines(at: *const u8) -> [__m256i; 4] {
    // SAFETY: the caller points at a half of the first of the three lines that they are kept in.
    unsafe {
        let low_bits = _mm256_set1_epi8(0x0F);
        let high_bits = _mm256_set1_epi8(0x30);
        let a = _mm256_loadu_si256(at.cast());
        let b = _mm256_loadu_si256(at.add(64).cast());
        let high = _mm256_loadu_si256(at.add(128).cast());
        let low = [a, _mm256_srli_epi16(a, 4), b, _mm256_srli_epi16(b, 4)];
        let high = [
            _mm256_slli_epi16(high, 4),
            _mm256_slli_epi16(high, 2),
            high,
            _mm256_srli_epi16(high, 2),
        ];
        let mut weights = [_mm256_setzero_si256(); 4];
        for (weights, (low, high)) in weights.iter_mut().zip(low.into_iter().zip(high)) {
            let low = _mm256_and_si256(low, low_bits);
            *weights = _mm256_or_si256(low, _mm256_and_si256(high, high_bits));
        }
        weights
    }
}
