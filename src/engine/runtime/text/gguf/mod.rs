//! The tokenizer that a GGUF file carries in its metadata.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{AddedToken, ModelWrapper};

use super::TextError;
use super::tokenizer::byte_characters;

/// The vocabulary of a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Vocabulary {
    pub kind: VocabularyKind,
    pub tokens: Vec<String>,
    /// The format's type of each token, or empty.
    pub types: Vec<u64>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    /// Whether a text begins with BOS; the kind decides where the file does not.
    pub add_bos: Option<bool>,
    /// Whether a text ends with EOS.
    pub add_eos: bool,
    /// Whether a space is prepended to a text (SentencePiece only).
    pub add_space_prefix: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum VocabularyKind {
    /// Byte-level BPE; `pre` names how text is cut into words first.
    BytePairs { pre: String, merges: Vec<String> },
    /// Pairs of characters with byte fallback, without words: spaces are part of tokens (Gemma 4).
    CharacterPairs { merges: Vec<String> },
    /// BERT's: a word is its longest beginning that is a token, then the longest of the rest. Tokens that begin a word have a mark
    /// before them.
    WordPieces,
    /// SentencePiece BPE with byte fallback: of all neighbours the pair with the best score merges.
    SentencePiece {
        #[serde(with = "exact")]
        scores: Vec<f64>,
    },
}

/// Scores as their bits: JSON knows no infinity, and a file may have one.
mod exact {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(scores: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(scores.iter().map(|score| score.to_bits()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<f64>, D::Error> {
        let bits = Vec::<u64>::deserialize(reader)?;
        Ok(bits.into_iter().map(f64::from_bits).collect())
    }
}

impl Default for VocabularyKind {
    fn default() -> Self {
        Self::SentencePiece { scores: Vec::new() }
    }
}

const NORMAL: u64 = 1;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNKNOWN: u64 = 2;

/// Prefix of a token that continues a word.
const WORD_END: &str = "##";

/// The longest tokens of real files are runs of a hundred spaces or dashes. Finding a token's merges takes the square
/// of its length.
const MAX_TOKEN_BYTES: usize = 1 << 10;
/// Four times the largest vocabulary, and its merges.
const MAX_TOKENS: usize = 1 << 20;
const MAX_MERGES: usize = 1 << 21;
/// All tokens together: four times the largest vocabulary's.
const MAX_TOKENS_BYTES: usize = 16 << 20;
/// Control and user-defined tokens together, which are matched in every text by an automaton of a hundred times their
/// size. Real files have thousands of such tokens.
const MAX_ADDED_BYTES: usize = 1 << 20;
/// Memory of the merges; those of the largest known vocabulary take a quarter.
const MAX_PAIR_BYTES: usize = 128 << 20;
/// Broken merges are shown up to this length.
const SHOWN_CHARS: usize = 40;

const LLAMA_3_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_35_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT_4O_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_3_WORDS: &[&str] = &[
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
const DEEPSEEK_LLM_WORDS: &[&str] = &[
    r"[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u{1F5F}-\u{1F7D}ᾀ-ᾴᾶ-\u{1FBC}\u{1FBE}ῂ-ῄῆ-ῌ\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212A}-\u{212D}ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-퟿]+",
    r"\p{N}+",
];
const DEEPSEEK_CODER_WORDS: &[&str] = &[
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    "[一-龥ࠀ-一가-퟿]+",
    r"\p{N}",
];
const TEKKEN_WORDS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl Vocabulary {
    /// GPT-2's byte pairs from the bytes of each token, where the lowest number merges first. The control tokens follow
    /// them.
    pub fn of_ranks(tokens: &[Vec<u8>], control: Vec<String>) -> Result<Self, TextError> {
        let characters = byte_characters();
        let spelled = |token: &Vec<u8>| {
            token
                .iter()
                .map(|&byte| characters[usize::from(byte)])
                .collect()
        };
        let mut vocabulary = Self {
            tokens: tokens.iter().map(spelled).collect(),
            ..Self::default()
        };
        vocabulary.check_tokens(&[])?;
        let scores: Vec<f64> = (0..tokens.len()).map(|rank| -(rank as f64)).collect();
        let merges = vocabulary.merges_by(&scores)?.into_iter();
        vocabulary.kind = VocabularyKind::BytePairs {
            pre: "gpt-2".to_owned(),
            merges: merges
                .map(|(left, right)| format!("{left} {right}"))
                .collect(),
        };
        vocabulary.types = [vec![NORMAL; tokens.len()], vec![CONTROL; control.len()]].concat();
        vocabulary.tokens.extend(control);
        Ok(vocabulary)
    }

    pub fn tokenizer(&self) -> Result<tokenizers::Tokenizer, TextError> {
        let added = self.added_tokens();
        self.check_tokens(&added)?;
        let mut tokenizer = match &self.kind {
            VocabularyKind::BytePairs { pre, merges } => self.byte_pairs(pre, merges)?,
            VocabularyKind::CharacterPairs { merges } => {
                self.characters(pairs(merges, &self.ids())?, false)?
            }
            VocabularyKind::SentencePiece { scores } => self.sentence_piece(scores)?,
            VocabularyKind::WordPieces => self.word_pieces()?,
        };
        if let Some(processor) = self.marks_processor() {
            tokenizer
                .with_post_processor(Some(part::<tokenizers::PostProcessorWrapper>(processor)?));
        }
        tokenizer.add_tokens(added).map_err(broken)?;
        Ok(tokenizer)
    }

    fn check_tokens(&self, added: &[AddedToken]) -> Result<(), TextError> {
        check_count("tokenizer.ggml.tokens", self.tokens.len(), MAX_TOKENS)?;
        if let VocabularyKind::BytePairs { merges, .. }
        | VocabularyKind::CharacterPairs { merges } = &self.kind
        {
            check_count("tokenizer.ggml.merges", merges.len(), MAX_MERGES)?;
        }
        let lengths = self.tokens.iter().map(String::len);
        if let Some((length, id)) = lengths.clone().zip(0_usize..).max() {
            check_bytes(&format!("token {id}"), length, MAX_TOKEN_BYTES)?;
        }
        check_bytes("all tokens", lengths.sum(), MAX_TOKENS_BYTES)?;
        let added = added.iter().map(|token| token.content.len()).sum();
        check_bytes(
            "all control and user-defined tokens",
            added,
            MAX_ADDED_BYTES,
        )
    }

    fn byte_pairs(&self, pre: &str, merges: &[String]) -> Result<tokenizers::Tokenizer, TextError> {
        let words = Words::named(pre)?;
        let ids = self.ids();
        let merges = pairs(merges, &ids)?;
        let model = BPE::builder()
            .vocab_and_merges(ids, merges)
            .ignore_merges(words.takes_whole_tokens())
            .build()
            .map_err(broken)?;
        let mut tokenizer = tokenizers::Tokenizer::new(ModelWrapper::BPE(model));
        if words == Words::Qwen2 {
            let normalizer = part::<tokenizers::NormalizerWrapper>(json!({"type": "NFC"}))?;
            tokenizer
                .with_normalizer(Some(normalizer))
                .map_err(broken)?;
        }
        tokenizer.with_pre_tokenizer(Some(part::<tokenizers::PreTokenizerWrapper>(
            words.pre_tokenizer(),
        )?));
        tokenizer.with_decoder(Some(part::<tokenizers::DecoderWrapper>(byte_level(true))?));
        Ok(tokenizer)
    }

    fn sentence_piece(&self, scores: &[f64]) -> Result<tokenizers::Tokenizer, TextError> {
        let has_prefix = self.add_space_prefix.unwrap_or(true);
        self.characters(self.merges_by(scores)?, has_prefix)
    }

    fn characters(
        &self,
        merges: Merges,
        has_prefix: bool,
    ) -> Result<tokenizers::Tokenizer, TextError> {
        let mut model = BPE::builder()
            .vocab_and_merges(self.ids(), merges)
            .byte_fallback(true)
            .fuse_unk(true);
        if let Some(unknown) = self.unknown.and_then(|id| self.tokens.get(id as usize)) {
            model = model.unk_token(unknown.clone());
        }
        let model = model.build().map_err(broken)?;
        let mut tokenizer = tokenizers::Tokenizer::new(ModelWrapper::BPE(model));
        let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let normalizer = match has_prefix {
            true => {
                json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, spaces]})
            }
            false => spaces,
        };
        let normalizer = part::<tokenizers::NormalizerWrapper>(normalizer)?;
        tokenizer
            .with_normalizer(Some(normalizer))
            .map_err(broken)?;
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": usize::from(has_prefix), "stop": 0},
        ]});
        tokenizer.with_decoder(Some(part::<tokenizers::DecoderWrapper>(decoder)?));
        Ok(tokenizer)
    }

    fn word_pieces(&self) -> Result<tokenizers::Tokenizer, TextError> {
        let is_mark = |id: usize| matches!(self.types.get(id), Some(&(CONTROL | UNKNOWN)));
        let spelled = |(id, token): (usize, &String)| match token.strip_prefix('▁') {
            _ if is_mark(id) => token.clone(),
            Some(beginning) => beginning.to_owned(),
            None => format!("{WORD_END}{token}"),
        };
        let spelled: Vec<String> = self.tokens.iter().enumerate().map(spelled).collect();
        let has_capitals = (0..).zip(&spelled).any(|(id, token)| {
            let is_unused = token.starts_with("[unused");
            !is_mark(id) && !is_unused && token.chars().any(|letter| letter.is_ascii_uppercase())
        });
        let mut ids = Vocab::default();
        for (id, token) in (0_u32..).zip(spelled) {
            ids.entry(token).or_insert(id);
        }
        let unknown = self.unknown.and_then(|id| self.tokens.get(id as usize));
        let unknown = unknown
            .ok_or_else(|| TextError::broken("tokenizer.ggml.unknown_token_id", "no such token"))?;
        let model = WordPiece::builder()
            .vocab(ids)
            .unk_token(unknown.clone())
            .continuing_subword_prefix(WORD_END.to_owned())
            .build()
            .map_err(broken)?;
        let mut tokenizer = tokenizers::Tokenizer::new(ModelWrapper::WordPiece(model));
        let normalizer = part::<tokenizers::NormalizerWrapper>(json!({
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": !has_capitals,
        }))?;
        tokenizer
            .with_normalizer(Some(normalizer))
            .map_err(broken)?;
        let words = part::<tokenizers::PreTokenizerWrapper>(json!({"type": "BertPreTokenizer"}))?;
        tokenizer.with_pre_tokenizer(Some(words));
        let decoder = json!({"type": "WordPiece", "prefix": WORD_END, "cleanup": true});
        tokenizer.with_decoder(Some(part::<tokenizers::DecoderWrapper>(decoder)?));
        Ok(tokenizer)
    }

    /// The first of equal tokens keeps the name.
    fn ids(&self) -> Vocab {
        let mut ids = Vocab::default();
        for (id, token) in (0_u32..).zip(&self.tokens) {
            ids.entry(token.clone()).or_insert(id);
        }
        ids
    }

    /// Every way to put a token together from two others, the best token first.
    fn merges_by(&self, scores: &[f64]) -> Result<Merges, TextError> {
        let ids: HashMap<&str, usize> = self.tokens.iter().map(String::as_str).zip(0..).collect();
        let score = |id: usize| scores.get(id).copied().unwrap_or(f64::NEG_INFINITY);
        let mut merges = Vec::new();
        let mut bytes = 0;
        for (id, token) in self.tokens.iter().enumerate() {
            for (cut, _) in token.char_indices().skip(1) {
                let (left, right) = token.split_at(cut);
                if ids.contains_key(left) && ids.contains_key(right) {
                    merges.push((id, left, right));
                    bytes += token.len() + size_of::<(String, String)>();
                }
            }
            check_bytes("the token pairs", bytes, MAX_PAIR_BYTES)?;
        }
        merges.sort_by(|a, b| score(b.0).total_cmp(&score(a.0)).then(a.0.cmp(&b.0)));
        let owned = |&(_, left, right): &(usize, &str, &str)| (left.to_owned(), right.to_owned());
        Ok(merges.iter().map(owned).collect())
    }

    fn added_tokens(&self) -> Vec<AddedToken> {
        let added = |(token, kind): (&String, &u64)| match *kind {
            CONTROL | UNKNOWN => Some(AddedToken::from(token.clone(), true)),
            USER_DEFINED => Some(AddedToken::from(token.clone(), false).normalized(false)),
            _ => None,
        };
        self.tokens
            .iter()
            .zip(&self.types)
            .filter_map(added)
            .collect()
    }

    /// Adds BOS before a text and EOS after it, as declared in the file.
    fn marks_processor(&self) -> Option<Value> {
        let by_default = match &self.kind {
            VocabularyKind::BytePairs { pre, .. } => {
                Words::named(pre).is_ok_and(Words::takes_whole_tokens)
            }
            VocabularyKind::SentencePiece { .. }
            | VocabularyKind::CharacterPairs { .. }
            | VocabularyKind::WordPieces => true,
        };
        let bos = self.bos.filter(|_| self.add_bos.unwrap_or(by_default));
        let eos = self.eos.filter(|_| self.add_eos);
        let mark = |id: Option<u32>| Some((id?, self.tokens.get(id? as usize)?));
        let (bos, eos) = (mark(bos), mark(eos));
        if bos.is_none() && eos.is_none() {
            return None;
        }
        let special = bos.into_iter().chain(eos).map(|(id, token)| {
            let ids = json!({"id": token, "ids": [id], "tokens": [token]});
            (token.clone(), ids)
        });
        let special: serde_json::Map<String, Value> = special.collect();
        let mark = |mark: Option<(u32, &String)>, of: u32| {
            mark.map(|(_, token)| json!({"SpecialToken": {"id": token, "type_id": of}}))
        };
        let text = |name: &str, of: u32| Some(json!({"Sequence": {"id": name, "type_id": of}}));
        let pair = match self.kind {
            // Each of the two has an end, and a type.
            VocabularyKind::WordPieces => [
                mark(bos, 0),
                text("A", 0),
                mark(eos, 0),
                text("B", 1),
                mark(eos, 1),
            ],
            _ => [mark(bos, 0), text("A", 0), text("B", 0), mark(eos, 0), None],
        };
        let single = [mark(bos, 0), text("A", 0), mark(eos, 0)];
        let parts =
            |parts: &[Option<Value>]| -> Vec<Value> { parts.iter().flatten().cloned().collect() };
        Some(json!({
            "type": "TemplateProcessing",
            "single": parts(&single),
            "pair": parts(&pair),
            "special_tokens": special,
        }))
    }
}

/// How a text is cut into words before pairs of bytes merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    /// The pattern that is built in.
    Gpt2,
    Gpt4o,
    Llama3,
    /// Llama 3's pattern, for vocabularies whose words are all built by merges: Phi-4, OLMo 2, GLM 4.
    Dbrx,
    Qwen2,
    /// Qwen 2's, with marks as parts of words.
    Qwen35,
    /// Mistral's since Nemo.
    Tekken,
    /// GPT-2's, with separate digits.
    SmolLm,
    /// For DeepSeek's first models and V2: letters of scripts with two cases, punctuation, Chinese and Korean, digits.
    DeepSeekLlm,
    DeepSeekCoder,
    /// Three digits at most, then words of Chinese and Japanese, then the others.
    DeepSeek3,
}

impl Words {
    /// By the format's name of a pre-tokenizer.
    fn named(pre: &str) -> Result<Self, TextError> {
        match pre {
            "default" | "gpt-2" | "olmo" | "granite-docling" => Ok(Self::Gpt2),
            "gpt-4o" | "llama4" => Ok(Self::Gpt4o),
            "llama-bpe" | "llama3" | "llama-v3" | "smaug-bpe" | "lfm2" => Ok(Self::Llama3),
            "qwen2" | "deepseek-r1-qwen" => Ok(Self::Qwen2),
            "qwen35" => Ok(Self::Qwen35),
            "smollm" | "refact" | "starcoder" => Ok(Self::SmolLm),
            "dbrx" | "glm4" | "chatglm-bpe" => Ok(Self::Dbrx),
            "tekken" => Ok(Self::Tekken),
            "deepseek-llm" => Ok(Self::DeepSeekLlm),
            "deepseek-coder" => Ok(Self::DeepSeekCoder),
            "deepseek-v3" => Ok(Self::DeepSeek3),
            _ => Err(TextError::Unsupported {
                what: "tokenizer.ggml.pre".to_owned(),
                found: pre.to_owned(),
                known: "llama-bpe, llama4, lfm2, qwen2, qwen35, smollm, dbrx, glm4, gpt-4o, olmo, refact, starcoder, granite-docling, tekken, deepseek-llm, deepseek-coder, deepseek-v3, gpt-2 and default"
                    .to_owned(),
            }),
        }
    }

    /// Whether a word that is a token skips its merges. Texts of these vocabularies begin with BOS unless the file
    /// states otherwise.
    fn takes_whole_tokens(self) -> bool {
        matches!(self, Self::Llama3 | Self::Tekken)
    }

    fn pre_tokenizer(self) -> Value {
        match self {
            Self::Gpt2 => byte_level(true),
            Self::Gpt4o => cut_by(GPT_4O_WORDS),
            Self::Llama3 | Self::Dbrx => cut_by(LLAMA_3_WORDS),
            Self::Qwen2 => cut_by(QWEN_2_WORDS),
            Self::Qwen35 => cut_by(QWEN_35_WORDS),
            Self::Tekken => cut_by(TEKKEN_WORDS),
            Self::DeepSeekLlm => cut_by_all(DEEPSEEK_LLM_WORDS),
            Self::DeepSeekCoder => cut_by_all(DEEPSEEK_CODER_WORDS),
            Self::DeepSeek3 => cut_by_all(DEEPSEEK_3_WORDS),
            Self::SmolLm => json!({"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true},
                byte_level(true),
            ]}),
        }
    }
}

fn cut_by(pattern: &str) -> Value {
    cut_by_all(&[pattern])
}

/// Splits by one pattern after the other.
fn cut_by_all(patterns: &[&str]) -> Value {
    let splits = patterns.iter().map(|pattern| {
        json!({
            "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false,
        })
    });
    let steps: Vec<Value> = splits.chain([byte_level(false)]).collect();
    json!({"type": "Sequence", "pretokenizers": steps})
}

fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

fn pairs(merges: &[String], ids: &Vocab) -> Result<Merges, TextError> {
    merges.iter().map(|merge| pair(merge, ids)).collect()
}

/// Two tokens that make a third. The builder takes the last for granted and panics where they are longer together
/// than every token.
fn pair(merge: &str, ids: &Vocab) -> Result<(String, String), TextError> {
    let make_a_token = |(left, right): &(&str, &str)| ids.contains_key(&format!("{left}{right}"));
    let (left, right) = merge.split_once(' ').filter(make_a_token).ok_or_else(|| {
        let shown: String = merge.chars().take(SHOWN_CHARS).collect();
        let reason = format!("found {shown:?}, expected two tokens that form a third");
        TextError::broken("tokenizer.ggml.merges", reason)
    })?;
    Ok((left.to_owned(), right.to_owned()))
}

fn check_count(what: &str, found: usize, most: usize) -> Result<(), TextError> {
    match found > most {
        true => Err(TextError::broken(
            what,
            format!("found {found} entries, expected at most {most}"),
        )),
        false => Ok(()),
    }
}

fn check_bytes(what: &str, found: usize, most: usize) -> Result<(), TextError> {
    if found <= most {
        return Ok(());
    }
    let reason = format!("found {found} bytes in {what}, expected at most {most}");
    Err(TextError::broken("tokenizer.ggml.tokens", reason))
}

fn part<T: DeserializeOwned>(json: Value) -> Result<T, TextError> {
    serde_json::from_value(json).map_err(broken)
}

fn broken(error: impl std::fmt::Display) -> TextError {
    TextError::broken("the tokenizer in the GGUF file", error)
}

#[cfg(test)]
mod tests;
