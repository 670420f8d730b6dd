//! Words that no public name or note may hold. A short list on purpose: it keeps the listings of a network fit to be
//! shown, and is no judge of prompts (the filters of moderators are).

/// Forbidden wherever they stand, also inside longer words.
const STEMS: [&str; 6] = [
    "fuck", "nigger", "faggot", "motherf", "cocksuck", "shithead",
];
/// Forbidden as whole words, with the endings below.
const WORDS: [&str; 24] = [
    "arsehole", "asshole", "bastard", "bitch", "bollock", "cock", "cunt", "dick", "dildo", "fag",
    "jizz", "kike", "nigga", "piss", "prick", "pussy", "rape", "rapist", "shit", "slut", "spic",
    "twat", "wank", "whore",
];
const ENDINGS: [&str; 9] = ["", "s", "es", "ed", "er", "ers", "ing", "y", "head"];

/// Whether a name or a note holds one, however its letters are dressed up.
pub fn is_profane(text: &str) -> bool {
    let plain: String = text.chars().filter_map(plain).collect();
    let words = plain.split(|letter: char| !letter.is_ascii_lowercase());
    let mut words = words.filter(|word| !word.is_empty());
    words.any(|word| is_bad(word) || is_bad(&without_repeats(word)))
}

fn is_bad(word: &str) -> bool {
    let is_one = |bad: &&str| {
        let rest = word.strip_prefix(*bad);
        rest.is_some_and(|rest| ENDINGS.contains(&rest))
    };
    STEMS.iter().any(|stem| word.contains(stem)) || WORDS.iter().any(is_one)
}

/// The letter that a sign stands for; `None` for invisible characters.
fn plain(letter: char) -> Option<char> {
    Some(match letter {
        '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}' => return None,
        '0' => 'o',
        '1' | '!' => 'i',
        '3' => 'e',
        '4' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        other => other.to_ascii_lowercase(),
    })
}

fn without_repeats(word: &str) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    letters.dedup();
    letters.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::is_profane;

    #[test]
    fn bad_words_are_found_however_they_are_dressed() {
        for text in [
            "fuck this",
            "FUCK",
            "absofuckinglutely",
            "sh1t",
            "shiiiit",
            "you b1tches",
            "f\u{200b}uck",
            "a$$hole",
        ] {
            assert!(is_profane(text), "{text}");
        }
    }

    #[test]
    fn good_words_that_hold_bad_letters_are_left_alone() {
        for text in [
            "Scunthorpe",
            "cockatoo",
            "a peacock",
            "Dickens",
            "grapes",
            "class assignment",
            "spice",
            "night watch",
            "rig-7 of Anna",
            "",
        ] {
            assert!(!is_profane(text), "{text}");
        }
    }
}
