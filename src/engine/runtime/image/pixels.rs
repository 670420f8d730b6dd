//! Between pixels and tensors.

use candle_core::{Device, Result, Tensor};

use crate::runtime::maker::{PixelFormat, Pixels};
use muster_kernels::{Resampling, resample};

const LINEAR: Resampling = Resampling::Linear {
    align_corners: false,
};

/// `[1, height, width, 3]` in -1 to 1, stretched to a size. Transparency is left out.
pub fn image_tensor(pixels: &Pixels, [width, height]: [u32; 2], device: &Device) -> Result<Tensor> {
    let channels = pixels.format.channels();
    let colors = pixels
        .bytes
        .chunks_exact(channels)
        .flat_map(|pixel| match *pixel {
            [gray] => [gray; 3],
            [red, green, blue, ..] => [red, green, blue],
            _ => [0; 3],
        });
    let values: Vec<f32> = colors.map(|byte| f32::from(byte) / 127.5 - 1.0).collect();
    let shape = (1, pixels.height as usize, pixels.width as usize, 3);
    let image = Tensor::from_vec(values, shape, &Device::Cpu)?;
    stretched(&image, [width as usize, height as usize])?.to_device(device)
}

/// How white each place of a mask is, 0 to 1, stretched to a size.
pub fn mask_values(mask: &Pixels, [width, height]: [usize; 2]) -> Result<Vec<f64>> {
    let channels = mask.format.channels();
    // The weights of Rec. 601, as image programs take them.
    let light = |pixel: &[u8]| match *pixel {
        [gray] => f32::from(gray),
        [red, green, blue, ..] => {
            0.299 * f32::from(red) + 0.587 * f32::from(green) + 0.114 * f32::from(blue)
        }
        _ => 0.0,
    };
    let values: Vec<f32> = mask
        .bytes
        .chunks_exact(channels)
        .map(|it| light(it) / 255.0)
        .collect();
    let shape = (1, mask.height as usize, mask.width as usize, 1);
    let mask = Tensor::from_vec(values, shape, &Device::Cpu)?;
    let mask = stretched(&mask, [width, height])?;
    let values = mask.flatten_all()?.to_vec1::<f32>()?;
    Ok(values.into_iter().map(f64::from).collect())
}

/// Converts `[height, width, 3]` from -1 to 1 to pixels. Where the mask is 0, pixels of `kept` are used.
pub fn pixels(image: &Tensor, kept: Option<(&[f64], &Tensor)>) -> Result<Pixels> {
    let (height, width, _) = image.dims3()?;
    let mut values = image.flatten_all()?.to_vec1::<f32>()?;
    if let Some(at) = values.iter().position(|value| !value.is_finite()) {
        candle_core::bail!("the network drew a value that is no number, at {at}");
    }
    if let Some((mask, original)) = kept {
        let original = original.flatten_all()?.to_vec1::<f32>()?;
        for (at, (value, original)) in values.iter_mut().zip(original).enumerate() {
            let share = mask[at / 3] as f32;
            *value = share * *value + (1.0 - share) * original;
        }
    }
    let byte = |value: &f32| ((value / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8;
    Ok(Pixels {
        width: width as u32,
        height: height as u32,
        format: PixelFormat::Rgb,
        bytes: values.iter().map(byte).collect(),
    })
}

/// The same image `[1, height, width, channels]` in another size.
pub fn stretched(image: &Tensor, [width, height]: [usize; 2]) -> Result<Tensor> {
    match image.dim(1)? == height && image.dim(2)? == width {
        true => Ok(image.clone()),
        false => resample(image, [height, width], LINEAR),
    }
}
