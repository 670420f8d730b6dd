use std::path::Path;

use candle_core::{Device, Tensor};

use super::SpeechSource;
use super::voices::Voices;
use crate::runtime::DeviceChoice;
use crate::runtime::image::ImageRequest;
use crate::runtime::maker::{Advance, MakeRequest, Output, Pipeline, SoundRequest};

const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/golden/sound/kokoro"
);

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

/// Events of a job: `step` and lengths of sounds.
fn make(pipeline: &dyn Pipeline, request: SoundRequest) -> (Vec<String>, Vec<f32>) {
    let request = request.into();
    pipeline.check(&request).unwrap();
    let mut making = pipeline.begin(request).unwrap();
    let (mut events, mut samples) = (Vec::new(), Vec::new());
    loop {
        match making.advance().unwrap() {
            Advance::Busy => {}
            Advance::Step { at, of, .. } => events.push(format!("step {at} of {of}")),
            Advance::Made(Output::Sound(sound)) => {
                assert_eq!((sound.rate, sound.channels), (24_000, 1));
                events.push("sound".to_owned());
                samples.extend(sound.samples);
            }
            Advance::Made(other) => panic!("made {other:?}"),
            Advance::Done => return (events, samples),
        }
    }
}

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
    let text = "[x](/abdefhijklmnopstu.vwz/). [y](/tuvtuvtuvtuvtuvtuv/).";
    let (events, samples) = make(&pipeline, request(text));
    assert_eq!(events, ["step 1 of 2", "sound", "step 2 of 2", "sound"]);
    assert!(samples.iter().all(|sample| sample.is_finite()));
    let again = make(&pipeline, request(text)).1;
    assert_eq!(samples, again);
    let seeded = SoundRequest {
        seed: Some(1),
        ..request(text)
    };
    assert_ne!(samples, make(&pipeline, seeded).1);
    let fast = SoundRequest {
        speed: Some(2.5),
        ..request(text)
    };
    assert!(make(&pipeline, fast).1.len() < samples.len());
}

#[test]
fn a_text_without_words_is_a_pause() {
    let folder = model();
    let pipeline = SpeechSource::new(folder.path())
        .load(DeviceChoice::of_tests())
        .unwrap();
    for text in ["...", "Привет 🙂", "[x](/ʘ/)"] {
        let (events, samples) = make(&pipeline, request(text));
        assert_eq!(events, ["step 1 of 1", "sound"], "{text}");
        assert!(samples.iter().all(|sample| *sample == 0.0), "{text}");
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
    assert!(refused(request(&"a".repeat(60_000))).contains("50000"));
    let image = MakeRequest::from(ImageRequest::default());
    assert!(
        pipeline
            .check(&image)
            .unwrap_err()
            .to_string()
            .contains("makes sound")
    );
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
