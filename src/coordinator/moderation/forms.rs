//! Normalised forms of a text. A filter matches if it matches any form.
//!
//! | form | normalisation |
//! | --- | --- |
//! | as it came | none |
//! | cleaned | invisible characters removed, lower case; letters of all scripts kept |
//! | folded | look-alikes replaced by the letters they resemble |
//! | words | folded, without weights, punctuation as spaces, spaced-out letters joined |
//! | parted | the same, with invisible characters as spaces, too |
//! | closed | folded, punctuation removed |
//! | spelt out | folded, words and closed, each with letters for the digits and signs that stand for them |

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::digits::spelt_out;
use super::letters::{cleaned, folded, is_invisible};

/// The distinct forms of a text.
#[derive(Debug)]
pub struct Forms {
    /// The letters as written.
    pub written: Vec<String>,
    /// The letters as they look: first with the text's punctuation, then the words only.
    pub seen: Vec<String>,
}

/// A weight in brackets: `(word:1.3)`.
static WEIGHT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[:：]\s*[+-]?[0-9]*\.?[0-9]+\s*([)\]}>])").ok());

/// Fewest single letters that count as a spaced-out word.
const PULLED_APART: usize = 3;

impl Forms {
    pub fn of(text: &str) -> Self {
        let look = folded(text);
        let mut seen = vec![look.clone()];
        add(&mut seen, words(&look));
        if text.chars().any(is_invisible) {
            let parted: String = text.chars().map(blank_if_unseen).collect();
            add(&mut seen, words(&folded(&parted)));
        }
        add(&mut seen, closed(&look));
        for read in spelt_out(&look) {
            add(&mut seen, words(&read));
            add(&mut seen, closed(&read));
            add(&mut seen, read);
        }
        // Separated letters are joined to a word.
        for read in spelt_out(&words(&look)) {
            add(&mut seen, read);
        }
        let mut written = vec![text.to_owned()];
        if !text.is_ascii() {
            add(&mut written, cleaned(text));
        }
        Self { written, seen }
    }
}

impl Forms {
    /// Only the text itself, without other forms.
    pub fn only(text: &str) -> Self {
        Self {
            written: Vec::new(),
            seen: vec![text.to_owned()],
        }
    }
}

fn add(forms: &mut Vec<String>, form: String) {
    if !forms.contains(&form) {
        forms.push(form);
    }
}

fn blank_if_unseen(letter: char) -> char {
    match is_invisible(letter) {
        true => ' ',
        false => letter,
    }
}

/// The words with single spaces.
pub fn words(look: &str) -> String {
    let unweighted = unweighted(look);
    let apart = unweighted.split(|letter: char| !letter.is_alphanumeric());
    let apart: Vec<&str> = apart.filter(|word| !word.is_empty()).collect();
    let mut words = Vec::with_capacity(apart.len());
    for run in apart.chunk_by(|one, next| is_letter(one) && is_letter(next)) {
        match run {
            [first, rest @ ..] if run.len() >= PULLED_APART => {
                words.push(run.concat());
                // A word of one letter may precede it.
                if matches!(*first, "a" | "i") {
                    words.push(rest.concat());
                }
            }
            _ => words.extend(run.iter().map(|word| (*word).to_owned())),
        }
    }
    words.join(" ")
}

fn is_letter(word: &str) -> bool {
    word.chars().nth(1).is_none()
}

/// Without signs between letters.
fn closed(look: &str) -> String {
    let unweighted = unweighted(look);
    let kept = unweighted.chars();
    kept.filter(|letter| letter.is_alphanumeric() || letter.is_whitespace())
        .collect()
}

fn unweighted(look: &str) -> Cow<'_, str> {
    match &*WEIGHT {
        Some(weight) => weight.replace_all(look, "$1"),
        None => look.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Forms, words};

    #[test]
    fn words_are_what_is_left_without_weights_and_punctuation() {
        let check = |text: &str, expected: &str| assert_eq!(words(text), expected, "{text}");
        check("(a cat:1.3), [red] {{hat}}", "a cat red hat");
        check("(cat:0.8)dog (x: -.5)", "cat dog x");
        check("3:4 ratio", "3 4 ratio");
        check("c h i l d", "child");
        check("see a c.h-i_l/d run", "see achild child run");
        check("vitamin b 12", "vitamin b 12");
        check("", "");
    }

    #[test]
    fn a_plain_text_has_few_forms() {
        let forms = Forms::of("a red hat");
        assert_eq!((forms.written.len(), forms.seen.len()), (1, 1));
        let forms = Forms::of("a red\u{200b}hat");
        assert!(forms.seen.contains(&"a red hat".to_owned()));
        assert!(forms.seen.contains(&"a redhat".to_owned()));
    }
}
