//! Prompts as text encoders see them: weights in brackets, windows of as many tokens as an encoder takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::networks::text_encoder::ClipWindow;
use crate::runtime::maker::Refusal;
use crate::runtime::text::ClipTokenizer;

/// A longer prompt is refused before it is read.
const MOST_BYTES: usize = 32 << 10;
/// Windows of a prompt. Each adds its tokens to every step.
const MOST_WINDOWS: usize = 16;
/// Larger weights give noise instead of an image.
const MOST_WEIGHT: f32 = 100.0;
/// The factor of brackets without a number.
const EMPHASIS: f32 = 1.1;
/// Words of fewer tokens stay in one window.
const LONG_WORD: usize = 8;
/// Letters of a weight.
const LONGEST_NUMBER: usize = 24;

/// A part of a prompt and how much it counts.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptSegment {
    pub text: String,
    pub weight: f32,
}

/// The tokens of one pass through an encoder, begin, end and padding included, and how much each counts.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptWindow {
    pub clip: ClipWindow,
    pub weights: Vec<f32>,
}

/// A token, or a vector in the place of one.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptToken {
    id: u32,
    vector: Option<Arc<[f32]>>,
    weight: f32,
}

/// The vectors of words for one encoder, by their names.
pub type PromptVectors = BTreeMap<String, Vec<Arc<[f32]>>>;

/// Before the name of an inversion.
const INVERSION: &str = "embedding:";

/// Splits a prompt at its brackets: `(x)` has the weight 1.1, nested ones multiply, `(x:1.3)` has the weight 1.3.
/// Escaped brackets and brackets without a partner are text.
pub fn segments(prompt: &str) -> Vec<PromptSegment> {
    let letters = letters(prompt);
    let partners = partners(&letters);
    let mut segments: Vec<PromptSegment> = Vec::new();
    let mut weights = vec![1.0_f32];
    let mut text = String::new();
    let mut flush = |text: &mut String, weight: f32| {
        if !text.is_empty() {
            let text = std::mem::take(text);
            segments.push(PromptSegment { text, weight });
        }
    };
    // Per open group, the start of its weight and its closing bracket.
    let mut numbers: Vec<Option<usize>> = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let current = weights.last().copied().unwrap_or(1.0);
        match (letters[at], partners[at]) {
            ((Letter::Open, _), Some(close)) => {
                flush(&mut text, current);
                let number = number(&letters, at, close);
                weights.push(number.map_or(current * EMPHASIS, |(_, weight)| weight));
                numbers.push(number.map(|(colon, _)| colon));
            }
            ((Letter::Close, _), Some(_)) => {
                flush(&mut text, current);
                weights.pop();
                numbers.pop();
            }
            (_, _) if numbers.last() == Some(&Some(at)) => {
                // Skip the number: the next letter is the closing bracket.
                while !matches!((letters[at].0, partners[at]), (Letter::Close, Some(_))) {
                    at += 1;
                }
                continue;
            }
            ((_, letter), _) => text.push(letter),
        }
        at += 1;
    }
    flush(&mut text, 1.0);
    segments
}

/// The names of textual inversions in a prompt: each with the text that follows it without a space.
pub fn inversion_words(prompt: &str) -> Vec<String> {
    let segments = segments(prompt);
    let words = segments.iter().flat_map(|it| it.text.split_whitespace());
    let names = words.filter_map(|word| word.strip_prefix(INVERSION));
    names.map(str::to_owned).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letter {
    Open,
    Close,
    Plain,
}

fn letters(prompt: &str) -> Vec<(Letter, char)> {
    let mut letters = Vec::with_capacity(prompt.len());
    let mut rest = prompt.chars().peekable();
    while let Some(letter) = rest.next() {
        let escaped = rest.next_if(|&next| letter == '\\' && matches!(next, '(' | ')'));
        letters.push(match (escaped, letter) {
            (Some(bracket), _) => (Letter::Plain, bracket),
            (None, '(') => (Letter::Open, letter),
            (None, ')') => (Letter::Close, letter),
            (None, _) => (Letter::Plain, letter),
        });
    }
    letters
}

/// The index of each bracket's partner.
fn partners(letters: &[(Letter, char)]) -> Vec<Option<usize>> {
    let mut partners = vec![None; letters.len()];
    let mut open = Vec::new();
    for (at, (letter, _)) in letters.iter().enumerate() {
        match letter {
            Letter::Open => open.push(at),
            Letter::Close => {
                if let Some(partner) = open.pop() {
                    (partners[partner], partners[at]) = (Some(at), Some(partner));
                }
            }
            Letter::Plain => {}
        }
    }
    partners
}

/// The place of the colon before the number at the end of a group, and the number.
fn number(letters: &[(Letter, char)], open: usize, close: usize) -> Option<(usize, f32)> {
    let from = close.saturating_sub(LONGEST_NUMBER).max(open + 2);
    let colon = (from..close).rev().find(|&at| letters[at].1 == ':')?;
    let text: String = letters[colon + 1..close].iter().map(|it| it.1).collect();
    let weight: f32 = text.trim().parse().ok()?;
    weight.is_finite().then_some((colon, weight))
}

/// The windows of a prompt. An empty one has one window.
pub fn windows(
    tokenizer: &ClipTokenizer,
    prompt: &str,
    positions: usize,
    vectors: &PromptVectors,
) -> Result<Vec<PromptWindow>, Refusal> {
    if prompt.len() > MOST_BYTES {
        let found = prompt.len();
        return Err(Refusal::Unsupported(format!(
            "the prompt has {found} bytes, but the model takes at most {MOST_BYTES}; shorten it"
        )));
    }
    let room = positions.saturating_sub(2).max(1);
    let mut windows: Vec<Vec<PromptToken>> = vec![Vec::new()];
    let mut used = 0;
    for PromptSegment { text, weight } in segments(prompt) {
        if weight.abs() > MOST_WEIGHT {
            return Err(Refusal::Unsupported(format!(
                "a part of the prompt has the weight {weight}, but the model takes at most {MOST_WEIGHT}"
            )));
        }
        for word in text.split_whitespace() {
            let tokens = word_tokens(tokenizer, word, weight, vectors)?;
            let mut tokens = tokens.as_slice();
            while !tokens.is_empty() {
                let is_whole = tokens.len() < LONG_WORD.min(room) && used + tokens.len() > room;
                if is_whole || used == room {
                    windows.push(Vec::new());
                    used = 0;
                }
                let (now, later) = tokens.split_at(tokens.len().min(room - used));
                if let Some(window) = windows.last_mut() {
                    window.extend_from_slice(now);
                }
                used += now.len();
                tokens = later;
            }
        }
        if windows.len() > MOST_WINDOWS {
            return Err(Refusal::Unsupported(format!(
                "the prompt has more than {MOST_WINDOWS} windows of {room} tokens; shorten it"
            )));
        }
    }
    let padded = windows.into_iter();
    Ok(padded
        .map(|tokens| PromptWindow::new(tokenizer, &tokens, positions))
        .collect())
}

/// The tokens of a word. Text after the name of an inversion is tokenized as another word.
fn word_tokens(
    tokenizer: &ClipTokenizer,
    word: &str,
    weight: f32,
    vectors: &PromptVectors,
) -> Result<Vec<PromptToken>, Refusal> {
    let known = word.strip_prefix(INVERSION).and_then(|name| {
        let known = vectors
            .iter()
            .rev()
            .filter(|(known, _)| name.starts_with(*known));
        let (known, rows) = known.max_by_key(|(known, _)| known.len())?;
        Some((&name[known.len()..], rows))
    });
    let (text, rows) = known.map_or((word, &[][..]), |(rest, rows)| (rest, rows.as_slice()));
    let tokens = tokenizer.encode(text);
    let tokens = tokens.map_err(|error| Refusal::Unsupported(error.to_string()))?;
    let token = |id, vector| PromptToken { id, vector, weight };
    let rows = rows.iter().map(|row| token(0, Some(Arc::clone(row))));
    Ok(rows
        .chain(tokens.into_iter().map(|id| token(id, None)))
        .collect())
}

impl PromptWindow {
    pub fn new(tokenizer: &ClipTokenizer, inner: &[PromptToken], positions: usize) -> Self {
        let plain = |id| PromptToken {
            id,
            vector: None,
            weight: 1.0,
        };
        let all = std::iter::once(plain(tokenizer.begin))
            .chain(inner.iter().cloned())
            .chain(std::iter::once(plain(tokenizer.end)))
            .chain(std::iter::repeat(plain(tokenizer.pad)));
        let all: Vec<PromptToken> = all.take(positions).collect();
        let vectors = all.iter().enumerate();
        let vectors = vectors.filter_map(|(at, token)| Some((at, token.vector.clone()?)));
        Self {
            clip: ClipWindow {
                tokens: all.iter().map(|token| token.id).collect(),
                vectors: vectors.collect(),
            },
            weights: all.iter().map(|token| token.weight).collect(),
        }
    }

    pub fn is_weighted(&self) -> bool {
        self.weights.iter().any(|&weight| weight != 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(prompt: &str, expected: &[(&str, f32)]) {
        let found = segments(prompt);
        let found: Vec<(&str, f32)> = found
            .iter()
            .map(|segment| (segment.text.as_str(), segment.weight))
            .collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.0, expected.0);
            assert!((found.1 - expected.1).abs() < 1e-5, "{found:?}");
        }
    }

    #[test]
    fn brackets_weigh_and_numbers_replace() {
        check("a cat", &[("a cat", 1.0)]);
        check("a (cat)", &[("a ", 1.0), ("cat", 1.1)]);
        check("((a) b)", &[("a", 1.21), (" b", 1.1)]);
        check("(a:1.3) b", &[("a", 1.3), (" b", 1.0)]);
        check("(a (b:.5) c:2)", &[("a ", 2.0), ("b", 0.5), (" c", 2.0)]);
        check("((a:1.3))", &[("a", 1.3)]);
        check("(a:-1e0)", &[("a", -1.0)]);
    }

    #[test]
    fn escaped_and_lonely_brackets_are_text() {
        check(r"a \(b\)", &[("a (b)", 1.0)]);
        check(r"(a \(b\):2)", &[("a (b)", 2.0)]);
        check("a) (b", &[("a) (b", 1.0)]);
        check("((a)", &[("(", 1.0), ("a", 1.1)]);
        check("(:1.3)", &[(":1.3", 1.1)]);
        check("(a:nan)", &[("a:nan", 1.1)]);
        check("(a:b)", &[("a:b", 1.1)]);
        check("()", &[]);
        check(r"\", &[(r"\", 1.0)]);
    }

    fn tokenizer() -> ClipTokenizer {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        ClipTokenizer::open(&root.join("tiny-image/tokenizer")).unwrap()
    }

    #[test]
    fn windows_begin_and_end_and_keep_short_words_whole() {
        let tokenizer = tokenizer();
        let empty = windows(&tokenizer, "", 77, &PromptVectors::new()).unwrap();
        let padding = std::iter::repeat_n(tokenizer.pad, 75);
        let expected: Vec<u32> = [tokenizer.begin, tokenizer.end]
            .into_iter()
            .chain(padding)
            .collect();
        assert_eq!(empty[0].clip.tokens, expected);
        let word = tokenizer.encode("xyzzy").unwrap();
        assert!((2..8).contains(&word.len()), "{word:?}");
        let long = windows(&tokenizer, &"xyzzy ".repeat(60), 77, &PromptVectors::new()).unwrap();
        let whole = 75 / word.len() * word.len();
        assert!(long.len() > 1);
        assert_eq!(long[0].clip.tokens[1..=whole], word.repeat(75 / word.len()));
        assert_eq!(long[0].clip.tokens[whole + 1], tokenizer.end);
        assert_eq!(long[1].clip.tokens[1..=word.len()], word);
        let one_word = windows(&tokenizer, &"z".repeat(100), 77, &PromptVectors::new()).unwrap();
        assert_eq!(one_word[0].clip.tokens[76], tokenizer.end);
        assert_ne!(one_word[0].clip.tokens[75], tokenizer.end);
    }

    #[test]
    fn an_inversion_takes_as_many_places_as_it_has_vectors() {
        let tokenizer = tokenizer();
        let rows: Vec<Arc<[f32]>> = vec![Arc::from([1.0, 2.0]), Arc::from([3.0, 4.0])];
        let vectors = PromptVectors::from([("a".to_owned(), Vec::new()), ("ab".to_owned(), rows)]);
        let cut = |prompt| windows(&tokenizer, prompt, 77, &vectors).unwrap();
        let found = &cut("cat (embedding:ab, dog:1.5)")[0];
        let cat = tokenizer.encode("cat").unwrap().len();
        let places: Vec<usize> = found.clip.vectors.iter().map(|it| it.0).collect();
        assert_eq!(places, [cat + 1, cat + 2]);
        assert_eq!(found.weights[cat + 1..cat + 3], [1.5, 1.5]);
        let rest = tokenizer.encode(", dog").unwrap();
        assert_eq!(found.clip.tokens[cat + 3..cat + 3 + rest.len()], rest);
        assert_eq!(cut("embedding:other")[0].clip.vectors, []);
    }

    #[test]
    fn words_of_inversions_are_found_in_brackets_too() {
        let words = inversion_words(
            r"a (embedding:owl:1.2), embedding:fox, b,embedding:no embedding:a\(b\)",
        );
        assert_eq!(words, ["owl", "fox,", "a(b)"]);
        assert_eq!(inversion_words("a cat"), Vec::<String>::new());
    }

    #[test]
    fn prompts_beyond_the_limits_are_refused() {
        let tokenizer = tokenizer();
        let refused = |prompt: &str| {
            let refused = windows(&tokenizer, prompt, 77, &PromptVectors::new());
            refused.unwrap_err().to_string()
        };
        assert!(refused(&"a".repeat(1 << 20)).contains("1048576 bytes"));
        assert!(refused(&"cat ".repeat(5000)).contains("16 windows of 75 tokens"));
        assert!(refused(&format!("{}a{}", "(".repeat(99), ")".repeat(99))).contains("weight"));
        assert!(refused("(a:1e9)").contains("weight 1000000000"));
    }

    proptest! {
        #[test]
        fn any_prompt_is_cut_without_loss(prompt in r"[ab():.1\\ ]{0,60}") {
            for segment in segments(&prompt) {
                prop_assert!(segment.weight.is_finite() && !segment.text.is_empty());
            }
            let letters = |text: &str| text.matches('b').count();
            let found: usize = segments(&prompt).iter().map(|segment| letters(&segment.text)).sum();
            prop_assert_eq!(found, letters(&prompt));
        }
    }
}
