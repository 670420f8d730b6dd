//! Convolutions and dense products, channels-last.

use std::sync::Mutex;

use candle_core::{DType, Device, Result, Tensor, bail};

pub use super::cpu::{Axis, Edges};
use super::{cpu, cuda};

/// A convolution over the two middle dimensions of `[batch, height, width, channels]`, or over the middle one of
/// `[batch, length, channels]`.
#[derive(Debug)]
pub struct Convolution {
    weights: Weights,
    axes: [Axis; 2],
    is_transposed: bool,
}

#[derive(Debug)]
enum Weights {
    Cpu(cpu::PackedConvolution),
    Device(Box<DeviceWeights>),
}

/// Weights on a GPU, for a product with the gathered inputs of each output.
#[derive(Debug)]
struct DeviceWeights {
    /// `[outputs, taps * inputs / groups]`, with the inputs of a tap together.
    matrix: Tensor,
    bias: Option<Tensor>,
    taps: [usize; 2],
    groups: usize,
    /// The last one, since sizes seldom change.
    lowered: Mutex<Option<SizedLowering>>,
}

/// How an input of one size is lowered.
#[derive(Debug)]
struct SizedLowering {
    sizes: [usize; 2],
    axes: [Axis; 2],
    lowering: cuda::Lowering,
}

/// Lowered bytes per input byte: 16 taps, the largest usual kernel, in half precision.
const MOST_WIDENED: u64 = 8;

/// Upper bound of the lowered rows of convolutions on a GPU, in a workspace of `work_bytes`.
pub fn convolution_scratch(work_bytes: u64) -> u64 {
    let rows = work_bytes.saturating_mul(MOST_WIDENED);
    rows.min(cuda::LOWERED_BYTES as u64)
}

impl DeviceWeights {
    /// Converts weights in PyTorch's layout.
    fn new(
        weight: &Tensor,
        bias: Option<&Tensor>,
        groups: usize,
        is_transposed: bool,
    ) -> Result<Self> {
        let (first, second, height, width) = weight.dims4()?;
        let ordered = match is_transposed {
            false => weight.permute((0, 2, 3, 1))?,
            true => weight
                .reshape((groups, first / groups, second, height * width))?
                .permute((0, 2, 3, 1))?,
        };
        let outputs = if is_transposed {
            groups * second
        } else {
            first
        };
        Ok(Self {
            matrix: ordered.contiguous()?.reshape((outputs, ()))?,
            bias: bias.map(|bias| bias.to_dtype(DType::F32)).transpose()?,
            taps: [height, width],
            groups,
            lowered: Mutex::default(),
        })
    }

    fn apply(&self, x: &Tensor, axes: [Axis; 2], is_transposed: bool) -> Result<Tensor> {
        let (_, height, width, _) = x.dims4()?;
        let lowering = self.lowering([height, width], axes, is_transposed, x.device())?;
        match cuda::convolve(x, &self.matrix, self.bias.as_ref(), &lowering)? {
            Some(result) => Ok(result),
            None => cuda::convolve_lowered(x, &self.matrix, self.bias.as_ref(), &lowering),
        }
    }

    fn lowering(
        &self,
        sizes: [usize; 2],
        axes: [Axis; 2],
        is_transposed: bool,
        device: &Device,
    ) -> Result<cuda::Lowering> {
        let mut last = match self.lowered.lock() {
            Ok(last) => last,
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(last) = &*last
            && (last.sizes, last.axes) == (sizes, axes)
        {
            return Ok(last.lowering.clone());
        }
        let walk = |axis: usize| axes[axis].walk(sizes[axis], self.taps[axis], is_transposed);
        let walks = [walk(0)?, walk(1)?];
        let seen = |walk: &cpu::Walk| Tensor::new(walk.all(), device);
        let lowering = cuda::Lowering {
            seen: [seen(&walks[0])?, seen(&walks[1])?],
            outputs: walks.each_ref().map(cpu::Walk::outputs),
            taps: self.taps,
            groups: self.groups,
        };
        *last = Some(SizedLowering {
            sizes,
            axes,
            lowering: lowering.clone(),
        });
        Ok(lowering)
    }
}

impl Convolution {
    /// Converts weights in PyTorch's layout: `[outputs, inputs / groups, height, width]` or, without a height, with one
    /// axis. A CPU packs them; f16 and bf16 keep their type.
    pub fn new(
        weight: &Tensor,
        bias: Option<&Tensor>,
        axes: [Axis; 2],
        groups: usize,
    ) -> Result<Self> {
        Self::of(weight, bias, axes, groups, false)
    }

    /// Converts weights of a transposed convolution: `[inputs, outputs / groups, height, width]`. Padding cuts the
    /// result.
    pub fn transposed(
        weight: &Tensor,
        bias: Option<&Tensor>,
        axes: [Axis; 2],
        groups: usize,
    ) -> Result<Self> {
        if axes.iter().any(|axis| axis.edges != Edges::Zeros) {
            bail!("a transposed convolution has no edges to pad");
        }
        Self::of(weight, bias, axes, groups, true)
    }

    /// A dense layer's product: weights `[outputs, inputs]`.
    pub fn product(weight: &Tensor, bias: Option<&Tensor>) -> Result<Self> {
        let weight = weight.unsqueeze(2)?;
        Self::new(&weight, bias, [Axis::default(); 2], 1)
    }

    fn of(
        weight: &Tensor,
        bias: Option<&Tensor>,
        axes: [Axis; 2],
        groups: usize,
        is_transposed: bool,
    ) -> Result<Self> {
        let weight = match weight.rank() {
            3 => weight.unsqueeze(2)?,
            _ => weight.clone(),
        };
        let (first, second, height, width) = weight.dims4()?;
        if groups == 0 || !first.is_multiple_of(groups) {
            bail!(
                "weights of shape {:?} do not make {groups} groups",
                weight.dims()
            );
        }
        let weights = match weight.device() {
            Device::Cpu => {
                let values = weight
                    .to_dtype(DType::F32)?
                    .flatten_all()?
                    .to_vec1::<f32>()?;
                let bias = bias
                    .map(|bias| bias.to_dtype(DType::F32)?.to_vec1())
                    .transpose()?;
                let at =
                    |[a, b, y, x]: [usize; 4]| values[((a * second + b) * height + y) * width + x];
                let (inputs, outputs) = (first / groups, second);
                let packed = match is_transposed {
                    false => {
                        let dims = [first, second, height, width];
                        cpu::PackedConvolution::pack(weight.dtype(), dims, groups, bias, at)?
                    }
                    true => {
                        let dims = [outputs * groups, inputs, height, width];
                        let swapped = |[output, input, y, x]: [usize; 4]| {
                            at([output / outputs * inputs + input, output % outputs, y, x])
                        };
                        cpu::PackedConvolution::pack(weight.dtype(), dims, groups, bias, swapped)?
                    }
                };
                Weights::Cpu(packed)
            }
            _ => Weights::Device(Box::new(DeviceWeights::new(
                &weight,
                bias,
                groups,
                is_transposed,
            )?)),
        };
        Ok(Self {
            weights,
            axes,
            is_transposed,
        })
    }

    /// The result, f32, has the outputs as its last dimension.
    pub fn apply(&self, x: &Tensor) -> Result<Tensor> {
        self.apply_along(x, self.axes)
    }

    /// The same with other values beyond the edges, for images that are to tile.
    pub fn apply_with(&self, x: &Tensor, edges: Edges) -> Result<Tensor> {
        self.apply_along(x, self.axes.map(|axis| Axis { edges, ..axis }))
    }

    fn apply_along(&self, x: &Tensor, axes: [Axis; 2]) -> Result<Tensor> {
        if x.rank() == 3 {
            return self.apply_along(&x.unsqueeze(1)?, axes)?.squeeze(1);
        }
        match &self.weights {
            Weights::Cpu(weights) => weights.apply(x, axes, self.is_transposed),
            Weights::Device(weights) => weights.apply(x, axes, self.is_transposed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(shape: &[usize]) -> Tensor {
        Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap()
    }

    fn gap(a: &Tensor, b: &Tensor) -> f32 {
        assert_eq!(a.dims(), b.dims());
        let gap = (a - b).unwrap().abs().unwrap().max_all().unwrap();
        gap.to_scalar().unwrap()
    }

    /// The fallback of a GPU whose kernel fails.
    #[test]
    fn lowered_convolutions_agree() {
        for (edges, groups, stride, is_transposed) in [
            (Edges::Zeros, 1, 1, false),
            (Edges::Circular, 2, 2, false),
            (Edges::Reflect, 4, 1, false),
            (Edges::Zeros, 1, 2, true),
            (Edges::Zeros, 4, 2, true),
        ] {
            let axis = Axis {
                stride,
                padding: [2, 1],
                edges,
                ..Axis::default()
            };
            let weight = match is_transposed {
                false => random(&[24, 16 / groups, 3, 2]),
                true => random(&[16, 24 / groups, 3, 2]),
            };
            let (x, bias) = (random(&[2, 9, 7, 16]), random(&[24]));
            let wanted = match is_transposed {
                false => Convolution::new(&weight, Some(&bias), [axis; 2], groups),
                true => Convolution::transposed(&weight, Some(&bias), [axis; 2], groups),
            };
            let wanted = wanted.unwrap().apply(&x).unwrap();
            let lowered = DeviceWeights::new(&weight, Some(&bias), groups, is_transposed);
            let found = lowered
                .unwrap()
                .apply(&x, [axis; 2], is_transposed)
                .unwrap();
            assert!(gap(&found, &wanted) < 1e-4, "{edges:?}, {groups}");
        }
    }

    /// The same convolution with candle's operations.
    fn by_candle(packed: &Convolution, x: &Tensor, weight: &Tensor, groups: usize) -> Tensor {
        let weight = match weight.rank() {
            3 => weight.unsqueeze(2).unwrap(),
            _ => weight.clone(),
        };
        if x.rank() == 3 {
            let found = by_candle(packed, &x.unsqueeze(1).unwrap(), &weight, groups);
            return found.squeeze(1).unwrap();
        }
        let x = x.permute((0, 3, 1, 2)).unwrap().contiguous().unwrap();
        let found = match packed.is_transposed {
            false => convolve(&x, &weight, packed.axes, groups),
            true => convolve_transposed(&x, &weight, packed.axes, groups),
        };
        found.unwrap().permute((0, 2, 3, 1)).unwrap()
    }

    /// Reference with candle's operations, channels first.
    fn convolve(x: &Tensor, weight: &Tensor, axes: [Axis; 2], groups: usize) -> Result<Tensor> {
        let mut x = x.clone();
        for (dim, axis) in [(2, axes[0]), (3, axes[1])] {
            x = pad(&x, dim, axis)?;
        }
        let dilation = dilation(weight, axes)?;
        let stride = if axes[0].stride == axes[1].stride {
            axes[0].stride
        } else {
            1
        };
        let mut found = x.conv2d(weight, 0, stride, dilation, groups)?;
        if stride == 1 {
            for (dim, axis) in [(2, axes[0]), (3, axes[1])] {
                found = every(&found, dim, axis.stride)?;
            }
        }
        Ok(found)
    }

    fn convolve_transposed(
        x: &Tensor,
        weight: &Tensor,
        axes: [Axis; 2],
        groups: usize,
    ) -> Result<Tensor> {
        let dilation = dilation(weight, axes)?;
        let [height, width] = axes.map(|axis| axis.stride);
        let stride = match (weight.dim(2)?, x.dim(2)?) {
            (1, 1) => width,
            _ if height == width => width,
            _ => bail!("a transposed convolution has one stride, found {height} and {width}"),
        };
        let xs = x.chunk(groups, 1)?;
        let weights = weight.chunk(groups, 0)?;
        let parts = xs.iter().zip(&weights);
        let parts = parts.map(|(x, weight)| {
            x.contiguous()?
                .conv_transpose2d(&weight.contiguous()?, 0, 0, stride, dilation)
        });
        let mut found = Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 1)?;
        for (dim, axis) in [(2, axes[0]), (3, axes[1])] {
            found = found.pad_with_zeros(dim, 0, axis.output_padding)?;
            let cut: usize = axis.padding.iter().sum();
            let Some(left) = found.dim(dim)?.checked_sub(cut).filter(|left| *left > 0) else {
                bail!(
                    "padding of {:?} leaves nothing of {} places",
                    axis.padding,
                    found.dim(dim)?
                );
            };
            found = found.narrow(dim, axis.padding[0], left)?;
        }
        Ok(found)
    }

    fn dilation(weight: &Tensor, axes: [Axis; 2]) -> Result<usize> {
        match (weight.dim(2)?, weight.dim(3)?) {
            (1, _) => Ok(axes[1].dilation),
            (_, 1) => Ok(axes[0].dilation),
            _ if axes[0].dilation == axes[1].dilation => Ok(axes[0].dilation),
            _ => bail!("on this device a convolution has one dilation, found {axes:?}"),
        }
    }

    fn pad(x: &Tensor, dim: usize, axis: Axis) -> Result<Tensor> {
        let ([before, after], size) = (axis.padding, x.dim(dim)?);
        if before + after == 0 {
            return Ok(x.clone());
        }
        if axis.edges == Edges::Zeros {
            return x.pad_with_zeros(dim, before, after);
        }
        // A kernel of one place that sees every place of the extended input once.
        let steps = Axis {
            stride: 1,
            dilation: 1,
            ..axis
        };
        let walk = steps.walk(size, 1, false)?;
        x.index_select(&Tensor::new(walk.all(), x.device())?, dim)
    }

    /// Each `step`-th place.
    fn every(x: &Tensor, dim: usize, step: usize) -> Result<Tensor> {
        if step == 1 {
            return Ok(x.clone());
        }
        let places: Vec<u32> = (0..x.dim(dim)? as u32).step_by(step).collect();
        x.index_select(&Tensor::new(places, x.device())?, dim)
    }

    #[test]
    fn candle_finds_the_same() {
        let all = [
            Edges::Zeros,
            Edges::Circular,
            Edges::Replicate,
            Edges::Reflect,
        ];
        for edges in all {
            let tall = Axis {
                padding: [1, 2],
                edges,
                ..Axis::default()
            };
            let wide = Axis {
                stride: 2,
                padding: [2, 0],
                edges,
                ..Axis::default()
            };
            let (x, weight) = (random(&[2, 7, 9, 6]), random(&[10, 3, 3, 2]));
            let packed = Convolution::new(&weight, None, [tall, wide], 2).unwrap();
            let wanted = by_candle(&packed, &x, &weight, 2);
            assert!(gap(&packed.apply(&x).unwrap(), &wanted) < 1e-4, "{edges:?}");
        }
    }

    #[test]
    fn candle_finds_the_same_of_transposed_groups() {
        let axis = Axis {
            stride: 2,
            padding: [1, 0],
            output_padding: 1,
            ..Axis::default()
        };
        let (x, weight) = (random(&[2, 5, 4, 6]), random(&[6, 5, 3, 3]));
        let packed = Convolution::transposed(&weight, None, [axis; 2], 2).unwrap();
        let wanted = by_candle(&packed, &x, &weight, 2);
        assert!(gap(&packed.apply(&x).unwrap(), &wanted) < 1e-4);
    }

    #[test]
    fn one_axis_is_a_picture_of_one_row() {
        let axis = Axis {
            stride: 2,
            dilation: 2,
            padding: [2, 1],
            ..Axis::default()
        };
        let (x, weight) = (random(&[2, 30, 8]), random(&[12, 8, 3]));
        let packed = Convolution::new(&weight, None, [Axis::default(), axis], 1).unwrap();
        let wanted = by_candle(&packed, &x, &weight, 1);
        let found = packed.apply(&x).unwrap();
        assert_eq!(found.dims(), [2, 15, 12]);
        assert!(gap(&found, &wanted) < 1e-4);
        let up = Axis {
            stride: 3,
            padding: [1, 1],
            ..Axis::default()
        };
        let weight = random(&[8, 4, 5]);
        let packed = Convolution::transposed(&weight, None, [Axis::default(), up], 1).unwrap();
        let wanted = by_candle(&packed, &x, &weight, 1);
        assert!(gap(&packed.apply(&x).unwrap(), &wanted) < 1e-4);
    }

    #[test]
    fn a_product_has_a_bias() {
        let (x, weight, bias) = (random(&[3, 50, 40]), random(&[70, 40]), random(&[70]));
        let product = Convolution::product(&weight, Some(&bias)).unwrap();
        let wanted = x
            .broadcast_matmul(&weight.t().unwrap())
            .unwrap()
            .broadcast_add(&bias)
            .unwrap();
        assert!(gap(&product.apply(&x).unwrap(), &wanted) < 1e-4);
    }
}
