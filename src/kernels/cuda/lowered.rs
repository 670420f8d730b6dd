//! Convolution by candle's operations: the fallback for a faulty kernel.

use candle_core::{DType, Result, Tensor};

use super::Lowering;
use crate::dense_product;

/// Memory limit for the lowered (im2col) input rows of a convolution.
pub const LOWERED_BYTES: usize = 256 << 20;

/// `x` is `[batch, height, width, channels]`, the weights `[outputs, taps * inputs]` with the inputs of a tap together.
/// All lowered rows are in memory at once.
pub fn convolve(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    lowering: &Lowering,
) -> Result<Tensor> {
    let (batch, _, _, channels) = x.dims4()?;
    let ([height, width], [tall, wide]) = (lowering.outputs, lowering.taps);
    let groups = lowering.groups;
    let (outputs, depth) = weight.dims2()?;
    let (inputs, of_group) = (channels / groups, outputs / groups);
    let mut seen = x.to_dtype(DType::F32)?;
    for (axis, places) in lowering.seen.iter().enumerate() {
        let dim = axis + 1;
        // Taps outside the input read the zeros behind it.
        let end = seen.dim(dim)?;
        seen = seen.pad_with_zeros(dim, 0, 1)?;
        let beside = Tensor::new(end as u32, x.device())?;
        seen = seen.index_select(&places.broadcast_minimum(&beside)?, dim)?;
    }
    let rows = seen
        .reshape(vec![batch, height, tall, width, wide, channels])?
        .permute(vec![0, 1, 3, 2, 4, 5])?;
    let mut results = Vec::with_capacity(groups);
    for group in 0..groups {
        let rows = rows.narrow(5, group * inputs, inputs)?.contiguous()?;
        let rows = rows.reshape((batch * height * width, depth))?;
        let weight = weight.narrow(0, group * of_group, of_group)?.contiguous()?;
        results.push(dense_product(&rows, &weight)?);
    }
    let result = Tensor::cat(&results, 1)?;
    let result = match bias {
        Some(bias) => result.broadcast_add(bias)?,
        None => result,
    };
    result.reshape((batch, height, width, outputs))
}
