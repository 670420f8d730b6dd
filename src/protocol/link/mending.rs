//! Repairs of JSON as Python writes it. Peers send it unknowingly: half of a cut emoji is a lone surrogate, an
//! impossible token has the log probability `-Infinity`. Such frames are parsed if possible.

const STRANGE_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// The text with a replacement character for each half of a pair that stands alone. None if there is none.
pub fn without_lone_surrogates(text: &str) -> Option<String> {
    let (mut out, mut rest, mut is_mended) = (String::new(), text, false);
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        let (length, is_lone) = measure(escape);
        let (escape, tail) = escape.split_at(length);
        out.push_str(plain);
        out.push_str(if is_lone { "\\ufffd" } else { escape });
        is_mended |= is_lone;
        rest = tail;
    }
    out.push_str(rest);
    is_mended.then_some(out)
}

/// How long the escape at the beginning of this text is, and whether it is half of a pair without the other half.
fn measure(text: &str) -> (usize, bool) {
    match unit(text) {
        Some(0xD800..=0xDBFF) => match text.get(6..).and_then(unit) {
            Some(0xDC00..=0xDFFF) => (12, false),
            _ => (6, true),
        },
        Some(0xDC00..=0xDFFF) => (6, true),
        Some(_) => (6, false),
        None => {
            let escaped = text.chars().nth(1);
            (1 + escaped.map_or(0, char::len_utf8), false)
        }
    }
}

/// The code unit that the text begins with: `\ud83d`.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_number)
}

/// The text with null for each number that is none. None if there is none.
pub fn without_strange_numbers(text: &str) -> Option<String> {
    let (mut out, mut copied) = (String::new(), 0);
    let (mut at, mut in_string) = (0, false);
    while let Some(&byte) = text.as_bytes().get(at) {
        let found = match byte {
            b'N' | b'I' | b'-' if !in_string => strange(&text[at..]),
            _ => None,
        };
        if let Some(name) = found {
            out.push_str(&text[copied..at]);
            out.push_str("null");
            copied = at + name.len();
        }
        in_string ^= byte == b'"';
        let is_escape = in_string && byte == b'\\';
        at += found.map_or(1 + usize::from(is_escape), str::len);
    }
    out.push_str(&text[copied..]);
    (copied > 0).then_some(out)
}

fn strange(text: &str) -> Option<&'static str> {
    let mut names = STRANGE_NUMBERS.into_iter();
    names.find(|name| text.starts_with(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use serde_json::Value;

    use super::{without_lone_surrogates, without_strange_numbers};

    #[test]
    fn halves_of_pairs_are_replaced_and_whole_pairs_are_kept() {
        let check = |text: &str, wanted: Option<&str>| {
            assert_eq!(without_lone_surrogates(text).as_deref(), wanted, "{text}");
        };
        check(r#"{"a":"\ud83d"}"#, Some(r#"{"a":"\ufffd"}"#));
        check(r#"{"a":"\uDE00 b\n"}"#, Some(r#"{"a":"\ufffd b\n"}"#));
        check(
            r#"["\ud83d\ud83d\ude00"]"#,
            Some(r#"["\ufffd\ud83d\ude00"]"#),
        );
        check(r#"["\ud83dé\ud83d"]"#, Some(r#"["\ufffdé\ufffd"]"#));
        check(r#"["\ud83d\ude00", "\u00e9"]"#, None);
        check(r#"["\\ud83d"]"#, None);
        check(r#"["\ud83"#, None);
        check(r#"["\é\"#, None);
    }

    #[test]
    fn numbers_that_are_none_become_null_and_words_stay() {
        let check = |text: &str, wanted: Option<&str>| {
            assert_eq!(without_strange_numbers(text).as_deref(), wanted, "{text}");
        };
        check(
            r#"{"a":NaN,"b":[-Infinity,Infinity,-1]}"#,
            Some(r#"{"a":null,"b":[null,null,-1]}"#),
        );
        check(r#"{"NaN":"\"NaN -Infinity"}"#, None);
        check(r#"{"é":"é","x":NaN}"#, Some(r#"{"é":"é","x":null}"#));
        check(r#"["\"#, None);
    }

    proptest! {
        #[test]
        fn what_is_json_already_is_left_as_it_is(text in any::<String>()) {
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(without_lone_surrogates(&json), None);
            assert_eq!(without_strange_numbers(&json), None);
            // No text makes them panic, either.
            without_lone_surrogates(&text);
            without_strange_numbers(&text);
        }

        #[test]
        fn every_escaped_text_can_be_read_once_mended(units in proptest::collection::vec(any::<u16>(), 0..8)) {
            let escaped: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let json = format!("\"{escaped}\"");
            let mended = without_lone_surrogates(&json).unwrap_or(json);
            let read: Value = serde_json::from_str(&mended).unwrap();
            assert_eq!(read.as_str().unwrap(), String::from_utf16_lossy(&units));
        }
    }
}
