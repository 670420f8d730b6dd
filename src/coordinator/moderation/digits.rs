//! Digits and symbols that stand for letters inside words: `ch1ld`, `b4by`, `k!d`. Numbers stay numbers, and so do
//! words that contain one: `35mm`, `1990s`, `4k`.
//!
//! A one may be an i or an l, so a text is read both ways; a word that needs both at once is read with every choice.

/// Digits and signs, and the letters they stand for.
const STANDS_FOR: [(char, char); 13] = [
    ('0', 'o'),
    ('2', 'z'),
    ('3', 'e'),
    ('4', 'a'),
    ('5', 's'),
    ('6', 'g'),
    ('7', 't'),
    ('8', 'b'),
    ('9', 'g'),
    ('@', 'a'),
    ('$', 's'),
    ('€', 'e'),
    ('+', 't'),
];
/// Each of these may stand for an i or an l.
const UPRIGHT: [char; 3] = ['1', '!', '|'];
/// Up to this many in a word are read with every choice; beyond it, all get the same one.
const CHOICES: usize = 3;
/// Punctuation around a word.
const AROUND: [char; 6] = ['!', '?', '.', ',', ';', ':'];

/// The text with letters in their place, in each reading; empty if no word contains any.
pub fn spelt_out(look: &str) -> Vec<String> {
    let readings = ['i', 'l'].map(|upright| read_with(look, upright));
    if readings[0] == look {
        return Vec::new();
    }
    let mut all = Vec::from(readings);
    let mixed: Vec<String> = look.split_whitespace().flat_map(mixed).collect();
    if !mixed.is_empty() {
        all.push(mixed.join(" "));
    }
    all.dedup();
    all
}

/// Reads all ambiguous characters of the text as the same letter.
fn read_with(look: &str, upright: char) -> String {
    let words = look.split_inclusive(char::is_whitespace);
    let read = words.map(|word| match bounds(word) {
        Some((start, end)) => {
            let inside = word[start..end].chars();
            let inside: String = inside.map(|sign| letter(sign, upright)).collect();
            format!("{}{inside}{}", &word[..start], &word[end..])
        }
        None => word.to_owned(),
    });
    read.collect()
}

/// All variants of a word with a mixture of i and l.
fn mixed(word: &str) -> Vec<String> {
    let Some((start, end)) = bounds(word) else {
        return Vec::new();
    };
    let signs: Vec<char> = word[start..end].chars().collect();
    let uprights = signs.iter().filter(|sign| UPRIGHT.contains(sign)).count();
    if !(2..=CHOICES).contains(&uprights) {
        return Vec::new();
    }
    let choices = 1..(1_u32 << uprights) - 1;
    let read = choices.map(|choice| {
        let mut number = 0;
        let letters = signs.iter().map(|sign| {
            let upright = if choice >> number & 1 == 1 { 'l' } else { 'i' };
            number += u32::from(UPRIGHT.contains(sign));
            letter(*sign, upright)
        });
        letters.collect()
    });
    read.collect()
}

/// The bounds of a word without surrounding signs, if it mixes letters with signs that stand for letters.
fn bounds(word: &str) -> Option<(usize, usize)> {
    let outside = |sign: char| sign.is_whitespace() || AROUND.contains(&sign);
    let start = word.len() - word.trim_start_matches(outside).len();
    let inside = word.trim_matches(outside);
    let has_letters = inside.chars().any(char::is_alphabetic);
    let has_others = inside.chars().any(|sign| letter(sign, 'i') != sign);
    (has_letters && has_others && !is_measure(inside)).then_some((start, start + inside.len()))
}

/// Digits followed by letters are a number with a unit, unless they are as short as a disguised letter.
fn is_measure(word: &str) -> bool {
    let letters = word.trim_start_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
    let digits = word.len() - letters.len();
    digits > 1 && letters.chars().all(char::is_alphabetic)
}

fn letter(sign: char, upright: char) -> char {
    if UPRIGHT.contains(&sign) {
        return upright;
    }
    let stands_for = STANDS_FOR.iter().find(|(other, _)| *other == sign);
    stands_for.map_or(sign, |(_, letter)| *letter)
}

#[cfg(test)]
mod tests {
    use super::spelt_out;

    #[test]
    fn digits_and_signs_inside_of_words_are_read_as_letters() {
        let check = |text: &str, expected: &str| {
            let read = spelt_out(text);
            assert!(read.iter().any(|form| form == expected), "{text}: {read:?}");
        };
        check("ch1ld", "child");
        check("a ch!ld, at last", "a child, at last");
        check("b4by k1d!", "baby kid!");
        check("t33n", "teen");
        check("10l1 girl", "loli ioll");
        check("1ol1", "loli ioll");
        check("$ch00lg!rl", "schoolgirl");
        check("f0rb1dd3n", "forbidden");
        check("4dult", "adult");
    }

    #[test]
    fn numbers_and_what_is_counted_stay() {
        for text in [
            "", "a hat", "4 8 15", "35mm", "1990s", "16yo", "100kg", "12:30", "$500", "what?!",
            "80.5mhz",
        ] {
            assert_eq!(spelt_out(text), [""; 0], "{text}");
        }
    }
}
