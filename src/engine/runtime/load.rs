//! Loads a model onto the device, and allocates its KV cache.

use std::path::PathBuf;

use candle_core::{DType, Device};

use super::encode::{self, Encode, Encoding, Purpose};
use super::eyes::Eyes;
use super::model::{self, Model, PagedDecoder};
use super::single_sequence::SingleSequenceModel;
use super::text::{EmbeddedText, Isolation, Language, TextError, TextSource};
use super::{ImageInput, ModelInfo, Sampling};
use crate::networks::single_sequence::{self, SingleSequenceSpec};
use crate::networks::text::{Decoder, DecoderSpec, LoadOptions};
use crate::networks::vision::VisionTower;
use crate::networks::weights::{Checkpoint, CheckpointError, Quantize};
use muster_kernels::{KvDtype, PAGE_TOKENS};

/// Default size of the KV cache: this many tokens, or the model's context if that is less.
pub const DEFAULT_CACHE_TOKENS: usize = 16_384;

/// Location and load options of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSource {
    /// A `.gguf` file, a `.safetensors` file next to its configuration, or a folder.
    pub path: PathBuf,
    /// Replaces the model's tokenizer.
    pub tokenizer: Option<PathBuf>,
    /// Replaces the model's chat template.
    pub template: Option<String>,
    /// Quantize dense weights while loading.
    pub quantize: Option<Quantize>,
    /// Hold dense weights as this type; `None` leaves them as they are stored.
    pub dtype: Option<DType>,
    /// The most tokens of one sequence, when less than the model could.
    pub context: Option<usize>,
    pub cache: CacheRoom,
    /// How keys and values are stored; `None` is as exact as the weights on the CPU, and half as wide elsewhere.
    pub kv: Option<KvDtype>,
    /// Take precedence over the recommendations in the model's files.
    pub defaults: Sampling,
    /// Parses tokenizer and chat template in a separate process, because the files are untrusted.
    pub isolation: Option<Isolation>,
}

/// Size of the KV cache for all sequences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheRoom {
    /// [`DEFAULT_CACHE_TOKENS`].
    #[default]
    Default,
    Tokens(usize),
    Bytes(u64),
}

/// A model that is ready to run.
pub struct Loaded {
    pub network: LoadedNetwork,
    pub language: Language,
    pub info: ModelInfo,
    pub defaults: Sampling,
    /// `None` for a model without vision.
    pub images: Option<ImageInput>,
}

/// The part of a model that computes.
pub enum LoadedNetwork {
    /// A generative model with this many pages in its KV cache.
    Text { model: Box<dyn Model>, pages: usize },
    /// Reads and does not write.
    Encoder(Box<dyn Encode>),
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{name} is already loaded")]
    AlreadyLoaded { name: String },
    #[error("{base} is not loaded, or writes no text, so that it takes no adapter {name}")]
    NoBase { name: String, base: String },
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("the KV cache holds {found} tokens, but one page takes {PAGE_TOKENS}")]
    CacheTooSmall { found: u64 },
    #[error(
        "keys and values are stored as {dtype} where 32 divides the size of a head, which is {head_dim}; use f16"
    )]
    KvHeadSize { dtype: KvDtype, head_dim: usize },
    #[error("latents are stored as f32, f16 or bf16, not {dtype}; use f16")]
    KvLatents { dtype: KvDtype },
    #[error(
        "the decoder reads in both directions and writes no text; put modules.json and the folders that it names beside it"
    )]
    Bidirectional,
    #[error(
        "networks of candle-transformers hold weights, keys and values as f32: {setting} does not apply to them; leave it out"
    )]
    SingleSequence { setting: &'static str },
    #[error("the model reads images, but its files name no tokens for them: {0}")]
    ImageTokens(String),
    #[error("the device failed: {0}")]
    Device(String),
    #[error("loading {name} panicked: {message}")]
    Panicked { name: String, message: String },
    #[error("the engine has stopped")]
    Stopped,
}

impl ModelSource {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            tokenizer: None,
            template: None,
            quantize: None,
            dtype: None,
            context: None,
            cache: CacheRoom::Default,
            kv: None,
            defaults: Sampling::default(),
            isolation: None,
        }
    }
}

/// Opens, checks and loads a model. The text side comes first: it is quick, and as likely to be wrong.
pub fn load_model(
    source: &ModelSource,
    device: &Device,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, LoadError> {
    let checkpoint = Checkpoint::open(&source.path)?;
    if let Some(encoding) = encode::open(&checkpoint, &source.path)? {
        return load_encoder(encoding, &checkpoint, source, device, progress);
    }
    match SingleSequenceSpec::of(&checkpoint)? {
        Some(spec) => load_single_sequence(&spec, &checkpoint, source, device, progress),
        None => load_decoder(&checkpoint, source, device, progress),
    }
}

fn load_encoder(
    encoding: Encoding,
    checkpoint: &Checkpoint,
    source: &ModelSource,
    device: &Device,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, LoadError> {
    let language = open_language(source, checkpoint)?;
    let longest = encoding.context();
    let (purpose, vocabulary) = (encoding.purpose(), encoding.vocabulary());
    let (network, weight_bytes) = encoding.load(checkpoint, source, device, progress)?;
    let info = ModelInfo {
        name: String::new(),
        parent: None,
        purpose,
        vocabulary,
        context: source.context.unwrap_or(longest).min(longest),
        weight_bytes,
        cache_bytes: 0,
        cache_tokens: 0,
        can_chat: false,
        reads_images: false,
        runs_one_job: false,
        files: checkpoint.summary(),
    };
    let defaults = language.defaults.clone();
    Ok(Loaded {
        network: LoadedNetwork::Encoder(network),
        language,
        info,
        defaults,
        images: None,
    })
}

fn load_decoder(
    checkpoint: &Checkpoint,
    source: &ModelSource,
    device: &Device,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, LoadError> {
    let spec = checkpoint.spec()?;
    if spec.is_bidirectional {
        return Err(LoadError::Bidirectional);
    }
    let language = open_language(source, checkpoint)?;
    let context = source.context.unwrap_or(spec.context).min(spec.context);
    let options = LoadOptions {
        quantize: source.quantize,
        dtype: source.dtype,
        context: Some(context),
        is_headless: false,
    };
    check_kv(source.kv, &spec)?;
    let eyes = Eyes::open(checkpoint, &spec, device)?;
    let decoder = Decoder::load(checkpoint, device, &options, progress)?;
    let kv = source.kv.unwrap_or(decoder.kv_dtype());
    let pages = pages(source.cache, context, spec.kv_bytes_per_token(kv))?;
    let tower = eyes.as_ref().map(|eyes| eyes.load(checkpoint, device));
    let tower = tower.transpose()?;
    let tower_bytes = tower.as_ref().map_or(0, VisionTower::weight_bytes);
    let weight_bytes = decoder.weight_bytes() + tower_bytes;
    let model = PagedDecoder::new(decoder, pages, kv)
        .map_err(|error| LoadError::Device(model::plain(&error)))?
        .with_tower(tower);
    let images = eyes.map(|eyes| eyes.into_input(&language)).transpose()?;
    let info = ModelInfo {
        name: String::new(),
        parent: None,
        purpose: Purpose::Generate,
        vocabulary: spec.vocab_size,
        context: context.min(pages * PAGE_TOKENS),
        weight_bytes,
        cache_bytes: model.cache_bytes(),
        cache_tokens: pages * PAGE_TOKENS,
        can_chat: language.brings_template(),
        reads_images: images.is_some(),
        runs_one_job: false,
        files: checkpoint.summary(),
    };
    let defaults = language.defaults.clone();
    Ok(Loaded {
        network: LoadedNetwork::Text {
            model: Box::new(model),
            pages,
        },
        language,
        info,
        defaults,
        images,
    })
}

fn load_single_sequence(
    spec: &SingleSequenceSpec,
    checkpoint: &Checkpoint,
    source: &ModelSource,
    device: &Device,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Loaded, LoadError> {
    check_single_sequence(source)?;
    let language = open_language(source, checkpoint)?;
    let context = source.context.unwrap_or(spec.context).min(spec.context);
    let kv_bytes = spec.kv_bytes_per_token();
    let pages = pages(source.cache, context, kv_bytes)?.min(context.div_ceil(PAGE_TOKENS));
    let context = context.min(pages * PAGE_TOKENS);
    let network = single_sequence::load(spec, checkpoint, context, device, progress)?;
    let info = ModelInfo {
        name: String::new(),
        parent: None,
        purpose: Purpose::Generate,
        vocabulary: spec.vocab_size,
        context,
        weight_bytes: spec.weight_bytes(checkpoint),
        cache_bytes: kv_bytes * (pages * PAGE_TOKENS) as u64,
        cache_tokens: pages * PAGE_TOKENS,
        can_chat: language.brings_template(),
        reads_images: false,
        runs_one_job: true,
        files: checkpoint.summary(),
    };
    let defaults = language.defaults.clone();
    let model = SingleSequenceModel::new(network, spec.vocab_size, context, device.clone());
    Ok(Loaded {
        network: LoadedNetwork::Text {
            model: Box::new(model),
            pages,
        },
        language,
        info,
        defaults,
        images: None,
    })
}

/// Refuses settings that networks of candle-transformers cannot follow.
pub fn check_single_sequence(source: &ModelSource) -> Result<(), LoadError> {
    let is_other = |dtype: Option<DType>| dtype.is_some_and(|dtype| dtype != DType::F32);
    let is_narrow = |kv: Option<KvDtype>| kv.is_some_and(|kv| kv != KvDtype::F32);
    for (setting, is_refused) in [
        ("quantization while loading", source.quantize.is_some()),
        ("another type of weights", is_other(source.dtype)),
        ("the setting kv_cache", is_narrow(source.kv)),
    ] {
        if is_refused {
            return Err(LoadError::SingleSequence { setting });
        }
    }
    Ok(())
}

/// Refuses a type that the heads cannot be stored as.
pub fn check_kv(kv: Option<KvDtype>, spec: &DecoderSpec) -> Result<(), LoadError> {
    match kv {
        Some(dtype) if spec.latent.is_some() && dtype == KvDtype::Q8_0 => {
            Err(LoadError::KvLatents { dtype })
        }
        Some(dtype) => match spec.head_that_cannot_be_stored(dtype) {
            Some(head_dim) => Err(LoadError::KvHeadSize { dtype, head_dim }),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

fn open_language(source: &ModelSource, checkpoint: &Checkpoint) -> Result<Language, LoadError> {
    let embedded = checkpoint
        .gguf_metadata()
        .map(EmbeddedText::from_gguf)
        .transpose()?;
    let is_self_contained = embedded
        .as_ref()
        .is_some_and(|embedded| embedded.vocabulary.is_some());
    let folder = if source.path.is_dir() {
        Some(source.path.as_path())
    } else {
        source.path.parent()
    };
    Ok(Language::open(TextSource {
        folder: folder.filter(|_| !is_self_contained),
        embedded: embedded.as_ref(),
        unigram: None,
        is_read_only: false,
        tokenizer: source.tokenizer.as_deref(),
        template: source.template.as_deref(),
        defaults: Some(&source.defaults),
        isolation: source.isolation.as_ref(),
    })?)
}

fn pages(room: CacheRoom, context: usize, bytes_per_token: u64) -> Result<usize, LoadError> {
    let tokens = match room {
        CacheRoom::Default => DEFAULT_CACHE_TOKENS.min(context) as u64,
        CacheRoom::Tokens(tokens) => tokens as u64,
        CacheRoom::Bytes(bytes) => bytes / bytes_per_token.max(1),
    };
    let pages = match room {
        // A budget in bytes is an upper limit; a number of tokens is a lower limit.
        CacheRoom::Bytes(_) => tokens / PAGE_TOKENS as u64,
        _ => tokens.div_ceil(PAGE_TOKENS as u64),
    };
    match usize::try_from(pages) {
        Ok(pages) if pages > 0 && u32::try_from(pages).is_ok() => Ok(pages),
        _ => Err(LoadError::CacheTooSmall { found: tokens }),
    }
}

/// A loader for [`Engine`](super::engine::Engine) that puts models on this device.
pub fn loader(device: Device) -> super::engine::Loader {
    Box::new(move |source, progress| load_model(source, &device, progress))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;

    use serde_json::json;

    use super::{CacheRoom, LoadError, ModelSource, open_language, pages};
    use crate::networks::weights::{Checkpoint, GgufValue, GgufWriter, fuzz::fuzz};
    use crate::runtime::{Chat, PairTemplate, Prompt};

    fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> GgufValue {
        let texts = texts.into_iter().map(str::to_owned);
        GgufValue::List(texts.map(GgufValue::Text).collect())
    }

    /// A file of nothing but a vocabulary, `words` first in it, and a chat template.
    fn text_side(model: &str, words: &[&str], key: &str, value: GgufValue) -> Vec<u8> {
        let letters: Vec<String> = ('!'..='~').map(String::from).collect();
        let words = ["<unk>", "<s>", "</s>"]
            .into_iter()
            .chain(words.iter().copied());
        let tokens: Vec<&str> = words.chain(letters.iter().map(String::as_str)).collect();
        let kind = |id| GgufValue::Signed(if id < 3 { 3 } else { 1 });
        let template = "{{ bos_token }}{% for m in messages %}{{ m.content | trim }}{% endfor %}";
        let mut writer = GgufWriter::default();
        writer
            .text("tokenizer.ggml.model", model)
            .unsigned("tokenizer.ggml.unknown_token_id", 0)
            .unsigned("tokenizer.ggml.bos_token_id", 1)
            .unsigned("tokenizer.ggml.eos_token_id", 2)
            .value("tokenizer.ggml.add_bos_token", GgufValue::Bool(true))
            .text("tokenizer.chat_template", template)
            .value(key, value)
            .value(
                "tokenizer.ggml.token_type",
                GgufValue::List((0..tokens.len()).map(kind).collect()),
            )
            .value("tokenizer.ggml.tokens", texts(tokens));
        let mut file = Vec::new();
        writer.write(&mut file, |_| Ok(Vec::new())).unwrap();
        file
    }

    /// Tokenizer metadata of an encoder with this pooling.
    fn reading_side(pooling: u64) -> Vec<u8> {
        let letters = ('!'..='~').map(String::from);
        let tokens = ["<unk>", "<s>", "</s>"].map(str::to_owned);
        let tokens: Vec<String> = tokens.into_iter().chain(letters).collect();
        let kind = |id| GgufValue::Signed(if id < 3 { 3 } else { 1 });
        let scores = vec![GgufValue::Float(0.0); tokens.len()];
        let mut writer = GgufWriter::default();
        writer
            .text("general.architecture", "qwen3")
            .unsigned("qwen3.pooling_type", pooling)
            .text("tokenizer.ggml.model", "llama")
            .unsigned("tokenizer.ggml.unknown_token_id", 0)
            .unsigned("tokenizer.ggml.bos_token_id", 1)
            .unsigned("tokenizer.ggml.eos_token_id", 2)
            .value("tokenizer.ggml.add_bos_token", GgufValue::Bool(true))
            .value("tokenizer.ggml.add_eos_token", GgufValue::Bool(true))
            .value("tokenizer.ggml.add_space_prefix", GgufValue::Bool(false))
            .text("tokenizer.chat_template", "nothing")
            .text(
                "tokenizer.chat_template.rerank",
                "<s>q=\"{query}\"{{d={document}</s>",
            )
            .value("tokenizer.ggml.scores", GgufValue::List(scores))
            .value(
                "tokenizer.ggml.token_type",
                GgufValue::List((0..tokens.len()).map(kind).collect()),
            )
            .value(
                "tokenizer.ggml.tokens",
                texts(tokens.iter().map(String::as_str)),
            );
        let mut file = Vec::new();
        writer.write(&mut file, |_| Ok(Vec::new())).unwrap();
        file
    }

    #[test]
    fn texts_that_are_pooled_end_with_eos_and_pairs_have_a_text_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let language = |pooling: u64| {
            std::fs::write(&path, reading_side(pooling)).unwrap();
            let checkpoint = Checkpoint::open(&path).unwrap();
            open_language(&ModelSource::new(&path), &checkpoint).unwrap()
        };
        let text = |text: &str| Prompt::Text(text.to_owned());
        let last = |pooling| language(pooling).read(&text("a"), true).unwrap().pop();
        assert_eq!(last(3), Some(2));
        assert_ne!(last(0), Some(2));
        let ranking = language(4);
        let pair = Prompt::Chat(PairTemplate::default().chat("{{x}}", "{document}"));
        let wanted = text("<s>q=\"{{x}}\"{{d={document}</s>");
        let wanted = ranking.read(&wanted, false).unwrap();
        assert_eq!(ranking.read(&pair, false).unwrap(), wanted);
    }

    /// A chat read as a loaded model would read it.
    fn read_a_chat(path: &Path) -> Option<Vec<u32>> {
        let checkpoint = Checkpoint::open(path).ok()?;
        let language = open_language(&ModelSource::new(path), &checkpoint).ok()?;
        let chat = Chat {
            messages: vec![json!({"role": "user", "content": "hello there"})],
            ..Chat::default()
        };
        let prompt = Prompt::Chat(chat);
        // A thread keeps a cache of each tokenizer it ever used, so each gets a thread.
        let read = thread::scope(|scope| scope.spawn(|| language.prompt_tokens(&prompt)).join());
        read.unwrap().ok()
    }

    fn check_fuzzed(valid: &[u8]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        fuzz(valid, 1000, |file| {
            std::fs::write(&path, file).unwrap();
            match read_a_chat(&path) {
                Some(_) => None,
                None => Some(()),
            }
        });
    }

    #[test]
    fn fuzzed_byte_pairs_and_templates_are_refused_or_read() {
        let words = ["Ġ", "he", "ll", "hell", "Ġt", "re"];
        let merges = texts(["h e", "l l", "he ll", "Ġ t", "r e"]);
        check_fuzzed(&text_side("gpt2", &words, "tokenizer.ggml.merges", merges));
    }

    #[test]
    fn fuzzed_sentence_pieces_and_templates_are_refused_or_read() {
        let words = ["▁", "▁h", "el", "lo", "▁hello", "▁t", "he", "<0x0A>"];
        // One score per word, per letter and per special token before them.
        let scores = (0..3 + words.len() + 94).map(|id| GgufValue::Float(-(id as f64)));
        let scores = GgufValue::List(scores.collect());
        check_fuzzed(&text_side("llama", &words, "tokenizer.ggml.scores", scores));
    }

    #[test]
    fn the_cache_is_counted_in_whole_pages() {
        assert_eq!(pages(CacheRoom::Tokens(33), 2048, 100).ok(), Some(2));
        assert_eq!(pages(CacheRoom::Bytes(6500), 2048, 100).ok(), Some(2));
        assert_eq!(pages(CacheRoom::Default, 2048, 100).ok(), Some(64));
        let too_small = pages(CacheRoom::Bytes(100), 2048, 100);
        assert!(matches!(
            too_small,
            Err(LoadError::CacheTooSmall { found: 1 })
        ));
    }
}
