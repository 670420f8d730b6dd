//! Products of few rows with matrices in the blocks of GGUF.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};

use super::{gap, gpu, is_emulated, random, seconds};
use crate::{BlockMatrix, GateKind, silu_mul};

const TYPES: [GgmlDType; 10] = [
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];

/// Integers whose rounding to eight bits is exact.
fn integers(rows: usize, columns: usize, dtype: DType) -> Tensor {
    let numbers = random(&[rows * columns]).to_vec1::<f32>().unwrap();
    let numbers = numbers.into_iter().enumerate();
    let numbers = numbers.map(|(at, number)| match at % 32 {
        5 => -127.0,
        _ => (number * 40.0).round().clamp(-127.0, 127.0),
    });
    let numbers = Tensor::from_iter(numbers, &Device::Cpu).unwrap();
    let numbers = numbers.reshape((rows, columns)).unwrap();
    numbers.to_dtype(dtype).unwrap()
}

/// A matrix on the GPU, and its numbers.
fn matrix(dtype: GgmlDType, rows: usize, columns: usize, gpu: &Device) -> (BlockMatrix, Tensor) {
    let blocks = QTensor::quantize(&random(&[rows, columns]), dtype).unwrap();
    let numbers = blocks.dequantize(&Device::Cpu).unwrap();
    let bytes = blocks.data().unwrap();
    let there = BlockMatrix::new(dtype, bytes, (rows, columns), gpu).unwrap();
    (there, numbers)
}

fn product(x: &Tensor, numbers: &Tensor) -> Tensor {
    let x = x.to_dtype(DType::F32).unwrap();
    x.matmul(&numbers.t().unwrap()).unwrap()
}

/// Results of few rows may nearly cancel, so that errors are large beside them.
fn tolerance(dtype: DType) -> f32 {
    match dtype {
        DType::F32 => 2e-4,
        DType::F16 => 4e-3,
        _ => 2e-2,
    }
}

#[test]
fn products_of_few_rows_agree() {
    let gpu = gpu();
    for (at, dtype) in TYPES.into_iter().enumerate() {
        // Several pieces for a lane, a part of the lanes, and a number of matrices for two launches of a type.
        for columns in [256, 2304] {
            for rows in 1..=8 {
                let activations = [DType::F32, DType::F16, DType::BF16][(at + rows) % 3];
                let x = integers(rows, columns, activations);
                let other = TYPES[(at + rows) % TYPES.len()];
                let matrices = [
                    matrix(dtype, 7, columns, &gpu),
                    matrix(other, 2, columns, &gpu),
                    matrix(dtype, 1, columns, &gpu),
                    matrix(dtype, 4, columns, &gpu),
                    matrix(dtype, 3, columns, &gpu),
                    matrix(dtype, 9, columns, &gpu),
                ];
                let there: Vec<_> = matrices.iter().map(|(there, _)| there).collect();
                let found = BlockMatrix::products(&there, &x.to_device(&gpu).unwrap()).unwrap();
                for (found, (_, numbers)) in found.iter().zip(&matrices) {
                    assert_eq!(found.dtype(), activations);
                    let gap = gap(found, &product(&x, numbers));
                    assert!(
                        gap < tolerance(activations),
                        "{dtype:?}, {rows} rows of {columns} {activations:?}: {gap}"
                    );
                }
            }
        }
    }
}

#[test]
fn gated_products_of_few_rows_agree() {
    let gpu = gpu();
    for (at, dtype) in TYPES.into_iter().enumerate() {
        for rows in [1, 2, 3, 8] {
            // Gates around zero, where activations bend.
            let x = (integers(rows, 512, DType::F32) * 1e-3).unwrap();
            let [gate, up] = [(); 2].map(|()| matrix(dtype, 11, 512, &gpu));
            let kind = [GateKind::Silu, GateKind::GeluTanh][at % 2];
            let there = x.to_device(&gpu).unwrap();
            let found = BlockMatrix::gated([&gate.0, &up.0], &there, kind).unwrap();
            let (gates, ups) = (product(&x, &gate.1), product(&x, &up.1));
            let wanted = match kind {
                GateKind::Silu => silu_mul(&gates, &ups),
                _ => crate::gelu_mul(&gates, &ups),
            };
            let gap = gap(&found.unwrap(), &wanted.unwrap());
            assert!(gap < 2e-4, "{dtype:?}, {rows} rows: {gap}");
        }
    }
}

/// The numbers of a row are the same to the last bit, however many rows are beside it.
#[test]
fn rows_do_not_depend_on_their_company() {
    let gpu = gpu();
    for dtype in TYPES {
        let (matrix, _) = matrix(dtype, 10, 768, &gpu);
        let x = random(&[8, 768]).to_device(&gpu).unwrap();
        let alone = matrix.product(&x.narrow(0, 0, 1).unwrap()).unwrap();
        let alone = alone.to_vec2::<f32>().unwrap();
        for rows in 2..=8 {
            let together = matrix.product(&x.narrow(0, 0, rows).unwrap()).unwrap();
            let together = together.to_vec2::<f32>().unwrap();
            assert_eq!(together[0], alone[0], "{dtype:?} beside {rows}");
        }
    }
}

/// Prints timings beside candle's, without asserting any.
#[test]
fn figures_of_few_rows() {
    if is_emulated() {
        return;
    }
    let gpu = gpu();
    for dtype in [
        GgmlDType::Q4_0,
        GgmlDType::Q4K,
        GgmlDType::Q6K,
        GgmlDType::Q8_0,
    ] {
        for (outputs, inputs) in [(2048, 2048), (8192, 2048), (4096, 4096), (14336, 4096)] {
            let (matrix, _) = matrix(dtype, outputs, inputs, &gpu);
            for rows in [1, 4, 8] {
                let x = random(&[rows, inputs]).to_device(&gpu).unwrap();
                let many = |product: &dyn Fn() -> Tensor| {
                    let run = || {
                        let mut last = product();
                        for _ in 1..64 {
                            last = product();
                        }
                        last
                    };
                    seconds(&gpu, run) / 64.0
                };
                let own = many(&|| matrix.product(&x).unwrap());
                let candles = many(&|| matrix.whole_product(&x).unwrap());
                let bytes = matrix.blocks().storage_size_in_bytes() as f64;
                println!(
                    "{rows} rows x {inputs} x {outputs} {dtype:?}: {:.1} us, {:.2} TB/s (candle {:.1} us)",
                    1e6 * own,
                    bytes / own / 1e12,
                    1e6 * candles
                );
            }
        }
    }
}
