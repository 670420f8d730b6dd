//! Decoders that read, from their files to vectors and scores, against `tests/fixtures/make/decoder_encoders.py`.

use std::fs;
use std::path::Path;

use candle_core::Device;
use candle_core::quantized::GgmlDType;

use super::{Encode, Pairing, Purpose, open};
use crate::networks::encoder::gguf_name;
use crate::networks::text::golden::{Golden, fixture};
use crate::networks::text::{ConvertedTensor, convert_with, head_rows};
use crate::networks::weights::{Checkpoint, GgufValue, GgufWriter, tensor_floats};
use crate::runtime::load::{ModelSource, load_model};
use crate::runtime::text::{EmbeddedText, Language, TextSource};
use crate::runtime::{EncoderInput, Prompt};

fn load(name: &str) -> (Box<dyn Encode>, Purpose) {
    load_from(&fixture("golden").join(name))
}

fn load_from(path: &Path) -> (Box<dyn Encode>, Purpose) {
    let checkpoint = Checkpoint::open(path).unwrap();
    let encoding = open(&checkpoint, path).unwrap().unwrap();
    let purpose = encoding.purpose();
    let source = ModelSource::new(path);
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

fn inputs(golden: &Golden, sequences: usize) -> Vec<EncoderInput> {
    let inputs = (0..sequences).map(|index| golden.tokens(&format!("ids.{index}")).into());
    inputs.collect()
}

#[track_caller]
fn check(name: &str, sequences: usize, wanted: &str) {
    let (golden, (mut network, _)) = (Golden::open(name), load(name));
    let inputs = inputs(&golden, sequences);
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

/// Fixture files in a separate folder, one of them changed.
fn refusal(name: &str, file: &str, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixture("golden").join(name), folder.path());
    match text {
        "" => fs::remove_file(folder.path().join(file)).unwrap(),
        text => fs::write(folder.path().join(file), text).unwrap(),
    }
    let source = ModelSource::new(folder.path());
    let loaded = load_model(&source, &Device::Cpu, &mut |_, _| {});
    loaded.map(drop).unwrap_err().to_string()
}

fn copy(from: &Path, to: &Path) {
    for entry in walk(from) {
        let to = to.join(entry.strip_prefix(from).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&entry, to).unwrap();
    }
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
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

/// Rows of a matrix under its name of GGUF.
fn matrix(name: &str, rows: &[Vec<f32>]) -> ConvertedTensor {
    ConvertedTensor {
        name: name.to_owned(),
        shape: vec![rows.len(), rows[0].len()],
        numbers: rows.concat(),
        blocks: None,
    }
}

/// The weights of the dense layer next to the network.
fn dense_rows(folder: &Path) -> Vec<Vec<f32>> {
    let checkpoint = Checkpoint::open_tensors(&folder.join("model.safetensors")).unwrap();
    let header = checkpoint.tensor("linear.weight").unwrap();
    let bytes = checkpoint.bytes(header);
    let numbers = tensor_floats(GgmlDType::F32, &bytes).unwrap();
    numbers
        .chunks(header.shape[1])
        .map(<[f32]>::to_vec)
        .collect()
}

fn unsigned(key: &str, number: u64) -> (&str, GgufValue) {
    (key, GgufValue::Unsigned(number))
}

/// Compares the outputs of the checkpoint's GGUF file for the reference's sequences.
#[track_caller]
fn check_gguf(
    from: &Path,
    golden: (&str, usize),
    extras: impl Fn() -> (Vec<(&'static str, GgufValue)>, Vec<ConvertedTensor>),
    wanted: &[Vec<f32>],
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let checkpoint = Checkpoint::open(from).unwrap();
    let (name, sequences) = golden;
    let inputs = inputs(&Golden::open(name), sequences);
    for (stored, most) in [(GgmlDType::F32, 1e-4), (GgmlDType::Q8_0, 0.05)] {
        convert_with(&checkpoint, &path, extras(), stored);
        let (mut network, _) = load_from(&path);
        let found = encoded(network.as_mut(), &inputs);
        assert_eq!(found.len(), wanted.len(), "{name}");
        let pairs = found.iter().flatten().zip(wanted.iter().flatten());
        let gap = pairs.fold(0.0_f32, |most, (one, other)| most.max((one - other).abs()));
        let largest = wanted
            .iter()
            .flatten()
            .fold(1.0_f32, |most, one| most.max(one.abs()));
        assert!(
            gap < most * largest,
            "{name}: {stored:?}: {gap} of {largest}"
        );
    }
}

#[test]
fn vectors_of_gguf_files_are_those_of_the_reference() {
    let name = "qwen3-embedding";
    let wanted = Golden::open(name)
        .tensor("vectors")
        .to_vec2::<f32>()
        .unwrap();
    let extras = || (vec![unsigned("qwen3.pooling_type", 3)], Vec::new());
    check_gguf(&fixture("golden").join(name), (name, 2), extras, &wanted);

    // Converters write the products of EmbeddingGemma, which have neither a bias nor a function: that is the first one's
    // form.
    let name = "embedding-gemma";
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("golden").join(name);
    copy(&from, folder.path());
    let modules = fs::read_to_string(from.join("modules.json")).unwrap();
    let mut modules: serde_json::Value = serde_json::from_str(&modules).unwrap();
    modules
        .as_array_mut()
        .unwrap()
        .retain(|it| it["path"] != "3_Dense");
    fs::write(folder.path().join("modules.json"), modules.to_string()).unwrap();
    let golden = Golden::open(name);
    let (mut network, _) = load_from(folder.path());
    let wanted = encoded(network.as_mut(), &inputs(&golden, 2));
    let rows = dense_rows(&from.join("2_Dense"));
    let extras = || {
        let pooling = unsigned("gemma-embedding.pooling_type", 1);
        (vec![pooling], vec![matrix("dense_2.weight", &rows)])
    };
    check_gguf(folder.path(), (name, 2), extras, &wanted);
}

const RANK: &str = "who {query} name {document}";

fn ranking(labels: [&str; 2]) -> Vec<(&'static str, GgufValue)> {
    let labels = labels.map(|label| GgufValue::Text(label.to_owned()));
    vec![
        unsigned("qwen3.pooling_type", 4),
        (
            "qwen3.classifier.output_labels",
            GgufValue::List(labels.to_vec()),
        ),
        (
            "tokenizer.chat_template.rerank",
            GgufValue::Text(RANK.to_owned()),
        ),
    ]
}

#[test]
fn scores_of_gguf_files_are_those_of_the_reference() {
    let name = "qwen3-reranker";
    let from = fixture("golden").join(name);
    let answers = fs::read_to_string(from.join("1_LogitScore/config.json")).unwrap();
    let answers: serde_json::Value = serde_json::from_str(&answers).unwrap();
    let token = |key: &str| answers[key].as_u64().unwrap() as u32;
    let tokens = [token("true_token_id"), token("false_token_id")];
    let checkpoint = Checkpoint::open(&from).unwrap();
    let rows = head_rows(&checkpoint, &tokens).unwrap();
    let wanted = Golden::open(name)
        .tensor("scores")
        .to_vec2::<f32>()
        .unwrap();
    let extras = || {
        (
            ranking(["yes", "no"]),
            vec![matrix("cls.output.weight", &rows)],
        )
    };
    check_gguf(&from, (name, 3), extras, &wanted);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let refusal = |values, tensors| {
        convert_with(&checkpoint, &path, (values, tensors), GgmlDType::F32);
        let opened = open(&Checkpoint::open(&path).unwrap(), &path);
        opened.map(|_| ()).unwrap_err().to_string()
    };
    let head = || vec![matrix("cls.output.weight", &rows)];
    for (values, tensors, expected) in [
        (ranking(["yes", "no"]), Vec::new(), "cls.output.weight"),
        (ranking(["no", "yes"]), head(), "output_labels"),
        (
            ranking(["yes", "no"])[..1].to_vec(),
            head(),
            "chat_template.rerank",
        ),
        (
            vec![unsigned("qwen3.pooling_type", 9)],
            Vec::new(),
            "pooling_type",
        ),
    ] {
        let told = refusal(values, tensors);
        assert!(told.contains(expected), "{told}");
    }
    // Pooling type 0: a generative model.
    let plain = vec![unsigned("qwen3.pooling_type", 0)];
    convert_with(&checkpoint, &path, (plain, Vec::new()), GgmlDType::F32);
    assert!(
        open(&Checkpoint::open(&path).unwrap(), &path)
            .unwrap()
            .is_none()
    );
}

/// The seeded BERT as a converter writes it: words begin with a mark, and pieces of words with none.
fn write_bert(path: &Path) {
    let folder = fixture("golden/bert");
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let spec = checkpoint.encoder_spec().unwrap().unwrap();
    let text = fs::read_to_string(folder.join("tokenizer.json")).unwrap();
    let tokenizer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<(u64, &String)> = vocabulary
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap(), token))
        .collect();
    tokens.sort();
    let is_mark = |token: &str| token.len() > 2 && token.starts_with('[');
    let spelled = tokens
        .iter()
        .map(|(_, token)| match token.strip_prefix("##") {
            _ if is_mark(token) => (*token).clone(),
            Some(rest) => rest.to_owned(),
            None => format!("▁{token}"),
        });
    let spelled = spelled.map(GgufValue::Text).collect();
    let types = tokens.iter().map(|(_, token)| match is_mark(token) {
        true => GgufValue::Signed(3),
        false => GgufValue::Signed(1),
    });
    let types = types.collect();
    let mut writer = GgufWriter::default();
    writer
        .text("general.architecture", "bert")
        .unsigned("bert.pooling_type", 1)
        .unsigned("bert.block_count", spec.layers as u64)
        .unsigned("bert.context_length", spec.positions as u64)
        .unsigned("bert.embedding_length", spec.hidden_size as u64)
        .unsigned("bert.feed_forward_length", spec.intermediate_size as u64)
        .unsigned("bert.attention.head_count", spec.heads as u64)
        .float("bert.attention.layer_norm_epsilon", spec.norm_eps)
        .value("bert.attention.causal", GgufValue::Bool(false))
        .text("tokenizer.ggml.model", "bert")
        .value("tokenizer.ggml.tokens", GgufValue::List(spelled))
        .value("tokenizer.ggml.token_type", GgufValue::List(types))
        .unsigned("tokenizer.ggml.unknown_token_id", 1)
        .unsigned("tokenizer.ggml.seperator_token_id", 3)
        .unsigned("tokenizer.ggml.cls_token_id", 2);
    let headers = checkpoint.tensors().iter();
    let headers = headers.filter_map(|header| Some((gguf_name(&header.name)?, header)));
    let headers: Vec<_> = headers.collect();
    for (name, header) in &headers {
        writer.tensor(name, &header.shape, GgmlDType::F32);
    }
    let bytes = |index: usize| Ok(checkpoint.bytes(headers[index].1).to_vec());
    writer
        .write(fs::File::create(path).unwrap(), bytes)
        .unwrap();
}

#[test]
fn bert_as_a_gguf_file_makes_the_vectors_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    write_bert(&path);
    let golden = Golden::open("bert");
    let wanted = golden.tensor("vectors").to_vec2::<f32>().unwrap();
    let (mut network, purpose) = load_from(&path);
    assert!(matches!(purpose, Purpose::Embed(vectors) if vectors.dimensions == 32));
    let found = encoded(network.as_mut(), &inputs(&golden, 2));
    for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
        assert!((found - wanted).abs() < 1e-4, "{found}, {wanted}");
    }

    let loaded = load_model(&ModelSource::new(&path), &Device::Cpu, &mut |_, _| {}).unwrap();
    assert_eq!((loaded.info.context, loaded.info.can_chat), (64, false));
    assert!(matches!(loaded.info.purpose, Purpose::Embed(_)));

    let checkpoint = Checkpoint::open(&path).unwrap();
    let embedded = EmbeddedText::from_gguf(checkpoint.gguf_metadata().unwrap()).unwrap();
    let language = Language::open(TextSource {
        embedded: Some(&embedded),
        ..TextSource::default()
    });
    let beside = fixture("golden/bert");
    let reference = Language::open(TextSource {
        folder: Some(&beside),
        ..TextSource::default()
    });
    let (language, reference) = (language.unwrap(), reference.unwrap());
    for text in [
        "The cat sat on the mat",
        "two dogs!",
        "Ünknown wörds, 7 \u{4e2d}",
        "",
    ] {
        let found = language.encode(text, true).unwrap();
        assert_eq!(found, reference.encode(text, true).unwrap(), "{text}");
    }
    let pair = ("who sat on the mat?", "The cat sat.");
    let found = language.pair(pair.0, pair.1).unwrap();
    assert_eq!(found, reference.pair(pair.0, pair.1).unwrap());
}
