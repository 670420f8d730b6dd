use super::*;

fn small_file() -> Vec<u8> {
    let mut writer = GgufWriter::default();
    writer
        .text("general.architecture", "llama")
        .unsigned("llama.block_count", 2)
        .float("llama.rope.freq_base", 10_000.0)
        .value(
            "tokenizer.ggml.tokens",
            GgufValue::List(["a", "b"].map(|text| GgufValue::Text(text.into())).into()),
        )
        .tensor("token_embd.weight", &[3, 64], GgmlDType::Q8_0)
        .tensor("output_norm.weight", &[64], GgmlDType::F32);
    let mut file = Vec::new();
    let sizes = [3 * 68, 256];
    writer
        .write(&mut file, |index| Ok(vec![index as u8; sizes[index]]))
        .unwrap();
    file
}

fn refusal(file: &[u8]) -> String {
    let flaw = parse(file).unwrap_err();
    flaw.in_file(std::path::Path::new("m.gguf")).to_string()
}

#[test]
fn what_is_written_reads_back() {
    let file = small_file();
    let gguf = parse(&file).unwrap();
    assert_eq!(gguf.metadata.text("general.architecture"), Some("llama"));
    assert_eq!(gguf.metadata.unsigned("llama.block_count"), Some(2));
    assert_eq!(gguf.metadata.float("llama.rope.freq_base"), Some(10_000.0));
    let tokens = gguf.metadata.texts("tokenizer.ggml.tokens");
    assert_eq!(tokens, Some(vec!["a", "b"]));
    assert_eq!(gguf.tensors[0].shape, [3, 64]);
    assert_eq!(gguf.tensors[1].dtype, TensorType::Weight(GgmlDType::F32));
    assert_eq!(file[gguf.tensors[1].range.clone()], [1; 256]);
}

#[test]
fn lying_headers_are_refused_before_memory_is_asked_for() {
    let with = |at: usize, value: u64| {
        let mut file = small_file();
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        refusal(&file)
    };
    assert!(with(8, u64::MAX).contains("the number of tensors: found 18446744073709551615"));
    assert!(with(16, 1 << 40).contains("the number of metadata values"));
    assert!(with(24, 1 << 50).contains("the length of a metadata key"));

    let file = small_file();
    let name = b"token_embd.weight";
    let at = file.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 4;
    assert!(with(at, 0).contains("dimension 0"));
    assert!(with(at, 63).contains("a row length in multiples of 32"));
    assert!(with(at, 1 << 62).contains("the tensor \"token_embd.weight\""));
    assert!(with(at + 8, u64::MAX / 2).contains("the tensor \"token_embd.weight\""));
    assert!(with(at + 20, 1 << 20).contains("data within"));
    assert!(with(at + 20, 7).contains("a multiple of 32"));
    assert!(with(at + 20, 32).contains("data that overlaps"));
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let file = small_file();
    for length in 0..file.len() {
        assert!(
            parse(&file[..length]).is_err(),
            "{length} of {}",
            file.len()
        );
    }
}

#[test]
fn what_it_does_not_know_is_named() {
    let mut file = small_file();
    file[4] = 1;
    assert!(refusal(&file).contains("the GGUF version: found 1; supported: 2 and 3"));
    file[4..8].copy_from_slice(&3_u32.to_be_bytes());
    assert!(refusal(&file).contains("a big-endian GGUF file"));
    assert!(refusal(b"PK\x03\x04 and more").contains("expected \"GGUF\""));

    let mut file = small_file();
    let name = b"token_embd.weight";
    let at = file.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 20;
    file[at] = 19;
    assert!(refusal(&file).contains("IQ1_S"));
    // Rows of 8 numbers are no whole blocks.
    file[at] = 23;
    assert!(refusal(&file).contains("IQ4_XS"));
}

#[test]
fn lists_in_lists_have_a_limit() {
    let nested = (0..6).fold(GgufValue::Unsigned(1), |inner, _| {
        GgufValue::List(vec![inner])
    });
    let mut writer = GgufWriter::default();
    writer.value("deep", nested);
    let mut file = Vec::new();
    writer.write(&mut file, |_| Ok(Vec::new())).unwrap();
    assert!(refusal(&file).contains("nested lists"));
}

#[test]
fn a_key_stands_once() {
    let mut writer = GgufWriter::default();
    writer.unsigned("a", 1).unsigned("a", 2);
    let mut file = Vec::new();
    writer.write(&mut file, |_| Ok(Vec::new())).unwrap();
    assert!(refusal(&file).contains("the metadata key \"a\": found twice"));
}
