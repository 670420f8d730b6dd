//! Complete images compared with the reference: two small seeded models, and the results of the reference's classes
//! with them; see `tests/fixtures/make/drawing.py`.

mod adapters;
mod files;
mod requests;
mod ways;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use safetensors::{Dtype, SafeTensors};

use super::adapters::DrawingAdapters;
use super::job::{Original, sample};
use super::networks::LatentMap;
use super::pixels::pixels;
use super::plan::DrawingPlan;
use super::single::{FamilyFacts, HeadRule, SingleFileModel};
use super::tiles::TilePlan;
use super::{ImageDefaults, ImagePipeline, ImageSource};
use crate::networks::blocks::run;
use crate::networks::test_device::device;
use crate::networks::weights::Quantize;
use crate::runtime::DeviceChoice;
use crate::runtime::Failure;
use crate::runtime::diffusion::{DiffusionSampler, Schedule};
use crate::runtime::image::{ImageRequest, Inversion, LoraUse};
use crate::runtime::maker::suite::{self, PipelineFixture, pipeline_suite};
use crate::runtime::maker::{
    Advance, Cost, MakeRequest, Output, PassReports, Pipeline, PixelFormat, Pixels,
};
use muster_kernels::Edges;

const PROMPT: &str = "a red circle on a white background";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn open(name: &str) -> ImagePipeline {
    let source = ImageSource::new(fixtures().join(name));
    source.load(DeviceChoice::of_tests()).unwrap()
}

/// The drawing that the reference repeats in each of its runs.
fn request() -> ImageRequest {
    ImageRequest {
        prompt: PROMPT.to_owned(),
        negative_prompt: Some("blurry".to_owned()),
        width: Some(64),
        height: Some(48),
        steps: Some(5),
        cfg_scale: Some(6.0),
        sampler: Some(DiffusionSampler::Euler),
        schedule: Some(Schedule::Karras),
        seed: Some(7),
        ..ImageRequest::default()
    }
}

struct DrawingGolden(Vec<u8>);

impl DrawingGolden {
    fn open() -> Self {
        Self(std::fs::read(fixtures().join("golden/drawing.tensors")).unwrap())
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap();
        assert_eq!(view.dtype(), Dtype::F32);
        let numbers = view.data().as_chunks().0.iter();
        numbers
            .map(|bytes| f32::from_le_bytes(*bytes).into())
            .collect()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        file.tensor(name).unwrap().data().to_vec()
    }

    fn source(&self) -> Pixels {
        Pixels {
            width: 64,
            height: 48,
            format: PixelFormat::Rgb,
            bytes: self.bytes("source"),
        }
    }
}

fn latent_of(pipeline: &ImagePipeline, request: ImageRequest) -> LatentMap {
    let networks = &pipeline.networks;
    let plan = DrawingPlan::new(networks, &pipeline.defaults, request).unwrap();
    let original = run(Original::read(networks, &plan)).unwrap();
    let progress = PassReports::default();
    let adapters = DrawingAdapters::load(networks, &plan.loras).unwrap();
    run(sample(
        networks,
        &plan,
        &adapters,
        original.as_ref(),
        &progress,
    ))
    .unwrap()
}

fn draw(pipeline: &ImagePipeline, request: ImageRequest) -> Pixels {
    follow(pipeline, request).0
}

/// The image, the steps with their previews, and the number of blocks.
fn follow(
    pipeline: &ImagePipeline,
    request: ImageRequest,
) -> (Pixels, Vec<(u32, Option<Pixels>)>, u64) {
    let job = suite::follow(pipeline, request.into());
    let [Output::Image(image)] = job.outputs.as_slice() else {
        panic!("expected one image");
    };
    let steps = job.steps.into_iter().map(|(at, _, preview)| (at, preview));
    (image.clone(), steps.collect(), job.blocks)
}

fn fixture() -> PipelineFixture {
    let pipeline = open("tiny-image");
    let image = |request: ImageRequest| request.into();
    PipelineFixture {
        networks: pipeline.networks.clone(),
        pipeline: Arc::new(pipeline),
        request: image(request()),
        other: image(ImageRequest {
            seed: Some(8),
            sampler: Some(DiffusionSampler::EulerAncestral),
            wants_previews: true,
            ..request()
        }),
        refused: (
            image(ImageRequest {
                steps: Some(0),
                ..request()
            }),
            "steps is 0",
        ),
    }
}

pipeline_suite!(fixture);

#[track_caller]
fn check_run(model: &str, name: &str, request: ImageRequest) {
    let (golden, pipeline) = (DrawingGolden::open(), open(model));
    let found = latent_of(&pipeline, request);
    let wanted = golden.numbers(&format!("{model}.{name}.latent"));
    check_latent(&found, &wanted, &format!("{model} {name}"));
    let image = run(pipeline.networks.decode(&found, Edges::Zeros)).unwrap();
    let image = pixels(&image, None).unwrap();
    let wanted = golden.bytes(&format!("{model}.{name}.image"));
    let gap = largest_gap(&image.bytes, &wanted);
    assert!(gap <= 2, "{model} {name}: pixels differ by {gap}");
}

fn largest_gap(a: &[u8], b: &[u8]) -> u8 {
    assert_eq!(a.len(), b.len());
    let gaps = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    gaps.max().unwrap()
}

fn check_both(name: &str, change: impl Fn(ImageRequest, &DrawingGolden) -> ImageRequest) {
    for model in ["tiny-image", "tiny-image-xl"] {
        check_run(model, name, change(request(), &DrawingGolden::open()));
    }
}

#[test]
fn drawings_agree_with_the_reference() {
    for name in ["k_euler", "k_euler_a", "k_heun", "k_dpmpp_2m"] {
        check_both(name, |request, _| ImageRequest {
            sampler: DiffusionSampler::named(name),
            ..request
        });
    }
}

#[test]
fn drawings_without_guidance_agree_with_the_reference() {
    check_both("plain", |request, _| ImageRequest {
        cfg_scale: Some(1.0),
        ..request
    });
    check_both("skipped", |request, _| ImageRequest {
        cfg_scale: Some(1.0),
        clip_skip: Some(3),
        ..request
    });
}

#[test]
fn an_image_of_a_series_agrees_with_the_reference() {
    check_both("second", |request, _| ImageRequest {
        sampler: Some(DiffusionSampler::EulerAncestral),
        index: 1,
        ..request
    });
}

#[test]
fn weights_and_windows_agree_with_the_reference() {
    check_both("weighted", |request, _| ImageRequest {
        prompt: "a cat (a dog:1.3)".to_owned(),
        ..request
    });
    check_both("long", |request, _| ImageRequest {
        prompt: "cat ".repeat(100),
        ..request
    });
}

#[test]
fn drawing_from_an_image_agrees_with_the_reference() {
    check_both("source", |request, golden| ImageRequest {
        source: Some(golden.source()),
        strength: Some(0.6),
        ..request
    });
}

fn masked(request: ImageRequest, golden: &DrawingGolden) -> ImageRequest {
    let is_inside = |x, y| (16..48).contains(&x) && (12..36).contains(&y);
    let white = |x, y| [if is_inside(x, y) { 255 } else { 0 }; 3];
    ImageRequest {
        sampler: Some(DiffusionSampler::DpmPp2m),
        source: Some(golden.source()),
        mask: Some(Pixels::rgb(64, 48, white)),
        ..request
    }
}

#[test]
fn painting_inside_a_mask_agrees_with_the_reference_and_keeps_the_rest() {
    check_both("mask", masked);
    let golden = DrawingGolden::open();
    let image = draw(&open("tiny-image"), masked(request(), &golden));
    let (source, mut changed) = (golden.source(), 0);
    for (at, (found, before)) in image.bytes.iter().zip(&source.bytes).enumerate() {
        let (x, y) = (at / 3 % 64, at / 3 / 64);
        match (16..48).contains(&x) && (12..36).contains(&y) {
            true => changed += u32::from(found != before),
            false => assert_eq!(found, before, "{x} {y}"),
        }
    }
    assert!(changed > 1000);
}

#[test]
fn a_strength_of_nothing_returns_the_image_through_the_autoencoder() {
    let golden = DrawingGolden::open();
    let request = ImageRequest {
        source: Some(golden.source()),
        strength: Some(0.0),
        ..request()
    };
    let (_, steps, _) = follow(&open("tiny-image"), request);
    assert_eq!(steps, []);
}

#[test]
fn a_seed_repeats_and_another_does_not() {
    let pipeline = open("tiny-image");
    let with = |seed, sampler| ImageRequest {
        seed: Some(seed),
        sampler: Some(sampler),
        ..request()
    };
    let ancestral = DiffusionSampler::EulerAncestral;
    let first = draw(&pipeline, with(1, ancestral));
    assert_eq!(first, draw(&pipeline, with(1, ancestral)));
    assert_ne!(first, draw(&pipeline, with(2, ancestral)));
    assert_ne!(first, draw(&pipeline, with(1, DiffusionSampler::DpmPpSde)));
    let unset = ImageRequest {
        seed: None,
        ..request()
    };
    assert_ne!(draw(&pipeline, unset.clone()), draw(&pipeline, unset));
}

#[test]
fn every_sampler_and_schedule_draws() {
    let pipeline = open("tiny-image");
    let plain = ImageRequest {
        width: Some(32),
        height: Some(32),
        steps: Some(4),
        ..request()
    };
    for name in DiffusionSampler::names() {
        let sampler = DiffusionSampler::named(name);
        let (_, steps, _) = follow(
            &pipeline,
            ImageRequest {
                sampler,
                ..plain.clone()
            },
        );
        let at: Vec<u32> = steps.iter().map(|step| step.0).collect();
        match name {
            // These samplers choose their own levels.
            "k_dpm_fast" | "k_dpm_adaptive" => {
                assert!(at.is_sorted() && at.last() == Some(&4), "{at:?}")
            }
            _ => assert_eq!(at, [1, 2, 3, 4], "{name}"),
        }
    }
    for name in Schedule::names() {
        let schedule = Schedule::named(name);
        let (_, steps, _) = follow(
            &pipeline,
            ImageRequest {
                schedule,
                ..plain.clone()
            },
        );
        assert!(!steps.is_empty(), "{name}");
    }
}

#[test]
fn steps_are_reported_with_previews_and_blocks_are_counted() {
    let pipeline = open("tiny-image");
    let request = ImageRequest {
        wants_previews: true,
        ..request()
    };
    let cost = pipeline.check(&MakeRequest::from(request.clone())).unwrap();
    let (_, steps, blocks) = follow(&pipeline, request.clone());
    assert_eq!((cost.steps, cost.blocks), (5, blocks));
    assert_eq!(
        steps.iter().map(|step| step.0).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    let previews: Vec<&Pixels> = steps.iter().filter_map(|step| step.1.as_ref()).collect();
    assert_eq!(previews.len(), 5);
    assert!(
        previews
            .iter()
            .all(|it| it.is_whole() && it.width == 128 && it.height == 96)
    );
    let plain = ImageRequest {
        wants_previews: false,
        source: Some(DrawingGolden::open().source()),
        negative_prompt: Some("cat ".repeat(100)),
        ..request
    };
    let Cost { blocks, .. } = pipeline.check(&MakeRequest::from(plain.clone())).unwrap();
    assert_eq!(follow(&pipeline, plain).2, blocks);
}

#[test]
fn a_network_that_draws_no_numbers_fails() {
    let broken = candle_core::Tensor::new(&[[[0.0, f32::NAN, 0.0]]], &Device::Cpu).unwrap();
    let error = pixels(&broken, None).unwrap_err().to_string();
    assert!(error.contains("no number"), "{error}");
}

#[track_caller]
fn check_latent(found: &LatentMap, wanted: &[f64], name: &str) {
    assert_eq!(found.values.len(), wanted.len());
    let spread = (wanted.iter().map(|it| it * it).sum::<f64>() / wanted.len() as f64).sqrt();
    let gaps = found.values.iter().zip(wanted);
    let gap = gaps.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / spread.max(1.0);
    assert!(gap < 1e-3, "{name}: latents differ by {gap:e}");
}

/// See `tests/fixtures/make/ways.py`.
fn ways() -> DrawingGolden {
    DrawingGolden(std::fs::read(fixtures().join("golden/ways.tensors")).unwrap())
}
