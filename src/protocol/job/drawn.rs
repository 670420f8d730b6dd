//! Bounds of a job's image size: workers are untrusted, and the image is stored for the client.

use super::{Body, ImageRequest, Job, JobRequest};

/// Most enlargement by post-processors: four times the width and the height, by one of them only.
const ENLARGED: u64 = 4 * 4;
/// Always allowed, whatever the request: some workers generate no small images.
const LEAST_PIXELS: u64 = 1 << 20;
/// No model's own size has more.
const LARGEST_DEFAULT: u64 = 1536 * 1536;
/// Even noise takes no more as WebP, besides its metadata.
const BYTES_A_PIXEL: u64 = 4;
const ASIDE: u64 = 1 << 20;

/// How many times smaller the output of a form may be than its image: some workers make large images smaller first.
const FORM_REDUCTION: u32 = 4;

/// Size limits of an image that is accepted for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// Most pixels.
    pub pixels: u64,
    /// At least so wide and high.
    pub least: (u32, u32),
    /// Whether width and height may be swapped, since the source image may be rotated by its metadata.
    pub may_be_turned: bool,
}

impl Drawn {
    pub fn of(job: &Job) -> Self {
        let (least, may_be_turned) = match &job.body {
            Body::Form(form) => {
                let side = |side: u32| (side / FORM_REDUCTION).max(1);
                ((side(form.width), side(form.height)), true)
            }
            body => (least_size(body), false),
        };
        Self {
            pixels: most_pixels(job),
            least,
            may_be_turned,
        }
    }

    /// Any size up to this many pixels.
    pub fn up_to(pixels: u64) -> Self {
        Self {
            pixels,
            least: NO_LEAST,
            may_be_turned: false,
        }
    }

    /// Requested width and height; `None` if any size is allowed.
    pub fn asked_size(self) -> Option<(u32, u32)> {
        (self.least != NO_LEAST).then_some(self.least)
    }

    /// In the place of an image that is not shown stands one of any size.
    #[must_use]
    pub fn of_any_size(self) -> Self {
        Self {
            least: NO_LEAST,
            ..self
        }
    }
}

const NO_LEAST: (u32, u32) = (1, 1);

pub fn most_pixels(job: &Job) -> u64 {
    let area = |width: u32, height: u32| u64::from(width) * u64::from(height);
    let (asked, is_enlarged) = match &job.body {
        Body::Image(image) => {
            let is_enlarged = !image.post_processing.is_empty();
            let asked = match image.is_unbound() {
                true => LARGEST_DEFAULT,
                false => area(image.width, image.height),
            };
            (asked, is_enlarged)
        }
        Body::Form(form) => (area(form.width, form.height), true),
        _ => (0, false),
    };
    let times = if is_enlarged { ENLARGED } else { 1 };
    asked.saturating_mul(times).max(LEAST_PIXELS)
}

pub fn most_bytes(job: &Job) -> u64 {
    bytes_of(most_pixels(job))
}

/// Most bytes of an image of this many pixels.
pub fn bytes_of(pixels: u64) -> u64 {
    pixels.saturating_mul(BYTES_A_PIXEL).saturating_add(ASIDE)
}

/// The size of a control map is that of the model which makes it.
fn least_size(body: &Body) -> (u32, u32) {
    let image = body.image().filter(|image| !returns_control_map(image));
    image.map_or(NO_LEAST, |image| (image.width, image.height))
}

fn returns_control_map(image: &ImageRequest) -> bool {
    let control = image.control.as_ref();
    control.is_some_and(|control| control.returns_map)
}

#[cfg(test)]
mod tests {
    use super::{ASIDE, Drawn, LEAST_PIXELS, most_bytes, most_pixels};
    use crate::job::{AccountId, Body, ControlMap, FormRequest, ImageRequest, Job};

    fn image(side: u32, request: ImageRequest) -> Job {
        let image = ImageRequest {
            width: side,
            height: side,
            ..request
        };
        Job::plain(AccountId(1), "tiny", image.into())
    }

    fn enlarged() -> ImageRequest {
        ImageRequest {
            post_processing: vec!["RealESRGAN_x4plus".to_owned()],
            ..ImageRequest::default()
        }
    }

    #[test]
    fn an_image_is_as_large_as_it_was_asked_for_or_enlarged_where_that_was() {
        let check = |job: Job, pixels: u64| {
            assert_eq!(most_pixels(&job), pixels);
            assert_eq!(most_bytes(&job), 4 * pixels + ASIDE);
        };
        check(image(64, ImageRequest::default()), LEAST_PIXELS);
        check(image(2048, ImageRequest::default()), 2048 * 2048);
        check(image(2048, enlarged()), 8192 * 8192);
        let form = FormRequest {
            form: "strip_background".to_owned(),
            payload: None,
            image: String::new(),
            width: 1024,
            height: 1024,
            slow_workers: true,
        };
        let form = Job::plain(AccountId(1), "tiny", Body::from(form));
        let drawn = Drawn::of(&form);
        assert_eq!((drawn.least, drawn.may_be_turned), ((256, 256), true));
        check(form, 4096 * 4096);
    }

    #[test]
    fn an_image_is_at_least_as_large_as_it_was_asked_for_but_for_control_maps() {
        let least = |request| Drawn::of(&image(512, request)).least;
        assert_eq!(least(ImageRequest::default()), (512, 512));
        assert_eq!(least(enlarged()), (512, 512));
        let map = ControlMap {
            kind: "canny".to_owned(),
            returns_map: true,
            ..ControlMap::default()
        };
        let map = ImageRequest {
            control: Some(map),
            ..ImageRequest::default()
        };
        assert_eq!(least(map), (1, 1));
        let hidden = Drawn::of(&image(512, ImageRequest::default())).of_any_size();
        assert_eq!((hidden.least, hidden.pixels), ((1, 1), LEAST_PIXELS));
    }
}
