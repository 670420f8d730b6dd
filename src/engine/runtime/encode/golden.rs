//! Decoders that read, from their files to vectors and scores, against `tests/fixtures/make/decoder_encoders.py`.

use std::fs;

use candle_core::Device;

use super::{Encode, Pairing, Purpose, open};
use crate::networks::text::golden::{Golden, fixture};
use crate::networks::weights::Checkpoint;
use crate::runtime::load::{ModelSource, load_model};
use crate::runtime::text::{Language, TextSource};
use crate::runtime::{EncoderInput, Prompt};

fn load(name: &str) -> (Box<dyn Encode>, Purpose) {
    let path = fixture("golden").join(name);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let encoding = open(&checkpoint, &path).unwrap().unwrap();
    let purpose = encoding.purpose();
    let source = ModelSource::new(&path);
    let loaded = encoding.load(&checkpoint, &source, &Device::Cpu, &mut |_, _| {});
    (loaded.unwrap().0, purpose)
}

fn encoded(network: &mut dyn Encode, batch: &[EncoderInput]) -> Vec<Vec<f32>> {
    network.begin(batch).unwrap();
    loop {
        if let Some(encoded) = network.advance().unwrap() {
            return encoded;
        }
    }
}

#[track_caller]
fn check(name: &str, sequences: usize, wanted: &str) {
    let (golden, (mut network, _)) = (Golden::open(name), load(name));
    let inputs = (0..sequences).map(|index| golden.tokens(&format!("ids.{index}")).into());
    let inputs: Vec<EncoderInput> = inputs.collect();
    let wanted = golden.tensor(wanted).to_vec2::<f32>().unwrap();
    let together = encoded(network.as_mut(), &inputs);
    for (index, wanted) in wanted.iter().enumerate() {
        let alone = encoded(network.as_mut(), &inputs[index..=index]);
        assert_eq!(
            alone[0], together[index],
            "{name}: sequence {index} in a batch"
        );
        assert_eq!(wanted.len(), together[index].len(), "{name}");
        for (found, wanted) in together[index].iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-4, "{name}: {found}, {wanted}");
        }
    }
}

#[test]
fn vectors_of_decoders_are_those_of_the_reference() {
    check("qwen3-embedding", 2, "vectors");
    check("embedding-gemma", 2, "vectors");
    let (_, purpose) = load("embedding-gemma");
    let Purpose::Embed(vectors) = purpose else {
        panic!("{purpose:?}");
    };
    assert_eq!(vectors.dimensions, 24);
}

#[test]
fn scores_of_decoders_are_those_of_the_reference() {
    check("qwen3-reranker", 3, "scores");
}

#[test]
fn a_query_and_a_document_become_the_prompt_of_the_reference() {
    let (_, purpose) = load("qwen3-reranker");
    let Purpose::Rerank(Pairing::Template(template)) = purpose else {
        panic!("{purpose:?}");
    };
    let folder = fixture("golden/qwen3-reranker");
    let source = TextSource {
        folder: Some(&folder),
        ..TextSource::default()
    };
    let language = Language::open(source).unwrap();
    let golden = Golden::open("qwen3-reranker");
    let documents = ["The cat sat.", "red and blue", "two dogs sat on the mat"];
    for (index, document) in documents.into_iter().enumerate() {
        let chat = Prompt::Chat(template.chat("who sat on the mat?", document));
        let wanted = golden.tokens(&format!("ids.{index}"));
        assert_eq!(language.read(&chat, false).unwrap(), wanted);
    }
}

/// Fixture files in a folder of their own, one of them changed.
fn refusal(name: &str, file: &str, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("golden").join(name);
    for entry in walk(&from) {
        let to = folder.path().join(entry.strip_prefix(&from).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&entry, to).unwrap();
    }
    match text {
        "" => fs::remove_file(folder.path().join(file)).unwrap(),
        text => fs::write(folder.path().join(file), text).unwrap(),
    }
    let source = ModelSource::new(folder.path());
    let loaded = load_model(&source, &Device::Cpu, &mut |_, _| {});
    loaded.map(drop).unwrap_err().to_string()
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => walk(&path),
        false => vec![path],
    });
    files.collect()
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    let dense = |inputs: u64, bias: bool| {
        format!(
            r#"{{"in_features": {inputs}, "out_features": 40, "bias": {bias}, "activation_function": "Identity"}}"#
        )
    };
    for (name, file, text, expected) in [
        (
            "embedding-gemma",
            "2_Dense/config.json",
            dense(31, false),
            "in_features: found 31, expected 32",
        ),
        (
            "embedding-gemma",
            "2_Dense/config.json",
            dense(32, true),
            "\"linear.bias\": found nothing",
        ),
        (
            "embedding-gemma",
            "modules.json",
            String::new(),
            "reads in both directions",
        ),
        (
            "qwen3-reranker",
            "1_LogitScore/config.json",
            r#"{"true_token_id": 4000000000}"#.to_owned(),
            "a token that scores: found 4000000000, expected an id below",
        ),
    ] {
        let message = refusal(name, file, &text);
        assert!(message.contains(expected), "{message}");
    }
}
