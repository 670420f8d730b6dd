//! Whole drawings against the reference: two small seeded models, and what a loop over the reference's classes draws with
//! them; see `tests/fixtures/make/drawing.py`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use safetensors::{Dtype, SafeTensors};

use super::adapters::DrawingAdapters;
use super::job::{DrawingProgress, Original, sample};
use super::networks::LatentMap;
use super::pixels::pixels;
use super::plan::DrawingPlan;
use super::single::{FamilyFacts, HeadRule, SingleFileModel};
use super::tiles::TilePlan;
use super::{ImageDefaults, ImagePipeline, ImageSource};
use crate::networks::image::run;
use crate::networks::test_device::device;
use crate::networks::weights::Quantize;
use crate::runtime::DeviceChoice;
use crate::runtime::Failure;
use crate::runtime::diffusion::{DiffusionSampler, Schedule};
use crate::runtime::maker::{
    Advance, Cost, ImageRequest, Inversion, LoraUse, MakeRequest, Output, Pipeline, PixelFormat,
    Pixels,
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
    let progress = DrawingProgress::default();
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
    let mut job = pipeline
        .begin(MakeRequest::Image(Box::new(request)))
        .unwrap();
    let (mut image, mut steps, mut blocks) = (None, Vec::new(), 0);
    loop {
        match job.advance().unwrap() {
            Advance::Busy => {}
            Advance::Step { at, preview, .. } => steps.push((at, preview)),
            Advance::Made(Output::Image(pixels)) => image = Some(pixels),
            Advance::Made(other) => panic!("{other:?}"),
            Advance::Done => return (image.unwrap(), steps, blocks),
        }
        blocks += 1;
    }
}

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
            // These visit levels of their own.
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
    let cost = pipeline
        .check(&MakeRequest::Image(Box::new(request.clone())))
        .unwrap();
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
    let Cost { blocks, .. } = pipeline
        .check(&MakeRequest::Image(Box::new(plain.clone())))
        .unwrap();
    assert_eq!(follow(&pipeline, plain).2, blocks);
}

#[test]
fn what_a_request_leaves_open_is_the_models() {
    let mut pipeline = open("tiny-image");
    let image = |request: ImageRequest| {
        let plan = DrawingPlan::new(&pipeline.networks, &pipeline.defaults, request);
        let plan = plan.unwrap();
        ([plan.width, plan.height], plan.steps(), plan.cfg_scale)
    };
    assert_eq!(image(ImageRequest::default()), ([64, 64], 25, 7.0));
    let source = Some(Pixels::rgb(70, 41, |_, _| [0; 3]));
    let request = ImageRequest {
        source,
        ..ImageRequest::default()
    };
    assert_eq!(image(request).0, [68, 40]);
    pipeline.defaults = ImageDefaults {
        size: Some([40, 48]),
        steps: Some(2),
        cfg_scale: Some(1.0),
        ..ImageDefaults::default()
    };
    let plan = DrawingPlan::new(
        &pipeline.networks,
        &pipeline.defaults,
        ImageRequest::default(),
    );
    let plan = plan.unwrap();
    assert_eq!(([plan.width, plan.height], plan.steps()), ([40, 48], 2));
    assert_eq!(plan.negative, None);
}

#[test]
fn requests_beyond_the_limits_are_refused_by_name() {
    let mut pipeline = open("tiny-image");
    let refused = |request: ImageRequest, reason: &str| {
        let refused = pipeline.check(&MakeRequest::Image(Box::new(request)));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    };
    let sized = |width, height| ImageRequest {
        width: Some(width),
        height: Some(height),
        ..request()
    };
    refused(sized(0, 64), "width is 0, but the model takes 32 to 4096");
    refused(sized(64, 1_000_000_000), "height is 1000000000");
    refused(sized(66, 64), "multiples of 4; use 64 or 68");
    refused(
        sized(4096, 4096),
        "16777216, but the model takes at most 4194304",
    );
    refused(
        ImageRequest {
            steps: Some(0),
            ..request()
        },
        "steps is 0",
    );
    refused(
        ImageRequest {
            cfg_scale: Some(f32::NAN),
            ..request()
        },
        "cfg_scale is NaN",
    );
    refused(
        ImageRequest {
            clip_skip: Some(4),
            ..request()
        },
        "clip_skip is 4",
    );
    refused(
        ImageRequest {
            index: 1000,
            ..request()
        },
        "index is 1000",
    );
    refused(
        ImageRequest {
            prompt: "a".repeat(1 << 20),
            ..request()
        },
        "1048576 bytes",
    );
    let image = || Some(Pixels::rgb(8, 8, |_, _| [9; 3]));
    refused(
        ImageRequest {
            mask: image(),
            ..request()
        },
        "a mask needs an image",
    );
    let half = ImageRequest {
        source: image(),
        strength: Some(1.5),
        ..request()
    };
    refused(half, "strength is 1.5");
    let little = ImageRequest {
        source: image(),
        strength: Some(1e-4),
        ..request()
    };
    refused(little, "at least 0.0005");
    let mut broken = Pixels::rgb(8, 8, |_, _| [9; 3]);
    broken.height = 9;
    refused(
        ImageRequest {
            source: Some(broken),
            ..request()
        },
        "the source has fewer",
    );
    pipeline.memory_bytes = Some(1 << 10);
    let refused = pipeline.check(&MakeRequest::Image(Box::new(request())));
    assert!(refused.unwrap_err().to_string().contains("MiB are free"));
}

#[test]
fn a_footprint_is_read_from_headers_and_components_can_be_replaced() {
    let source = ImageSource::new(fixtures().join("tiny-image"));
    let footprint = source.footprint().unwrap();
    let files = [
        "text_encoder/model",
        "unet/diffusion_pytorch_model",
        "vae/diffusion_pytorch_model",
    ];
    let files = files.map(|name| source.path.join(format!("{name}.safetensors")));
    let bytes: u64 = files
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(footprint.weight_bytes < bytes && footprint.weight_bytes > bytes * 8 / 10);
    assert_eq!(footprint.size, [64, 64]);
    assert_eq!(footprint.drawing_bytes, 4 * 64 * 64 * (3 * 16 + 2 * 8));
    let other = fixtures().join("golden/image/autoencoder");
    let replaced = ImageSource {
        components: [("vae".to_owned(), other)].into(),
        ..source.clone()
    };
    let draw_with = |source: &ImageSource| {
        let pipeline = source.load(DeviceChoice::of_tests()).unwrap();
        (latent_of(&pipeline, request()), draw(&pipeline, request()))
    };
    let (latent, image) = draw_with(&source);
    let (same_latent, other_image) = draw_with(&replaced);
    assert_eq!(latent, same_latent);
    assert_ne!(image, other_image);
}

#[test]
fn folders_of_other_models_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = || {
        let refused = ImageSource::new(folder.path()).load(DeviceChoice::of_tests());
        refused.err().unwrap().to_string()
    };
    assert!(
        refused().contains("model_index.json: no such file"),
        "{}",
        refused()
    );
    copy(&fixtures().join("tiny-image"), folder.path());
    assert!(
        ImageSource::new(folder.path())
            .load(DeviceChoice::of_tests())
            .is_ok()
    );
    let check = |file: &str, from: &str, to: &str, reason: &str| {
        let path = folder.path().join(file);
        let before = std::fs::read_to_string(&path).unwrap();
        assert!(before.contains(from), "{before}");
        std::fs::write(&path, before.replace(from, to)).unwrap();
        assert!(refused().contains(reason), "{}", refused());
        std::fs::write(&path, before).unwrap();
    };
    let scheduler = "scheduler/scheduler_config.json";
    check(
        scheduler,
        "scaled_linear",
        "linear",
        "beta_schedule: found linear",
    );
    check(
        scheduler,
        "v_prediction",
        "sample",
        "prediction_type: found sample",
    );
    check(scheduler, "0.012", "0.02", "beta_end: found 0.02");
    let index = "model_index.json";
    check(
        index,
        "AutoencoderKL",
        "AutoencoderTiny",
        "component vae: found AutoencoderTiny",
    );
    check(
        index,
        "\"unet\"",
        "\"transformer\"",
        "the component: found transformer",
    );
    check(
        "unet/config.json",
        "\"in_channels\": 4",
        "\"in_channels\": 8",
        "in_channels: found 8",
    );
    check(
        "text_encoder/config.json",
        "\"hidden_size\": 24",
        "\"hidden_size\": 20",
        "cross_attention_dim: found 24, expected 20",
    );
    let weights = folder
        .path()
        .join("vae/diffusion_pytorch_model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    assert!(refused().contains("vae"), "{}", refused());
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => {
                std::fs::create_dir(&target).unwrap();
                copy(&entry.path(), &target);
            }
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn a_network_that_draws_no_numbers_fails() {
    let broken = candle_core::Tensor::new(&[[[0.0, f32::NAN, 0.0]]], &Device::Cpu).unwrap();
    let error = pixels(&broken, None).unwrap_err().to_string();
    assert!(error.contains("no number"), "{error}");
}

fn lora(name: &str, model: f32, clip: f32) -> LoraUse {
    LoraUse {
        file: fixtures().join(format!("golden/adapters/{name}.safetensors")),
        model,
        clip,
    }
}

#[track_caller]
fn check_latent(found: &LatentMap, wanted: &[f64], name: &str) {
    assert_eq!(found.values.len(), wanted.len());
    let spread = (wanted.iter().map(|it| it * it).sum::<f64>() / wanted.len() as f64).sqrt();
    let gaps = found.values.iter().zip(wanted);
    let gap = gaps.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / spread.max(1.0);
    assert!(gap < 1e-3, "{name}: latents differ by {gap:e}");
}

/// Latents by `tests/fixtures/make/adapters.py`.
#[track_caller]
fn check_adapted(model: &str, name: &str, loras: Vec<LoraUse>) {
    check_adapted_by("adapters", model, name, loras);
}

#[track_caller]
fn check_adapted_by(golden: &str, model: &str, name: &str, loras: Vec<LoraUse>) {
    let bytes = std::fs::read(fixtures().join(format!("golden/{golden}.tensors"))).unwrap();
    let wanted = DrawingGolden(bytes).numbers(name);
    let pipeline = open(model);
    let found = latent_of(&pipeline, ImageRequest { loras, ..request() });
    check_latent(&found, &wanted, &format!("{model} {name}"));
}

#[test]
fn loras_of_every_program_agree_with_the_reference() {
    for (model, end) in [("tiny-image", ""), ("tiny-image-xl", "-xl")] {
        let named = |name: &str| format!("{name}{end}");
        let (kohya, peft) = (named("kohya"), named("peft"));
        check_adapted(model, &named("none"), Vec::new());
        check_adapted(model, &kohya, vec![lora(&kohya, 0.8, 0.5)]);
        check_adapted(model, &peft, vec![lora(&peft, 1.0, 1.0)]);
        let both = vec![lora(&kohya, 0.7, 1.0), lora(&peft, -0.5, 0.6)];
        check_adapted(model, &named("both"), both);
    }
}

#[test]
fn convolutions_hadamard_and_kronecker_products_agree_with_their_formulas() {
    for name in ["locon", "loha", "lokr"] {
        check_adapted("tiny-image", name, vec![lora(name, 0.6, 1.0)]);
    }
}

/// See `tests/fixtures/make/dora.py`.
#[test]
fn decomposed_loras_agree_with_the_reference_and_their_formulas() {
    let model = "tiny-image";
    check_adapted_by("dora", model, "dora", vec![lora("dora", 1.0, 1.0)]);
    for (name, strength) in [("dora-scale-1.0", 1.0), ("dora-scale-0.6", 0.6)] {
        check_adapted_by("dora", model, name, vec![lora("dora-scale", strength, 1.0)]);
    }
    let error = refused("tiny-image-xl", vec![lora("dora", 1.0, 1.0)]);
    assert!(error.contains("made for another one"), "{error}");
    let mut quantized = ImageSource::new(fixtures().join(model));
    quantized.quantize = Some(Quantize::Q8_0);
    let pipeline = quantized.load(DeviceChoice::of_tests()).unwrap();
    let with = |loras| ImageRequest { loras, ..request() };
    let plain = draw(&pipeline, with(Vec::new()));
    assert_ne!(draw(&pipeline, with(vec![lora("dora", 1.0, 1.0)])), plain);
}

#[test]
fn a_lora_is_read_once_and_changes_only_its_own_drawing() {
    let pipeline = open("tiny-image");
    let plain = draw(&pipeline, request());
    let with = || ImageRequest {
        loras: vec![lora("kohya", 1.0, 1.0)],
        ..request()
    };
    let changed = draw(&pipeline, with());
    assert_ne!(plain, changed);
    assert_eq!(draw(&pipeline, with()), changed);
    assert_eq!(draw(&pipeline, request()), plain);
    let without = ImageRequest {
        loras: vec![lora("kohya", 0.0, 0.0)],
        ..request()
    };
    assert_eq!(draw(&pipeline, without), plain);
    assert_eq!(pipeline.networks.adapters.loras.count(), 1);
}

#[track_caller]
fn refused(model: &str, loras: Vec<LoraUse>) -> String {
    let pipeline = open(model);
    let request = MakeRequest::Image(Box::new(ImageRequest { loras, ..request() }));
    if let Err(refusal) = pipeline.check(&request) {
        return refusal.to_string();
    }
    let mut job = pipeline.begin(request).unwrap();
    loop {
        match job.advance() {
            Ok(Advance::Busy | Advance::Step { .. }) => {}
            Ok(other) => panic!("{other:?}"),
            Err(Failure::BadRequest(reason)) => return reason,
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_lora_of_another_base_is_refused_by_name() {
    let error = refused("tiny-image", vec![lora("kohya-xl", 1.0, 1.0)]);
    assert!(error.contains("kohya-xl.safetensors"), "{error}");
    assert!(error.contains("made for another one"), "{error}");
    let error = refused("tiny-image-xl", vec![lora("locon", 1.0, 1.0)]);
    assert!(error.contains("lora_unet_"), "{error}");
    assert!(error.contains("made for another one"), "{error}");
    let error = refused("tiny-image", vec![lora("missing", 1.0, 1.0)]);
    assert!(error.contains("missing.safetensors"), "{error}");
    let error = refused("tiny-image", vec![lora("kohya", 1.0, 1.0); 200]);
    assert!(error.contains("200 LoRAs"), "{error}");
    let error = refused("tiny-image", vec![lora("kohya", f32::NAN, 1.0)]);
    assert!(error.contains("strength of a LoRA is NaN"), "{error}");
}

/// A file with one tensor more or another value, beside what it is made of.
fn altered(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> (tempfile::TempDir, LoraUse) {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(lora(name, 1.0, 1.0).file).unwrap();
    change(&mut bytes);
    let file = folder.path().join("altered.safetensors");
    std::fs::write(&file, bytes).unwrap();
    let lora = LoraUse {
        file,
        model: 1.0,
        clip: 1.0,
    };
    (folder, lora)
}

#[test]
fn broken_loras_are_refused_by_name() {
    let check = |change: fn(&mut Vec<u8>), wanted: &str| {
        let (_folder, lora) = altered("kohya", change);
        let error = refused("tiny-image", vec![lora]);
        assert!(error.contains(wanted), "{error}");
    };
    check(
        |bytes| bytes.truncate(bytes.len() / 2),
        "altered.safetensors",
    );
    // The last number, in f16.
    check(
        |bytes| {
            let at = bytes.len() - 2;
            bytes[at..].copy_from_slice(&0x7e00_u16.to_le_bytes());
        },
        "found NaN, expected finite numbers",
    );
    check(
        |bytes| {
            let name = b"lora_down.weight";
            let at = bytes.windows(name.len()).position(|it| it == name).unwrap();
            bytes[at..at + 4].copy_from_slice(b"oft_");
        },
        "supported: LoRA, LoCon, LoHa, LoKr",
    );
}

/// A single file with a change, and why it is refused.
#[track_caller]
fn refused_single(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("altered.safetensors");
    let mut bytes = std::fs::read(single_file("first")).unwrap();
    change(&mut bytes);
    std::fs::write(&file, bytes).unwrap();
    assert!(ImageSource::is_at(&file), "it is no image model any more");
    let opened = SingleFileModel::open_with(&file, &token_folders("first"), Some(facts("first")));
    let error = match opened {
        Ok(single) => single.load(device(), None).err().unwrap().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("altered.safetensors"), "{error}");
    error
}

#[test]
fn broken_single_files_are_refused_by_file_and_tensor_with_a_remedy() {
    let error = refused_single(|bytes| bytes.truncate(bytes.len() - 100));
    assert!(error.contains("the tensor \""), "{error}");
    assert!(error.contains("cut off, download it again"), "{error}");
    // The last number, in f16, of the tensor that ends the file.
    for odd in [0x7e00_u16, 0x7c00] {
        let error = refused_single(|bytes| {
            let at = bytes.len() - 2;
            bytes[at..].copy_from_slice(&odd.to_le_bytes());
        });
        assert!(error.contains("the tensor \""), "{error}");
        assert!(
            error.contains("finite numbers; the file is damaged"),
            "{error}"
        );
    }
    let rename = |from: &'static str, to: &'static str| {
        assert_eq!(from.len(), to.len());
        move |bytes: &mut Vec<u8>| {
            let mut at = 0;
            while let Some(found) = bytes[at..]
                .windows(from.len())
                .position(|it| it == from.as_bytes())
            {
                at += found;
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            }
        }
    };
    let flux = refused_single(rename(
        "model.diffusion_model.output_blocks.0.",
        "model.diffusion_model.double_blocks.0.",
    ));
    assert!(flux.contains("a Flux model in one file"), "{flux}");
    assert!(flux.contains("double_blocks"), "{flux}");
    let other = refused_single(rename("cond_stage_model.", "cond_stage_other."));
    assert!(
        other.contains("no text encoder of these families"),
        "{other}"
    );
}

fn single_file(name: &str) -> PathBuf {
    fixtures().join(format!("golden/single/{name}.safetensors"))
}

fn token_folders(name: &str) -> BTreeMap<String, PathBuf> {
    let tokens = |name: &str| fixtures().join("tiny-image-xl").join(name);
    let components = match name {
        "second" => [("tokenizer", tokens("tokenizer_2"))].to_vec(),
        "xl" => [
            ("tokenizer", tokens("tokenizer")),
            ("tokenizer_2", tokens("tokenizer_2")),
        ]
        .to_vec(),
        _ => [("tokenizer", fixtures().join("tiny-image/tokenizer"))].to_vec(),
    };
    let components = components.into_iter();
    components
        .map(|(name, path)| (name.to_owned(), path))
        .collect()
}

fn facts(name: &str) -> FamilyFacts {
    FamilyFacts {
        unet_heads: match name {
            "second" => HeadRule::Size(4),
            _ => HeadRule::Count(2),
        },
        text_heads: HeadRule::Count(4),
        groups: 4,
        size_width: 8,
        latent_scale: 0.18215,
        sample_size: 16,
    }
}

fn open_single(name: &str) -> ImagePipeline {
    let opened =
        SingleFileModel::open_with(&single_file(name), &token_folders(name), Some(facts(name)));
    let single = opened.unwrap();
    ImagePipeline {
        networks: Arc::new(single.load(device(), None).unwrap()),
        defaults: ImageDefaults::default(),
        memory_bytes: None,
    }
}

/// See `tests/fixtures/make/single.py`.
#[test]
fn single_files_of_each_family_agree_with_the_reference() {
    let golden = std::fs::read(fixtures().join("golden/single.tensors")).unwrap();
    let golden = DrawingGolden(golden);
    for name in ["first", "second", "xl"] {
        let found = latent_of(&open_single(name), request());
        check_latent(&found, &golden.numbers(name), name);
    }
}

#[test]
fn a_single_file_draws_with_the_autoencoder_of_another_model() {
    let replaced = |folder: PathBuf| {
        let mut folders = token_folders("first");
        folders.insert("vae".to_owned(), folder);
        SingleFileModel::open_with(&single_file("first"), &folders, Some(facts("first")))
    };
    let own = open_single("first");
    let pipeline_of = |single: SingleFileModel| ImagePipeline {
        networks: Arc::new(single.load(device(), None).unwrap()),
        defaults: ImageDefaults::default(),
        memory_bytes: None,
    };
    let other = replaced(fixtures().join("golden/image/autoencoder")).unwrap();
    let (shared, defaults) = (other.shared(), ImageDefaults::default());
    let own_bytes = SingleFileModel::open_with(
        &single_file("first"),
        &token_folders("first"),
        Some(facts("first")),
    );
    let own_bytes = own_bytes.unwrap().footprint(&defaults).weight_bytes;
    assert_eq!(shared.len(), 1);
    // That of the file, which has the same sizes, is not counted.
    assert_eq!(other.footprint(&defaults).weight_bytes, own_bytes);
    let other = pipeline_of(other);
    assert_eq!(latent_of(&own, request()), latent_of(&other, request()));
    assert_ne!(draw(&own, request()), draw(&other, request()));
    // That of its folder holds the same numbers.
    let same = pipeline_of(replaced(fixtures().join("tiny-image/vae")).unwrap());
    assert_eq!(draw(&own, request()), draw(&same, request()));
    assert!(replaced(fixtures().join("missing")).is_err());
}

#[test]
fn models_with_the_same_files_hold_their_networks_together() {
    let lender = ImageSource::new(fixtures().join("tiny-image"));
    let folder = tempfile::tempdir().unwrap();
    copy(&fixtures().join("tiny-image"), folder.path());
    std::fs::remove_dir_all(folder.path().join("text_encoder")).unwrap();
    let mut borrower = ImageSource::new(folder.path());
    let encoder = lender.path.join("text_encoder");
    borrower
        .components
        .insert("text_encoder".to_owned(), encoder);
    let (lent, shared) = (lender.shared().unwrap(), borrower.shared().unwrap());
    assert!(lent.contains(&shared[0]) && !lent.contains(&shared[1]));
    let load = |source: &ImageSource| source.load(DeviceChoice::of_tests()).unwrap();
    let (one, other) = (load(&lender), load(&borrower));
    let encoder = |of: &ImagePipeline| Arc::clone(&of.networks.encoders[0].clip);
    assert!(Arc::ptr_eq(&encoder(&one), &encoder(&other)));
    let autoencoders = [&one, &other].map(|of| Arc::clone(&of.networks.autoencoder));
    assert!(!Arc::ptr_eq(&autoencoders[0], &autoencoders[1]));
    let image = draw(&one, request());
    drop(one);
    assert_eq!(image, draw(&other, request()));
}

#[test]
fn a_single_file_draws_the_image_of_its_folder() {
    for (file, folder) in [("first", "tiny-image"), ("xl", "tiny-image-xl")] {
        let single = draw(&open_single(file), request());
        assert_eq!(single, draw(&open(folder), request()), "{file}");
    }
}

/// See `tests/fixtures/make/ways.py`.
fn ways() -> DrawingGolden {
    DrawingGolden(std::fs::read(fixtures().join("golden/ways.tensors")).unwrap())
}

#[test]
fn a_tiling_image_agrees_with_the_reference() {
    let pipeline = open("tiny-image");
    let request = ImageRequest {
        tiles: true,
        ..request()
    };
    let found = latent_of(&pipeline, request.clone());
    check_latent(&found, &ways().numbers("tiled"), "tiled");
    let image = draw(&pipeline, request);
    assert!(largest_gap(&image.bytes, &ways().bytes("tiled.image")) <= 2);
}

#[test]
fn a_second_pass_agrees_with_the_reference() {
    let pipeline = open("tiny-image");
    let large = ImageRequest {
        width: Some(128),
        height: Some(96),
        hires: Some(0.65),
        ..request()
    };
    let found = latent_of(&pipeline, large.clone());
    check_latent(&found, &ways().numbers("two"), "two");
    let (image, steps, blocks) = follow(&pipeline, large.clone());
    assert_eq!((image.width, image.height), (128, 96));
    let steps: Vec<u32> = steps.iter().map(|step| step.0).collect();
    assert_eq!(steps, (1..=10).collect::<Vec<_>>());
    let request = MakeRequest::Image(Box::new(large));
    assert_eq!(pipeline.check(&request).unwrap().blocks, blocks);
    // An image of the model's own size needs no second pass.
    let small = ImageRequest {
        hires: Some(0.65),
        ..self::request()
    };
    assert_eq!(
        latent_of(&pipeline, small),
        latent_of(&pipeline, self::request())
    );
}

fn open_painting() -> ImagePipeline {
    let mut source = ImageSource::new(fixtures().join("tiny-image"));
    let unet = fixtures().join("golden/ways/painting");
    source.components.insert("unet".to_owned(), unet);
    source.load(DeviceChoice::of_tests()).unwrap()
}

#[test]
fn a_network_made_for_painting_agrees_with_the_reference() {
    let pipeline = open_painting();
    let golden = DrawingGolden::open();
    let masked = ImageRequest {
        sampler: Some(DiffusionSampler::Euler),
        ..masked(request(), &golden)
    };
    let found = latent_of(&pipeline, masked.clone());
    check_latent(&found, &ways().numbers("painted"), "painted");
    let (image, _, blocks) = follow(&pipeline, masked.clone());
    assert_eq!(image.bytes[..64 * 3], golden.source().bytes[..64 * 3]);
    let request = MakeRequest::Image(Box::new(masked));
    assert_eq!(pipeline.check(&request).unwrap().blocks, blocks);
    // Without a mask the network paints everything.
    draw(&pipeline, self::request());
}

#[test]
fn words_of_inversions_agree_with_the_reference() {
    for (model, name) in [("tiny-image", "word"), ("tiny-image-xl", "word-xl")] {
        let pipeline = open(model);
        let with = |prompt: &str| ImageRequest {
            prompt: prompt.to_owned(),
            inversions: vec![Inversion {
                name: "word".to_owned(),
                file: fixtures().join(format!("golden/ways/{name}.safetensors")),
            }],
            ..request()
        };
        let found = latent_of(&pipeline, with("a embedding:word on red"));
        check_latent(&found, &ways().numbers(name), name);
        let other = match model {
            "tiny-image" => "word-xl",
            _ => "word",
        };
        let mut foreign = with("a embedding:word");
        foreign.inversions[0].file = fixtures().join(format!("golden/ways/{other}.safetensors"));
        let refusal = pipeline.check(&MakeRequest::Image(Box::new(foreign)));
        let refusal = refusal.unwrap_err().to_string();
        assert!(
            refusal.contains(&format!("{other}.safetensors")),
            "{refusal}"
        );
    }
}

#[test]
fn decoding_in_tiles_agrees_with_the_reference() {
    let pipeline = open("tiny-image");
    let golden = ways();
    let latent = LatentMap {
        values: golden.numbers("wide.latent"),
        height: 40,
        width: 26,
    };
    let scale = pipeline.networks.autoencoder.spec().scale;
    let latent = LatentMap {
        values: latent.values.iter().map(|it| it * scale).collect(),
        ..latent
    };
    let plan = TilePlan { side: 16 };
    let image = run(pipeline.networks.decode_in_tiles(&latent, plan)).unwrap();
    let image = pixels(&image, None).unwrap();
    assert_eq!((image.width, image.height), (104, 160));
    let gap = largest_gap(&image.bytes, &golden.bytes("wide.image"));
    assert!(gap <= 2, "{gap}");
}
