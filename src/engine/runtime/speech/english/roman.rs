//! Roman numerals where they are surely numbers.

use super::numbers::{cardinal, ordinal};

/// A number follows these.
const PARTS: [&str; 26] = [
    "Act", "Appendix", "Article", "Book", "Bowl", "Chapter", "Class", "Division", "Episode",
    "Figure", "Grade", "Level", "Mark", "Part", "Phase", "Rule", "Scene", "Schedule", "Section",
    "Stage", "Table", "Title", "Tome", "Type", "Volume", "War",
];
/// Names of rulers and popes.
const RULERS: [&str; 60] = [
    "Abdulaziz",
    "Albert",
    "Alexander",
    "Alexandra",
    "Alfonso",
    "Amenhotep",
    "Anne",
    "Baldwin",
    "Benedict",
    "Carl",
    "Catherine",
    "Charles",
    "Christian",
    "Clement",
    "Constantine",
    "Cosimo",
    "Darius",
    "Edward",
    "Elizabeth",
    "Ferdinand",
    "Francis",
    "Frederick",
    "George",
    "Gregory",
    "Gustav",
    "Haakon",
    "Harald",
    "Henry",
    "Innocent",
    "Isabella",
    "Ivan",
    "James",
    "John",
    "Juan",
    "Julius",
    "Leo",
    "Leopold",
    "Louis",
    "Margaret",
    "Mary",
    "Mehmed",
    "Murad",
    "Napoleon",
    "Nicholas",
    "Otto",
    "Paul",
    "Pedro",
    "Peter",
    "Philip",
    "Pius",
    "Ptolemy",
    "Ramesses",
    "Ramses",
    "Richard",
    "Robert",
    "Selim",
    "Thutmose",
    "Urban",
    "Wilhelm",
    "William",
];
/// An ordinal number precedes these.
const COUNTED: [&str; 4] = ["century", "Century", "centuries", "Olympiad"];

/// The word after a numeral.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextWord<'t> {
    Word(&'t str),
    /// A mark, or the end of the text.
    Stop,
}

/// The words of a numeral between these words; `None` if it may be a word.
pub fn numeral(word: &str, before: Option<&str>, next: NextWord<'_>) -> Option<String> {
    let number = value(word)?;
    let before = before.unwrap_or_default();
    if let NextWord::Word(next) = next
        && COUNTED.contains(&next)
        && word.len() > 1
    {
        return Some(ordinal(number));
    }
    let is_part = PARTS.iter().any(|part| part.eq_ignore_ascii_case(before));
    let is_capital = before.starts_with(char::is_uppercase);
    // The letter I is a pronoun before a word, and may be one anywhere.
    let is_pronoun = word == "I";
    if is_part && (is_capital || !is_pronoun) {
        return Some(cardinal(number));
    }
    if RULERS.contains(&before) {
        let ends = matches!(next, NextWord::Stop | NextWord::Word("of" | "and" | "was"));
        return (!is_pronoun || ends).then(|| format!("the {}", ordinal(number)));
    }
    // XXX is a placeholder.
    let is_long = word.len() > 2 && word != "XXX" || word == "II";
    (is_long && is_capital).then(|| cardinal(number))
}

/// The number of a numeral that is written as usual, up to 89: larger ones are more often abbreviations.
fn value(word: &str) -> Option<u64> {
    const STEPS: [(&str, u64); 7] = [
        ("L", 50),
        ("XL", 40),
        ("X", 10),
        ("IX", 9),
        ("V", 5),
        ("IV", 4),
        ("I", 1),
    ];
    let mut number = 0;
    let mut rest = word;
    for (step, worth) in STEPS {
        let most = if matches!(step, "X" | "I") { 3 } else { 1 };
        for _ in 0..most {
            if let Some(later) = rest.strip_prefix(step) {
                rest = later;
                number += worth;
            }
        }
    }
    // The greedy reading is wrong for IVI and the like.
    (rest.is_empty() && number > 0 && written(number) == word).then_some(number)
}

fn written(number: u64) -> String {
    const TENS: [&str; 9] = ["", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX"];
    const ONES: [&str; 10] = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"];
    let digit = |digits: &[&'static str], at: u64| digits.get(at as usize).copied().unwrap_or("?");
    [digit(&TENS, number / 10), digit(&ONES, number % 10)].concat()
}

#[cfg(test)]
mod tests {
    use super::{NextWord, numeral, value, written};

    #[test]
    fn numerals_have_one_spelling() {
        for number in 1..90 {
            assert_eq!(value(&written(number)), Some(number));
        }
        for other in ["", "IIII", "IVI", "VX", "MIX", "CD", "iv", "IL"] {
            assert_eq!(value(other), None, "{other}");
        }
    }

    #[test]
    fn words_stay_words() {
        for (word, before) in [
            ("I", "and"),
            ("I", "part"),
            ("X", "Malcolm"),
            ("V", "the"),
            ("XL", "size"),
            ("XXX", "Rated"),
        ] {
            assert_eq!(
                numeral(word, Some(before), NextWord::Stop),
                None,
                "{before} {word}"
            );
        }
        assert_eq!(numeral("I", Some("Henry"), NextWord::Word("met")), None);
    }
}
