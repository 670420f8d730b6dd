//! The special tokens of Whisper.

use std::collections::HashMap;
use std::path::Path;

use crate::runtime::Failure;
use crate::runtime::text::{Isolation, Language, TextError, TextSource};

/// The tokenizer, and its special tokens by their role.
pub struct HearingVocabulary {
    language: Language,
    pub end: u32,
    pub start: u32,
    pub translate: u32,
    pub transcribe: u32,
    pub earlier: u32,
    pub silence: u32,
    pub no_times: u32,
    /// 0.00 s; each after it is 0.02 s later.
    pub first_time: u32,
    /// Two or three letters, and the token.
    languages: Vec<(String, u32)>,
    /// Never generated: symbols without a sound, and special tokens.
    pub suppressed: Vec<u32>,
    /// Not generated as the first token.
    pub blank: Vec<u32>,
}

/// Seconds of one step between time tokens.
pub const TIME_STEP: f64 = 0.02;
/// Vocabularies of at least this size are multilingual.
pub const MULTILINGUAL: usize = 51_865;
const SYMBOLS: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ (' (\" (( )) \
                       ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪";
/// Symbols that are suppressed by their first byte.
const MUSICAL: &str = "♩ ♪ ♫ ♬ ♭ ♮ ♯";

impl HearingVocabulary {
    pub fn open(
        path: &Path,
        size: usize,
        isolation: Option<&Isolation>,
    ) -> Result<Self, TextError> {
        let source = TextSource {
            tokenizer: Some(path),
            isolation,
            ..TextSource::default()
        };
        Self::new(Language::open(source)?, size)
    }

    pub fn new(language: Language, size: usize) -> Result<Self, TextError> {
        let all: Vec<u32> = (0..language.pieces().len() as u32).collect();
        let names = language.names(&all).map_err(broken)?;
        let ids: HashMap<&str, u32> = names.iter().map(String::as_str).zip(all).collect();
        let id = |names: &[&str]| {
            let found = names.iter().find_map(|name| ids.get(name).copied());
            found.ok_or_else(|| TextError::Missing {
                what: format!("the token {} of the tokenizer", names[0]),
            })
        };
        let start = id(&["<|startoftranscript|>"])?;
        let translate = id(&["<|translate|>"])?;
        let no_times = id(&["<|notimestamps|>"])?;
        let mut vocabulary = Self {
            end: id(&["<|endoftext|>"])?,
            transcribe: id(&["<|transcribe|>"])?,
            earlier: id(&["<|startofprev|>"])?,
            silence: id(&["<|nospeech|>", "<|nocaptions|>"])?,
            first_time: no_times + 1,
            languages: Vec::new(),
            suppressed: Vec::new(),
            blank: Vec::new(),
            start,
            translate,
            no_times,
            language,
        };
        if size >= MULTILINGUAL {
            let first = start as usize + 1;
            let named = names.get(first..translate as usize).unwrap_or_default();
            vocabulary.languages = named_languages(first, named);
        }
        let blank = vocabulary.encode(" ").map_err(broken)?;
        vocabulary.blank = [blank, vec![vocabulary.end]].concat();
        let extra = ids.get("<|startoflm|>").copied();
        vocabulary.suppressed = vocabulary.unspoken(extra).map_err(broken)?;
        Ok(vocabulary)
    }

    fn unspoken(&self, extra: Option<u32>) -> Result<Vec<u32>, Failure> {
        let mut found = vec![
            self.transcribe,
            self.translate,
            self.start,
            self.earlier,
            self.silence,
        ];
        found.extend(extra);
        for text in [" -", " '"] {
            found.extend(self.encode(text)?.first());
        }
        let symbols = SYMBOLS.split(' ').map(|symbol| (symbol, false));
        let musical = MUSICAL.split(' ').map(|symbol| (symbol, true));
        for (symbol, is_musical) in symbols.chain(musical) {
            for text in [symbol.to_owned(), format!(" {symbol}")] {
                let tokens = self.encode(&text)?;
                if is_musical || tokens.len() == 1 {
                    found.extend(tokens.first());
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    pub fn is_multilingual(&self) -> bool {
        !self.languages.is_empty()
    }

    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.languages.iter().map(|(code, _)| code.as_str())
    }

    /// The tokens of all languages.
    pub fn language_tokens(&self) -> impl Iterator<Item = u32> {
        self.languages.iter().map(|(_, id)| *id)
    }

    pub fn language_code(&self, id: u32) -> Option<&str> {
        let row = self.languages.iter().find(|(_, one)| *one == id);
        row.map(|(code, _)| code.as_str())
    }

    /// The token of a language; none where the model knows English alone.
    pub fn language(&self, code: &str) -> Result<Option<u32>, String> {
        if !self.is_multilingual() {
            return match code {
                "en" => Ok(None),
                _ => Err(format!(
                    "the model knows English alone, not the language {code:?}; send en"
                )),
            };
        }
        let row = self.languages.iter().find(|(one, _)| one == code);
        match row {
            Some((_, id)) => Ok(Some(*id)),
            None => {
                let known = self.languages().collect::<Vec<_>>().join(", ");
                Err(format!(
                    "the model does not know the language {code:?}; it knows {known}"
                ))
            }
        }
    }

    /// Tokens of plain text: names of special tokens in it count for nothing.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Failure> {
        let mut tokens = self.language.encode(text, false)?;
        tokens.retain(|&token| token < self.end);
        Ok(tokens)
    }

    pub fn decode(&self, tokens: &[u32]) -> String {
        let pieces = self.language.pieces();
        let text = tokens.iter().filter(|&&token| token < self.end);
        let bytes: Vec<u8> = text
            .flat_map(|&token| pieces.bytes(token))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes of a token of text.
    pub fn bytes(&self, token: u32) -> &[u8] {
        self.language.pieces().bytes(token)
    }

    pub fn is_time(&self, token: u32) -> bool {
        token >= self.first_time
    }

    /// Seconds from the beginning of the window.
    pub fn seconds(&self, token: u32) -> f64 {
        f64::from(token.saturating_sub(self.first_time)) * TIME_STEP
    }
}

fn named_languages(first: usize, names: &[String]) -> Vec<(String, u32)> {
    let named = (first as u32..).zip(names).filter_map(|(id, name)| {
        let code = name.strip_prefix("<|")?.strip_suffix("|>")?;
        Some((code.to_owned(), id))
    });
    named.collect()
}

fn broken(failure: Failure) -> TextError {
    TextError::broken("the tokenizer", failure)
}
