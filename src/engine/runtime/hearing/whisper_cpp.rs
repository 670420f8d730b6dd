//! The special tokens of Whisper, which files of whisper.cpp omit.

use super::vocabulary::{HearingVocabulary, MULTILINGUAL};
use crate::runtime::text::{Language, TextError, Tokenizer, Vocabulary};

/// In token order. Cantonese came with large-v3.
const LANGUAGES: &str = "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr \
                         bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km \
                         sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba \
                         jw su yue";
/// Number of languages before large-v3, also in English-only models.
const FIRST_LANGUAGES: usize = 99;
/// Before the languages, and after them.
const OPENING: [&str; 2] = ["<|endoftext|>", "<|startoftranscript|>"];
const TASKS: [&str; 6] = [
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
];
/// Tokens of times: 0 s to 30 s.
const TIMES: usize = 1501;

impl HearingVocabulary {
    /// Builds the vocabulary from the bytes of the text tokens. `size` counts all tokens.
    pub fn of_text_tokens(tokens: &[Vec<u8>], size: usize) -> Result<Self, TextError> {
        let languages = FIRST_LANGUAGES + size.saturating_sub(MULTILINGUAL);
        let named: Vec<&str> = LANGUAGES.split_whitespace().take(languages).collect();
        let others = OPENING.len() + languages + TASKS.len() + TIMES;
        let texts = size
            .checked_sub(others)
            .filter(|&count| count <= tokens.len());
        let (Some(texts), true) = (texts, named.len() == languages) else {
            let reason = format!(
                "found {} tokens of text among {size}, which is no Whisper's",
                tokens.len()
            );
            return Err(TextError::broken("the vocabulary", reason));
        };
        let languages = named.iter().map(|code| format!("<|{code}|>"));
        let control = OPENING.iter().map(|&token| token.to_owned());
        let control = control.chain(languages).chain(TASKS.map(str::to_owned));
        // Some files list the end of the text among the tokens of text.
        let vocabulary = Vocabulary::of_ranks(&tokens[..texts], control.collect())?;
        let tokenizer = Tokenizer::new(vocabulary.tokenizer()?)?;
        Self::new(Language::of_tokenizer(tokenizer), size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(count: usize) -> Vec<Vec<u8>> {
        let single = (0..=u8::MAX).map(|byte| vec![byte]);
        let pairs = (0..=u8::MAX).flat_map(|a| (0..=u8::MAX).map(move |b| vec![a, b]));
        single.chain(pairs).take(count).collect()
    }

    #[test]
    fn tokens_behind_the_text_are_where_each_whisper_has_them() {
        for (size, texts, languages) in [
            (51_864, 50_256, 0),
            (51_865, 50_257, 99),
            (51_866, 50_257, 100),
        ] {
            let found = HearingVocabulary::of_text_tokens(&bytes(50_257), size).unwrap();
            assert_eq!(found.end as usize, texts);
            assert_eq!(found.start, found.end + 1);
            assert_eq!(found.first_time as usize + TIMES, size);
            assert_eq!(found.languages().count(), languages);
            assert_eq!(
                found.decode(&found.encode("cab \u{e9}").unwrap()),
                "cab \u{e9}"
            );
        }
        let multilingual = HearingVocabulary::of_text_tokens(&bytes(50_257), 51_866).unwrap();
        assert_eq!(multilingual.language("en"), Ok(Some(50_259)));
        assert_eq!(multilingual.language("yue"), Ok(Some(50_358)));
        for (count, size) in [(50_000, 51_865), (50_257, 1000), (50_257, 60_000)] {
            let error = HearingVocabulary::of_text_tokens(&bytes(count), size)
                .err()
                .unwrap();
            assert!(error.to_string().contains("no Whisper's"), "{error}");
        }
    }
}
