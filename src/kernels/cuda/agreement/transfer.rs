//! Copies between the host and the GPU, and on it.

use candle_core::{DType, Device, Tensor};

use super::super::transfer::upload;
use super::{gap, gpu, random};

#[test]
fn rows_are_selected() {
    let gpu = gpu();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for columns in [64, 37, 2] {
            let x = random(&[9, columns]).to_dtype(dtype).unwrap();
            let rows = Tensor::new(&[8u32, 0, 3, 3, 1], &Device::Cpu).unwrap();
            let there = x.to_device(&gpu).unwrap();
            // Also of a view with an offset.
            for first in [0, 1] {
                let part = |x: &Tensor| x.narrow(0, first, 9 - first).unwrap();
                let rows = rows.broadcast_minimum(&Tensor::new(7u32, &Device::Cpu).unwrap());
                let rows = rows.unwrap();
                let found = crate::select_rows(&part(&there), &rows.to_device(&gpu).unwrap());
                let wanted = part(&x).index_select(&rows, 0).unwrap();
                assert_eq!(gap(&found.unwrap(), &wanted), 0.0, "{dtype:?}, {columns}");
            }
        }
    }
}

#[test]
fn numbers_come_to_the_host_whole() {
    let gpu = gpu();
    let mut host = crate::HostFloats::default();
    for count in [3000, 7, 5000, 4999] {
        let x = random(&[count]);
        let there = x.to_device(&gpu).unwrap();
        assert_eq!(host.read(&there).unwrap(), x.to_vec1::<f32>().unwrap());
        let none = there.narrow(0, 1, 0).unwrap();
        assert_eq!(host.read(&none).unwrap(), [0f32; 0]);
    }
}

#[test]
fn lists_that_are_on_their_way_stay_as_they_are() {
    let gpu = gpu();
    let lists: Vec<Vec<u32>> = (0..40).map(|at| vec![at; 1 + 300 * at as usize]).collect();
    // No synchronization in between.
    let there: Vec<Tensor> = lists
        .iter()
        .map(|list| upload(list, &gpu).unwrap().unwrap())
        .collect();
    gpu.synchronize().unwrap();
    for (list, there) in lists.iter().zip(there) {
        assert_eq!(&there.to_vec1::<u32>().unwrap(), list);
    }
}
