//! Pictures and rows of samples in other sizes, channels-last.

use candle_core::{Device, Result, Tensor};

use super::cpu;
pub use super::cpu::Resampling;

/// Resizes `[batch, height, width, channels]`. A row of samples is an image of height 1.
pub fn resample(x: &Tensor, size: [usize; 2], how: Resampling) -> Result<Tensor> {
    match x.device() {
        Device::Cpu => cpu::resample(x, size, how),
        _ => with_selections(x, size, how),
    }
}

/// Resizes with candle's operations, one axis after the other.
fn with_selections(x: &Tensor, size: [usize; 2], how: Resampling) -> Result<Tensor> {
    let mut x = x.clone();
    for (dim, to) in [(1, size[0]), (2, size[1])] {
        let places = how.places(x.dim(dim)?, to);
        let select = |index: usize| {
            let indices: Vec<u32> = places.iter().map(|place| place.places[index]).collect();
            x.index_select(&Tensor::new(indices, x.device())?, dim)
        };
        let first = select(0)?;
        if how == Resampling::Nearest {
            x = first;
            continue;
        }
        let shares: Vec<f32> = places.iter().map(|place| place.share).collect();
        let shape = if dim == 1 { (to, 1, 1) } else { (1, to, 1) };
        let shares = Tensor::from_vec(shares, shape, x.device())?.to_dtype(x.dtype())?;
        x = (&first + (select(1)? - &first)?.broadcast_mul(&shares)?)?;
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(rows: &[&[f32]]) -> Tensor {
        let values = rows.concat();
        Tensor::from_vec(values, (1, rows.len(), rows[0].len(), 1), &Device::Cpu).unwrap()
    }

    fn floats(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn the_nearest_place_is_repeated() {
        let x = picture(&[&[1.0, 2.0], &[3.0, 4.0]]);
        let found = resample(&x, [4, 2], Resampling::Nearest).unwrap();
        assert_eq!(floats(&found), [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        let found = resample(
            &picture(&[&[1.0, 2.0, 3.0, 4.0, 5.0]]),
            [1, 3],
            Resampling::Nearest,
        )
        .unwrap();
        assert_eq!(floats(&found), [1.0, 2.0, 4.0]);
    }

    /// The values that PyTorch finds.
    #[test]
    fn neighbours_are_mixed() {
        let x = picture(&[&[0.0, 1.0, 4.0]]);
        let found = resample(
            &x,
            [1, 6],
            Resampling::Linear {
                align_corners: false,
            },
        )
        .unwrap();
        assert_eq!(floats(&found), [0.0, 0.25, 0.75, 1.75, 3.25, 4.0]);
        let found = resample(
            &x,
            [1, 5],
            Resampling::Linear {
                align_corners: true,
            },
        )
        .unwrap();
        assert_eq!(floats(&found), [0.0, 0.5, 1.0, 2.5, 4.0]);
    }

    #[test]
    fn other_devices_find_the_same() {
        let x = Tensor::randn(0f32, 1.0, (2, 7, 9, 5), &Device::Cpu).unwrap();
        let linear = |align_corners| Resampling::Linear { align_corners };
        for how in [Resampling::Nearest, linear(false), linear(true)] {
            for size in [[14, 18], [3, 20], [1, 1]] {
                let found = floats(&resample(&x, size, how).unwrap());
                let wanted = floats(&with_selections(&x, size, how).unwrap());
                let gaps = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
                assert!(gaps.fold(0.0, f32::max) < 1e-5, "{how:?} {size:?}");
            }
        }
    }
}
