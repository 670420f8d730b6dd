use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use proptest::prelude::*;

use super::*;

const KINDS: [WeightType; 14] = [
    WeightType::Ggml(GgmlDType::F32),
    WeightType::Ggml(GgmlDType::F16),
    WeightType::Ggml(GgmlDType::BF16),
    WeightType::Ggml(GgmlDType::Q8_0),
    WeightType::Ggml(GgmlDType::Q4K),
    WeightType::Ggml(GgmlDType::Q6K),
    WeightType::Ggml(GgmlDType::Q4_0),
    WeightType::Ggml(GgmlDType::Q4_1),
    WeightType::Ggml(GgmlDType::Q5_0),
    WeightType::Ggml(GgmlDType::Q5_1),
    WeightType::Ggml(GgmlDType::Q2K),
    WeightType::Ggml(GgmlDType::Q3K),
    WeightType::Ggml(GgmlDType::Q5K),
    WeightType::MxFp4,
];

/// Random weights in their stored format, and their exact values, row by row.
fn weights(stored: WeightType, rows: usize, cols: usize) -> (Matrix, Vec<f64>) {
    let (bytes, worth) = match stored {
        WeightType::Ggml(dtype) => ggml_weights(dtype, rows, cols),
        WeightType::MxFp4 => mxfp4_weights(rows * cols / 32),
    };
    (Matrix::pack(stored, &bytes, rows, cols).unwrap(), worth)
}

fn ggml_weights(dtype: GgmlDType, rows: usize, cols: usize) -> (Vec<u8>, Vec<f64>) {
    let dense = Tensor::randn(0f32, 0.5, (rows, cols), &Device::Cpu).unwrap();
    let stored = QTensor::quantize(&dense, dtype).unwrap();
    let worth = stored
        .dequantize(&Device::Cpu)
        .unwrap()
        .to_dtype(DType::F64)
        .unwrap();
    let worth = worth.flatten_all().unwrap().to_vec1().unwrap();
    (stored.data().unwrap().into_owned(), worth)
}

/// The OCP's microscaling format: a code is a sign, two exponent bits and a mantissa bit.
fn mxfp4_weights(blocks: usize) -> (Vec<u8>, Vec<f64>) {
    let random = Tensor::rand(0f32, 256.0, blocks * 17, &Device::Cpu).unwrap();
    let random = random.to_dtype(DType::U8).unwrap();
    let mut bytes: Vec<u8> = random.to_vec1().unwrap();
    let mut worth = Vec::new();
    for (index, block) in bytes.chunks_exact_mut(17).enumerate() {
        block[0] = match index % 9 {
            0 => block[0] % 3,
            _ => 118 + block[0] % 16,
        };
        let scale = 2f64.powi(i32::from(block[0]) - 127);
        for column in 0..32 {
            let code = block[1 + column % 16] >> (column / 16 * 4) & 15;
            let mantissa = f64::from(code & 1) / 2.0;
            let size = match code >> 1 & 3 {
                0 => mantissa,
                exponent => (1.0 + mantissa) * 2f64.powi(i32::from(exponent) - 1),
            };
            worth.push(if code < 8 { size } else { -size } * scale);
        }
    }
    (bytes, worth)
}

/// The activations after rounding for this type of weights.
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

fn check(stored: WeightType, m: usize, rows: usize, cols: usize) {
    let (matrix, weights) = weights(stored, rows, cols);
    let x = Tensor::randn(0f32, 1.0, (m, cols), &Device::Cpu).unwrap();
    let values: Vec<f32> = x.flatten_all().unwrap().to_vec1().unwrap();
    let activations = rounded(matrix.kind.form(), &values, cols);
    let portable = product_at(Level::Portable, &matrix, &x);
    assert_near(stored, &portable, &weights, &activations, cols);
    for level in Level::available() {
        let found = product_at(level, &matrix, &x);
        assert!(found == portable, "{stored:?} differs at {level:?}");
    }
}

fn assert_near(
    stored: WeightType,
    found: &[f32],
    weights: &[f64],
    activations: &[f64],
    cols: usize,
) {
    let rows = weights.len() / cols;
    for (at, found) in found.iter().enumerate() {
        let a = &activations[at / rows * cols..][..cols];
        let w = &weights[at % rows * cols..][..cols];
        let wanted: f64 = a.iter().zip(w).map(|(a, w)| a * w).sum();
        let size: f64 = a.iter().zip(w).map(|(a, w)| (a * w).abs()).sum();
        let gap = (f64::from(*found) - wanted).abs();
        assert!(
            gap <= 2e-6 * size + 1e-9,
            "{stored:?}: found {found}, wanted {wanted}"
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
fn spans_of_rows_have_the_products_of_their_own_matrices() {
    for stored in KINDS {
        let matrices: Vec<_> = (0..6).map(|_| weights(stored, 24, 256).0).collect();
        let x = Tensor::randn(0f32, 1.0, (21, 256), &Device::Cpu).unwrap();
        let spans: Vec<_> = [0..1, 1..1, 1..12, 12..21]
            .into_iter()
            .zip([[0, 1], [2, 3], [4, 5], [1, 0]])
            .map(|(rows, pair)| MatrixSpan {
                rows,
                matrices: pair.map(|at| &matrices[at]).to_vec(),
            })
            .collect();
        let found = products_of_spans(&spans, &x).unwrap();
        for span in spans.iter().filter(|span| !span.rows.is_empty()) {
            let (first, count) = (span.rows.start, span.rows.len());
            let alone = products(&span.matrices, &x.narrow(0, first, count).unwrap()).unwrap();
            for (found, alone) in found.iter().zip(alone) {
                let found = found.narrow(0, first, count).unwrap();
                let numbers = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert!(
                    numbers(&found) == numbers(&alone),
                    "{stored:?} {:?}",
                    span.rows
                );
            }
        }
    }
}

#[test]
fn spans_that_leave_rows_out_are_refused() {
    let (matrix, _) = weights(WeightType::MxFp4, 24, 64);
    let x = Tensor::zeros((3, 64), DType::F32, &Device::Cpu).unwrap();
    let cases: [&[(usize, usize)]; 4] =
        [&[(0, 2)], &[(0, 1), (2, 3)], &[(0, 4)], &[(0, 2), (1, 3)]];
    for case in cases {
        let spans = case.iter().map(|&(start, end)| MatrixSpan {
            rows: start..end,
            matrices: vec![&matrix],
        });
        let spans: Vec<_> = spans.collect();
        assert!(products_of_spans(&spans, &x).is_err());
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let [q4k, q8_0] = [GgmlDType::Q4K, GgmlDType::Q8_0].map(WeightType::from);
    assert!(!Matrix::supports(q4k, 16, 128));
    assert!(Matrix::supports(q8_0, 5, 96));
    let error = Matrix::pack(q8_0, &[0; 33], 1, 32).unwrap_err();
    assert!(error.to_string().contains("got 33 bytes"), "{error}");
    let (matrix, _) = weights(WeightType::Ggml(GgmlDType::F32), 4, 8);
    let x = Tensor::zeros((1, 9), DType::F32, &Device::Cpu).unwrap();
    let error = products(&[&matrix], &x).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rows of 9 do not fit weights of 4 x 8"),
        "{error}"
    );
}
