use std::fs;

use candle_core::quantized::GgmlDType;
use tempfile::TempDir;

use super::*;
use crate::networks::weights::{GgufWriter, TensorType, safetensors::tests::file};

const ONE: &str = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn refusal(files: &[(&str, &[u8])], open: &str) -> String {
    let folder = folder(files);
    match Checkpoint::open(&folder.path().join(open)) {
        Ok(_) => panic!("{open} opened"),
        Err(error) => error.to_string(),
    }
}

fn tiny_gguf() -> Vec<u8> {
    let mut writer = GgufWriter::default();
    writer
        .text("general.architecture", "llama")
        .tensor("a", &[2], GgmlDType::F32);
    let mut out = Vec::new();
    writer.write(&mut out, |_| Ok(vec![7; 8])).unwrap();
    out
}

#[test]
fn a_folder_a_file_and_shards_open_the_same_way() {
    let one = file(ONE, 8);
    let two = file(&ONE.replace("\"a\"", "\"b\""), 8);
    let index = br#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#;
    let files: &[(&str, &[u8])] = &[
        ("config.json", b"{}"),
        ("1.safetensors", &one),
        ("2.safetensors", &two),
        (INDEX, index),
    ];
    let sharded = folder(files);
    for place in ["", "1.safetensors", "2.safetensors"] {
        let checkpoint = Checkpoint::open(&sharded.path().join(place)).unwrap();
        assert_eq!(checkpoint.tensors().len(), 2, "{place}");
        assert_eq!(checkpoint.tensor("b").unwrap().file, 1);
    }
    let of_diffusers = (
        "diffusion_pytorch_model.safetensors.index.json",
        index.as_slice(),
    );
    let sharded = folder(&[files[0], files[1], files[2], of_diffusers]);
    assert_eq!(Checkpoint::open(sharded.path()).unwrap().tensors().len(), 2);
    let single = folder(&files[..2]);
    for place in ["", "1.safetensors"] {
        let checkpoint = Checkpoint::open(&single.path().join(place)).unwrap();
        assert_eq!(checkpoint.tensors().len(), 1, "{place}");
    }
    let gguf = folder(&[("m.gguf", &tiny_gguf()), ("readme.md", b"")]);
    for place in ["", "m.gguf"] {
        let checkpoint = Checkpoint::open(&gguf.path().join(place)).unwrap();
        let header = checkpoint.tensor("a").unwrap();
        assert_eq!(header.dtype, TensorType::Weight(GgmlDType::F32));
        assert_eq!(&*checkpoint.bytes(header), &[7; 8]);
    }
}

#[test]
fn pickled_weights_are_refused_with_advice() {
    for open in ["", "pytorch_model.bin"] {
        let files: &[(&str, &[u8])] = &[("pytorch_model.bin", b"PK"), ("config.json", b"{}")];
        let message = refusal(files, open);
        assert!(message.contains("pytorch_model.bin: pickled weights can run code"));
        assert!(message.contains(".safetensors or .gguf"));
    }
    assert!(refusal(&[("notes.txt", b"")], "notes.txt").contains("use .safetensors or .gguf"));
}

#[test]
fn a_file_of_whisper_cpp_opens_by_itself_or_in_a_folder() {
    let whole = whisper_cpp::tests::small();
    let opened = folder(&[("ggml-tiny.bin", &whole)]);
    for place in ["", "ggml-tiny.bin"] {
        let checkpoint = Checkpoint::open(&opened.path().join(place)).unwrap();
        assert_eq!(checkpoint.text_tokens().unwrap().len(), 2, "{place}");
        let header = checkpoint.tensor("encoder.conv1.bias").unwrap();
        assert_eq!(&*checkpoint.bytes(header), &[1; 16]);
        assert!(Checkpoint::is_of_whisper_cpp(&opened.path().join(place)));
    }
    let message = refusal(&[("ggml-tiny.bin", &whole[..40])], "ggml-tiny.bin");
    assert!(message.contains("bytes left in the file"), "{message}");
}

#[test]
fn only_regular_files_are_opened() {
    for device in ["m.gguf", "m.safetensors", INDEX] {
        let folder = folder(&[("config.json", b"{}")]);
        std::os::unix::fs::symlink("/dev/zero", folder.path().join(device)).unwrap();
        let error = Checkpoint::open(folder.path()).err().unwrap();
        assert!(matches!(error, CheckpointError::Refused { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains(&format!("{device}: not a regular file")),
            "{message}"
        );
    }
}

#[test]
fn what_is_missing_is_named() {
    assert!(refusal(&[], "nowhere").contains("no such file or folder; expected a .gguf file"));
    assert!(refusal(&[("config.json", b"{}")], "").contains("no weights"));
    let one = file(ONE, 8);
    assert!(refusal(&[("m.safetensors", &one)], "").contains("config.json: no such file"));
    let two: &[(&str, &[u8])] = &[("1.gguf", b""), ("2.gguf", b"")];
    assert!(refusal(two, "").contains("2 weight files"));
    assert!(refusal(&[("empty.gguf", b"")], "empty.gguf").contains("0 bytes left in the file"));
}

#[test]
fn an_index_names_only_files_beside_itself() {
    let one = file(ONE, 8);
    let index = |name: &str| format!(r#"{{"weight_map":{{"a":"{name}"}}}}"#);
    let open = |index: &str| {
        let files: &[(&str, &[u8])] = &[
            ("config.json", b"{}"),
            ("1.safetensors", &one),
            (INDEX, index.as_bytes()),
        ];
        refusal(files, "")
    };
    for name in ["../1.safetensors", "/etc/passwd", "1.bin", "", ".."] {
        let message = open(&index(name));
        assert!(message.contains("in the same folder"), "{message}");
    }
    assert!(open(&index("2.safetensors")).contains("no such file"));
    let absent = r#"{"weight_map":{"a":"1.safetensors","b":"1.safetensors"}}"#;
    assert!(open(absent).contains("the tensor \"b\": found only in the index"));
    assert!(open("{").contains("valid JSON for this file"));
}
