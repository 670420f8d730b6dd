//! Look-alike letters and invisible characters.
//!
//! Letters that look like Latin ones are mapped to them: by compatibility (fullwidth, mathematical, circled letters),
//! by the confusables of UTS 39, and by a short list of our own for gaps in that table: small capitals, to which it
//! maps many Cyrillic letters, boxed letters, some Greek ones used for writing words, and the letters and signs of
//! other scripts that converters to fancy letters substitute for Latin ones.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

/// Our own list of look-alikes.
#[rustfmt::skip]
const PASSES_FOR: &[(&str, char)] = &[
    ("ᴀɐΛɅλ₳ᗩᏗ", 'a'), ("ʙßƅβɮ฿Ⴆⴆ", 'b'), ("ɔ¢Ƈƈ₵ᑕ", 'c'), ("ᴅ∂ԃᎴ", 'd'), ("ᴇəǝɛεєꞓΣƩΞ€", 'e'), ("ꜰϝ₣Ꭶ", 'f'), ("ɢ₲Ꮆ", 'g'),
    ("ʜɧԋ", 'h'), ("ᴊʝᏠ", 'j'), ("ᴋĸӄ₭", 'k'), ("ʟլ£ʅⱠᏝ", 'l'), ("ᴍʍ₥", 'm'), ("ɴᴎИηπ₦ᑎᏁ", 'n'), ("Ꭷ", 'o'), ("ᴘ₱Ꭾ", 'p'),
    ("ǫϙᑫ", 'q'), ("ʀᴙЯɾ", 'r'), ("§ſֆ₴ᔕ", 's'), ("ᴛ†ȶ₮Ꮦ", 't'), ("μʊ", 'u'), ("Ꮙ", 'v'), ("ω₩ᗯᏇ", 'w'), ("χҳӼӽӾӿ᙭", 'x'),
    ("¥", 'y'), ("ʑᘔ", 'z'),
];

/// Letters in boxes and on black background, each row from A to Z.
const ROWS: [u32; 3] = [0x1F150, 0x1F170, 0x1F1E6];

/// The text with its look-alikes folded, in lower case: without invisible characters or marks on letters.
pub fn folded(text: &str) -> String {
    if text.is_ascii() {
        return text
            .chars()
            .filter(|letter| !is_unseen(*letter))
            .collect::<String>()
            .to_ascii_lowercase();
    }
    let mut folded = String::with_capacity(text.len());
    for letter in text.chars().filter(|letter| !is_hidden(*letter)) {
        fold_one(letter, &mut folded);
    }
    folded
}

/// Removes invisible characters, in lower case and NFKC; letters of other scripts are kept.
pub fn cleaned(text: &str) -> String {
    let seen = text.nfkc().filter(|letter| !is_invisible(*letter));
    seen.flat_map(char::to_lowercase).collect()
}

/// Characters without width and ink: zero widths, directions, variations, tags, control characters.
pub fn is_invisible(letter: char) -> bool {
    is_unseen(letter)
        || !letter.is_ascii() && skeleton(letter.encode_utf8(&mut [0; 4])).next().is_none()
}

fn is_hidden(letter: char) -> bool {
    is_combining_mark(letter) || is_invisible(letter)
}

/// Invisible characters that Unicode does not list as ignorable.
fn is_unseen(letter: char) -> bool {
    let is_control = letter.is_control() && !letter.is_whitespace();
    is_control || matches!(letter, '\u{fff9}'..='\u{fffd}' | '\u{e000}'..='\u{f8ff}')
}

fn fold_one(letter: char, folded: &mut String) {
    if letter.is_ascii() {
        folded.push(letter.to_ascii_lowercase());
        return;
    }
    // The Braille blank counts as a space.
    if letter.is_whitespace() || letter == '\u{2800}' {
        folded.push(' ');
        return;
    }
    let small = letter
        .to_lowercase()
        .next()
        .filter(|small| *small != letter);
    if let Some(latin) = latin(letter).or_else(|| latin(small?)) {
        folded.push_str(&latin);
        return;
    }
    // Whole alphabets of decorated letters.
    for part in std::iter::once(letter)
        .nfkd()
        .filter(|part| !is_hidden(*part))
    {
        match latin(part) {
            Some(latin) if part != letter => folded.push_str(&latin),
            _ => folded.extend(part.to_lowercase()),
        }
    }
}

/// The Latin letters it resembles, in lower case.
fn latin(letter: char) -> Option<String> {
    if let Some(plain) = plain(letter) {
        return Some(plain.to_string());
    }
    if !letter.is_alphabetic() {
        return None;
    }
    let mut buffer = [0; 4];
    let likeness = skeleton(letter.encode_utf8(&mut buffer));
    let likeness: String = likeness.filter(|part| !is_combining_mark(*part)).collect();
    match likeness.as_str() {
        "" => None,
        // The table maps every I to l, and m to r and n.
        "l" if letter.is_uppercase() => Some("i".to_owned()),
        "rn" => Some("m".to_owned()),
        likeness => likeness.chars().map(plain).collect(),
    }
}

/// An ASCII letter, or our own list's letter for it.
fn plain(part: char) -> Option<char> {
    match part.is_ascii_alphabetic() {
        true => Some(part.to_ascii_lowercase()),
        false => own(part),
    }
}

fn own(letter: char) -> Option<char> {
    let row = ROWS.into_iter().find_map(|first| {
        let place = u32::from(letter)
            .checked_sub(first)
            .filter(|place| *place < 26)?;
        char::from_u32(u32::from('a') + place)
    });
    let listed = || PASSES_FOR.iter().find(|(alike, _)| alike.contains(letter));
    row.or_else(|| listed().map(|(_, plain)| *plain))
}

#[cfg(test)]
mod tests {
    use super::{cleaned, folded, is_invisible};

    #[test]
    fn what_looks_alike_is_folded_to_the_same() {
        let check = |text: &str, expected: &str| assert_eq!(folded(text), expected, "{text}");
        check("Child", "child");
        check("сhіld", "child");
        check("ｃｈｉｌｄ", "child");
        check("𝕔𝖍𝓲𝗅𝚍", "child");
        check("c̶h̷í̈ḷđ", "child");
        check("ᴄʜɪʟᴅ", "child");
        check("ⓒⓗⓘⓛⓓ 🅒🅷🇮🄻🅓", "child child");
        check("c\u{200b}h\u{ad}i\u{2060}l\u{fe0f}d\u{e0041}", "child");
        check("ch\u{1}i\u{7f}ld\u{fffc}", "child");
        check("ВАВΥ Тееп ΚΙD", "baby teen kid");
        check("тeeп кid", "teen kid");
        check("a\u{3000}b\u{2003}c\u{2800}d\ne", "a b c d\ne");
        check("ƈԋιʅԃ ϝɾσƚԋ ʝαʑʑ", "child frolh jazz");
        check("ᑕᕼIᒪᗪ ᑎEᗯ ᔕIX ᔕI᙭", "child new six six");
        check("₣₳₭Ɇ ₴₮₳₦Đ ₱Ⱡ₳₵Ɇ₲ ₥₳₩", "fake stand placeg maw");
        check("ᏕᏖᏗᏁᎴ ᎶᎧᎧᎴ", "stand good");
        check("ﬁne ﬂæ", "fine flae");
        check("Ꮮ🄻Ⅼℒ ІΙⅠℐ", "llll iiii");
    }

    #[test]
    fn other_scripts_stay_readable_where_nobody_is_deceived() {
        assert_eq!(cleaned("ДЕВ\u{200b}ОЧКА"), "девочка");
        assert_eq!(cleaned("女\u{200d}孩"), "女孩");
        assert_eq!(folded("女孩"), "女孩");
    }

    #[test]
    fn what_is_seen_is_not_invisible() {
        assert!("aä 女👧\n\t!".chars().all(|letter| !is_invisible(letter)));
    }
}
