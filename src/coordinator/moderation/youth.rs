//! Words and emoji for minors. For models marked NSFW, and for suspicious accounts, such words never reach a worker.

use std::sync::LazyLock;

use super::pattern::Pattern;

/// Replacement of a word for minors.
pub const GROWN_UP: &str = "adult";

/// Negative prompt added to every rewritten image prompt.
pub const EXCLUDED: &str = "child, infant, teenager, underage, childlike body";

const WORDS: &[&str] = &[
    r"\b(?:bab(?:y|ies)|infants?|newborns?|toddlers?)\b",
    r"\b(?:child(?:ren|like|ish)?|kid(?:s|dos?|dies?)?|tots?|youngsters?|juveniles?|adolescents?|minors?)\b",
    r"\b(?:pre[ -]?teen(?:s|agers?)?|tweens?|teen(?:s|aged?|agers?|ies?|y)?|under[ -]?aged?)\b",
    r"\b(?:school|kindergarten)[ -]?(?:girl|boy|kid)s?\b",
    r"\b(?:little|small|tiny|young) +(?:girl|boy|daughter|son|sister|brother)s?\b",
    r"\b(?:loli(?:s|con|ta)?|shota(?:s|con)?)\b",
    r"\b(?:[0-9]|1[0-7])[ -]*(?:y(?:ea)?rs?[ -]*olds?|y[./]?o)\b",
];

/// Emoji of children and their things.
const DRAWINGS: [char; 10] = ['👶', '👧', '👦', '🧒', '👼', '🚼', '🍼', '🤱', '🚸', '🧸'];

static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    WORDS
        .iter()
        .filter_map(|word| Pattern::resident(word).ok())
        .collect()
});

pub fn words<'a>() -> impl Iterator<Item = (&'a Pattern, &'a str)> {
    PATTERNS.iter().map(|pattern| (pattern, GROWN_UP))
}

/// The emoji of children in the text.
pub fn drawings(text: &str) -> impl Iterator<Item = String> {
    let found = DRAWINGS
        .into_iter()
        .filter(|drawing| text.contains(*drawing));
    found.map(String::from)
}

pub fn without_drawings(text: &str) -> String {
    text.replace(DRAWINGS, "")
}

#[cfg(test)]
mod tests {
    use super::{PATTERNS, WORDS, words};
    use crate::moderation::forms::Forms;

    #[test]
    fn words_of_the_young_are_known_and_others_are_left_alone() {
        assert_eq!(PATTERNS.len(), WORDS.len());
        let is_known =
            |text: &str| words().any(|(pattern, _)| pattern.find(&Forms::of(text)).is_some());
        for text in [
            "a child",
            "two Kids",
            "a 12 year old",
            "16yo",
            "schoolgirl",
            "teenagers",
            "a little girl",
            "c h i l d",
        ] {
            assert!(is_known(text), "{text}");
        }
        for text in [
            "a woman of 30 years",
            "kidney beans",
            "a minority",
            "fifteen cars",
            "a canteen",
            "12 years ago",
        ] {
            assert!(!is_known(text), "{text}");
        }
    }
}
