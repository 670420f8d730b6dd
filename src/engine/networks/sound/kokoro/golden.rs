//! Kokoro against the reference implementation: a small seeded one in `tests/fixtures/golden/sound/kokoro`, made by
//! `tests/fixtures/make/kokoro.py`, with the noise that it stored.

use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use safetensors::SafeTensors;

use super::{Kokoro, KokoroSpec, Prosody, SpeechText, places};
use crate::networks::blocks::{ComponentSource, Layout, run};
use crate::networks::test_device::device;
use crate::networks::weights::{Checkpoint, Description, Flaw, TensorHeader, TensorSource};

/// Relative to the largest expected number.
const TOLERANCE: f32 = 2e-5;

struct KokoroGolden {
    folder: PathBuf,
    bytes: Vec<u8>,
}

impl KokoroGolden {
    fn open() -> Self {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folder = root.join("tests/fixtures/golden/sound/kokoro");
        let bytes = std::fs::read(folder.join("golden.tensors")).unwrap();
        Self { folder, bytes }
    }

    fn spec(&self) -> KokoroSpec {
        let checkpoint = Checkpoint::open(&self.folder).unwrap();
        let Description::Config(config) = checkpoint.description() else {
            panic!("a Kokoro has a config.json");
        };
        KokoroSpec::read(config).unwrap()
    }

    fn network(&self) -> Kokoro {
        load(self.spec(), &Checkpoint::open(&self.folder).unwrap()).unwrap()
    }

    fn tensor(&self, name: &str) -> Tensor {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).unwrap();
        Tensor::from_raw_buffer(view.data(), DType::F32, view.shape(), device()).unwrap()
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        self.tensor(name).flatten_all().unwrap().to_vec1().unwrap()
    }

    fn ids(&self) -> Vec<u32> {
        let ids = self.numbers("ids").into_iter();
        ids.map(|id| id as u32).collect()
    }

    /// The first numbers of the stored noise.
    fn noise(&self) -> impl Fn(usize) -> Vec<f32> + Sync {
        let noise = self.numbers("noise");
        move |count| noise[..count].to_vec()
    }

    fn prosody(&self, index: usize) -> Prosody {
        let durations = self.numbers(&format!("durations_{index}"));
        Prosody {
            durations: durations
                .into_iter()
                .map(|frames| frames as usize)
                .collect(),
            pitch: self.numbers(&format!("pitch_{index}")),
            energy: self.numbers(&format!("energy_{index}")),
        }
    }
}

fn load(spec: KokoroSpec, tensors: &dyn TensorSource) -> Result<Kokoro, Flaw> {
    let source = ComponentSource {
        tensors,
        layout: Layout::Folder,
        device: device(),
        quantize: None,
    };
    Kokoro::load(spec, source)
}

#[track_caller]
fn check(name: &str, found: &[f32], wanted: &[f32], tolerance: f32) {
    assert_eq!(found.len(), wanted.len(), "{name}");
    let largest = wanted
        .iter()
        .fold(0f32, |most, value| most.max(value.abs()));
    let gaps = found.iter().zip(wanted).map(|(a, b)| (a - b).abs());
    let gap = gaps.fold(0f32, f32::max) / largest;
    assert!(gap < tolerance, "{name}: {gap:e}");
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn the_language_model_is_that_of_the_reference() {
    let golden = KokoroGolden::open();
    let ids = Tensor::new(golden.ids(), device()).unwrap();
    let states = run(golden.network().albert.forward(&ids)).unwrap();
    check("bert", &flat(&states), &golden.numbers("bert_0"), TOLERANCE);
}

#[test]
fn durations_pitch_and_energy_are_those_of_the_reference() {
    let golden = KokoroGolden::open();
    let network = golden.network();
    let ids = Tensor::new(golden.ids(), device()).unwrap();
    let [_, delivery] = network.styles(&golden.numbers("voice")).unwrap();
    for (index, speed) in golden.numbers("speeds").into_iter().enumerate() {
        let found = run(network.prosody(&ids, &delivery, speed)).unwrap();
        let wanted = golden.prosody(index);
        assert_eq!(found.durations, wanted.durations);
        check("pitch", &found.pitch, &wanted.pitch, TOLERANCE);
        check("energy", &found.energy, &wanted.energy, TOLERANCE);
    }
}

#[test]
fn phonemes_are_those_of_the_reference() {
    let golden = KokoroGolden::open();
    let ids = Tensor::new(golden.ids(), device()).unwrap();
    let states = run(golden.network().phonemes.forward(&ids)).unwrap();
    let places = Tensor::new(places(&golden.prosody(1).durations), device()).unwrap();
    let states = states.index_select(&places, 0).unwrap();
    check("text", &flat(&states), &golden.numbers("text_1"), TOLERANCE);
}

#[test]
fn the_source_is_that_of_the_reference() {
    let golden = KokoroGolden::open();
    let samples = golden
        .network()
        .decoder
        .source(&golden.numbers("source_pitch"), &golden.noise());
    let samples: Vec<f32> = samples.into_iter().map(|sample| sample as f32).collect();
    check("source", &samples, &golden.numbers("source"), 1e-6);
}

/// The decoder, from the reference's pitch: phases multiply the error of a pitch by the length of the sound.
#[test]
fn the_sound_of_a_prosody_is_that_of_the_reference() {
    let golden = KokoroGolden::open();
    let network = golden.network();
    let [sound, _] = network.styles(&golden.numbers("voice")).unwrap();
    let noise = golden.noise();
    for index in 0..golden.numbers("speeds").len() {
        let states = golden.tensor(&format!("text_{index}"));
        let prosody = golden.prosody(index);
        let decoded = network.decoder.forward(&states, &prosody, &sound, &noise);
        let found = run(decoded).unwrap();
        let wanted = golden.numbers(&format!("sound_{index}"));
        check("sound", &found, &wanted, TOLERANCE);
    }
}

#[test]
fn a_text_is_spoken_as_the_reference_speaks_it() {
    let golden = KokoroGolden::open();
    let network = golden.network();
    let (ids, noise) = (golden.ids(), golden.noise());
    for (index, speed) in golden.numbers("speeds").into_iter().enumerate() {
        let text = SpeechText {
            tokens: &ids[1..ids.len() - 1],
            voice: &golden.numbers("voice"),
            speed,
            noise: &noise,
        };
        let found = run(network.speak(&text)).unwrap().samples;
        let wanted = golden.numbers(&format!("sound_{index}"));
        check("whole", &found, &wanted, 5e-4);
    }
}

/// Speech of the reference with the weights of `models/demo-speech`.
#[derive(serde::Deserialize)]
struct DemoReference {
    tokens: Vec<u32>,
    durations: Vec<usize>,
    count: usize,
    /// Interval of the stored samples.
    every: usize,
    samples: Vec<f32>,
}

/// The noise of `models/demo-speech/export.py`: a row of integers.
fn integer_noise(count: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let number = |_| {
        state = (state * 1_103_515_245 + 12_345) % (1 << 31);
        let share = state as f64 / f64::from(1_u32 << 31) - 0.5;
        (share * 2.0 * 3f64.sqrt()) as f32
    };
    (0..count).map(number).collect()
}

#[test]
fn the_demo_speech_is_that_of_the_reference() {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../models/demo-speech"
    ));
    let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
    let reference: DemoReference = serde_json::from_str(&text).unwrap();
    let checkpoint = Checkpoint::open(&folder.join("model.safetensors")).unwrap();
    let Description::Config(config) = checkpoint.description() else {
        panic!("a Kokoro has a config.json");
    };
    let network = load(KokoroSpec::read(config).unwrap(), &checkpoint).unwrap();
    let voices = Checkpoint::open_tensors(&folder.join("voices.safetensors")).unwrap();
    let [voice] = voices.tensors() else {
        panic!("one voice");
    };
    let bytes = voices.bytes(voice);
    let voice: Vec<f32> = bytes
        .chunks_exact(2)
        .map(|pair| half::f16::from_le_bytes([pair[0], pair[1]]).to_f32())
        .collect();
    let text = SpeechText {
        tokens: &reference.tokens,
        voice: &voice,
        speed: 1.0,
        noise: &integer_noise,
    };
    let ids = [&[0][..], reference.tokens.as_slice(), &[0]].concat();
    let ids = Tensor::new(ids, device()).unwrap();
    let [_, delivery] = network.styles(&voice).unwrap();
    let prosody = run(network.prosody(&ids, &delivery, 1.0)).unwrap();
    assert_eq!(prosody.durations, reference.durations);
    let spoken = run(network.speak(&text)).unwrap();
    assert_eq!(spoken.durations, reference.durations);
    let samples = spoken.samples;
    assert_eq!(samples.len(), reference.count);
    let found: Vec<f32> = samples.into_iter().step_by(reference.every).collect();
    check("sound", &found, &reference.samples, 1e-2);
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let golden = KokoroGolden::open();
    let network = golden.network();
    let (voice, noise) = (golden.numbers("voice"), golden.noise());
    let speak = |tokens: &[u32], voice: &[f32]| {
        let text = SpeechText {
            tokens,
            voice,
            speed: 1.0,
            noise: &noise,
        };
        run(network.speak(&text)).err().unwrap().to_string()
    };
    assert!(speak(&[], &voice).contains("1 to 30"));
    assert!(speak(&[1; 31], &voice).contains("1 to 30"));
    assert!(speak(&[30], &voice).contains("above the 30"));
    assert!(speak(&[1], &voice[1..]).contains("takes 16"));
}

/// A checkpoint with one name changed.
struct NameChange<'a> {
    source: &'a Checkpoint,
    headers: Vec<TensorHeader>,
    from: &'static str,
}

impl<'a> NameChange<'a> {
    fn new(source: &'a Checkpoint, from: &'static str, to: &str) -> Self {
        let mut headers = TensorSource::headers(source).to_vec();
        for header in headers.iter_mut().filter(|header| header.name == from) {
            to.clone_into(&mut header.name);
        }
        Self {
            source,
            headers,
            from,
        }
    }
}

impl TensorSource for NameChange<'_> {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn headers(&self) -> &[TensorHeader] {
        &self.headers
    }

    fn header(&self, name: &str) -> Option<&TensorHeader> {
        self.headers.iter().find(|header| header.name == name)
    }

    fn bytes(&self, header: &TensorHeader) -> crate::networks::weights::TensorBytes {
        let name = match TensorSource::header(self.source, &header.name) {
            Some(_) => &header.name,
            None => self.from,
        };
        TensorSource::bytes(
            self.source,
            TensorSource::header(self.source, name).unwrap(),
        )
    }
}

#[test]
fn tensors_without_a_use_or_a_partner_are_named() {
    let golden = KokoroGolden::open();
    let checkpoint = Checkpoint::open(&golden.folder).unwrap();
    let refused = |from, to: &str| {
        let tensors = NameChange::new(&checkpoint, from, to);
        let flaw = load(golden.spec(), &tensors).err().unwrap();
        flaw.in_file(&golden.folder).to_string()
    };
    let pooler = "bert.pooler.weight";
    assert!(refused(pooler, "bert.extra").contains("\"bert.extra\""));
    let length = "decoder.encode.conv1.weight_g";
    let flaw = refused(length, "decoder.encode.conv1.gain");
    assert!(flaw.contains("decoder.encode.conv1.weight_g"), "{flaw}");
    let flaw = refused("decoder.encode.conv1.weight_v", "decoder.encode.conv1.w");
    assert!(flaw.contains("a length without a direction"), "{flaw}");
    let flaw = refused("bert_encoder.weight", "bert_encoder.other");
    assert!(flaw.contains("\"bert_encoder.weight\""), "{flaw}");
}
