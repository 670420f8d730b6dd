use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::{Device, Tensor};

use super::SpeechSource;
use super::voices::Voices;
use crate::networks::model_copy::put_in_gguf;
use crate::runtime::DeviceChoice;
use crate::runtime::maker::suite::{self, PipelineFixture, pipeline_suite};
use crate::runtime::maker::{MakeRequest, Output, Pipeline, SoundRequest};

const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/golden/sound/kokoro"
);

/// Two sentences of phonemes.
const TEXT: &str = "[x](/abdefhijklmnopstu.vwz/). [y](/tuvtuvtuvtuvtuvtuv/).";

/// The small network of the goldens, with two voices in a file each.
fn model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        let file = Path::new(GOLDEN).join(name);
        std::fs::copy(file, folder.path().join(name)).unwrap();
    }
    std::fs::create_dir(folder.path().join("voices")).unwrap();
    for (name, value) in [("high", 0.5f32), ("low", -0.25)] {
        let rows: Vec<f32> = (0..5)
            .flat_map(|row| [value * (row + 1) as f32; 16])
            .collect();
        let tensor = Tensor::from_vec(rows, (5, 1, 16), &Device::Cpu).unwrap();
        let file = folder.path().join(format!("voices/{name}.safetensors"));
        candle_core::safetensors::save(
            &[("", tensor)]
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect(),
            file,
        )
        .unwrap();
    }
    folder
}

fn request(prompt: &str) -> SoundRequest {
    SoundRequest {
        prompt: prompt.to_owned(),
        ..SoundRequest::default()
    }
}

/// Steps of a job, and the samples of its sounds.
fn make(pipeline: &dyn Pipeline, request: SoundRequest) -> (Vec<[u32; 2]>, Vec<Vec<f32>>) {
    let job = suite::follow(pipeline, request.into());
    let steps = job.steps.iter().map(|(at, of, _)| [*at, *of]);
    let samples = job.outputs.into_iter().map(|output| match output {
        Output::Sound(sound) => {
            assert_eq!((sound.rate, sound.channels), (24_000, 1));
            sound.samples
        }
        other => panic!("made {other:?}"),
    });
    (steps.collect(), samples.collect())
}

fn fixture() -> PipelineFixture {
    let folder = model();
    let pipeline = SpeechSource::new(folder.path()).load(DeviceChoice::of_tests());
    let pipeline = pipeline.unwrap();
    let sound = |prompt: &str| MakeRequest::from(request(prompt));
    PipelineFixture {
        networks: pipeline.model.clone(),
        pipeline: Arc::new(pipeline),
        request: sound(TEXT),
        other: sound("[z](/abd/)."),
        refused: (sound(" \n"), "empty"),
    }
}

pipeline_suite!(fixture);

#[test]
fn each_sentence_is_a_sound_of_its_own() {
    let folder = model();
    let pipeline = SpeechSource::new(folder.path())
        .load(DeviceChoice::of_tests())
        .unwrap();
    assert_eq!(pipeline.voices(), ["high", "low"]);
    assert_eq!(
        SpeechSource::new(folder.path()).voices().unwrap(),
        pipeline.voices()
    );
    let text = TEXT;
    let (steps, samples) = make(&pipeline, request(text));
    assert_eq!((steps, samples.len()), (vec![[1, 2], [2, 2]], 2));
    assert!(samples.iter().flatten().all(|sample| sample.is_finite()));
    let seeded = SoundRequest {
        seed: Some(1),
        ..request(text)
    };
    assert_ne!(samples, make(&pipeline, seeded).1);
    let fast = SoundRequest {
        speed: Some(2.5),
        ..request(text)
    };
    assert!(make(&pipeline, fast).1.concat().len() < samples.concat().len());
}

#[test]
fn a_text_without_words_is_a_pause() {
    let folder = model();
    let pipeline = SpeechSource::new(folder.path())
        .load(DeviceChoice::of_tests())
        .unwrap();
    for text in ["...", "Привет 🙂", "[x](/ʘ/)"] {
        let (steps, samples) = make(&pipeline, request(text));
        assert_eq!((steps, samples.len()), (vec![[1, 1]], 1), "{text}");
        assert!(
            samples.concat().iter().all(|sample| *sample == 0.0),
            "{text}"
        );
    }
}

#[test]
fn settings_of_other_models_are_refused_by_name() {
    let folder = model();
    let pipeline = SpeechSource::new(folder.path())
        .load(DeviceChoice::of_tests())
        .unwrap();
    let refused = |request: SoundRequest| {
        let request = request.into();
        pipeline.check(&request).unwrap_err().to_string()
    };
    let plain = request("[x](/abd/)");
    let lyrics = Some(String::new());
    assert!(
        refused(SoundRequest {
            lyrics,
            ..plain.clone()
        })
        .contains("lyrics")
    );
    let steps = Some(3);
    assert!(
        refused(SoundRequest {
            steps,
            ..plain.clone()
        })
        .contains("steps")
    );
    let speed = Some(5.0);
    assert!(
        refused(SoundRequest {
            speed,
            ..plain.clone()
        })
        .contains("0.25 to 4")
    );
    let voice = Some("nova".to_owned());
    assert!(refused(SoundRequest { voice, ..plain }).contains("voices: high, low"));
    assert!(refused(request(" \n")).contains("empty"));
    assert!(refused(request(&"a".repeat(60_000))).contains("16384"));
}

#[test]
fn voices_are_mixed_by_weight_and_length() {
    let folder = model();
    let voices = Voices::open(folder.path(), 16).unwrap();
    let value = |mix: &str, phonemes| {
        let vector = voices.vector(&voices.mix(Some(mix)).unwrap(), phonemes);
        assert_eq!(vector.len(), 16);
        vector[7]
    };
    assert_eq!(value("high", 1), 0.5);
    assert_eq!(value("low", 3), -0.75);
    // Longer texts than the table has.
    assert_eq!(value("high", 99), 2.5);
    assert_eq!(value("high + low", 1), 0.125);
    assert_eq!(value("high(3)+low(1)", 1), 0.3125);
    for wrong in [
        "high+",
        "high(x)",
        "high(0)",
        "high(-1)+low",
        "high(inf)",
        "",
    ] {
        assert!(voices.mix(Some(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn missing_and_pickled_voices_say_the_way_out() {
    let folder = model();
    let open = || {
        Voices::open(folder.path(), 16)
            .err()
            .map(|error| error.to_string())
    };
    std::fs::remove_dir_all(folder.path().join("voices")).unwrap();
    assert!(open().unwrap().contains("no voices"));
    std::fs::create_dir(folder.path().join("voices")).unwrap();
    std::fs::write(folder.path().join("voices/af_heart.pt"), "").unwrap();
    let refused = open().unwrap();
    assert!(refused.contains("worker models convert"), "{refused}");
    let names = ["a", "b"].map(|name| {
        let tensor = Tensor::zeros((3, 16), candle_core::DType::F32, &Device::Cpu).unwrap();
        (name.to_owned(), tensor)
    });
    let file = folder.path().join("voices.safetensors");
    candle_core::safetensors::save(&names.into_iter().collect(), file).unwrap();
    let voices = Voices::open(folder.path(), 16).unwrap();
    assert_eq!(voices.names().collect::<Vec<_>>(), ["a", "b"]);
    assert!(SpeechSource::is_at(folder.path()));
    // The file of the voices is not the one of the weights.
    assert!(SpeechSource::new(folder.path()).weight_bytes().unwrap() > 100_000);
}

#[test]
fn a_network_in_a_gguf_file_speaks_the_same() {
    let spoken = |path: &Path| {
        assert!(SpeechSource::is_at(path));
        let pipeline = SpeechSource::new(path).load(DeviceChoice::of_tests());
        make(&pipeline.unwrap(), request(TEXT)).1
    };
    let folder = model();
    let expected = spoken(folder.path());
    assert_eq!(
        put_in_gguf(folder.path(), None, |name| Some(name.to_owned())),
        0
    );
    assert_eq!(spoken(folder.path()), expected);
    assert_eq!(spoken(&folder.path().join("any.gguf")), expected);
    assert!(!SpeechSource::is_at(
        &folder.path().join("voices/low.safetensors")
    ));
    let folder = model();
    let in_blocks = put_in_gguf(folder.path(), Some(GgmlDType::Q8_0), |name| {
        Some(name.to_owned())
    });
    assert!(in_blocks > 0);
    let samples = spoken(folder.path()).concat();
    assert_ne!(samples, expected.concat());
    assert!(samples.iter().all(|sample| sample.is_finite()));
}
