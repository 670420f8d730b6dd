//! A neutral request for an image, as the maker takes it.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::inversions::InvertedPrompts;
use crate::catalog::likeness;
use crate::daemon::blame;
use crate::daemon::engines::AdapterFolders;
use crate::link::{Said, Transfers};
use muster_engine::runtime::diffusion::{DiffusionSampler, Schedule};
use muster_engine::runtime::image::{ImageRequest, LoraUse};
use muster_engine::runtime::maker::{PixelFormat, Pixels};
use muster_media::image::{self, Channels};
use muster_protocol::job::{self, Failure, FailureKind, SourceImage};

/// The start of a link that holds its object.
const INLINE: &str = "data:;base64,";
/// Limit of a source image or a mask.
const MOST_SOURCE_BYTES: usize = 32 << 20;
/// Larger ones are made smaller.
const MOST_SOURCE_PIXELS: u64 = 4096 * 4096;

/// Names that an error shows first.
const NEAREST: usize = 3;

/// Reads the settings and fetches the source images.
pub async fn read(
    request: job::ImageRequest,
    folders: &AdapterFolders,
    transfers: &Transfers,
) -> Result<ImageRequest, Said> {
    let mut image = settings(&request, folders).map_err(Said::Failed)?;
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

fn settings(
    request: &job::ImageRequest,
    folders: &AdapterFolders,
) -> Result<ImageRequest, Failure> {
    let folder = folders.loras.as_deref();
    let loras = request.loras.iter().map(|lora| lora_use(lora, folder));
    let prompts = InvertedPrompts::of(request, folders.embeddings.as_deref())?;
    let source = request.source.as_ref();
    if source.is_some_and(|source| !source.extra.is_empty()) {
        return Err(unsupported(
            "several source images are not supported by this worker".to_owned(),
        ));
    }
    if let Some(setting) = request.foreign_setting() {
        let message = format!("{setting} is not supported by this worker");
        return Err(unsupported(message));
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
        prompt: prompts.shown,
        negative_prompt: prompts.excluded,
        width: Some(request.width).filter(|side| *side > 0),
        height: Some(request.height).filter(|side| *side > 0),
        steps: request.steps,
        cfg_scale: request.cfg_scale.map(|scale| scale as f32),
        sampler: sampler.transpose()?,
        schedule: schedule.transpose()?.or(karras),
        seed: request.seed,
        index: request.index,
        clip_skip: request.clip_skip,
        strength: request.strength,
        source: None,
        mask: None,
        loras: loras.collect::<Result<_, _>>()?,
        inversions: prompts.inversions,
        tiles: request.tiling,
        hires: request
            .hires_fix
            .then(|| request.hires_strength.unwrap_or(HIRES_STRENGTH)),
        wants_previews: request.previews > 0,
    })
}

/// The default of public workers.
const HIRES_STRENGTH: f64 = 0.65;

/// A LoRA of the worker's folder. Strangers' files are not downloaded.
fn lora_use(lora: &job::Lora, folder: Option<&Path>) -> Result<LoraUse, Failure> {
    let name = &lora.name;
    let Some(folder) = folder else {
        return Err(unsupported(
            "loras are not supported by this worker".to_owned(),
        ));
    };
    if lora.inject_trigger.is_some() {
        return Err(unsupported(
            "inject_trigger is not supported by this worker, which knows no triggers of its LoRAs"
                .to_owned(),
        ));
    }
    let file = named_file(folder, name)
        .ok_or_else(|| unsupported(format!("this worker has no LoRA {name:?}")))?;
    Ok(LoraUse {
        file,
        model: lora.model as f32,
        clip: lora.clip as f32,
    })
}

/// The file of this name, with its ending or without.
pub fn named_file(folder: &Path, name: &str) -> Option<PathBuf> {
    if Path::new(name).file_name().is_none_or(|it| it != name) {
        return None;
    }
    let files = [format!("{name}.safetensors"), name.to_owned()];
    let mut files = files.into_iter().filter(|it| it.ends_with(".safetensors"));
    files.find_map(|file| Some(folder.join(file)).filter(|path| path.is_file()))
}

fn unknown(what: &str, name: &str, known: impl Iterator<Item = &'static str>) -> Failure {
    let mut known: Vec<_> = known.collect();
    known.sort_by(|a, b| likeness(name, b).total_cmp(&likeness(name, a)));
    let (nearest, others) = known.split_at(NEAREST.min(known.len()));
    let (nearest, others) = (nearest.join(", "), others.join(", "));
    unsupported(format!(
        "{what} {name:?} is not supported by this worker; the nearest are {nearest}; also supported: {others}"
    ))
}

pub fn unsupported(message: String) -> Failure {
    Failure::new(FailureKind::UnsupportedValue, message)
}

/// The file of an image.
pub async fn fetch_file(what: &str, link: &str, transfers: &Transfers) -> Result<Vec<u8>, Said> {
    match link.strip_prefix(INLINE) {
        Some(text) => STANDARD.decode(text).map_err(|error| {
            let message = format!("the {what} is no base64: {error}");
            Said::Failed(Failure::new(FailureKind::InvalidRequest, message))
        }),
        None => {
            let bytes = transfers.fetch(link, MOST_SOURCE_BYTES).await;
            bytes.map_err(|error| {
                let message = format!("fetching the {what} failed: {error}");
                Said::Failed(Failure::new(FailureKind::WorkerFailed, message))
            })
        }
    }
}

pub async fn fetch(what: &'static str, link: &str, transfers: &Transfers) -> Result<Pixels, Said> {
    let bytes = fetch_file(what, link, transfers).await?;
    decoded(bytes).await?.map_err(|error| {
        let message = format!("the {what} is unusable: {error}");
        Said::Failed(Failure::new(FailureKind::InvalidRequest, message))
    })
}

/// The pixels of a file, or why it has none.
pub async fn decoded(bytes: Vec<u8>) -> Result<Result<Pixels, String>, Said> {
    let decoded = tokio::task::spawn_blocking(move || {
        let decoded = image::decode_photo(&bytes, MOST_SOURCE_PIXELS);
        decoded.map(pixels).map_err(|error| error.to_string())
    });
    decoded.await.map_err(|_| blame::broken())
}

/// Converts transparency to a mask of the area to repaint.
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

/// Converts to the maker's type.
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
    use super::{AdapterFolders, settings};
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
        let read = settings(&image, &AdapterFolders::default()).unwrap();
        assert_eq!(read.sampler, Some(DiffusionSampler::EulerAncestral));
        assert_eq!(read.schedule, Some(Schedule::Karras));
        assert_eq!((read.width, read.height), (Some(64), Some(96)));
        let named = ImageRequest {
            scheduler: Some("beta".to_owned()),
            ..image
        };
        let read = settings(&named, &AdapterFolders::default()).unwrap();
        assert_eq!(read.schedule, Some(Schedule::Beta));
    }

    #[test]
    fn an_unsupported_setting_is_the_clients_error_by_name() {
        let check = |image: ImageRequest, named: &str| {
            let failure = settings(&image, &AdapterFolders::default()).unwrap_err();
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

    #[test]
    fn a_refused_sampler_lists_its_nearest_neighbours() {
        let refused = |name: &str| {
            let sampler = Some(name.to_owned());
            let image = ImageRequest {
                sampler,
                ..ImageRequest::default()
            };
            settings(&image, &AdapterFolders::default())
                .unwrap_err()
                .message
        };
        let message = refused("dpmpp_2m_sde_gpux");
        let (nearest, others) = message.split_once("; also").unwrap();
        assert!(nearest.contains("k_dpmpp_2m"), "{message}");
        assert!(others.contains("k_euler"), "{message}");
    }

    #[test]
    fn a_second_pass_has_the_usual_strength_unless_the_request_names_one() {
        let image = |strength| ImageRequest {
            hires_fix: true,
            hires_strength: strength,
            tiling: true,
            ..ImageRequest::default()
        };
        let read = settings(&image(None), &AdapterFolders::default()).unwrap();
        assert_eq!((read.hires, read.tiles), (Some(0.65), true));
        let read = settings(&image(Some(0.5)), &AdapterFolders::default()).unwrap();
        assert_eq!(read.hires, Some(0.5));
        let read = settings(&ImageRequest::default(), &AdapterFolders::default()).unwrap();
        assert_eq!((read.hires, read.tiles), (None, false));
    }

    #[test]
    fn loras_are_files_of_the_workers_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("paper.safetensors");
        std::fs::write(&file, b"").unwrap();
        std::fs::write(folder.path().join("notes.txt"), b"").unwrap();
        let folders = AdapterFolders {
            loras: Some(folder.path().to_owned()),
            ..AdapterFolders::default()
        };
        let read = |name: &str, inject_trigger: Option<&str>| {
            let loras = vec![Lora {
                name: name.to_owned(),
                model: 0.5,
                clip: -1.0,
                is_version: false,
                inject_trigger: inject_trigger.map(str::to_owned),
            }];
            let image = ImageRequest {
                loras,
                ..ImageRequest::default()
            };
            settings(&image, &folders)
        };
        for name in ["paper", "paper.safetensors"] {
            let found = &read(name, None).unwrap().loras[0];
            assert_eq!((&found.file, found.model, found.clip), (&file, 0.5, -1.0));
        }
        for name in ["stone", "notes.txt", "../paper", "/etc/passwd", "..", ""] {
            let failure = read(name, None).unwrap_err();
            assert_eq!(failure.kind, FailureKind::UnsupportedValue);
            assert!(failure.message.contains("no LoRA"), "{failure}");
        }
        let failure = read("paper", Some("any")).unwrap_err();
        assert!(failure.message.contains("inject_trigger"), "{failure}");
    }
}
