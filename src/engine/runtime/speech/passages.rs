//! Sentences as tokens, cut where the network could not read a whole one.

use std::collections::HashMap;
use std::ops::Range;

use super::english::Sentence;

/// Shorter sentences are read together with the next: alone the network gives them an odd sound.
const LEAST: usize = 20;

/// Phonemes that are alike, for models that were trained on few.
const NEAREST: [(char, &str); 20] = [
    ('ˌ', ""),
    ('ð', "θ"),
    ('ʧ', "tʃ"),
    ('ʤ', "dʒ"),
    ('ʒ', "ʃ"),
    ('Q', "O"),
    ('Y', "ɔɪ"),
    ('a', "æ"),
    ('c', "k"),
    ('e', "ɛ"),
    ('g', "ɡ"),
    ('o', "ɔ"),
    ('r', "ɹ"),
    ('x', "k"),
    ('y', "j"),
    ('ɐ', "ə"),
    ('ɒ', "ɑ"),
    ('ɾ', "t"),
    ('ᵻ', "ɪ"),
    ('ʔ', "t"),
];

/// A piece of text that is spoken at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passage {
    /// Tokens of phonemes.
    pub tokens: Vec<u32>,
    pub words: Vec<PassageWord>,
}

/// A word and its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageWord {
    pub text: String,
    pub tokens: Range<usize>,
}

/// Sentences in the order of the text, none longer than `most` tokens.
pub fn passages(
    sentences: &[Sentence],
    vocabulary: &HashMap<char, u32>,
    most: usize,
) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::with_capacity(sentences.len());
    let space = vocabulary.get(&' ').copied();
    for sentence in sentences {
        for (from, part) in cut(&sentence.phonemes, most) {
            let passage = passage(from, part, sentence, vocabulary);
            let count = passage.tokens.len();
            if count == 0 {
                continue;
            }
            let joins =
                |last: &&mut Passage| last.tokens.len() < LEAST && last.tokens.len() + count < most;
            match passages.last_mut().filter(joins) {
                Some(last) => last.append(space, passage),
                None => passages.push(passage),
            }
        }
    }
    passages
}

impl Passage {
    fn append(&mut self, space: Option<u32>, other: Self) {
        self.tokens.extend(space);
        let begin = self.tokens.len();
        let words = other.words.into_iter().map(|word| PassageWord {
            tokens: begin + word.tokens.start..begin + word.tokens.end,
            ..word
        });
        self.words.extend(words);
        self.tokens.extend(other.tokens);
    }
}

/// A part of a sentence that begins at this character.
fn passage(
    from: usize,
    part: &str,
    sentence: &Sentence,
    vocabulary: &HashMap<char, u32>,
) -> Passage {
    let mut tokens = Vec::new();
    // The number of tokens before each character, and at the end.
    let mut before = Vec::new();
    for symbol in part.chars() {
        before.push(tokens.len());
        tokens.extend(tokens_of(symbol, vocabulary));
    }
    before.push(tokens.len());
    let end = from + before.len() - 1;
    // A word that the cut divides belongs to the part with its beginning.
    let words = sentence.words.iter().filter(|word| {
        (from..end).contains(&word.place.start) && word.place.start < word.place.end
    });
    let words = words.map(|word| PassageWord {
        text: word.text.clone(),
        tokens: before[word.place.start - from]..before[word.place.end.min(end) - from],
    });
    Passage {
        words: words.filter(|word| !word.tokens.is_empty()).collect(),
        tokens,
    }
}

/// A phoneme that the model does not have is left out, unless it has one like it.
fn tokens_of(symbol: char, vocabulary: &HashMap<char, u32>) -> Vec<u32> {
    let token = |symbol: char| vocabulary.get(&symbol).copied();
    if let Some(token) = token(symbol) {
        return vec![token];
    }
    let found = NEAREST.iter().find(|(one, _)| *one == symbol);
    let alike = found.map_or("", |(_, alike)| alike).chars();
    alike.filter_map(token).collect()
}

/// Splits a sentence into short parts, each with the number of characters before it: after punctuation, else after a
/// word, else anywhere.
fn cut(sentence: &str, most: usize) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut rest = sentence.trim_start();
    // All parts are slices of the sentence.
    let place = |part: &str| {
        let bytes = sentence.len() - part.len();
        sentence[..bytes].chars().count()
    };
    loop {
        let from = place(rest);
        let Some((limit, _)) = rest.char_indices().nth(most) else {
            parts.push((from, rest.trim_end()));
            return parts;
        };
        let (head, _) = rest.split_at(limit);
        let behind = |marks: &[char]| {
            let (at, mark) = head.rmatch_indices(marks).next()?;
            Some(at + mark.len()).filter(|&end| end > head.len() / 4)
        };
        let end = behind(&[';', ':', ',', '—', '…', '.', '!', '?']).or_else(|| behind(&[' ']));
        let (part, later) = rest.split_at(end.unwrap_or(limit));
        parts.push((from, part.trim_end()));
        rest = later.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::speech::english::SentenceWord;

    fn vocabulary() -> HashMap<char, u32> {
        "abc ,.".chars().zip(1..).collect()
    }

    #[test]
    fn long_sentences_are_cut_at_marks_then_at_words() {
        let text = format!("{}, {} {}", "a".repeat(30), "b".repeat(30), "c".repeat(70));
        let parts: Vec<&str> = cut(&text, 50).into_iter().map(|(_, part)| part).collect();
        assert!(parts.iter().all(|part| part.chars().count() <= 50));
        assert_eq!(parts[0], format!("{},", "a".repeat(30)));
        assert_eq!(parts[1], "b".repeat(30));
        assert_eq!(parts.concat().replace([' ', ','], "").len(), 130);
    }

    #[test]
    fn short_sentences_are_read_with_the_next() {
        let sentences = ["aa.", "bb.", &"c".repeat(40), "aa."].map(sentence);
        let found = passages(&sentences, &vocabulary(), 100);
        let lengths = found.iter().map(|passage| passage.tokens.len());
        assert_eq!(lengths.collect::<Vec<_>>(), [7 + 1 + 40, 3]);
    }

    fn sentence(phonemes: &str) -> Sentence {
        Sentence {
            phonemes: phonemes.to_owned(),
            words: Vec::new(),
        }
    }

    #[test]
    fn words_keep_their_tokens_where_sentences_are_joined_or_cut() {
        let word = |text: &str, place: Range<usize>| SentenceWord {
            text: text.to_owned(),
            place,
        };
        let short = Sentence {
            phonemes: "aa xb.".to_owned(),
            words: vec![word("one", 0..2), word("two", 3..5)],
        };
        let long = Sentence {
            phonemes: format!("{} {}", "b".repeat(30), "c".repeat(30)),
            words: vec![word("three", 0..30), word("four", 31..61)],
        };
        let found = passages(&[short, long], &vocabulary(), 40);
        let words = |passage: &Passage| -> Vec<(String, Range<usize>)> {
            let words = passage.words.iter();
            words
                .map(|word| (word.text.clone(), word.tokens.clone()))
                .collect()
        };
        assert_eq!(found.len(), 2, "{found:?}");
        let expected = [("one", 0..2), ("two", 3..4), ("three", 6..36)];
        let expected = expected.map(|(text, tokens)| (text.to_owned(), tokens));
        assert_eq!(words(&found[0]), expected);
        assert_eq!(words(&found[1]), [("four".to_owned(), 0..30)]);
    }

    #[test]
    fn phonemes_without_a_token_become_the_nearest() {
        let vocabulary = "aɑ".chars().zip(1..).collect();
        let found = passages(&[sentence("aɒxq")], &vocabulary, 100);
        assert_eq!(found[0].tokens, [1, 2]);
    }
}
