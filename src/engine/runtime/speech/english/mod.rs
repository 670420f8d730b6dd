//! English text as phonemes of Kokoro: American, after the conventions of the voices' training.
//!
//! `markdown` removes marks that are not read aloud, `reading` cuts a text into words and marks and writes numbers, dates
//! and signs as words with the tables of `signs`, `phone` and `roman` know numbers of these forms, `words` is the
//! dictionary, `letters` guesses the rest. Characters without an English reading are left out. Text may give phonemes
//! itself: `[word](/phonemes/)`.

mod letters;
mod markdown;
mod numbers;
mod phone;
mod reading;
mod roman;
mod signs;
mod words;

use std::ops::Range;

use muster_characters::base_letter;

use self::letters::{begins_with_vowel, guess, spell};
use self::reading::{Reading, read};
use self::words::{Dictionary, DictionaryEntry};
use crate::networks::weights::Flaw;

/// The phonemes of a sentence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sentence {
    pub phonemes: String,
    /// Words as they are spoken, such as `five` for `5`, in order.
    pub words: Vec<SentenceWord>,
}

/// A word and the characters of its phonemes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentenceWord {
    pub text: String,
    pub place: Range<usize>,
}

/// Turns text into phonemes.
pub struct English {
    dictionary: Dictionary,
}

/// After these words a word that has two pronunciations is a verb.
const BEFORE_VERBS: &str = " to will would can could should must may might shall not don't didn't doesn't won't can't i \
                            you we they let's please ";
/// After these words it is a participle.
const BEFORE_PARTICIPLES: &str = " have has had was were been is are be i've you've we've they've ";
/// Words that are spelled out in capitals.
const SPELLED: [&str; 3] = ["US", "AM", "AD"];
const VOICED: &str = "bdɡvzðʒʤmnŋlɹwjAIOQWYaeiouæɑɔəɛɜɪʊʌᵊ";
const HISSES: &str = "szʃʒʧʤ";

impl English {
    pub fn open() -> Result<Self, Flaw> {
        let dictionary = Dictionary::open()?;
        Ok(Self { dictionary })
    }

    /// The sentences of a text.
    pub fn sentences(&self, text: &str) -> Vec<Sentence> {
        let is_mark = |reading: &Reading| matches!(reading, Reading::Mark(_));
        let sentences = read(text).into_iter();
        let spoken = sentences.filter(|sentence| !sentence.iter().all(is_mark));
        spoken.map(|sentence| self.phonemes(&sentence)).collect()
    }

    fn phonemes(&self, readings: &[Reading]) -> Sentence {
        let mut words: Vec<String> = Vec::with_capacity(readings.len());
        let mut before = String::new();
        for reading in readings {
            words.push(match reading {
                Reading::Word(word) => {
                    let found = self.word(word, &before);
                    before = word.to_lowercase();
                    found
                }
                Reading::Phonemes(phonemes) => phonemes.clone(),
                Reading::Mark(mark) => mark.to_string(),
            });
        }
        // Articles depend on the sound after them.
        for at in 0..readings.len() {
            let Some(Reading::Word(word)) = readings.get(at) else {
                continue;
            };
            let next = match readings.get(at + 1) {
                Some(Reading::Mark(_)) | None => None,
                Some(_) => words.get(at + 1).map(|next| begins_with_vowel(next)),
            };
            if let Some(weak) = weak_form(word, next) {
                weak.clone_into(&mut words[at]);
            }
        }
        join(readings, &words)
    }

    /// Phonemes of one word. `before` is the word before it, in small letters.
    fn word(&self, word: &str, before: &str) -> String {
        if let Some(found) = self.known(word, before) {
            return found;
        }
        let lower = word.to_lowercase();
        let is_capital = word.chars().all(|letter| !letter.is_lowercase());
        if is_capital && word.chars().count() > 1 && self.dictionary.find(&lower).is_none() {
            let (stem, ending) = match word.strip_suffix("'S") {
                Some(stem) => (stem, "z"),
                None => (word, ""),
            };
            return spell(stem) + ending;
        }
        if let Some(found) = self.known(&lower, before) {
            return found;
        }
        if let Some(found) = self.inflected(&lower, before) {
            return found;
        }
        // Many English words are written with and without accents.
        let base: String = lower.chars().map(base_letter).collect();
        if let Some(found) = self.known(&base, before) {
            return found;
        }
        let plain = plain(&lower);
        match plain.contains(['a', 'e', 'i', 'o', 'u', 'y']) && plain.len() > 1 {
            true => guess(&plain),
            false => spell(&plain),
        }
    }

    fn known(&self, word: &str, before: &str) -> Option<String> {
        let entry = self.dictionary.find(word)?;
        let kind = kind_of(&entry, word, before);
        match kind.and_then(|kind| entry.of_kind(kind)) {
            Some("") => Some(spell(word)),
            Some(phonemes) => Some(phonemes.to_owned()),
            None => Some(entry.usual.to_owned()),
        }
    }

    /// A known word with an ending of grammar.
    fn inflected(&self, word: &str, before: &str) -> Option<String> {
        let stem = |end: &str, added: &str| -> Option<String> {
            let stem = word.strip_suffix(end)?;
            self.known(&format!("{stem}{added}"), before)
        };
        let doubled = |end: &str| -> Option<String> {
            let stem = word.strip_suffix(end)?;
            let last = stem.chars().last()?;
            let stem = stem.strip_suffix(last)?;
            stem.ends_with(last).then(|| self.known(stem, before))?
        };
        if let Some(found) = stem("'s", "").or_else(|| stem("s'", "s")) {
            return Some(if word.ends_with("s'") {
                found
            } else {
                plural(found)
            });
        }
        if let Some(found) = stem("ies", "y")
            .or_else(|| stem("es", ""))
            .or_else(|| stem("s", ""))
        {
            return Some(plural(found));
        }
        let past = stem("ied", "y")
            .or_else(|| stem("ed", ""))
            .or_else(|| stem("d", ""));
        if let Some(found) = past.or_else(|| doubled("ed")) {
            return Some(past_tense(found));
        }
        let going = stem("ing", "").or_else(|| stem("ing", "e"));
        if let Some(found) = going.or_else(|| doubled("ing")) {
            return Some(found + "ɪŋ");
        }
        if let Some(found) = stem("ly", "").or_else(|| stem("ily", "y")) {
            return Some(found + "li");
        }
        if let Some(found) = stem("less", "") {
            return Some(found + "ləs");
        }
        stem("ness", "").map(|found| found + "nəs")
    }
}

fn plural(stem: String) -> String {
    let last = stem.chars().last().unwrap_or('z');
    stem + match last {
        _ if HISSES.contains(last) => "ᵻz",
        _ if VOICED.contains(last) => "z",
        _ => "s",
    }
}

fn past_tense(stem: String) -> String {
    let last = stem.chars().last().unwrap_or('d');
    stem + match last {
        't' | 'd' | 'ɾ' => "ᵻd",
        _ if VOICED.contains(last) => "d",
        _ => "t",
    }
}

/// The part of speech of a word with several pronunciations, guessed from the previous word.
fn kind_of(entry: &DictionaryEntry<'_>, word: &str, before: &str) -> Option<&'static str> {
    let follows = |list: &str| !before.is_empty() && list.contains(&format!(" {before} "));
    // The country, the time of day and the era, but not "I AM" in capitals.
    if SPELLED.contains(&word) && before != "i" {
        return Some("NOUN");
    }
    if follows(BEFORE_PARTICIPLES) && entry.of_kind("VBN").is_some() {
        return Some("VBN");
    }
    follows(BEFORE_VERBS).then_some("VERB")
}

/// How small words sound before a vowel, a consonant or nothing.
fn weak_form(word: &str, next_is_vowel: Option<bool>) -> Option<&'static str> {
    Some(match (word, next_is_vowel) {
        ("the" | "The", Some(false) | None) => "ðə",
        ("the" | "The", Some(true)) => "ði",
        ("a" | "A", Some(_)) => "ɐ",
        ("an" | "An", Some(_)) => "ɐn",
        ("to" | "To", Some(true)) => "tʊ",
        ("to" | "To", Some(false)) => "tə",
        ("to" | "To", None) => "tu",
        ("I", Some(_)) => "ˌI",
        _ => return None,
    })
}

/// Words separated by spaces, with punctuation. Neither ends of the text are spaces.
fn join(readings: &[Reading], words: &[String]) -> Sentence {
    let mut joined = String::new();
    let mut places = Vec::new();
    let mut opens = true;
    for (reading, word) in readings.iter().zip(words) {
        let mark = match reading {
            Reading::Mark(mark) => Some(*mark),
            _ => None,
        };
        let is_attached = mark.is_some_and(|mark| ";:,.!?…)”".contains(mark));
        if !opens && !is_attached && !word.is_empty() {
            joined.push(' ');
        }
        let from = joined.chars().count();
        joined.push_str(word);
        if let Reading::Word(text) = reading {
            places.push(SentenceWord {
                text: text.clone(),
                place: from..joined.chars().count(),
            });
        }
        opens = mark.is_some_and(|mark| "(“".contains(mark)) || joined.is_empty();
    }
    let phonemes = joined.trim_start();
    let dropped = joined.chars().count() - phonemes.chars().count();
    let words = places.into_iter().map(|word| SentenceWord {
        place: word.place.start.saturating_sub(dropped)..word.place.end.saturating_sub(dropped),
        ..word
    });
    Sentence {
        words: words.collect(),
        phonemes: phonemes.trim_end().to_owned(),
    }
}

/// Letters without their accents.
fn plain(word: &str) -> String {
    let letters = word.chars().flat_map(|letter| {
        let plain: &str = match letter {
            'à' | 'á' | 'â' | 'ã' | 'å' | 'ā' | 'ă' | 'ą' => "a",
            'ä' | 'æ' => "ae",
            'ç' | 'ć' | 'č' => "c",
            'è' | 'é' | 'ê' | 'ë' | 'ē' | 'ė' | 'ę' | 'ě' => "e",
            'ì' | 'í' | 'î' | 'ï' | 'ī' | 'ı' => "i",
            'ł' => "l",
            'ñ' | 'ń' | 'ň' => "n",
            'ò' | 'ó' | 'ô' | 'õ' | 'ø' | 'ō' | 'ő' => "o",
            'ö' | 'œ' => "oe",
            'ř' => "r",
            'ś' | 'š' | 'ş' => "s",
            'ß' => "ss",
            'ť' | 'ţ' => "t",
            'ù' | 'ú' | 'û' | 'ū' | 'ů' | 'ű' => "u",
            'ü' => "ue",
            'ý' | 'ÿ' => "y",
            'ź' | 'ż' | 'ž' => "z",
            'ð' | 'þ' => "th",
            'đ' | 'ď' => "d",
            'ğ' => "g",
            _ => "",
        };
        let own = plain.is_empty().then(|| base_letter(letter));
        own.into_iter().chain(plain.chars())
    });
    letters.collect()
}

#[cfg(test)]
mod tests;
