//! Normalization by mean and variance: of a layer's rows, and of groups of channels.

#![expect(unsafe_code, reason = "threads write disjoint parts of one result")]

use candle_core::{D, Result, Tensor, bail};

use super::level::{Level, at_every_level};
use super::stored::LANES;
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};

/// Positions that are summed together, independent of the number of threads.
const PLACES: usize = 64;

/// See [`crate::layer_norm`].
pub fn layer_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f32,
) -> Result<Tensor> {
    let channels = x.dim(D::Minus1)?;
    let (weight, bias) = factors(channels, weight, bias)?;
    let result = with_floats(x, |values| {
        let mut result = vec![0f32; values.len()];
        let rows = Disjoint::new(&mut result);
        share(values.len() / channels.max(1), 2 * values.len(), |range| {
            for row in range {
                let span = row * channels..(row + 1) * channels;
                // SAFETY: each row is visited once.
                let out = unsafe { rows.part(span.clone()) };
                norm_row(Level::best(), &values[span], &weight, &bias, eps, out);
            }
        });
        Ok(result)
    })?;
    from_floats(result, x.dims())
}

/// See [`crate::group_norm`].
pub fn group_norm(
    x: &Tensor,
    groups: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f32,
) -> Result<Tensor> {
    let (batch, channels) = (x.dim(0)?, x.dim(D::Minus1)?);
    if groups == 0 || channels == 0 || !channels.is_multiple_of(groups) {
        bail!("{channels} channels do not make {groups} groups");
    }
    let (weight, bias) = factors(channels, weight, bias)?;
    let places = x.elem_count() / (batch * channels).max(1);
    let parts = places.div_ceil(PLACES);
    let span = |index: usize| {
        let (batch, part) = (index / parts, index % parts);
        let end = places.min((part + 1) * PLACES);
        (batch * places + part * PLACES) * channels..(batch * places + end) * channels
    };
    let result = with_floats(x, |values| {
        let mut sums = vec![0f32; batch * parts * 2 * channels];
        let written = Disjoint::new(&mut sums);
        share(batch * parts, values.len(), |range| {
            for index in range {
                // SAFETY: each part is visited once.
                let sums =
                    unsafe { written.part(index * 2 * channels..(index + 1) * 2 * channels) };
                add_up(Level::best(), &values[span(index)], sums);
            }
        });
        let of_entry = sums.chunks_exact((parts * 2 * channels).max(1));
        let lines: Vec<Vec<f32>> = of_entry
            .map(|sums| lines(sums, groups, places, &weight, &bias, eps))
            .collect();
        let mut result = vec![0f32; values.len()];
        let written = Disjoint::new(&mut result);
        share(batch * parts, values.len(), |range| {
            for index in range {
                // SAFETY: each part is visited once.
                let out = unsafe { written.part(span(index)) };
                apply_lines(
                    Level::best(),
                    &values[span(index)],
                    &lines[index / parts],
                    out,
                );
            }
        });
        Ok(result)
    })?;
    from_floats(result, x.dims())
}

fn factors(
    channels: usize,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let read = |tensor: Option<&Tensor>, otherwise: f32| match tensor {
        Some(tensor) if tensor.dims() != [channels] => {
            bail!(
                "a norm of shape {:?} does not fit {channels} channels",
                tensor.dims()
            )
        }
        Some(tensor) => with_floats(tensor, |values| Ok(values.to_vec())),
        None => Ok(vec![otherwise; channels]),
    };
    Ok((read(weight, 1.0)?, read(bias, 0.0)?))
}

/// Returns the factor of each channel, followed by the offset of each channel.
fn lines(
    sums: &[f32],
    groups: usize,
    places: usize,
    weight: &[f32],
    bias: &[f32],
    eps: f32,
) -> Vec<f32> {
    let channels = weight.len();
    let size = channels / groups;
    let count = (places * size) as f64;
    let mut lines = vec![0f32; 2 * channels];
    for group in 0..groups {
        let (mut sum, mut squares) = (0f64, 0f64);
        for part in sums.chunks_exact(2 * channels) {
            let of_group =
                |from: usize| part[from + group * size..from + (group + 1) * size].iter();
            sum += of_group(0).map(|value| f64::from(*value)).sum::<f64>();
            squares += of_group(channels)
                .map(|value| f64::from(*value))
                .sum::<f64>();
        }
        let mean = sum / count;
        let variance = (squares / count - mean * mean).max(0.0);
        let scale = 1.0 / (variance + f64::from(eps)).sqrt();
        for channel in group * size..(group + 1) * size {
            let factor = scale * f64::from(weight[channel]);
            lines[channel] = factor as f32;
            lines[channels + channel] = (f64::from(bias[channel]) - mean * factor) as f32;
        }
    }
    lines
}

at_every_level! {
    fn norm_row(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) = norm_row_as;
}

at_every_level! {
    /// Adds up each channel's values and their squares.
    fn add_up(x: &[f32], sums: &mut [f32]) = add_up_as;
}

at_every_level! {
    fn apply_lines(x: &[f32], lines: &[f32], out: &mut [f32]) = apply_lines_as;
}

#[inline(always)]
fn norm_row_as<const FAST: bool>(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    out: &mut [f32],
) {
    let count = x.len() as f32;
    let mean = add_lanes(x, |value| value) / count;
    let variance = add_lanes(x, |value| (value - mean) * (value - mean)) / count;
    let scale = 1.0 / (variance + eps).sqrt();
    for ((out, x), (weight, bias)) in out.iter_mut().zip(x).zip(weight.iter().zip(bias)) {
        *out = (x - mean) * scale * weight + bias;
    }
}

#[inline(always)]
fn add_lanes(x: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += of(*value);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|value| of(*value)).sum::<f32>()
}

#[inline(always)]
fn add_up_as<const FAST: bool>(x: &[f32], sums: &mut [f32]) {
    let (sums, squares) = sums.split_at_mut(sums.len() / 2);
    for row in x.chunks_exact(sums.len()) {
        for ((sum, square), value) in sums.iter_mut().zip(squares.iter_mut()).zip(row) {
            *sum += value;
            *square += value * value;
        }
    }
}

#[inline(always)]
fn apply_lines_as<const FAST: bool>(x: &[f32], lines: &[f32], out: &mut [f32]) {
    let (factors, terms) = lines.split_at(lines.len() / 2);
    let rows = x.chunks_exact(factors.len());
    for (row, out) in rows.zip(out.chunks_exact_mut(factors.len())) {
        for ((out, value), (factor, term)) in out.iter_mut().zip(row).zip(factors.iter().zip(terms))
        {
            *out = value * factor + term;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn random(shape: &[usize]) -> Tensor {
        Tensor::randn(3f32, 2.0, shape, &Device::Cpu).unwrap()
    }

    fn floats(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    /// Normalizes the numbers of a set to mean 0 and variance 1, in f64.
    fn naive(values: &[f64], eps: f64) -> Vec<f64> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let square = |value: &f64| (value - mean) * (value - mean);
        let variance = values.iter().map(square).sum::<f64>() / values.len() as f64;
        let scaled = values
            .iter()
            .map(|value| (value - mean) / (variance + eps).sqrt());
        scaled.collect()
    }

    #[test]
    fn groups_are_normalized_on_their_own() {
        let (places, channels, groups) = (150, 24, 4);
        let x = random(&[2, 10, 15, channels]);
        let (weight, bias) = (random(&[channels]), random(&[channels]));
        let found = floats(&group_norm(&x, groups, Some(&weight), Some(&bias), 1e-5).unwrap());
        let (values, weight, bias) = (floats(&x), floats(&weight), floats(&bias));
        for batch in 0..2 {
            for group in 0..groups {
                let channels_of = group * 6..(group + 1) * 6;
                let places = (0..places).flat_map(|place| {
                    let first = (batch * places + place) * channels;
                    channels_of
                        .clone()
                        .map(move |channel| (first + channel, channel))
                });
                let places: Vec<_> = places.collect();
                let of_group: Vec<f64> = places
                    .iter()
                    .map(|(at, _)| f64::from(values[*at]))
                    .collect();
                for ((at, channel), wanted) in places.into_iter().zip(naive(&of_group, 1e-5)) {
                    let wanted = wanted * f64::from(weight[channel]) + f64::from(bias[channel]);
                    assert!((f64::from(found[at]) - wanted).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    fn an_entry_does_not_depend_on_those_beside_it() {
        let x = random(&[3, 200, 32]);
        let all = group_norm(&x, 8, None, None, 1e-6).unwrap();
        let alone = group_norm(&x.narrow(0, 1, 1).unwrap(), 8, None, None, 1e-6).unwrap();
        assert_eq!(floats(&alone), floats(&all.narrow(0, 1, 1).unwrap()));
    }

    #[test]
    fn rows_are_normalized_on_their_own() {
        let x = random(&[5, 100]);
        let (weight, bias) = (random(&[100]), random(&[100]));
        let found = floats(&layer_norm(&x, Some(&weight), Some(&bias), 1e-5).unwrap());
        let (values, weight, bias) = (floats(&x), floats(&weight), floats(&bias));
        for (row, found) in values.chunks(100).zip(found.chunks(100)) {
            let row: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
            for (channel, wanted) in naive(&row, 1e-5).into_iter().enumerate() {
                let wanted = wanted * f64::from(weight[channel]) + f64::from(bias[channel]);
                assert!((f64::from(found[channel]) - wanted).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn groups_that_do_not_divide_are_refused() {
        let error = group_norm(&random(&[1, 4, 10]), 4, None, None, 1e-5).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("10 channels do not make 4 groups"),
            "{error}"
        );
    }
}
