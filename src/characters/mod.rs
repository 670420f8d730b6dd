//! The characters of a text that English speech synthesis reads. The engine reads [`readable`] text; the coordinator and
//! the command line list the characters of [`unreadable`]. [`MOST_SPOKEN`] is the limit of a text.
//!
//! `names` has the words for symbols and Greek letters.

mod names;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The longest text of one speech, in characters: 18 minutes at speed 1. A worker announces the limit, and routes, lists
/// of models and the command line enforce it.
pub const MOST_SPOKEN: u32 = 16_384;

/// A piece of text whose phonemes the text gives itself: `[word](/phonemes/)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenPhonemes<'t> {
    pub phonemes: &'t str,
    /// With brackets and slashes.
    pub whole: &'t str,
}

/// How a character is read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CharacterReading {
    /// A letter, a digit or a mark that English reading knows.
    Known,
    /// Other characters in its place.
    Same(String),
    /// Words in its place.
    Named(&'static str),
    /// Has no sound of its own, such as a joiner or a skin tone.
    Silent,
    Unreadable,
}

/// Marks and signs beyond ASCII that the reading of English takes as they are.
const MARKS: &str = "—–―…“”„«»‘’‚‹›。、·€£¥°−";
const SUPERSCRIPTS: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹";

impl<'t> GivenPhonemes<'t> {
    /// At the beginning of a text.
    pub fn read(text: &'t str) -> Option<Self> {
        let (word, rest) = text.strip_prefix('[')?.split_once("](/")?;
        let (phonemes, _) = rest.split_once("/)")?;
        // Else the link of a page, such as `[docs](/docs/v1/)`.
        let is_phonemes =
            !phonemes.contains(|one: char| one.is_ascii_digit() || "\n/_#=&%@?[]".contains(one));
        let is_word = !word.contains(['[', ']', '\n']);
        let length = word.len() + phonemes.len() + "[](//)".len();
        (is_word && is_phonemes).then_some(Self {
            phonemes: phonemes.trim(),
            whole: text.get(..length)?,
        })
    }
}

/// A letter of English, with or without an accent.
pub fn is_latin(letter: char) -> bool {
    let is_extended = matches!(letter, 'À'..='ɏ' | 'Ḁ'..='ỿ') && letter.is_alphabetic();
    letter.is_ascii_alphabetic() || is_extended
}

/// The letter without its accents: `e` of `ế`.
pub fn base_letter(letter: char) -> char {
    letter.nfd().next().unwrap_or(letter)
}

/// The text in characters that English reading knows: symbols and Greek letters by their names, forms of Latin letters
/// as these, and a space for any other.
pub fn readable(text: &str) -> String {
    let mut read = String::with_capacity(text.len());
    each(text, |piece| match piece {
        Piece::Given(given) => read.push_str(given.whole),
        Piece::Character(letter, before) => match reading(letter, before) {
            CharacterReading::Known => read.push(letter),
            CharacterReading::Same(same) => read.push_str(&same),
            CharacterReading::Named(name) => read.extend([" ", name, " "]),
            CharacterReading::Silent => {}
            CharacterReading::Unreadable => read.push(' '),
        },
    });
    read
}

/// The characters that are left out when the text is read, each once, in their order.
pub fn unreadable(text: &str) -> Vec<char> {
    let mut found = Vec::new();
    each(text, |piece| {
        if let Piece::Character(letter, before) = piece
            && reading(letter, before) == CharacterReading::Unreadable
            && !found.contains(&letter)
        {
            found.push(letter);
        }
    });
    found
}

enum Piece<'t> {
    Given(GivenPhonemes<'t>),
    /// With the character before it.
    Character(char, Option<char>),
}

fn each(text: &str, mut visit: impl FnMut(Piece<'_>)) {
    let mut rest = text;
    let mut before = None;
    while let Some(first) = rest.chars().next() {
        if let Some(given) = GivenPhonemes::read(rest) {
            rest = &rest[given.whole.len()..];
            before = Some(')');
            visit(Piece::Given(given));
            continue;
        }
        // A letter and its accents that follow as characters of their own.
        let accents = rest
            .chars()
            .skip(1)
            .take_while(|one| is_combining_mark(*one));
        let length = first.len_utf8() + accents.map(char::len_utf8).sum::<usize>();
        let (cluster, later) = rest.split_at(length);
        for letter in cluster.nfc() {
            visit(Piece::Character(letter, before));
            before = Some(letter);
        }
        rest = later;
    }
}

fn reading(letter: char, before: Option<char>) -> CharacterReading {
    if letter.is_ascii() || letter.is_whitespace() || is_latin(letter) || MARKS.contains(letter) {
        return CharacterReading::Known;
    }
    if let Some(power) = power(letter, before) {
        return CharacterReading::Same(power);
    }
    if let Some(name) = names::of(letter) {
        return CharacterReading::Named(name);
    }
    if is_silent(letter) {
        return CharacterReading::Silent;
    }
    // Ligatures, full-width letters and letters of mathematics.
    let same: String = letter
        .nfkd()
        .filter(|one| !is_combining_mark(*one))
        .collect();
    if !same.is_empty() && same.chars().all(|one| one.is_ascii() || is_latin(one)) {
        return CharacterReading::Same(same);
    }
    // A Greek letter with an accent, or in another form.
    let base = same.chars().next().filter(|_| same.chars().count() == 1);
    match base.and_then(names::of) {
        Some(name) => CharacterReading::Named(name),
        None => CharacterReading::Unreadable,
    }
}

/// Raised digits as a power, the first with a `^` before it.
fn power(letter: char, before: Option<char>) -> Option<String> {
    let is_raised = |one: char| SUPERSCRIPTS.contains(one) || one == '⁻';
    let sign = match letter {
        '⁻' => '-',
        raised if SUPERSCRIPTS.contains(raised) => raised.nfkd().next()?,
        _ => return None,
    };
    let before = before?;
    match is_raised(before) {
        true => Some(sign.to_string()),
        false => (before.is_alphanumeric() || before == ')').then(|| format!("^{sign}")),
    }
}

/// Joiners, marks of direction, variants of the character before, soft hyphens, controls.
fn is_silent(letter: char) -> bool {
    let is_format = matches!(
        letter,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0000}'..='\u{e0fff}'
    );
    is_format || letter.is_control() || is_combining_mark(letter)
}

#[cfg(test)]
mod tests {
    use super::{GivenPhonemes, readable, unreadable};

    #[test]
    fn characters_are_read_as_letters_or_names() {
        for (text, wanted) in [
            ("naïve cafe\u{301}", "naïve café"),
            ("the angle α", "the angle  alpha "),
            ("Ω and ά", " omega  and  alpha "),
            ("5 °C, 3 € − 2", "5 °C, 3 € − 2"),
            ("a ± b → c", "a  plus or minus  b  right arrow  c"),
            ("ＡＢＣ ﬁne 𝐱 H₂O Ⅳ", "ABC fine x H2O IV"),
            ("x² 10⁻¹² m³", "x^2 10^-12 m^3"),
            ("½ a👍🏽b\u{200d}c", " one half  a bc"),
            ("[Kokoro](/kˈOkəɹO/) 世", "[Kokoro](/kˈOkəɹO/)  "),
        ] {
            assert_eq!(readable(text), wanted, "{text}");
        }
    }

    #[test]
    fn characters_without_a_reading_are_listed_once() {
        let listed = |text: &str| unreadable(text).into_iter().collect::<String>();
        assert_eq!(listed("Plain text: 5 €, naïve, αβ ≈ ½ — “so”…"), "");
        assert_eq!(listed("hi 世界, 世 🙂 Д"), "世界🙂Д");
        assert_eq!(listed("👍🏽\u{fe0f}"), "👍");
        assert_eq!(listed("[x](/ʘɐ/) ʘ"), "ʘ");
    }

    #[test]
    fn links_are_no_phonemes() {
        let given = |text| GivenPhonemes::read(text).map(|given| given.phonemes);
        assert_eq!(given("[Kokoro](/kˈOkəɹO/) now"), Some("kˈOkəɹO"));
        assert_eq!(given("[docs](/docs/v1/)"), None);
        assert_eq!(given("[docs](https://example.com/)"), None);
        assert_eq!(given("[x](/"), None);
    }
}
