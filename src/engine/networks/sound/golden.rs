//! Whisper against the reference implementation: a small seeded one in `tests/fixtures/golden/sound`, made by
//! `tests/fixtures/make/whisper.py`.

use std::path::PathBuf;

use candle_core::quantized::GgmlDType;
use candle_core::{D, DType, Tensor};
use safetensors::SafeTensors;

use super::features::{Features, leveled};
use super::{SpokenText, Whisper, WhisperSpec};
use crate::networks::blocks::{ComponentReader, ComponentSource, Layout, run};
use crate::networks::test_device::device;
use crate::networks::weights::convert::quantized;
use crate::networks::weights::{
    Checkpoint, Description, GgufWriter, Quantize, TensorHeader, TensorType,
};
use tempfile::TempDir;

/// Relative to the largest expected number.
const TOLERANCE: f32 = 2e-5;

struct SoundGolden {
    folder: PathBuf,
    bytes: Vec<u8>,
}

impl SoundGolden {
    fn open(name: &str) -> Self {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folder = root.join("tests/fixtures/golden/sound").join(name);
        let bytes = std::fs::read(folder.join("golden.tensors")).unwrap();
        Self { folder, bytes }
    }

    fn whisper(&self, quantize: Option<Quantize>) -> Whisper {
        let checkpoint = Checkpoint::open(&self.folder).unwrap();
        let Description::Config(config) = checkpoint.description() else {
            panic!("a Whisper has a config.json");
        };
        let source = ComponentSource {
            tensors: &checkpoint,
            layout: Layout::Folder,
            device: device(),
            quantize,
        };
        Whisper::load(WhisperSpec::read(config).unwrap(), source).unwrap()
    }

    /// The same weights in a GGUF file without metadata, next to the model's settings.
    fn as_gguf(&self) -> TempDir {
        let checkpoint = Checkpoint::open(&self.folder).unwrap();
        let stored = checkpoint.tensors();
        let dtype = |header: &TensorHeader| match header.dtype {
            TensorType::Weight(dtype) => dtype,
            other => panic!("{other}"),
        };
        let mut writer = GgufWriter::default();
        for header in stored {
            writer.tensor(&header.name, &header.shape, dtype(header));
        }
        let folder = tempfile::tempdir().unwrap();
        let mut file = std::fs::File::create(folder.path().join("model-q8_0.gguf")).unwrap();
        let bytes = |index: usize| Ok(checkpoint.bytes(&stored[index]).to_vec());
        writer.write(&mut file, bytes).unwrap();
        let config = "config.json";
        std::fs::copy(self.folder.join(config), folder.path().join(config)).unwrap();
        folder
    }

    fn tensor(&self, name: &str) -> Tensor {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).unwrap();
        Tensor::from_raw_buffer(view.data(), DType::F32, view.shape(), device()).unwrap()
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        self.tensor(name).flatten_all().unwrap().to_vec1().unwrap()
    }

    fn tokens(&self) -> Vec<Vec<u32>> {
        let tokens = self.tensor("tokens").to_vec2::<f32>().unwrap();
        let ids = |row: Vec<f32>| row.into_iter().map(|id| id as u32).collect();
        tokens.into_iter().map(ids).collect()
    }
}

#[track_caller]
fn check(found: &Tensor, wanted: &Tensor, tolerance: f32) {
    assert_eq!(found.dims(), wanted.dims());
    let largest = |tensor: &Tensor| -> f32 {
        let largest = tensor.abs().unwrap().max_all().unwrap();
        largest.to_scalar().unwrap()
    };
    let gap = largest(&(found - wanted).unwrap()) / largest(wanted);
    assert!(gap < tolerance, "{gap:e}");
}

#[test]
fn features_are_those_of_the_reference() {
    let golden = SoundGolden::open("features");
    let sound = golden.numbers("sound");
    for bands in [80, 128] {
        let features = Features::new(bands);
        let found = features.logarithms(&sound, 0, 320);
        let loudest = found.iter().copied().fold(f32::MIN, f32::max);
        let found: Vec<f32> = found.iter().map(|&value| leveled(value, loudest)).collect();
        let wanted = golden.numbers(&format!("features_{bands}"));
        assert_eq!(found.len(), wanted.len());
        let gaps = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
        let gap = gaps.fold(0.0, f32::max);
        assert!(gap < 1e-4, "{bands}: {gap:e}");
    }
}

#[test]
fn a_frame_is_the_same_wherever_its_window_begins() {
    let sound = SoundGolden::open("features").numbers("sound");
    let features = Features::new(80);
    let whole = features.logarithms(&sound, 0, 200);
    assert_eq!(whole[90 * 80..], features.logarithms(&sound, 90, 200));
}

#[test]
fn both_halves_are_those_of_the_reference() {
    let golden = SoundGolden::open("whisper");
    let tolerances = [(None, TOLERANCE), (Some(Quantize::Q8_0), 0.05)];
    for (quantize, tolerance) in tolerances {
        let whisper = golden.whisper(quantize);
        let states = run(whisper.encode(&golden.tensor("features"))).unwrap();
        check(&states, &golden.tensor("states"), tolerance);
        for (index, tokens) in golden.tokens().iter().enumerate() {
            let cross = whisper.cross(&states.narrow(0, index, 1).unwrap()).unwrap();
            let mut cache = whisper.cache().unwrap();
            let text = SpokenText {
                cache: &mut cache,
                cross: &cross,
                tokens,
            };
            let read = whisper.read(&mut [text]).unwrap();
            let wanted = golden.tensor("logits").get(index).unwrap();
            check(&whisper.logits(&read).unwrap(), &wanted, tolerance);
        }
    }
}

#[test]
fn texts_beside_each_other_are_those_of_texts_alone() {
    let golden = SoundGolden::open("whisper");
    let whisper = golden.whisper(None);
    let states = run(whisper.encode(&golden.tensor("features"))).unwrap();
    let tokens = golden.tokens();
    let cross = [0, 1].map(|at| whisper.cross(&states.narrow(0, at, 1).unwrap()).unwrap());
    let mut caches = [whisper.cache().unwrap(), whisper.cache().unwrap()];
    for (from, to) in [(0, 4), (4, 5), (5, 9)] {
        let texts = caches.iter_mut().zip(&cross).zip(&tokens);
        let mut texts: Vec<SpokenText> = texts
            .map(|((cache, cross), tokens)| SpokenText {
                cache,
                cross,
                tokens: &tokens[from..to],
            })
            .collect();
        let read = whisper.logits(&whisper.read(&mut texts).unwrap()).unwrap();
        let wanted = golden.tensor("logits").narrow(1, from, to - from).unwrap();
        check(&read, &wanted.flatten(0, 1).unwrap(), TOLERANCE);
    }
}

#[test]
fn tokens_look_where_the_reference_looks() {
    let golden = SoundGolden::open("whisper");
    let whisper = golden.whisper(None);
    let states = run(whisper.encode(&golden.tensor("features"))).unwrap();
    let cross = whisper.cross(&states.narrow(0, 1, 1).unwrap()).unwrap();
    let text = SpokenText {
        cache: &mut whisper.cache().unwrap(),
        cross: &cross,
        tokens: &golden.tokens()[1],
    };
    let heads = [(1, 2), (0, 1)];
    let (_, scores) = whisper.attention(text, &heads).unwrap();
    let powers = scores
        .broadcast_sub(&scores.max_keepdim(D::Minus1).unwrap())
        .unwrap()
        .exp()
        .unwrap();
    let found = powers
        .broadcast_div(&powers.sum_keepdim(D::Minus1).unwrap())
        .unwrap();
    for (at, (layer, head)) in heads.into_iter().enumerate() {
        let wanted = golden.tensor("attention");
        let wanted = wanted.get(layer).unwrap().get(head).unwrap();
        check(&found.get(at).unwrap(), &wanted, TOLERANCE);
    }
}

#[test]
fn weights_in_a_gguf_file_are_those_of_the_folder() {
    let golden = SoundGolden::open("whisper");
    let folder = golden.as_gguf();
    let checkpoint = Checkpoint::open(&folder.path().join("model-q8_0.gguf")).unwrap();
    assert!(Whisper::is_in(&checkpoint));
    let config = std::fs::read(folder.path().join("config.json")).unwrap();
    let config = serde_json::from_slice(&config).unwrap();
    let source = ComponentSource {
        tensors: &checkpoint,
        layout: Layout::Folder,
        device: device(),
        quantize: None,
    };
    let whisper = Whisper::load(WhisperSpec::read(&config).unwrap(), source).unwrap();
    let states = run(whisper.encode(&golden.tensor("features"))).unwrap();
    check(&states, &golden.tensor("states"), TOLERANCE);
}

#[test]
fn tables_in_blocks_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.gguf");
    let numbers: Vec<f32> = (0..64).map(|at| (at as f32 - 31.0) / 16.0).collect();
    let bytes: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let blocks = quantized(GgmlDType::F32, &bytes, 32, GgmlDType::Q8_0).unwrap();
    let mut writer = GgufWriter::default();
    writer.tensor("positions", &[2, 32], GgmlDType::Q8_0);
    let mut file = std::fs::File::create(&path).unwrap();
    writer.write(&mut file, |_| Ok(blocks.to_vec())).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let source = ComponentSource {
        tensors: &checkpoint,
        layout: Layout::Folder,
        device: device(),
        quantize: None,
    };
    let mut reader = ComponentReader::new(source, str::to_owned);
    let table = reader.table("positions", (2, 32)).unwrap();
    let wanted = Tensor::from_vec(numbers, (2, 32), device()).unwrap();
    check(&table, &wanted, 0.01);
}
