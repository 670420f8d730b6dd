use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Tensor};
use muster_kernels::cpu::log_sum_exp;

use super::rules::forbid;
use super::segments::cut;
use super::together::{TextAhead, TextScores};
use super::vocabulary::HearingVocabulary;
use super::window::{WindowTask, WindowText, attempt};
use super::{HearingModel, HearingSource};
use crate::networks::golden::fixtures;
use crate::networks::model_copy::put_in_gguf;
use crate::networks::sound::WindowKeys;
use crate::networks::weights::{GgufWriter, whisper_cpp_file};
use crate::runtime::DeviceChoice;
use crate::runtime::hearing::TranscriptRequest;
use crate::runtime::maker::suite::{self, PipelineFixture, pipeline_suite};
use crate::runtime::maker::{Advance, MakeRequest, Output, Pcm, Pipeline};

const SPECIAL: &[&str] = &[
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
];
const TIMES: usize = 1501;

/// Text tokens first, then special tokens and timestamps.
const WORDS: &[&str] = &[
    "a", "b", "c", "d", "Ġ", "Ġa", "♪", "-", "'", "Ġ-", "Ġ'", "(", "[", "Ġ(",
];

fn vocabulary() -> HearingVocabulary {
    let folder = tempfile::tempdir().unwrap();
    HearingVocabulary::open(&tokenizer(folder.path(), 512), 51_865, None).unwrap()
}

/// A `tokenizer.json` with the letters of the first `letters` code points.
fn tokenizer(folder: &Path, letters: u32) -> PathBuf {
    let mut words: Vec<String> = WORDS.iter().map(|word| (*word).to_owned()).collect();
    // Byte tokens for all other text.
    words.extend((0..letters).filter_map(char::from_u32).map(String::from));
    words.extend(SPECIAL.iter().map(|word| (*word).to_owned()));
    let mut unique = Vec::new();
    for word in words {
        if !unique.contains(&word) {
            unique.push(word);
        }
    }
    let vocab: serde_json::Map<String, serde_json::Value> = unique
        .iter()
        .enumerate()
        .map(|(id, word)| (word.clone(), id.into()))
        .collect();
    let added: Vec<serde_json::Value> = SPECIAL
        .iter()
        .map(|word| {
            serde_json::json!({
                "id": vocab[*word], "content": word, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false,
            })
        })
        .collect();
    let json = serde_json::json!({
        "version": "1.0", "added_tokens": added, "normalizer": null, "post_processor": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    let path = folder.join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    path
}

/// The small network of the goldens, with a vocabulary.
fn model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        let file = fixtures().join("golden/sound/whisper").join(name);
        std::fs::copy(file, folder.path().join(name)).unwrap();
    }
    tokenizer(folder.path(), 48);
    folder
}

/// A second of a tone.
fn request(pitch: f32) -> TranscriptRequest {
    let wave = |at: u16| (f32::from(at) / 16_000.0 * pitch * std::f32::consts::TAU).sin();
    TranscriptRequest {
        sound: Pcm {
            rate: 16_000,
            channels: 1,
            samples: (0..16_000).map(wave).collect(),
        },
        languages: Vec::new(),
        is_translated: false,
        prompt: None,
        temperature: Some(1.0),
        beams: None,
        seed: Some(7),
        wants_words: false,
        wants_logprobs: false,
    }
}

fn fixture() -> PipelineFixture {
    let folder = model();
    let pipeline = HearingSource::new(folder.path()).load(DeviceChoice::of_tests());
    let pipeline = pipeline.unwrap();
    let transcript = |request: TranscriptRequest| MakeRequest::from(request);
    PipelineFixture {
        networks: pipeline.model.clone(),
        pipeline: Arc::new(pipeline),
        request: transcript(request(440.0)),
        other: transcript(TranscriptRequest {
            seed: Some(8),
            ..request(880.0)
        }),
        refused: (
            transcript(TranscriptRequest {
                temperature: Some(2.0),
                ..request(440.0)
            }),
            "temperature is 2, but the model takes 0 to 1",
        ),
    }
}

pipeline_suite!(fixture);

impl HearingVocabulary {
    fn size(&self) -> usize {
        self.first_time as usize + TIMES
    }

    fn time(&self, seconds: f64) -> u32 {
        self.first_time + (seconds * 50.0).round() as u32
    }

    /// The tokens that may follow.
    fn allowed(&self, written: &[u32]) -> Vec<u32> {
        let mut scores = vec![0.0; self.size()];
        // Times alone would outweigh every text.
        scores[self.first_time as usize..].fill(-20.0);
        forbid(&mut scores, written, self);
        let ids = 0..self.size() as u32;
        ids.filter(|&id| scores[id as usize] > f32::NEG_INFINITY)
            .collect()
    }
}

#[test]
fn languages_and_roles_are_found_by_their_names() {
    let vocabulary = vocabulary();
    assert_eq!(vocabulary.languages().collect::<Vec<_>>(), ["en", "de"]);
    let german = vocabulary.language("de").unwrap().unwrap();
    assert_eq!(vocabulary.language_code(german), Some("de"));
    let unknown = vocabulary.language("tlh").unwrap_err();
    assert!(unknown.contains("en, de"), "{unknown}");
    let plain = vocabulary.encode("a <|de|> b").unwrap();
    assert!(plain.iter().all(|&token| token < vocabulary.end));
    assert!(vocabulary.suppressed.contains(&vocabulary.start));
    let dash = vocabulary.encode("(").unwrap()[0];
    assert!(vocabulary.suppressed.contains(&dash));
}

#[test]
fn a_window_begins_with_a_time_within_its_first_second() {
    let vocabulary = vocabulary();
    let allowed = vocabulary.allowed(&[]);
    let wanted: Vec<u32> = (vocabulary.first_time..=vocabulary.time(1.0)).collect();
    assert_eq!(allowed, wanted);
}

#[test]
fn times_come_in_pairs_and_never_fall() {
    let vocabulary = vocabulary();
    let (a, end) = (0, vocabulary.end);
    // A time opens a segment: text follows, or the end.
    let opened = vocabulary.allowed(&[vocabulary.time(0.5)]);
    assert!(opened.contains(&a) && opened.iter().all(|&id| id < vocabulary.first_time));
    // The closing time is later than the opening one.
    let open = vocabulary.allowed(&[vocabulary.time(0.5), a]);
    assert!(open.contains(&a) && open.contains(&vocabulary.time(0.52)));
    assert!(!open.contains(&vocabulary.time(0.5)));
    // Behind a closing time comes an opening one, not before it, or the end.
    let closed = vocabulary.allowed(&[vocabulary.time(0.5), a, vocabulary.time(2.0)]);
    assert!(closed.contains(&end) && closed.contains(&vocabulary.time(2.0)));
    assert!(!closed.contains(&a) && !closed.contains(&vocabulary.time(1.98)));
}

#[test]
fn text_gives_way_where_all_times_together_are_likelier() {
    let vocabulary = vocabulary();
    let mut scores = vec![0.0; vocabulary.size()];
    forbid(&mut scores, &[vocabulary.time(0.0), 0], &vocabulary);
    assert_eq!(scores[0], f32::NEG_INFINITY);
    let least = 0.0f32.min(log_sum_exp(&[0.0, 0.0]) - 2f32.ln());
    assert!(least.abs() < 1e-6);
}

fn window(vocabulary: &HearingVocabulary, parts: &[(f64, &[u32], Option<f64>)]) -> WindowText {
    let tokens = parts.iter().flat_map(|(from, text, to)| {
        let begin = std::iter::once(vocabulary.time(*from));
        let end = to.map(|to| vocabulary.time(to));
        begin.chain(text.iter().copied()).chain(end)
    });
    WindowText {
        tokens: tokens.collect(),
        ..WindowText::default()
    }
}

#[test]
fn segments_are_cut_where_one_time_follows_another() {
    let vocabulary = vocabulary();
    let check = |text: &WindowText, wanted: &[(f64, f64)], advanced: usize| {
        let (segments, found) = cut(text, 1000, 3000, &vocabulary);
        let times: Vec<_> = segments.iter().map(|one| (one.from, one.to)).collect();
        assert_eq!(times, wanted);
        assert_eq!(found, advanced);
    };
    // Speech past the last complete segment is transcribed again in the next window.
    let goes_on = window(
        &vocabulary,
        &[
            (0.0, &[0], Some(2.0)),
            (2.5, &[1, 2], Some(4.0)),
            (4.0, &[3], None),
        ],
    );
    check(&goes_on, &[(10.0, 12.0), (12.5, 14.0)], 400);
    // A single timestamp at the end: no speech after it.
    let ends = window(
        &vocabulary,
        &[(0.0, &[0], Some(2.0)), (2.5, &[1, 2], Some(4.0))],
    );
    check(&ends, &[(10.0, 12.0), (12.5, 14.0)], 3000);
    let one = window(&vocabulary, &[(0.0, &[0, 1], Some(3.0))]);
    check(&one, &[(10.0, 13.0)], 3000);
    let endless = window(&vocabulary, &[(0.0, &[0, 1], None)]);
    check(&endless, &[(10.0, 40.0)], 3000);
}

#[test]
fn a_file_is_a_whisper_by_its_tensors_and_the_settings_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let golden = &fixtures().join("golden/sound/whisper");
    let write = |name: &str, tensor: &str| {
        let mut writer = GgufWriter::default();
        writer.tensor(tensor, &[1], GgmlDType::F32);
        let path = folder.path().join(name);
        let file = std::fs::File::create(&path).unwrap();
        writer.write(file, |_| Ok(vec![0; 4])).unwrap();
        path
    };
    let whisper = write("whisper.gguf", "model.encoder.conv1.weight");
    let other = write("other.gguf", "token_embd.weight");
    assert!(!HearingSource::is_at(&whisper));
    let error = HearingSource::new(&whisper).load(DeviceChoice::of_tests());
    let error = error.err().unwrap().to_string();
    assert!(error.contains("config.json next to its weights"), "{error}");
    let config = "config.json";
    std::fs::copy(golden.join(config), folder.path().join(config)).unwrap();
    assert!(HearingSource::is_at(&whisper) && HearingSource::is_at(golden));
    assert!(!HearingSource::is_at(&other));
}

/// A file of whisper.cpp with one layer in each half, linear layers in blocks of eight bits. All weights are zero.
fn empty_whisper(folder: &Path) -> PathBuf {
    whisper_that_scores(folder, &[])
}

/// The same, whose decoder gives these tokens a score after any text and the others 0.
fn whisper_that_scores(folder: &Path, scores: &[(u32, i8)]) -> PathBuf {
    const WIDTH: u32 = 32;
    let mut tensors: Vec<(String, Vec<u32>, u32, Vec<u8>)> = Vec::new();
    let mut put = |name: &str, dims: &[u32], is_quantized: bool| {
        let count = dims.iter().product::<u32>() as usize;
        let (number, bytes) = if is_quantized {
            (8, count / 32 * 34)
        } else {
            (0, count * 4)
        };
        tensors.push((name.to_owned(), dims.to_vec(), number, vec![0; bytes]));
    };
    put("encoder.conv1.weight", &[3, 80, WIDTH], false);
    put("encoder.conv1.bias", &[1, WIDTH], false);
    put("encoder.conv2.weight", &[3, WIDTH, WIDTH], false);
    put("encoder.conv2.bias", &[1, WIDTH], false);
    put("encoder.positional_embedding", &[WIDTH, 1500], false);
    put("decoder.positional_embedding", &[WIDTH, 448], false);
    put("decoder.token_embedding.weight", &[WIDTH, 51_865], true);
    for norm in ["encoder.ln_post", "decoder.ln"] {
        put(&format!("{norm}.weight"), &[WIDTH], false);
        put(&format!("{norm}.bias"), &[WIDTH], false);
    }
    for (half, attentions) in [
        ("encoder", &["attn"][..]),
        ("decoder", &["attn", "cross_attn"]),
    ] {
        let stem = format!("{half}.blocks.0");
        for norm in attentions.iter().chain(&["mlp"]) {
            put(&format!("{stem}.{norm}_ln.weight"), &[WIDTH], false);
            put(&format!("{stem}.{norm}_ln.bias"), &[WIDTH], false);
        }
        for attention in attentions {
            for part in ["query", "key", "value", "out"] {
                put(
                    &format!("{stem}.{attention}.{part}.weight"),
                    &[WIDTH, WIDTH],
                    true,
                );
                if part != "key" {
                    put(&format!("{stem}.{attention}.{part}.bias"), &[WIDTH], false);
                }
            }
        }
        for (part, [from, to]) in [("mlp.0", [WIDTH, 4 * WIDTH]), ("mlp.2", [4 * WIDTH, WIDTH])] {
            put(&format!("{stem}.{part}.weight"), &[from, to], true);
            put(&format!("{stem}.{part}.bias"), &[to], false);
        }
    }
    for (name, _, _, bytes) in &mut tensors {
        match name.as_str() {
            "decoder.ln.bias" => bytes[..4].copy_from_slice(&1.0_f32.to_le_bytes()),
            "decoder.token_embedding.weight" => {
                for (token, score) in scores {
                    // A block has a scale of 16 bits and 32 numbers.
                    let block = &mut bytes[*token as usize * 34..];
                    block[..2].copy_from_slice(&0x3c00_u16.to_le_bytes());
                    block[2] = score.to_le_bytes()[0];
                }
            }
            _ => {}
        }
    }
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, dims, number, bytes)| (name.as_str(), dims.as_slice(), *number, bytes.clone()))
        .collect();
    let tokens: Vec<Vec<u8>> = (0..50_257_u32)
        .map(|id| {
            id.to_le_bytes()
                .into_iter()
                .take(if id < 256 { 1 } else { 3 })
                .collect()
        })
        .collect();
    let sizes = [51_865, 1500, WIDTH, 1, 1, 448, WIDTH, 1, 1, 80, 2007];
    let path = folder.join("ggml-small-q8_0.bin");
    std::fs::write(&path, whisper_cpp_file(sizes, &tokens, &tensors)).unwrap();
    path
}

#[test]
fn a_file_of_whisper_cpp_is_loaded_with_its_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let path = empty_whisper(folder.path());
    for place in [&path, folder.path()] {
        assert!(HearingSource::is_at(place));
        let pipeline = HearingSource::new(place)
            .load(DeviceChoice::of_tests())
            .unwrap();
        let vocabulary = &pipeline.model.vocabulary;
        assert_eq!((vocabulary.end, vocabulary.first_time), (50_257, 50_364));
        assert_eq!(vocabulary.decode(&vocabulary.encode("abc").unwrap()), "abc");
        assert_eq!(pipeline.model.alignment, [(0, 0)]);
    }
}

#[test]
fn the_likeliest_of_the_named_languages_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let (german, spanish, french) = (50_261, 50_262, 50_265);
    let scores = [(spanish, 20), (german, 50), (french, 100)];
    let path = whisper_that_scores(folder.path(), &scores);
    let pipeline = HearingSource::new(path)
        .load(DeviceChoice::of_tests())
        .unwrap();
    let heard = |languages: &[&str]| {
        let request = TranscriptRequest {
            languages: languages.iter().map(|code| (*code).to_owned()).collect(),
            ..request(440.0)
        };
        let mut job = pipeline.begin(request.into()).unwrap();
        loop {
            match job.advance().unwrap() {
                Advance::Made(Output::Transcript(part)) => return part.language,
                Advance::Busy | Advance::Step { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    };
    assert_eq!(heard(&[]), "fr");
    assert_eq!(heard(&["es", "de"]), "de");
    assert_eq!(heard(&["de", "es", "fr", "en"]), "fr");
    assert_eq!(heard(&["en", "es"]), "es");
    assert_eq!(heard(&["en"]), "en");
    let unknown = TranscriptRequest {
        languages: vec!["de".to_owned(), "tlh".to_owned()],
        ..request(440.0)
    };
    let refused = pipeline.check(&unknown.into()).unwrap_err().to_string();
    assert!(refused.contains("\"tlh\""), "{refused}");
}

#[test]
fn one_job_reads_the_texts_of_all_that_are_still_there() {
    let folder = tempfile::tempdir().unwrap();
    let source = HearingSource::new(empty_whisper(folder.path()));
    let pipeline = source.load(DeviceChoice::of_tests()).unwrap();
    let model = &pipeline.model;
    let states = Tensor::zeros((1, 1500, 32), DType::F32, &model.device).unwrap();
    let window = Arc::new(model.network.cross(&states).unwrap());
    let read = |tokens: usize, wanted: Vec<usize>| {
        let text = TextAhead {
            cache: model.network.cache().unwrap(),
            tokens: vec![1; tokens],
            wanted,
        };
        Box::pin(model.read_one(&window, text))
    };
    let mut context = Context::from_waker(Waker::noop());
    let (mut first, mut second, mut gone) =
        (read(3, vec![0, 2]), read(1, vec![0]), read(2, vec![]));
    for job in [&mut first, &mut second, &mut gone] {
        assert!(job.as_mut().poll(&mut context).is_pending());
    }
    drop(gone);
    let shape = |job: Poll<candle_core::Result<TextScores>>| {
        let Poll::Ready(Ok(read)) = job else {
            panic!("the text is read");
        };
        (read.cache.length(), read.scores.len())
    };
    assert_eq!(shape(first.as_mut().poll(&mut context)), (3, 2));
    // All texts are read: the second job finds its scores.
    assert_eq!(model.reading.left(), 0);
    assert_eq!(shape(second.as_mut().poll(&mut context)), (1, 1));

    let mut long = read(449, vec![0]);
    let Poll::Ready(Err(error)) = long.as_mut().poll(&mut context) else {
        panic!("a text that is too long is refused before others could read it");
    };
    assert!(error.to_string().contains("449 tokens"), "{error}");
}

#[test]
fn a_network_in_a_gguf_file_hears_the_same() {
    let heard = |path: &Path| {
        assert!(HearingSource::is_at(path));
        let pipeline = HearingSource::new(path).load(DeviceChoice::of_tests());
        let request = MakeRequest::from(request(440.0));
        suite::follow(&pipeline.unwrap(), request).outputs
    };
    let folder = model();
    let expected = heard(folder.path());
    assert!(expected.len() > 1);
    put_in_gguf(folder.path(), None, |name| Some(name.to_owned()));
    assert_eq!(heard(folder.path()), expected);
    assert_eq!(heard(&folder.path().join("any.gguf")), expected);
}

/// A network of random weights rarely writes the likeliest text greedily: about one window in twenty, which this one is
/// not. The candidates of a search share their source's KV cache.
#[test]
fn a_search_finds_likelier_texts() {
    let folder = model();
    let pipeline = HearingSource::new(folder.path()).load(DeviceChoice::of_tests());
    let model = pipeline.unwrap().model;
    let spec = model.network.spec();
    let shape = (1, spec.positions, spec.width);
    let mut state = 1_u32;
    let numbers = (0..spec.positions * spec.width).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        3.4 * (state >> 8) as f32 / (1 << 24) as f32 - 1.7
    });
    let states = Tensor::from_iter(numbers, &model.device);
    let states = states.and_then(|states| states.reshape(shape)).unwrap();
    let window = Arc::new(model.network.cross(&states).unwrap());
    let opening = [model.vocabulary.start];
    let written = |beams: usize| {
        let task = WindowTask {
            opening: &opening,
            earlier: &[],
            temperature: None,
            beams,
            seed: 1,
            index: 0,
        };
        let mut writing = Box::pin(attempt(&model, &window, &task, 0.0));
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(text) = writing.as_mut().poll(&mut context) {
                return text.unwrap();
            }
        }
    };
    let texts = [1, 2, 5].map(written);
    let sum = |text: &WindowText| text.average_logprob * (text.tokens.len() + 1) as f32;
    let again = rescored(&model, &window, &opening, &texts[2].tokens);
    assert!((sum(&texts[2]) - again).abs() < 1e-2, "{again}");
    assert!(texts[1].average_logprob >= texts[0].average_logprob - 1e-4);
    assert!(texts[2].average_logprob > texts[0].average_logprob);
}

/// The sum of the log probabilities of a text, decoded token by token with a separate cache.
fn rescored(
    model: &HearingModel,
    window: &Arc<WindowKeys>,
    opening: &[u32],
    tokens: &[u32],
) -> f32 {
    let mut cache = Some(model.network.cache().unwrap());
    let mut next = opening.to_vec();
    let mut sum = 0.0;
    let most = model.network.spec().context / 2;
    for at in 0..=tokens.len() {
        let text = TextAhead {
            cache: cache.take().unwrap(),
            wanted: vec![next.len() - 1],
            tokens: next,
        };
        let mut reading = Box::pin(model.read_one(window, text));
        let mut context = Context::from_waker(Waker::noop());
        let read = loop {
            if let Poll::Ready(read) = reading.as_mut().poll(&mut context) {
                break read.unwrap();
            }
        };
        let mut scores = read.scores.concat();
        forbid(&mut scores, &tokens[..at], &model.vocabulary);
        // A text of the greatest length has no end.
        let token = match tokens.get(at) {
            Some(&token) => token,
            None if tokens.len() == most => break,
            None => model.vocabulary.end,
        };
        sum += scores[token as usize] - log_sum_exp(&scores);
        cache = Some(read.cache);
        next = vec![token];
    }
    sum
}
