use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use proptest::prelude::*;

use super::*;

const KINDS: [GgmlDType; 10] = [
    GgmlDType::F32,
    GgmlDType::F16,
    GgmlDType::BF16,
    GgmlDType::Q8_0,
    GgmlDType::Q4K,
    GgmlDType::Q6K,
    GgmlDType::Q4_0,
    GgmlDType::Q5_0,
    GgmlDType::Q3K,
    GgmlDType::Q5K,
];

/// Random weights in a GGUF type, and what they are worth, row by row.
fn weights(dtype: GgmlDType, rows: usize, cols: usize) -> (Matrix, Vec<f64>) {
    let dense = Tensor::randn(0f32, 0.5, (rows, cols), &Device::Cpu).unwrap();
    let stored = QTensor::quantize(&dense, dtype).unwrap();
    let matrix = Matrix::pack(dtype, &stored.data().unwrap(), rows, cols).unwrap();
    let worth = stored
        .dequantize(&Device::Cpu)
        .unwrap()
        .to_dtype(DType::F64)
        .unwrap();
    (matrix, worth.flatten_all().unwrap().to_vec1().unwrap())
}

/// What the activations are worth after they were rounded for this kind of weights.
fn rounded(form: Form, x: &[f32], cols: usize) -> Vec<f64> {
    let block = match form {
        Form::Floats => return x.iter().map(|x| f64::from(*x)).collect(),
        Form::Blocks32 => 32,
        Form::Blocks256 => 256,
    };
    let mut worth = Vec::new();
    for x in x.chunks_exact(cols).flat_map(|row| row.chunks(block)) {
        let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let scale = f64::from(largest / 127.0);
        worth.extend(
            x.iter()
                .map(|x| f64::from((x * inverse).round_ties_even()) * scale),
        );
    }
    worth
}

fn product_at(level: Level, matrix: &Matrix, x: &Tensor) -> Vec<f32> {
    let results = products_at(level, &[matrix], x).unwrap();
    results[0].flatten_all().unwrap().to_vec1().unwrap()
}

fn check(dtype: GgmlDType, m: usize, rows: usize, cols: usize) {
    let (matrix, weights) = weights(dtype, rows, cols);
    let x = Tensor::randn(0f32, 1.0, (m, cols), &Device::Cpu).unwrap();
    let values: Vec<f32> = x.flatten_all().unwrap().to_vec1().unwrap();
    let activations = rounded(matrix.kind.form(), &values, cols);
    let portable = product_at(Level::Portable, &matrix, &x);
    for (at, found) in portable.iter().enumerate() {
        let a = &activations[at / rows * cols..][..cols];
        let w = &weights[at % rows * cols..][..cols];
        let wanted: f64 = a.iter().zip(w).map(|(a, w)| a * w).sum();
        let size: f64 = a.iter().zip(w).map(|(a, w)| (a * w).abs()).sum();
        let gap = (f64::from(*found) - wanted).abs();
        assert!(
            gap <= 2e-6 * size + 1e-9,
            "{dtype:?}: found {found}, wanted {wanted}"
        );
    }
    for level in Level::available() {
        assert!(
            product_at(level, &matrix, &x) == portable,
            "{dtype:?} differs at {level:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn products_are_the_sums_of_products(
        dtype in prop::sample::select(KINDS.to_vec()),
        m in 1usize..20,
        rows in 1usize..50,
        blocks in 1usize..5,
    ) {
        let stored = dtype.block_size();
        let cols = if stored == 1 { blocks * 37 } else { blocks * stored };
        check(dtype, m, rows, cols);
    }
}

#[test]
fn a_row_has_the_same_bits_whatever_came_with_it() {
    for dtype in KINDS {
        let (matrix, _) = weights(dtype, 40, 512);
        let x = Tensor::randn(0f32, 1.0, (33, 512), &Device::Cpu).unwrap();
        for level in Level::available() {
            let all = product_at(level, &matrix, &x);
            for m in [1, 2, 3, 7, 8, 16] {
                for first in [0, 33 - m] {
                    let part = product_at(level, &matrix, &x.narrow(0, first, m).unwrap());
                    assert!(
                        part == all[first * 40..][..m * 40],
                        "{dtype:?} at {level:?}, {m} rows"
                    );
                }
            }
        }
    }
}

#[test]
fn matrices_that_share_activations_give_what_each_gives_alone() {
    let matrices: Vec<_> = KINDS.map(|dtype| weights(dtype, 24, 256).0).into();
    let all: Vec<_> = matrices.iter().collect();
    let x = Tensor::randn(0f32, 1.0, (1, 3, 256), &Device::Cpu).unwrap();
    let together = products(&all, &x).unwrap();
    for (matrix, result) in matrices.iter().zip(together) {
        assert_eq!(result.dims(), [1, 3, 24]);
        let found: Vec<f32> = result.flatten_all().unwrap().to_vec1().unwrap();
        assert!(found == product_at(Level::best(), matrix, &x));
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    assert!(!Matrix::supports(GgmlDType::Q4K, 16, 128));
    assert!(Matrix::supports(GgmlDType::Q8_0, 5, 96));
    let error = Matrix::pack(GgmlDType::Q8_0, &[0; 33], 1, 32).unwrap_err();
    assert!(error.to_string().contains("got 33 bytes"), "{error}");
    let (matrix, _) = weights(GgmlDType::F32, 4, 8);
    let x = Tensor::zeros((1, 9), DType::F32, &Device::Cpu).unwrap();
    let error = products(&[&matrix], &x).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rows of 9 do not fit weights of 4 x 8"),
        "{error}"
    );
}
