//! Files of whisper.cpp: sizes, vocabulary and weights of a Whisper in one.
//!
//! The reader converts the sizes to the model's `config.json` and renames tensors as in its folder. Mel filters are
//! skipped, since they follow from the number of bands.

use serde_json::{Value, json};

use super::cursor::Cursor;
use super::error::Flaw;
use super::gguf::tensor_type;
use super::header::{Claim, TensorHeader, check_claims};

/// `ggml`, as a number.
pub const MAGIC: &[u8] = b"lmgg";
const MAX_TOKENS: u32 = 1 << 18;
const MAX_TOKEN_BYTES: u32 = 1 << 10;
const MAX_NAME_BYTES: u32 = 1 << 10;
/// The largest Whisper has 1,259.
const MAX_TENSORS: usize = 1 << 14;
const MAX_DIMS: u32 = 4;
/// No size of a Whisper is larger but that of its vocabulary.
const MAX_SIZE: u32 = 1 << 16;
/// The factor of the revision in the type of quantized files, and the revision of all since May 2023.
const REVISION: u32 = 1000;
const KNOWN_REVISION: u32 = 2;
/// Bins of the front end's filters.
const FILTER_BINS: u64 = 201;

/// The contents of a file of whisper.cpp.
#[derive(Debug)]
pub struct WhisperFile {
    /// The `config.json` of the model.
    pub config: Value,
    /// The bytes of each text token; tokens after them have no text.
    pub tokens: Vec<Vec<u8>>,
    pub tensors: Vec<TensorHeader>,
}

pub fn parse(file: &[u8]) -> Result<WhisperFile, Flaw> {
    let mut cursor = Cursor::new(file);
    let magic = cursor.take(MAGIC.len() as u64, "the first four bytes")?;
    if magic != MAGIC {
        let found = format!("{:?}", String::from_utf8_lossy(magic));
        return Err(Flaw::broken("the first four bytes", found, "\"lmgg\""));
    }
    let vocab_size = bounded(&mut cursor, "n_vocab", MAX_TOKENS)?;
    let mut size = |what: &str| bounded(&mut cursor, what, MAX_SIZE);
    let [positions, width, heads, layers] = [
        "n_audio_ctx",
        "n_audio_state",
        "n_audio_head",
        "n_audio_layer",
    ]
    .map(&mut size);
    let [context, text_width, text_heads, text_layers] =
        ["n_text_ctx", "n_text_state", "n_text_head", "n_text_layer"].map(&mut size);
    let bands = size("n_mels")?;
    let (width, text_width) = (width?, text_width?);
    if width != text_width {
        let found = format!("{width} and {text_width}");
        return Err(Flaw::unsupported(
            "n_audio_state and n_text_state",
            found,
            "equal widths",
        ));
    }
    check_revision(cursor.u32("ftype")?)?;
    let config = json!({
        "architectures": ["WhisperForConditionalGeneration"], "activation_function": "gelu",
        "vocab_size": vocab_size, "d_model": width, "num_mel_bins": bands,
        "max_source_positions": positions?, "max_target_positions": context?,
        "encoder_layers": layers?, "encoder_attention_heads": heads?, "encoder_ffn_dim": 4 * width,
        "decoder_layers": text_layers?, "decoder_attention_heads": text_heads?, "decoder_ffn_dim": 4 * width,
    });
    skip_filters(&mut cursor, bands)?;
    let tokens = read_tokens(&mut cursor, vocab_size)?;
    let mut claims = Vec::new();
    while cursor.remaining() > 0 {
        if claims.len() == MAX_TENSORS {
            let wanted = format!("at most {MAX_TENSORS}");
            return Err(Flaw::broken("the number of tensors", "more", wanted));
        }
        claims.push(read_tensor(&mut cursor)?);
    }
    let tensors = check_claims(claims, 0, file.len() as u64)?;
    Ok(WhisperFile {
        config,
        tokens,
        tensors,
    })
}

fn bounded(cursor: &mut Cursor<'_>, what: &str, most: u32) -> Result<u32, Flaw> {
    match cursor.u32(what)? {
        found if (1..=most).contains(&found) => Ok(found),
        found => Err(Flaw::broken(what, found, format!("1 to {most}"))),
    }
}

/// Blocks were laid out otherwise before.
fn check_revision(ftype: u32) -> Result<(), Flaw> {
    let (dtype, revision) = (ftype % REVISION, ftype / REVISION);
    match dtype > 1 && revision != KNOWN_REVISION {
        true => Err(Flaw::unsupported(
            "the revision of quantized blocks",
            revision,
            "2, as whisper.cpp's quantize writes it",
        )),
        false => Ok(()),
    }
}

fn skip_filters(cursor: &mut Cursor<'_>, bands: u32) -> Result<(), Flaw> {
    let what = "the filters of the front end";
    let (rows, bins) = (cursor.u32(what)?, u64::from(cursor.u32(what)?));
    if (rows, bins) != (bands, FILTER_BINS) {
        let found = format!("{rows} of {bins} bins");
        return Err(Flaw::unsupported(
            what,
            found,
            format!("{bands} of {FILTER_BINS} bins"),
        ));
    }
    let numbers = u64::from(rows) * bins;
    cursor
        .take(numbers * size_of::<f32>() as u64, what)
        .map(drop)
}

fn read_tokens(cursor: &mut Cursor<'_>, most: u32) -> Result<Vec<Vec<u8>>, Flaw> {
    let count = bounded(cursor, "the number of tokens", most)?;
    let mut tokens = Vec::new();
    for id in 0..count {
        let what = format!("token {id}");
        let length = cursor.u32(&what)?;
        if length > MAX_TOKEN_BYTES {
            let wanted = format!("at most {MAX_TOKEN_BYTES}");
            return Err(Flaw::broken(
                format!("the length of {what}"),
                length,
                wanted,
            ));
        }
        tokens.push(cursor.take(length.into(), &what)?.to_vec());
    }
    Ok(tokens)
}

fn read_tensor(cursor: &mut Cursor<'_>) -> Result<Claim, Flaw> {
    let what = "the header of a tensor";
    let dims = bounded(cursor, what, MAX_DIMS)?;
    let name_bytes = bounded(cursor, what, MAX_NAME_BYTES)?;
    let number = cursor.u32(what)?;
    let mut shape = Vec::with_capacity(dims as usize);
    for _ in 0..dims {
        shape.push(bounded(cursor, what, i32::MAX as u32)? as usize);
    }
    shape.reverse();
    let name = String::from_utf8_lossy(cursor.take(name_bytes.into(), what)?).into_owned();
    let what = format!("the tensor {name:?}");
    let dtype = tensor_type(number, &what)?;
    if let ([_, 1], true) = (shape.as_slice(), name.ends_with(".bias")) {
        shape.pop();
    }
    let start = cursor.position() as u64;
    let bytes = dtype.bytes_of(&shape).ok_or_else(|| {
        let found = format!("{dtype} of shape {shape:?}");
        let wanted = format!("a row length in multiples of {}", dtype.block_size());
        Flaw::broken(&what, found, wanted)
    })?;
    cursor.take(bytes, &what)?;
    Ok(Claim {
        name: renamed(&name),
        shape,
        dtype,
        converted_from: None,
        start,
    })
}

/// The names of a part of a layer: here, and in the model's folder.
const PARTS: &[(&str, &str)] = &[
    ("attn_ln.", "self_attn_layer_norm."),
    ("attn.", "self_attn."),
    ("cross_attn_ln.", "encoder_attn_layer_norm."),
    ("cross_attn.", "encoder_attn."),
    ("mlp_ln.", "final_layer_norm."),
    ("mlp.0.", "fc1."),
    ("mlp.2.", "fc2."),
];
const PROJECTIONS: &[(&str, &str)] = &[
    ("query.", "q_proj."),
    ("key.", "k_proj."),
    ("value.", "v_proj."),
    ("out.", "out_proj."),
];
const OTHERS: &[(&str, &str)] = &[
    (
        "encoder.positional_embedding",
        "encoder.embed_positions.weight",
    ),
    ("encoder.ln_post.", "encoder.layer_norm."),
    (
        "decoder.positional_embedding",
        "decoder.embed_positions.weight",
    ),
    ("decoder.token_embedding.", "decoder.embed_tokens."),
    ("decoder.ln.", "decoder.layer_norm."),
];

/// The name in the model's folder; an unknown one stays, and is refused by it.
fn renamed(name: &str) -> String {
    let in_layer = || {
        let (half, rest) = name.split_once(".blocks.")?;
        let (index, rest) = rest.split_once('.')?;
        let (part, rest) = replaced(rest, PARTS)?;
        let rest = match part.ends_with("attn.") {
            true => replaced(rest, PROJECTIONS).map(|(part, rest)| format!("{part}{rest}"))?,
            false => rest.to_owned(),
        };
        Some(format!("{half}.layers.{index}.{part}{rest}"))
    };
    let found =
        in_layer().or_else(|| replaced(name, OTHERS).map(|(part, rest)| format!("{part}{rest}")));
    found.unwrap_or_else(|| name.to_owned())
}

fn replaced<'a>(name: &'a str, names: &[(&str, &'static str)]) -> Option<(&'static str, &'a str)> {
    let mut found = names
        .iter()
        .filter_map(|(old, new)| Some((*new, name.strip_prefix(old)?)));
    found.next()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Name, dimensions in the file's order, type, bytes.
    pub type FileTensor<'a> = (&'a str, &'a [u32], u32, Vec<u8>);

    /// A file of a small Whisper.
    fn file(tokens: &[&[u8]], ftype: u32, tensors: &[FileTensor]) -> Vec<u8> {
        let tokens: Vec<Vec<u8>> = tokens.iter().map(|token| token.to_vec()).collect();
        written([10, 1500, 4, 2, 1, 8, 4, 2, 1, 2, ftype], &tokens, tensors)
    }

    /// A file of a Whisper of these sizes, in the order of the file.
    pub fn written(sizes: [u32; 11], tokens: &[Vec<u8>], tensors: &[FileTensor]) -> Vec<u8> {
        let bands = sizes[9];
        let mut file = MAGIC.to_vec();
        let mut put = |number: u32| file.extend(number.to_le_bytes());
        sizes.into_iter().chain([bands, 201]).for_each(&mut put);
        file.extend(vec![0; bands as usize * 201 * 4]);
        file.extend((tokens.len() as u32).to_le_bytes());
        for token in tokens {
            file.extend((token.len() as u32).to_le_bytes());
            file.extend(token);
        }
        for (name, dims, number, bytes) in tensors {
            let head = [dims.len() as u32, name.len() as u32, *number];
            for number in head.iter().chain(*dims) {
                file.extend(number.to_le_bytes());
            }
            file.extend(name.as_bytes());
            file.extend(bytes);
        }
        file
    }

    pub fn small() -> Vec<u8> {
        file(
            &[b"a", b"\xff\xfe"],
            1,
            &[
                ("encoder.conv1.bias", &[1, 4], 0, vec![1; 16]),
                (
                    "decoder.blocks.3.cross_attn.query.weight",
                    &[3, 2],
                    1,
                    vec![2; 12],
                ),
                ("decoder.blocks.0.mlp.2.weight", &[32], 8, vec![3; 34]),
                ("decoder.positional_embedding", &[2, 2], 0, vec![4; 16]),
                ("something.else", &[1], 0, vec![5; 4]),
            ],
        )
    }

    #[test]
    fn sizes_tokens_and_tensors_are_read_under_the_names_of_the_folder() {
        let found = parse(&small()).unwrap();
        assert_eq!(found.config["d_model"], 4);
        assert_eq!(found.config["max_target_positions"], 8);
        assert_eq!(found.config["decoder_ffn_dim"], 16);
        assert_eq!(found.tokens, [b"a".to_vec(), b"\xff\xfe".to_vec()]);
        let named: Vec<(&str, &[usize])> = found
            .tensors
            .iter()
            .map(|header| (header.name.as_str(), header.shape.as_slice()))
            .collect();
        let wanted: [(&str, &[usize]); 5] = [
            ("encoder.conv1.bias", &[4]),
            ("decoder.layers.3.encoder_attn.q_proj.weight", &[2, 3]),
            ("decoder.layers.0.fc2.weight", &[32]),
            ("decoder.embed_positions.weight", &[2, 2]),
            ("something.else", &[1]),
        ];
        assert_eq!(named, wanted);
    }

    #[test]
    fn what_is_no_such_file_is_refused_in_words() {
        let refused = |file: &[u8]| match parse(file).unwrap_err() {
            Flaw::Broken { what, wanted, .. } => format!("{what}: {wanted}"),
            Flaw::Unsupported { what, found, .. } => format!("{what}: {found}"),
            Flaw::Device(error) => error.to_string(),
        };
        let whole = small();
        assert!(refused(&whole[..whole.len() - 1]).contains("something.else"));
        assert!(refused(b"GGUF").contains("the first four bytes"));
        let old = file(&[b"a"], 1008, &[]);
        assert_eq!(refused(&old), "the revision of quantized blocks: 1");
        assert!(parse(&file(&[b"a"], 2008, &[])).is_ok());
        let odd = file(&[b"a"], 1, &[("x", &[33], 8, vec![0; 35])]);
        assert!(refused(&odd).contains("multiples of 32"));
        let many = vec![b"a".as_slice(); 11];
        assert_eq!(
            refused(&file(&many, 1, &[])),
            "the number of tokens: 1 to 10"
        );
    }
}
