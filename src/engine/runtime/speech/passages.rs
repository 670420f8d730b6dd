//! Sentences as tokens, cut where the network could not read a whole one.

use std::collections::HashMap;

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

/// A piece of text that is spoken at once: tokens of phonemes.
pub type Passage = Vec<u32>;

/// Sentences in the order of the text, none longer than `most` tokens.
pub fn passages(
    sentences: &[String],
    vocabulary: &HashMap<char, u32>,
    most: usize,
) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::with_capacity(sentences.len());
    let space = vocabulary.get(&' ').copied();
    for sentence in sentences {
        for part in cut(sentence, most) {
            let tokens = tokens(part, vocabulary);
            if tokens.is_empty() {
                continue;
            }
            let joins =
                |last: &&mut Passage| last.len() < LEAST && last.len() + tokens.len() < most;
            match passages.last_mut().filter(joins) {
                Some(last) => last.extend(space.into_iter().chain(tokens)),
                None => passages.push(tokens),
            }
        }
    }
    passages
}

/// A phoneme that the model does not have is left out, unless it has one like it.
fn tokens(phonemes: &str, vocabulary: &HashMap<char, u32>) -> Passage {
    let token = |symbol: char| vocabulary.get(&symbol).copied();
    let nearest = |symbol: char| {
        let found = NEAREST.iter().find(|(one, _)| *one == symbol);
        let alike = found.map_or("", |(_, alike)| alike).chars();
        alike.filter_map(token).collect()
    };
    let tokens = phonemes.chars().flat_map(|symbol| match token(symbol) {
        Some(token) => vec![token],
        None => nearest(symbol),
    });
    tokens.collect()
}

/// Splits a sentence into short parts: after punctuation, else after a word, else anywhere.
fn cut(sentence: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = sentence.trim();
    loop {
        let Some((limit, _)) = rest.char_indices().nth(most) else {
            parts.push(rest);
            return parts;
        };
        let (head, _) = rest.split_at(limit);
        let behind = |marks: &[char]| {
            let (at, mark) = head.rmatch_indices(marks).next()?;
            Some(at + mark.len()).filter(|&end| end > head.len() / 4)
        };
        let end = behind(&[';', ':', ',', '—', '…', '.', '!', '?']).or_else(|| behind(&[' ']));
        let (part, later) = rest.split_at(end.unwrap_or(limit));
        parts.push(part.trim());
        rest = later.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> HashMap<char, u32> {
        "abc ,.".chars().zip(1..).collect()
    }

    #[test]
    fn long_sentences_are_cut_at_marks_then_at_words() {
        let text = format!("{}, {} {}", "a".repeat(30), "b".repeat(30), "c".repeat(70));
        let parts = cut(&text, 50);
        assert!(parts.iter().all(|part| part.chars().count() <= 50));
        assert_eq!(parts[0], format!("{},", "a".repeat(30)));
        assert_eq!(parts[1], "b".repeat(30));
        assert_eq!(parts.concat().replace([' ', ','], "").len(), 130);
    }

    #[test]
    fn short_sentences_are_read_with_the_next() {
        let sentences = ["aa.", "bb.", &"c".repeat(40), "aa."].map(str::to_owned);
        let found = passages(&sentences, &vocabulary(), 100);
        let lengths: Vec<usize> = found.iter().map(Vec::len).collect();
        assert_eq!(lengths, [7 + 1 + 40, 3]);
    }

    #[test]
    fn phonemes_without_a_token_become_the_nearest() {
        let found = passages(&["aɒxq".to_owned()], &"aɑ".chars().zip(1..).collect(), 100);
        assert_eq!(found, [vec![1, 2]]);
    }
}
