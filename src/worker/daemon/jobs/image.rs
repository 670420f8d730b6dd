//! A neutral request for an image, as the maker takes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::blame;
use crate::link::{Said, Transfers};
use muster_engine::runtime::diffusion::{DiffusionSampler, Schedule};
use muster_engine::runtime::maker::{ImageRequest, PixelFormat, Pixels};
use muster_media::image::{self, Bounds, Channels};
use muster_protocol::job::{self, Failure, FailureKind, SourceImage};

/// The start of a link that holds its object.
const INLINE: &str = "data:;base64,";
/// Of a source image or a mask.
const MOST_SOURCE_BYTES: usize = 32 << 20;
const MOST_SOURCE_PIXELS: u64 = 4096 * 4096;

/// Reads the settings and fetches the source images.
pub async fn read(request: job::ImageRequest, transfers: &Transfers) -> Result<ImageRequest, Said> {
    let mut image = settings(&request).map_err(Said::Failed)?;
    if let Some(SourceImage {
        image: source,
        mask,
        ..
    }) = request.source
    {
        let source = fetch("source image", &source, transfers).await?;
        image.mask = match mask {
            Some(mask) => Some(fetch("mask", &mask, transfers).await?),
            None => see_through(&source),
        };
        image.source = Some(source);
    }
    Ok(image)
}

fn settings(request: &job::ImageRequest) -> Result<ImageRequest, Failure> {
    if !request.loras.is_empty() {
        return Err(unsupported(
            "loras are not supported by this worker".to_owned(),
        ));
    }
    let source = request.source.as_ref();
    if source.is_some_and(|source| !source.extra.is_empty()) {
        return Err(unsupported(
            "several source images are not supported by this worker".to_owned(),
        ));
    }
    let sampler = request.sampler.as_deref().map(|name| {
        let known = DiffusionSampler::named(name);
        known.ok_or_else(|| unknown("sampler", name, DiffusionSampler::names()))
    });
    let schedule = request.scheduler.as_deref().map(|name| {
        let known = Schedule::named(name);
        known.ok_or_else(|| unknown("scheduler", name, Schedule::names()))
    });
    let karras = request.karras.map(|is_on| match is_on {
        true => Schedule::Karras,
        false => Schedule::Normal,
    });
    Ok(ImageRequest {
        prompt: request.prompt.clone(),
        negative_prompt: request.negative_prompt.clone(),
        width: Some(request.width).filter(|side| *side > 0),
        height: Some(request.height).filter(|side| *side > 0),
        steps: request.steps,
        cfg_scale: request.cfg_scale.map(|scale| scale as f32),
        sampler: sampler.transpose()?,
        schedule: schedule.transpose()?.or(karras),
        seed: request.seed,
        index: request.index,
        clip_skip: request.clip_skip,
        strength: request.strength.map(|strength| strength as f32),
        source: None,
        mask: None,
        wants_previews: request.previews > 0,
    })
}

fn unknown(what: &str, name: &str, known: impl Iterator<Item = &'static str>) -> Failure {
    let known: Vec<_> = known.collect();
    let known = known.join(", ");
    unsupported(format!(
        "{what} {name:?} is not supported by this worker; supported are {known}"
    ))
}

fn unsupported(message: String) -> Failure {
    Failure::new(FailureKind::UnsupportedValue, message)
}

async fn fetch(what: &'static str, link: &str, transfers: &Transfers) -> Result<Pixels, Said> {
    let bytes = match link.strip_prefix(INLINE) {
        Some(text) => STANDARD.decode(text).map_err(|error| {
            let message = format!("the {what} is no base64: {error}");
            Said::Failed(Failure::new(FailureKind::InvalidRequest, message))
        })?,
        None => {
            let bytes = transfers.fetch(link, MOST_SOURCE_BYTES).await;
            bytes.map_err(|error| {
                let message = format!("fetching the {what} failed: {error}");
                Said::Failed(Failure::new(FailureKind::WorkerFailed, message))
            })?
        }
    };
    let decoded = tokio::task::spawn_blocking(move || {
        image::decode(&bytes, Bounds::Pixels(MOST_SOURCE_PIXELS)).map(pixels)
    });
    let decoded = decoded.await.map_err(|_| blame::broken())?;
    decoded.map_err(|error| {
        let message = format!("the {what} is unusable: {error}");
        Said::Failed(Failure::new(FailureKind::InvalidRequest, message))
    })
}

/// What shines through is to be drawn.
fn see_through(image: &Pixels) -> Option<Pixels> {
    if image.format != PixelFormat::Rgba {
        return None;
    }
    let opacity = image.bytes.chunks_exact(4).map(|pixel| pixel[3]);
    let bytes: Vec<u8> = opacity.map(|opacity| u8::MAX - opacity).collect();
    let is_opaque = bytes.iter().all(|share| *share == 0);
    (!is_opaque).then_some(Pixels {
        width: image.width,
        height: image.height,
        format: PixelFormat::Gray,
        bytes,
    })
}

/// As the maker has them.
fn pixels(image: image::Pixels) -> Pixels {
    Pixels {
        width: image.width(),
        height: image.height(),
        format: match image.channels() {
            Channels::Rgb => PixelFormat::Rgb,
            Channels::Rgba => PixelFormat::Rgba,
        },
        bytes: image.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::settings;
    use muster_engine::runtime::diffusion::{DiffusionSampler, Schedule};
    use muster_protocol::job::{Blame, FailureKind, ImageRequest, Lora};

    #[test]
    fn names_of_samplers_and_schedules_are_read() {
        let image = ImageRequest {
            width: 64,
            height: 96,
            sampler: Some("k_euler_a".to_owned()),
            karras: Some(true),
            ..ImageRequest::default()
        };
        let read = settings(&image).unwrap();
        assert_eq!(read.sampler, Some(DiffusionSampler::EulerAncestral));
        assert_eq!(read.schedule, Some(Schedule::Karras));
        assert_eq!((read.width, read.height), (Some(64), Some(96)));
        let named = ImageRequest {
            scheduler: Some("beta".to_owned()),
            ..image
        };
        assert_eq!(settings(&named).unwrap().schedule, Some(Schedule::Beta));
    }

    #[test]
    fn an_unsupported_setting_is_the_clients_error_by_name() {
        let check = |image: ImageRequest, named: &str| {
            let failure = settings(&image).unwrap_err();
            assert_eq!(failure.kind, FailureKind::UnsupportedValue);
            assert_eq!(failure.blame, Blame::Client);
            assert!(failure.message.contains(named), "{failure}");
        };
        let sampler = Some("seeds_2".to_owned());
        check(
            ImageRequest {
                sampler,
                ..ImageRequest::default()
            },
            "seeds_2",
        );
        let scheduler = Some("gits".to_owned());
        check(
            ImageRequest {
                scheduler,
                ..ImageRequest::default()
            },
            "gits",
        );
        let loras = vec![Lora {
            name: "x".to_owned(),
            model: 1.0,
            clip: 1.0,
            is_version: false,
            inject_trigger: None,
        }];
        check(
            ImageRequest {
                loras,
                ..ImageRequest::default()
            },
            "loras",
        );
    }
}
