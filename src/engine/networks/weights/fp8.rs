//! Floats of eight bits (E4M3 without infinities) with a scale for each block of 128 x 128, as DeepSeek and Qwen publish
//! weights in FP8, or for each row or matrix, as compressed-tensors and Mistral have them. The loader makes wider floats of them.

use super::header::TensorType;

pub const E4M3: TensorType = TensorType::Other {
    name: "F8_E4M3",
    size_bytes: 1,
};
/// Rows and columns that share a scale.
pub const BLOCK: usize = 128;
/// Suffixes of a matrix's scales.
pub const SCALES: [&str; 2] = ["_scale_inv", "_scale"];
/// Ends of the names of scales of activations.
pub const UNUSED: [&str; 3] = [".input_scale", ".activation_scale", ".output_scale"];

/// The numbers of a matrix with this many columns, and a scale per block of rows and columns.
pub fn widened(codes: &[u8], cols: usize, scales: &[f32], block: [usize; 2]) -> Vec<f32> {
    let values: Vec<f32> = (0..=u8::MAX).map(value).collect();
    let [block_rows, block_cols] = block.map(|size| size.max(1));
    let in_row = cols.div_ceil(block_cols);
    let mut numbers = Vec::with_capacity(codes.len());
    for (row, codes) in codes.chunks(cols.max(1)).enumerate() {
        let scales = scales.iter().skip(row / block_rows * in_row);
        for (codes, scale) in codes.chunks(block_cols).zip(scales) {
            numbers.extend(codes.iter().map(|&code| values[usize::from(code)] * scale));
        }
    }
    numbers
}

fn value(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 8.0 * 2f32.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    match code >> 7 {
        0 => magnitude,
        _ => -magnitude,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_floats_of_eight_bits() {
        for (code, wanted) in [
            (0x00, 0.0),
            (0x01, 2f32.powi(-9)),
            (0x08, 2f32.powi(-6)),
            (0x38, 1.0),
            (0xb8, -1.0),
            (0x3c, 1.5),
            (0x7e, 448.0),
            (0xfe, -448.0),
        ] {
            assert_eq!(value(code), wanted, "{code:#x}");
        }
        assert!(value(0x7f).is_nan() && value(0xff).is_nan());
    }

    #[test]
    fn each_block_has_a_scale_of_its_own() {
        let (rows, cols) = (130, 300);
        let codes = vec![0x38; rows * cols];
        let scales = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let numbers = widened(&codes, cols, &scales, [BLOCK; 2]);
        assert_eq!(numbers.len(), rows * cols);
        let at = |row: usize, col: usize| numbers[row * cols + col];
        assert_eq!([at(0, 127), at(127, 128), at(0, 299)], [1.0, 2.0, 3.0]);
        assert_eq!([at(128, 0), at(129, 255), at(129, 256)], [4.0, 5.0, 6.0]);
        let by_row = widened(&[0x38; 6], 3, &[2.0, 3.0], [1, 3]);
        assert_eq!(by_row, [2.0, 2.0, 2.0, 3.0, 3.0, 3.0]);
    }
}
