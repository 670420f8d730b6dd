//! Whole songs against the reference's own pipeline, refusals, and jobs.

use candle_core::Tensor;
use candle_core::quantized::GgmlDType;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::job::{decode, leveled, sample};
use super::*;
use crate::networks::blocks::run;
use crate::networks::golden::{GoldenTensors, fixtures};
use crate::networks::model_copy::{copy_folder, put_in_gguf};
use crate::runtime::DeviceChoice;
use crate::runtime::maker::suite::{self, PipelineFixture, pipeline_suite};
use crate::runtime::maker::{Output, PassReports, Pcm, SoundRequest};

/// Tolerance of latents, whose values are a few units large.
const LATENT_TOLERANCE: f64 = 1e-3;
/// Tolerance of samples from -1 to 1.
const SAMPLE_TOLERANCE: f64 = 1e-4;

fn golden() -> GoldenTensors {
    GoldenTensors::open("golden/music/pipeline.tensors")
}

fn numbers(name: &str) -> Vec<f64> {
    let numbers = golden().numbers(name).into_iter();
    numbers.map(f64::from).collect()
}

fn pipeline() -> MusicPipeline {
    let source = MusicSource::new(fixtures().join("tiny-music"));
    source.load(DeviceChoice::of_tests()).unwrap()
}

/// The requests that the golden songs were made for.
fn song() -> SoundRequest {
    SoundRequest {
        prompt: "a calm piano,  with\nsoft drums".to_owned(),
        lyrics: Some("[verse]\nRain falls  on the école ☃\n\n[chorus]\nla la".to_owned()),
        seconds: Some(1.64),
        bpm: Some(96),
        key_scale: Some("D minor".to_owned()),
        time_signature: Some("3".to_owned()),
        vocal_language: Some("fr".to_owned()),
        seed: Some(7),
        ..SoundRequest::default()
    }
}

fn short() -> SoundRequest {
    SoundRequest {
        prompt: song().prompt,
        seconds: Some(1.0),
        steps: Some(3),
        seed: Some(7),
        ..SoundRequest::default()
    }
}

fn asked(request: SoundRequest) -> MakeRequest {
    request.into()
}

#[track_caller]
fn check(found: impl IntoIterator<Item = f64>, name: &str, tolerance: f64) {
    let (found, wanted) = (found.into_iter().collect::<Vec<_>>(), numbers(name));
    assert_eq!(found.len(), wanted.len(), "{name}");
    let gaps = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
    let gap = gaps.fold(0.0, f64::max);
    assert!(gap < tolerance, "{name}: {gap:e}");
}

#[test]
fn songs_are_those_of_the_reference() {
    let pipeline = pipeline();
    let networks = &pipeline.networks;
    for (name, request) in [("song", song()), ("short", short())] {
        let plan = pipeline.plan(&request).unwrap();
        check(plan.levels.iter().copied(), &format!("{name}_levels"), 1e-6);
        let ids = |tokens: &[u32]| {
            tokens
                .iter()
                .map(|&token| token.into())
                .collect::<Vec<f64>>()
        };
        check(ids(&plan.description), &format!("{name}_text_tokens"), 0.5);
        check(ids(&plan.lyrics), &format!("{name}_lyrics_tokens"), 0.5);
        let flat = |states: Tensor| {
            let states = states.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            states.into_iter().map(f64::from)
        };
        let states = networks.states(&plan.description).unwrap();
        check(flat(states), &format!("{name}_text"), 1e-4);
        let embeddings = networks.embeddings(&plan.lyrics).unwrap();
        check(flat(embeddings), &format!("{name}_lyrics"), 1e-6);
        let latents = run(sample(networks, &plan, &PassReports::default())).unwrap();
        check(latents.clone(), &format!("{name}_latent"), LATENT_TOLERANCE);
        let samples = run(decode(networks, &latents, plan.frames)).unwrap();
        let samples = leveled(samples).into_iter().map(f64::from);
        check(samples, &format!("{name}_sound"), SAMPLE_TOLERANCE);
    }
}

/// Steps that a job reports, and its sound.
fn made(pipeline: &MusicPipeline, request: SoundRequest) -> (Vec<[u32; 2]>, Pcm) {
    let job = suite::follow(pipeline, asked(request));
    let share = job.blocks as f64 / job.cost.blocks as f64;
    assert!((0.8..1.2).contains(&share), "{share}");
    assert_eq!(job.cost.steps as usize, job.steps.len());
    assert!(job.steps.iter().all(|(_, _, preview)| preview.is_none()));
    let steps = job.steps.iter().map(|(at, of, _)| [*at, *of]).collect();
    match job.outputs.as_slice() {
        [Output::Sound(sound)] => (steps, sound.clone()),
        other => panic!("unexpected {other:?}"),
    }
}

fn fixture() -> PipelineFixture {
    let pipeline = pipeline();
    PipelineFixture {
        networks: pipeline.networks.clone(),
        pipeline: Arc::new(pipeline),
        request: asked(song()),
        other: asked(short()),
        refused: (
            asked(SoundRequest {
                seconds: Some(0.0),
                ..song()
            }),
            "seconds is 0, but the model takes 0.5 to 600",
        ),
    }
}

pipeline_suite!(fixture);

#[test]
fn a_job_reports_its_steps_and_a_seed_repeats() {
    let pipeline = pipeline();
    let (steps, sound) = made(&pipeline, short());
    assert_eq!(steps, [[1, 3], [2, 3], [3, 3]]);
    assert_eq!((sound.rate, sound.channels), (8000, 2));
    assert_eq!(sound.samples.len(), 2 * 8000);
    let loudest = sound.samples.iter().fold(0f32, |it, one| it.max(one.abs()));
    assert!((loudest - 0.891_25).abs() < 1e-5, "{loudest}");
    let again = |request| made(&pipeline, request).1;
    assert_eq!(sound, again(short()));
    let changes: [fn(&mut SoundRequest); 9] = [
        |it| it.seed = Some(8),
        |it| it.index = 1,
        |it| it.prompt = "a loud trumpet".to_owned(),
        |it| it.lyrics = Some("la".to_owned()),
        |it| it.bpm = Some(120),
        |it| it.key_scale = Some("C major".to_owned()),
        |it| it.time_signature = Some("4".to_owned()),
        |it| it.vocal_language = Some("fr".to_owned()),
        |it| it.steps = Some(2),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut request = short();
        change(&mut request);
        assert_ne!(sound, again(request), "change {at}");
    }
}

#[test]
fn a_song_has_as_many_frames_as_its_seconds() {
    let pipeline = pipeline();
    for (seconds, frames) in [
        (1.2, 30),
        (1.64, 41),
        (1.65, 42),
        (2.0, 50),
        (600.0, 15_000),
    ] {
        let request = SoundRequest {
            seconds: Some(seconds),
            ..short()
        };
        let plan = pipeline.plan(&request).unwrap();
        assert_eq!(plan.frames, frames, "{seconds}");
    }
}

#[test]
fn a_song_of_a_series_has_the_noise_behind_that_of_the_song_before() {
    let pipeline = pipeline();
    let plan = |index| {
        let request = SoundRequest { index, ..short() };
        pipeline.plan(&request).unwrap()
    };
    assert_eq!(
        plan(1),
        MusicPlan {
            index: 1,
            ..plan(0)
        }
    );
    let (first, second) = (
        made(&pipeline, short()).1,
        SoundRequest {
            index: 1,
            ..short()
        },
    );
    assert_ne!(first, made(&pipeline, second).1);
}

#[test]
fn silence_stays_silent_and_broken_numbers_are_found() {
    assert_eq!(leveled(vec![0.0, -0.0]), [0.0, 0.0]);
    let found = leveled(vec![2.0, -4.0]);
    assert!((found[1] + 0.891_25).abs() < 1e-5 && (found[0] - 0.445_63).abs() < 1e-5);
    for broken in [f32::NAN, f32::INFINITY] {
        let pcm = Pcm {
            rate: 48_000,
            channels: 2,
            samples: leveled(vec![1.0, broken]),
        };
        assert_eq!(pcm.flaw(), Some(1), "{broken}");
    }
}

#[track_caller]
fn check_refused(change: impl Fn(&mut SoundRequest), part: &str) {
    let mut request = song();
    change(&mut request);
    let refusal = pipeline().check(&asked(request)).unwrap_err().to_string();
    assert!(refusal.contains(part), "{refusal}");
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    check_refused(|it| it.seconds = Some(10_000.0), "seconds is 10000");
    check_refused(|it| it.seconds = Some(f32::NAN), "seconds is NaN");
    check_refused(
        |it| it.lyrics = Some("la ".repeat(1 << 19)),
        "lyrics has 1572864 bytes, but the model takes at most 65536; shorten it",
    );
    check_refused(
        |it| it.lyrics = Some("rain ".repeat(6000)),
        "lyrics has more than the 2048 tokens",
    );
    check_refused(
        |it| it.prompt = "piano ".repeat(400),
        "prompt has more than the 256 tokens",
    );
    check_refused(
        |it| it.prompt = "a".repeat(1 << 17),
        "prompt has 131072 bytes",
    );
    check_refused(
        |it| it.steps = Some(0),
        "steps is 0, but the model takes 1 to 100",
    );
    check_refused(|it| it.steps = Some(101), "steps is 101");
    check_refused(
        |it| it.bpm = Some(0),
        "bpm is 0, but the model takes 1 to 400",
    );
    check_refused(|it| it.index = 16, "index is 16");
    let injected = || Some("C\n- bpm: 9".to_owned());
    check_refused(|it| it.key_scale = injected(), "key_scale must be one line");
    check_refused(
        |it| it.time_signature = Some("4".repeat(65)),
        "time_signature must be one",
    );
    check_refused(
        |it| it.vocal_language = injected(),
        "vocal_language must be one line",
    );
    check_refused(
        |it| it.cfg_scale = Some(2.0),
        "cfg_scale is not for turbo models",
    );
    check_refused(|it| it.voice = Some("low".to_owned()), "voice is not for");
    check_refused(|it| it.speed = Some(2.0), "speed is not for");
    check_refused(
        |it| it.negative_prompt = Some("noise".to_owned()),
        "negative_prompt is not",
    );
}

#[test]
fn a_song_that_takes_too_much_memory_is_refused() {
    let mut pipeline = pipeline();
    let needed = pipeline.check(&asked(song())).unwrap().memory_bytes;
    pipeline.memory_bytes = Some(needed);
    pipeline.check(&asked(song())).unwrap();
    pipeline.memory_bytes = Some(needed - 1);
    let refusal = pipeline.check(&asked(song())).unwrap_err().to_string();
    assert!(refusal.contains("ask for a shorter one"), "{refusal}");
}

#[test]
fn folders_say_what_they_hold() {
    let fixtures = fixtures();
    let folder = fixtures.join("tiny-music");
    assert!(MusicSource::is_at(&folder));
    assert!(!MusicSource::is_at(&fixtures.join("tiny-video")));
    let footprint = MusicSource::new(folder).footprint().unwrap();
    assert!(
        (500_000..600_000).contains(&footprint.weight_bytes),
        "{footprint:?}"
    );
    assert!(footprint.song_bytes > 0 && footprint.seconds == 60.0);
    let other = MusicSource::new(fixtures.join("tiny-video")).load(DeviceChoice::of_tests());
    let error = other.err().unwrap().to_string();
    assert!(error.contains("_class_name"), "{error}");
}

/// A copy of the model with some values of one file changed.
fn changed(file: &str, changes: &[(&str, Value)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&fixtures().join("tiny-music"), folder.path());
    let path = folder.path().join(file);
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for (name, value) in changes {
        config[*name] = value.clone();
    }
    std::fs::write(&path, config.to_string()).unwrap();
    folder
}

/// Why a copy with some values of one file changed does not load.
fn refused(file: &str, changes: &[(&str, Value)]) -> String {
    let folder = changed(file, changes);
    let source = MusicSource::new(folder.path());
    source.footprint().err().unwrap().to_string()
}

#[test]
fn guided_songs_are_those_of_the_reference() {
    let base = [("is_turbo", json!(false)), ("model_version", json!("base"))];
    let folder = changed("transformer/config.json", &base);
    let pipeline = MusicSource::new(folder.path()).load(DeviceChoice::of_tests());
    let pipeline = pipeline.unwrap();
    let guided = SoundRequest {
        cfg_scale: Some(4.0),
        ..short()
    };
    let plan = pipeline.plan(&guided).unwrap();
    let by_default = SoundRequest {
        steps: None,
        ..guided.clone()
    };
    let by_default = [&pipeline, &super::tests::pipeline()].map(|pipeline| {
        let cfg_scale = None;
        let request = SoundRequest {
            cfg_scale,
            ..by_default.clone()
        };
        pipeline.plan(&request).unwrap().steps()
    });
    assert_eq!(by_default, [50, 8]);
    let latents = run(sample(&pipeline.networks, &plan, &PassReports::default())).unwrap();
    check(latents, "guided_latent", LATENT_TOLERANCE);
    let (steps, sound) = made(&pipeline, guided.clone());
    assert_eq!(steps.len(), 3);
    let samples = sound.samples.iter().map(|&sample| sample.into());
    check(samples, "guided_sound", SAMPLE_TOLERANCE);
    let other = |cfg_scale| {
        let request = SoundRequest {
            cfg_scale,
            ..guided.clone()
        };
        made(&pipeline, request).1
    };
    assert_ne!(sound, other(None));
    assert_eq!(other(Some(1.0)), made(&super::tests::pipeline(), short()).1);
    let refused = SoundRequest {
        cfg_scale: Some(f32::NAN),
        ..guided.clone()
    };
    let refusal = pipeline.check(&asked(refused)).unwrap_err().to_string();
    assert!(refusal.contains("cfg_scale is NaN"), "{refusal}");
}

#[test]
fn models_that_would_make_something_else_are_refused_by_name() {
    let missing = json!([null, null]);
    for (file, name, value) in [
        ("model_index.json", "_class_name", json!("WanPipeline")),
        ("model_index.json", "condition_encoder", missing),
        (
            "model_index.json",
            "vae",
            json!(["diffusers", "AutoencoderDC"]),
        ),
        ("transformer/config.json", "encoder_hidden_size", json!(31)),
        (
            "condition_encoder/config.json",
            "text_hidden_dim",
            json!(31),
        ),
        (
            "condition_encoder/config.json",
            "timbre_hidden_dim",
            json!(3),
        ),
    ] {
        let error = refused(file, &[(name, value)]);
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn networks_in_gguf_files_play_the_same() {
    let played = |dtype| {
        let folder = changed("model_index.json", &[]);
        let mut source = MusicSource::new(folder.path());
        let mut in_blocks = 0;
        for name in ["condition_encoder", "transformer", "vae"] {
            let component = folder.path().join(name);
            in_blocks += put_in_gguf(&component, dtype, |name| Some(name.to_owned()));
            // A component may be a file, too.
            let file = component.join("any.gguf");
            source.components.insert(name.to_owned(), file);
        }
        assert_eq!(in_blocks > 0, dtype.is_some());
        let bytes = source.footprint().unwrap().weight_bytes;
        let pipeline = source.load(DeviceChoice::of_tests()).unwrap();
        (made(&pipeline, short()).1.samples, bytes)
    };
    let expected = made(&pipeline(), short()).1.samples;
    let (same, bytes) = played(None);
    assert_eq!(same, expected);
    let (close, fewer) = played(Some(GgmlDType::Q8_0));
    assert!(fewer < bytes);
    let gaps = close.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    let mean = gaps.sum::<f32>() / expected.len() as f32;
    assert!((1e-9..0.05).contains(&mean), "mean difference {mean}");
}
