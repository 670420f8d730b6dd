use candle_core::{Device, Tensor};
use proptest::prelude::*;

use super::*;

fn random(shape: &[usize]) -> Tensor {
    Tensor::randn(0f32, 1.0, shape, &Device::Cpu).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Packs weights `[outputs, inputs, height, width]`.
fn packed(
    weight: &Tensor,
    dtype: DType,
    groups: usize,
    bias: Option<Vec<f32>>,
) -> PackedConvolution {
    let dims = <[usize; 4]>::try_from(weight.dims().to_vec()).unwrap();
    let values = floats(weight);
    let at = move |[o, i, y, x]: [usize; 4]| ((o * dims[1] + i) * dims[2] + y) * dims[3] + x;
    PackedConvolution::pack(dtype, dims, groups, bias, |place| values[at(place)]).unwrap()
}

/// Straight from the definition: the input is extended, then every window is multiplied.
fn naive(x: &Tensor, weight: &Tensor, groups: usize, axes: [Axis; 2]) -> Vec<f64> {
    let (batch, height, width, channels) = x.dims4().unwrap();
    let (outputs, inputs, taps_y, taps_x) = weight.dims4().unwrap();
    let (values, weights) = (floats(x), floats(weight));
    let extended = |axis: Axis, size: usize| -> Vec<Option<usize>> {
        let size = size as isize;
        let places = -(axis.padding[0] as isize)..size + axis.padding[1] as isize;
        let inside = |at: isize| (0..size).contains(&at);
        let seen = places.map(|at| match axis.edges {
            _ if inside(at) => Some(at),
            Edges::Zeros => None,
            Edges::Circular => Some((at + size) % size),
            Edges::Replicate => Some(if at < 0 { 0 } else { size - 1 }),
            Edges::Reflect => Some(if at < 0 { -at } else { 2 * size - 2 - at }),
        });
        seen.map(|at| at.map(|at| at as usize)).collect()
    };
    let (rows, columns) = (extended(axes[0], height), extended(axes[1], width));
    let count = |axis: Axis, len: usize, taps: usize| {
        (len - axis.dilation * (taps - 1) - 1) / axis.stride + 1
    };
    let mut out = Vec::new();
    for b in 0..batch {
        for y in 0..count(axes[0], rows.len(), taps_y) {
            for column in 0..count(axes[1], columns.len(), taps_x) {
                for o in 0..outputs {
                    let first = o / (outputs / groups) * inputs;
                    let mut sum = 0.0;
                    for ty in 0..taps_y {
                        for tx in 0..taps_x {
                            let (Some(r), Some(c)) = (
                                rows[y * axes[0].stride + ty * axes[0].dilation],
                                columns[column * axes[1].stride + tx * axes[1].dilation],
                            ) else {
                                continue;
                            };
                            for i in 0..inputs {
                                let value =
                                    values[((b * height + r) * width + c) * channels + first + i];
                                let weight =
                                    weights[((o * inputs + i) * taps_y + ty) * taps_x + tx];
                                sum += f64::from(value) * f64::from(weight);
                            }
                        }
                    }
                    out.push(sum);
                }
            }
        }
    }
    out
}

fn assert_near(found: &Tensor, wanted: &[f64], scale: usize) {
    let found = floats(found);
    assert_eq!(found.len(), wanted.len());
    let most = 2e-5 * (scale as f64).sqrt();
    for (found, wanted) in found.iter().zip(wanted) {
        assert!(
            (f64::from(*found) - wanted).abs() < most,
            "found {found}, wanted {wanted}"
        );
    }
}

fn any_axis() -> impl Strategy<Value = Axis> {
    let edges = [
        Edges::Zeros,
        Edges::Circular,
        Edges::Replicate,
        Edges::Reflect,
    ];
    let edges = prop::sample::select(edges.to_vec());
    (1usize..3, 1usize..3, 0usize..3, 0usize..3, edges).prop_map(
        |(stride, dilation, before, after, edges)| Axis {
            stride,
            dilation,
            padding: [before, after],
            edges,
            output_padding: 0,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn convolutions_are_what_their_definition_says(
        axes in [any_axis(), any_axis()],
        size in [6usize..14, 6usize..14],
        taps in [1usize..4, 1usize..4],
        groups in 1usize..4,
        inputs in prop::sample::select(vec![1usize, 3, 20]),
        outputs in prop::sample::select(vec![1usize, 5, 40]),
        batch in 1usize..3,
    ) {
        let x = random(&[batch, size[0], size[1], groups * inputs]);
        let weight = random(&[groups * outputs, inputs, taps[0], taps[1]]);
        let wanted = naive(&x, &weight, groups, axes);
        let convolution = packed(&weight, DType::F32, groups, None);
        for level in Level::available() {
            let found = convolution.apply_at(level, &x, axes, false).unwrap();
            assert_near(&found, &wanted, inputs * taps[0] * taps[1]);
        }
    }

    #[test]
    fn transposed_convolutions_agree_with_candle(
        stride in 1usize..4,
        dilation in 1usize..3,
        padding in 0usize..2,
        size in [1usize..9, 1usize..9],
        taps in 2usize..5,
    ) {
        let output_padding = stride - 1;
        let (inputs, outputs) = (5, 33);
        let x = random(&[2, inputs, size[0], size[1]]);
        let weight = random(&[inputs, outputs, taps, taps]);
        prop_assume!((size[0].min(size[1]) - 1) * stride + dilation * (taps - 1) + 1 + output_padding > 2 * padding);
        let wanted = x.conv_transpose2d(&weight, padding, output_padding, stride, dilation).unwrap();
        let axis = Axis { stride, dilation, padding: [padding; 2], output_padding, ..Axis::default() };
        let convolution = packed(&weight.transpose(0, 1).unwrap(), DType::F32, 1, None);
        let x = x.permute((0, 2, 3, 1)).unwrap();
        let wanted: Vec<f64> = floats(&wanted.permute((0, 2, 3, 1)).unwrap()).into_iter().map(f64::from).collect();
        for level in Level::available() {
            let found = convolution.apply_at(level, &x, [axis; 2], true).unwrap();
            assert_near(&found, &wanted, inputs * taps * taps);
        }
    }
}

#[test]
fn deep_inputs_half_weights_and_a_bias() {
    let x = random(&[1, 5, 7, 600]);
    let weight = random(&[70, 600, 3, 3]);
    let bias: Vec<f32> = (0..70).map(|at| at as f32).collect();
    let axis = Axis {
        padding: [1; 2],
        ..Axis::default()
    };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let rounded = weight
            .to_dtype(dtype)
            .unwrap()
            .to_dtype(DType::F32)
            .unwrap();
        let convolution = packed(&weight, dtype, 1, Some(bias.clone()));
        for level in Level::available() {
            let mut wanted = naive(&rounded_for(level, dtype, &x), &rounded, 1, [axis; 2]);
            wanted
                .iter_mut()
                .zip((0..70).cycle())
                .for_each(|(sum, bias)| *sum += f64::from(bias));
            let found = convolution.apply_at(level, &x, [axis; 2], false).unwrap();
            assert_near(&found, &wanted, 600 * 9);
        }
    }
}

/// Activations as they are multiplied with weights of this type.
fn rounded_for(level: Level, dtype: DType, x: &Tensor) -> Tensor {
    match dtype {
        DType::BF16 if level == Level::Avx512Bf16 => {
            x.to_dtype(dtype).unwrap().to_dtype(DType::F32).unwrap()
        }
        _ => x.clone(),
    }
}

#[test]
fn odd_inputs_of_several_taps_in_bf16() {
    for (inputs, taps) in [(3, 3), (1, 4), (33, 2), (301, 1)] {
        let x = random(&[2, 6, 8, inputs]);
        let weight = random(&[35, inputs, taps, taps]);
        let rounded = weight.to_dtype(DType::BF16).unwrap();
        let rounded = rounded.to_dtype(DType::F32).unwrap();
        let convolution = packed(&weight, DType::BF16, 1, None);
        for level in Level::available() {
            let x_seen = rounded_for(level, DType::BF16, &x);
            let wanted = naive(&x_seen, &rounded, 1, [Axis::default(); 2]);
            let axes = [Axis::default(); 2];
            let found = convolution.apply_at(level, &x, axes, false).unwrap();
            assert_near(&found, &wanted, inputs * taps * taps);
        }
    }
}

#[test]
fn a_picture_does_not_depend_on_those_beside_it() {
    let x = random(&[5, 9, 11, 48]);
    let axes = [Axis::default(); 2];
    for dtype in [DType::F32, DType::BF16] {
        let convolution = packed(&random(&[96, 48, 3, 3]), dtype, 1, None);
        let all = convolution.apply(&x, axes, false).unwrap();
        for picture in 0..5 {
            let alone = convolution
                .apply(&x.narrow(0, picture, 1).unwrap(), axes, false)
                .unwrap();
            assert_eq!(floats(&alone), floats(&all.narrow(0, picture, 1).unwrap()));
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let convolution = packed(&random(&[4, 3, 3, 3]), DType::F32, 1, None);
    let refused = |x: Tensor, axis: Axis| {
        let result = convolution.apply(&x, [axis; 2], false);
        result.unwrap_err().to_string()
    };
    let error = refused(random(&[1, 5, 5, 4]), Axis::default());
    assert!(error.contains("4 channels do not fit"), "{error}");
    let error = refused(random(&[1, 2, 5, 3]), Axis::default());
    assert!(
        error.contains("reaches over 3 places does not fit 2"),
        "{error}"
    );
    let axis = Axis {
        padding: [3; 2],
        edges: Edges::Reflect,
        ..Axis::default()
    };
    let error = refused(random(&[1, 3, 3, 3]), axis);
    assert!(error.contains("needs a longer input than 3"), "{error}");
}
