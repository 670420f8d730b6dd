//! Whole videos against the reference's own pipeline, refusals, and a job on the maker.

use std::path::Path;

use candle_core::quantized::GgmlDType;
use serde_json::{Value, json};

use super::job::{decode, sample};
use super::networks::LatentVideo;
use super::*;
use crate::networks::blocks::run;
use crate::networks::golden::{GoldenTensors, fixtures};
use crate::networks::model_copy::{copy_folder, put_in_gguf};
use crate::networks::text_encoder::TextNames;
use crate::networks::video::TransformerNames;
use crate::runtime::DeviceChoice;
use crate::runtime::diffusion::FlowSchedule;
use crate::runtime::maker::suite::{self, PipelineFixture, ReportedStep, pipeline_suite};
use crate::runtime::maker::{Output, PassReports, PixelFormat, Pixels};
use crate::runtime::video::VideoRequest;

/// Tolerance of latents.
const LATENT_TOLERANCE: f64 = 1e-3;
/// Tolerance of colors between 0 and 255: one step of rounding.
const COLOR_TOLERANCE: f64 = 1.0;

fn golden() -> GoldenTensors {
    GoldenTensors::open("golden/video/pipeline.tensors")
}

fn numbers(name: &str) -> Vec<f64> {
    let numbers = golden().numbers(name).into_iter();
    numbers.map(f64::from).collect()
}

pub fn pipeline() -> VideoPipeline {
    let source = VideoSource::new(fixtures().join("tiny-video"));
    source.load(DeviceChoice::of_tests()).unwrap()
}

/// The request that the golden videos were made for.
pub fn request() -> VideoRequest {
    VideoRequest {
        prompt: "a red circle  moves to\nthe right".to_owned(),
        negative_prompt: Some("blurry, worst quality".to_owned()),
        width: Some(48),
        height: Some(32),
        frames: Some(9),
        steps: Some(5),
        cfg_scale: Some(4.0),
        seed: Some(7),
        ..VideoRequest::default()
    }
}

fn schedule(file: &str) -> FlowSchedule {
    let path = fixtures().join("tiny-video/scheduler").join(file);
    FlowSchedule::read(&serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap())
        .unwrap()
}

const SCHEDULES: [(&str, &str); 2] = [("unipc", "scheduler_config.json"), ("euler", "euler.json")];

#[test]
fn levels_are_those_of_the_reference() {
    for (name, file) in SCHEDULES {
        let levels = schedule(file).levels(5);
        assert_eq!(levels.levels, numbers(&format!("{name}_sigmas")), "{name}");
        let timesteps: Vec<f64> = levels.timesteps.iter().map(|&it| f64::from(it)).collect();
        assert_eq!(timesteps, numbers(&format!("{name}_timesteps")), "{name}");
    }
}

#[test]
fn texts_become_the_tokens_and_states_of_the_reference() {
    let pipeline = pipeline();
    let text = "a red circle moves to the right ÉCOLE ☃";
    let tokens = pipeline.networks.tokenizer.encode(text).unwrap();
    let found: Vec<f64> = tokens.iter().map(|&token| f64::from(token)).collect();
    assert_eq!(found, numbers("tokens"));
    let tokens = pipeline
        .networks
        .tokenizer
        .encode(&request().prompt)
        .unwrap();
    let states = run(pipeline.networks.encode_text(&tokens)).unwrap();
    assert_eq!(states.dims(), [1, 512, 32]);
    let states = states.squeeze(0).unwrap().narrow(0, 0, 20).unwrap();
    let gap = (states - golden().tensor("context"))
        .unwrap()
        .abs()
        .unwrap()
        .max_all()
        .unwrap();
    assert!(gap.to_scalar::<f32>().unwrap() < 1e-4);
}

#[track_caller]
fn check_latent(found: &LatentVideo, name: &str) {
    let wanted = numbers(name);
    assert_eq!(found.values.len(), wanted.len());
    let gaps = found.values.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
    let gap = gaps.fold(0.0, f64::max);
    assert!(gap < LATENT_TOLERANCE, "{name}: {gap:e}");
}

#[test]
fn videos_are_those_of_the_reference() {
    for (name, file) in SCHEDULES {
        let mut pipeline = pipeline();
        let networks = Arc::get_mut(&mut pipeline.networks).unwrap();
        networks.schedule = schedule(file);
        let plan = pipeline.plan(request()).unwrap();
        let networks = &pipeline.networks;
        let latent = run(sample(networks, &plan, &PassReports::default())).unwrap();
        assert_eq!(latent.sizes, [3, 4, 6]);
        check_latent(&latent, &format!("{name}_latent"));
        let frames = run(decode(networks, &latent, 9)).unwrap();
        assert_eq!(frames.len(), 9);
        let wanted = numbers(&format!("{name}_video"));
        let found = [0, 1, 8].map(|at: usize| frames[at].bytes.clone()).concat();
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((f64::from(*found) - wanted * 255.0).abs() <= COLOR_TOLERANCE);
        }
    }
}

/// The steps of a job, its frames and their rate.
pub fn made(
    pipeline: &VideoPipeline,
    request: VideoRequest,
) -> (Vec<ReportedStep>, Vec<Pixels>, f32) {
    let job = suite::follow(pipeline, request.into());
    let share = job.blocks as f64 / job.cost.blocks as f64;
    assert!((0.5..2.0).contains(&share), "{share}");
    let (mut frames, mut rates) = (Vec::new(), Vec::new());
    for output in job.outputs {
        let Output::Frames { frames: next, rate } = output else {
            panic!("unexpected {output:?}");
        };
        // Each leaves once it is decoded.
        assert_eq!(next.len(), 1);
        frames.extend(next);
        rates.push(rate);
    }
    rates.dedup();
    (job.steps, frames, rates[0])
}

fn fixture() -> PipelineFixture {
    let pipeline = pipeline();
    let video = |request: VideoRequest| request.into();
    PipelineFixture {
        networks: pipeline.networks.clone(),
        pipeline: Arc::new(pipeline),
        request: video(request()),
        other: video(VideoRequest {
            seed: Some(8),
            frames: Some(5),
            ..request()
        }),
        refused: (
            video(VideoRequest {
                frames: Some(0),
                ..request()
            }),
            "frames is 0, but the model takes 1 to 257",
        ),
    }
}

pipeline_suite!(fixture);

#[test]
fn a_job_reports_its_steps_and_gives_as_many_frames_as_asked_for() {
    let pipeline = pipeline();
    let (steps, whole, rate) = made(&pipeline, request());
    let at = |(at, of, preview): &ReportedStep| (*at, *of, preview.is_some());
    let found: Vec<_> = steps.iter().map(at).collect();
    assert_eq!(found, [1, 2, 3, 4, 5].map(|at| (at, 5, false)));
    assert_eq!((whole.len(), rate), (9, 16.0));
    let size = (whole[0].width, whole[0].height, whole[0].format);
    assert_eq!(size, (48, 32, PixelFormat::Rgb));
    // Fewer frames of the same latent are the same frames.
    let fewer = VideoRequest {
        frames: Some(7),
        rate: Some(8.0),
        wants_previews: true,
        ..request()
    };
    let (steps, fewer, rate) = made(&pipeline, fewer);
    assert_eq!((fewer.as_slice(), rate), (&whole[..7], 8.0));
    assert!(steps.iter().map(at).all(|(_, _, has_preview)| has_preview));
    // The last preview shows the first frame.
    assert_eq!(steps[4].2.as_ref(), Some(&whole[0]));
    let (_, one, _) = made(
        &pipeline,
        VideoRequest {
            frames: Some(1),
            steps: Some(1),
            ..request()
        },
    );
    assert_eq!(one.len(), 1);
}

#[test]
fn a_component_of_another_folder_is_used_and_held_together_with_it() {
    let lender = VideoSource::new(fixtures().join("tiny-video"));
    let mut borrower = VideoSource::new(fixtures().join("tiny-video"));
    for name in [
        "text_encoder",
        "tokenizer",
        "vae",
        "scheduler",
        "transformer",
    ] {
        let missing = fixtures().join("missing");
        borrower.components.insert(name.to_owned(), missing);
        assert!(
            borrower.footprint().is_err() || name == "tokenizer",
            "{name}"
        );
        let folder = lender.path.join(name);
        borrower.components.insert(name.to_owned(), folder);
    }
    let load = |source: &VideoSource| source.load(DeviceChoice::of_tests()).unwrap();
    let (one, other) = (load(&lender), load(&borrower));
    assert!(Arc::ptr_eq(&one.networks.text, &other.networks.text));
    assert_eq!(lender.shared().unwrap(), borrower.shared().unwrap());
}

#[test]
fn the_negative_prompt_and_the_seed_count() {
    let pipeline = pipeline();
    let few = || VideoRequest {
        frames: Some(1),
        steps: Some(2),
        ..request()
    };
    let first = |request| made(&pipeline, request).1.remove(0);
    let usual = first(few());
    assert_eq!(usual, first(few()));
    for other in [
        VideoRequest {
            seed: Some(8),
            ..few()
        },
        VideoRequest { index: 1, ..few() },
        VideoRequest {
            negative_prompt: None,
            ..few()
        },
        VideoRequest {
            cfg_scale: Some(1.0),
            ..few()
        },
        VideoRequest {
            prompt: "a green square".to_owned(),
            ..few()
        },
    ] {
        assert_ne!(usual, first(other));
    }
}

#[test]
fn videos_from_a_first_frame_are_those_of_the_reference() {
    let mut pipeline = pipeline();
    let networks = Arc::get_mut(&mut pipeline.networks).unwrap();
    networks.takes_first_frame = true;
    let image = Pixels::rgb(48, 32, |x, _| [200, (4 * x) as u8, 40]);
    let given = VideoRequest {
        source: Some(image),
        width: None,
        height: None,
        ..request()
    };
    let plan = pipeline.plan(given.clone()).unwrap();
    assert_eq!([plan.width, plan.height], [48, 32]);
    let latent = run(sample(&pipeline.networks, &plan, &PassReports::default()));
    check_latent(&latent.unwrap(), "marked_latent");
    let (_, frames, _) = made(&pipeline, given);
    assert_eq!(frames.len(), 9);
}

#[track_caller]
fn check_refused(change: impl Fn(&mut VideoRequest), part: &str) {
    let mut request = request();
    change(&mut request);
    let refusal = pipeline().check(&request.into());
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.contains(part), "{refusal}");
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    check_refused(|it| it.frames = Some(10_000), "frames is 10000");
    check_refused(
        |it| it.width = Some(50),
        "width is 50, but the model takes multiples of 16; use 48 or 64",
    );
    check_refused(|it| it.height = Some(8), "height is 8");
    check_refused(|it| it.height = Some(4112), "height is 4112");
    check_refused(
        |it| it.width = Some(1040),
        "the video's width are 65 places",
    );
    check_refused(|it| it.steps = Some(0), "steps is 0");
    check_refused(|it| it.cfg_scale = Some(f32::NAN), "cfg_scale is NaN");
    check_refused(|it| it.rate = Some(0.0), "rate is 0");
    check_refused(|it| it.index = 16, "index is 16");
    check_refused(|it| it.prompt = "a".repeat(1 << 17), "shorten it");
    check_refused(
        |it| it.source = Some(Pixels::rgb(16, 16, |_, _| [0; 3])),
        "text alone",
    );
}

#[test]
fn a_video_that_takes_too_much_memory_is_refused() {
    let mut pipeline = pipeline();
    let request = MakeRequest::from(request());
    let needed = pipeline.check(&request).unwrap().memory_bytes;
    pipeline.memory_bytes = Some(needed);
    pipeline.check(&request).unwrap();
    pipeline.memory_bytes = Some(needed - 1);
    let refusal = pipeline.check(&request).unwrap_err().to_string();
    assert!(refusal.contains("smaller or shorter"), "{refusal}");
}

#[test]
fn other_schedulers_are_refused_by_name() {
    let path = fixtures().join("tiny-video/scheduler/scheduler_config.json");
    let config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for (name, value) in [
        ("_class_name", json!("DDIMScheduler")),
        ("prediction_type", json!("epsilon")),
        ("solver_order", json!(4)),
        ("solver_type", json!("bh3")),
        ("use_karras_sigmas", json!(true)),
        ("final_sigmas_type", json!("sigma_min")),
        ("flow_shift", json!(0.0)),
    ] {
        let mut config = config.clone();
        config[name] = value;
        let error = format!("{:?}", FlowSchedule::read(&config).unwrap_err());
        let name = name.trim_start_matches('_').trim_end_matches("_name");
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn folders_say_what_they_hold() {
    let fixtures = fixtures();
    assert!(VideoSource::is_at(&fixtures.join("tiny-video")));
    assert!(!VideoSource::is_at(&fixtures.join("tiny-image")));
    let footprint = VideoSource::new(fixtures.join("tiny-video"))
        .footprint()
        .unwrap();
    assert!(
        (300_000..400_000).contains(&footprint.weight_bytes),
        "{footprint:?}"
    );
    assert!(footprint.video_bytes > 0);
    let other = VideoSource::new(fixtures.join("tiny-image")).load(DeviceChoice::of_tests());
    let error = other.err().unwrap().to_string();
    assert!(error.contains("_class_name"), "{error}");
}

/// A folder as people put it together: the small files of the folder layout, and GGUF files of the networks as other
/// programs write them.
fn in_gguf(dtype: Option<GgmlDType>) -> tempfile::TempDir {
    let (folder, tiny) = (tempfile::tempdir().unwrap(), fixtures().join("tiny-video"));
    let place = |name: &str| folder.path().join(name);
    for name in ["scheduler", "tokenizer", "vae"] {
        std::os::unix::fs::symlink(tiny.join(name), place(name)).unwrap();
    }
    std::fs::copy(tiny.join("model_index.json"), place("model_index.json")).unwrap();
    for network in ["transformer", "text_encoder"] {
        std::fs::create_dir(place(network)).unwrap();
        copy_folder(&tiny.join(network), &place(network));
        put_in_gguf(&place(network), dtype, |name| match network {
            "transformer" => Some(TransformerNames::Original("").name(name)),
            _ => (name != "encoder.embed_tokens.weight").then(|| TextNames::Gguf.name(name)),
        });
    }
    folder
}

#[test]
fn networks_in_gguf_files_film_the_same() {
    let first = |pipeline: VideoPipeline| made(&pipeline, request()).1.swap_remove(0).bytes;
    let load = |folder: &Path| {
        let source = VideoSource::new(folder);
        source.load(DeviceChoice::of_tests()).unwrap()
    };
    let expected = first(pipeline());
    let whole = in_gguf(None);
    assert_eq!(first(load(whole.path())), expected);
    let smaller = in_gguf(Some(GgmlDType::Q8_0));
    let found = first(load(smaller.path()));
    let gaps = found
        .iter()
        .zip(&expected)
        .map(|(a, b)| f64::from(a.abs_diff(*b)));
    let mean = gaps.sum::<f64>() / expected.len() as f64;
    assert!((1e-6..8.0).contains(&mean), "mean difference {mean}");
}
