//! Gradients.

use super::{DEFAULT_SIZE, SampleRequest, check_size};
use crate::runtime::image::ImageRequest;
use crate::runtime::maker::{Output, Pixels, Refusal};

/// A preview's side is this part of the image's.
const PREVIEW: u32 = 8;

impl SampleRequest for ImageRequest {
    fn check(&self) -> Result<(), Refusal> {
        check_size(self.width, self.height)
    }

    fn steps(&self) -> Option<u32> {
        self.steps
    }

    fn output(&self) -> Output {
        Output::Image(gradient(self, 1, 1.0))
    }

    fn preview(&self, at: u32, of: u32) -> Option<Pixels> {
        let light = at as f32 / of as f32;
        let preview = || gradient(self, PREVIEW, light);
        self.wants_previews.then(preview)
    }
}

/// Red grows to the right, green downwards, blue is the seed.
fn gradient(image: &ImageRequest, part: u32, light: f32) -> Pixels {
    let width = (image.width.unwrap_or(DEFAULT_SIZE) / part).max(1);
    let height = (image.height.unwrap_or(DEFAULT_SIZE) / part).max(1);
    let blue = image.seed.unwrap_or(0).wrapping_add(image.index.into()) as u8;
    let level = |at: u32, size: u32| at as f32 * 255.0 / (size - 1).max(1) as f32;
    Pixels::rgb(width, height, |x, y| {
        let color = [level(x, width), level(y, height), blue.into()];
        color.map(|level| (level * light).round() as u8)
    })
}
