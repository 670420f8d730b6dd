//! Pronunciations of words that no dictionary has, from their letters, and of words that are spelled.

/// Names of the letters.
const NAMES: [&str; 26] = [
    "ˈA",
    "bˈi",
    "sˈi",
    "dˈi",
    "ˈi",
    "ˈɛf",
    "ʤˈi",
    "ˈAʧ",
    "ˈI",
    "ʤˈA",
    "kˈA",
    "ˈɛl",
    "ˈɛm",
    "ˈɛn",
    "ˈO",
    "pˈi",
    "kjˈu",
    "ˈɑɹ",
    "ˈɛs",
    "tˈi",
    "jˈu",
    "vˈi",
    "dˈʌbᵊljˌu",
    "ˈɛks",
    "wˈI",
    "zˈi",
];

/// Letters, the longest first, and how they sound. `^` begins and `$` ends a word.
const SOUNDS: &[(&str, &str)] = &[
    ("ough$", "O"),
    ("tion", "ʃən"),
    ("sion", "ʒən"),
    ("cian", "ʃən"),
    ("ture", "ʧəɹ"),
    ("eigh", "A"),
    ("augh", "ɔ"),
    ("tious", "ʃəs"),
    ("cious", "ʃəs"),
    ("ing$", "ɪŋ"),
    ("ism$", "ɪzəm"),
    ("igh", "I"),
    ("tch", "ʧ"),
    ("dge", "ʤ"),
    ("sch", "sk"),
    ("chr", "kɹ"),
    ("ous", "əs"),
    ("eau", "O"),
    ("air", "ɛɹ"),
    ("ear", "ɪɹ"),
    ("eer", "ɪɹ"),
    ("oor", "ɔɹ"),
    ("our", "ɔɹ"),
    ("are$", "ɛɹ"),
    ("ire$", "Iəɹ"),
    ("ore$", "ɔɹ"),
    ("ure$", "jʊɹ"),
    ("le$", "ᵊl"),
    ("^kn", "n"),
    ("^gn", "n"),
    ("^wr", "ɹ"),
    ("^ps", "s"),
    ("^x", "z"),
    ("^rh", "ɹ"),
    ("mb$", "m"),
    ("es$", "z"),
    ("ed$", "d"),
    ("er$", "əɹ"),
    ("or$", "əɹ"),
    ("ey$", "i"),
    ("ie$", "i"),
    ("y$", "i"),
    ("a$", "ə"),
    ("o$", "O"),
    ("i$", "i"),
    ("ch", "ʧ"),
    ("sh", "ʃ"),
    ("th", "θ"),
    ("ph", "f"),
    ("wh", "w"),
    ("ck", "k"),
    ("gh", "ɡ"),
    ("ng", "ŋ"),
    ("qu", "kw"),
    ("ee", "i"),
    ("ea", "i"),
    ("oo", "u"),
    ("ou", "W"),
    ("ow", "O"),
    ("oi", "Y"),
    ("oy", "Y"),
    ("oa", "O"),
    ("ai", "A"),
    ("ay", "A"),
    ("au", "ɔ"),
    ("aw", "ɔ"),
    ("ei", "i"),
    ("eu", "u"),
    ("ew", "u"),
    ("ue", "u"),
    ("ui", "u"),
    ("ar", "ɑɹ"),
    ("er", "ɜɹ"),
    ("ir", "ɜɹ"),
    ("ur", "ɜɹ"),
    ("or", "ɔɹ"),
    ("ce", "sɛ"),
    ("ci", "sɪ"),
    ("cy", "si"),
    ("ge", "ʤɛ"),
    ("gi", "ʤɪ"),
    ("gy", "ʤi"),
    ("a", "æ"),
    ("b", "b"),
    ("c", "k"),
    ("d", "d"),
    ("e", "ɛ"),
    ("f", "f"),
    ("g", "ɡ"),
    ("h", "h"),
    ("i", "ɪ"),
    ("j", "ʤ"),
    ("k", "k"),
    ("l", "l"),
    ("m", "m"),
    ("n", "n"),
    ("o", "ɑ"),
    ("p", "p"),
    ("q", "k"),
    ("r", "ɹ"),
    ("s", "s"),
    ("t", "t"),
    ("u", "ʌ"),
    ("v", "v"),
    ("w", "w"),
    ("x", "ks"),
    ("y", "ɪ"),
    ("z", "z"),
];

/// Vowels before a consonant and a silent e.
const LONG: [(char, &str); 6] = [
    ('a', "A"),
    ('e', "i"),
    ('i', "I"),
    ('o', "O"),
    ('u', "u"),
    ('y', "I"),
];

const VOWELS: &str = "AIOQWYaeiouæɑɒɔəɛɜɪʊʌᵊᵻɐ";
const STRESSES: [char; 2] = ['ˈ', 'ˌ'];

pub fn is_vowel(phoneme: char) -> bool {
    VOWELS.contains(phoneme)
}

/// Whether a word begins with a vowel, stress aside.
pub fn begins_with_vowel(phonemes: &str) -> bool {
    let mut sounds = phonemes.chars().filter(|sound| !STRESSES.contains(sound));
    sounds.next().is_some_and(is_vowel)
}

/// The names of a word's letters; the last one is stressed.
pub fn spell(word: &str) -> String {
    let letters: Vec<&str> = word.chars().filter_map(name_of).collect();
    let last = letters.len().saturating_sub(1);
    let names = letters
        .iter()
        .enumerate()
        .map(|(at, name)| match at == last {
            true => (*name).to_owned(),
            false => name.replace('ˈ', if at == 0 { "ˌ" } else { "" }),
        });
    names.collect()
}

fn name_of(letter: char) -> Option<&'static str> {
    let letter = letter.to_ascii_lowercase();
    let at = (letter as u32).checked_sub('a' as u32)?;
    NAMES.get(at as usize).copied()
}

/// Sounds of a word of small letters from a to z; the first vowel is stressed.
pub fn guess(word: &str) -> String {
    let letters: Vec<char> = word.chars().filter(char::is_ascii_lowercase).collect();
    let whole: String = letters.iter().collect();
    let mut sounds = String::new();
    let mut at = 0;
    while at < letters.len() {
        let rest = &whole[at..];
        if at > 0 && rest == "e" {
            break;
        }
        // A consonant written twice sounds once.
        let is_double = at > 0 && letters[at] == letters[at - 1];
        if is_double && !"aeiou".contains(letters[at]) {
            at += 1;
            continue;
        }
        if let Some(sound) = before_silent_e(&letters[at..]) {
            sounds.push_str(sound);
            at += 1;
            continue;
        }
        let fitting = SOUNDS.iter().find_map(|(pattern, sound)| {
            let (pattern, begins) = match pattern.strip_prefix('^') {
                Some(pattern) => (pattern, true),
                None => (*pattern, false),
            };
            let (pattern, ends) = match pattern.strip_suffix('$') {
                Some(pattern) => (pattern, true),
                None => (pattern, false),
            };
            let fits = (!begins || at == 0) && (!ends || rest.len() == pattern.len());
            // A word has sounds before its end.
            let fits = fits && (!ends || at > 0) && rest.starts_with(pattern);
            fits.then_some((pattern.len(), *sound))
        });
        let (length, sound) = fitting.unwrap_or((1, ""));
        sounds.push_str(sound);
        at += length;
    }
    stress(&sounds)
}

/// The long vowel of `name`.
fn before_silent_e(rest: &[char]) -> Option<&'static str> {
    let [vowel, consonant, 'e'] = rest else {
        return None;
    };
    if "aeiouyrwx".contains(*consonant) {
        return None;
    }
    let long = LONG.iter().find(|(letter, _)| letter == vowel);
    long.map(|(_, sound)| *sound)
}

/// Puts the stress before the first vowel.
pub fn stress(sounds: &str) -> String {
    match sounds.char_indices().find(|(_, sound)| is_vowel(*sound)) {
        Some((at, _)) => format!("{}ˈ{}", &sounds[..at], &sounds[at..]),
        None => sounds.to_owned(),
    }
}
