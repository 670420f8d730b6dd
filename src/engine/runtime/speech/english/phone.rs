//! Phone numbers, which are read digit by digit.

/// A number that follows one of these is called.
const VERBS: [&str; 9] = [
    "call",
    "dial",
    "phone",
    "tel",
    "telephone",
    "text",
    "fax",
    "mobile",
    "hotline",
];
/// Short numbers that are called.
const SHORT: [&str; 8] = ["911", "112", "999", "988", "411", "311", "211", "000"];

/// A phone number.
#[derive(Debug, PartialEq, Eq)]
pub struct PhoneNumber {
    /// With `+` and a country code.
    pub is_international: bool,
    /// Digits that are read without a pause.
    pub groups: Vec<String>,
    /// In characters.
    pub length: usize,
}

impl PhoneNumber {
    /// At the beginning of `text`, after the word `before`.
    pub fn read(text: &[char], before: Option<&str>) -> Option<Self> {
        let is_international = text.first() == Some(&'+');
        let mut at = usize::from(is_international);
        let mut groups: Vec<String> = Vec::new();
        let mut separators = String::new();
        loop {
            let is_bracketed = text.get(at) == Some(&'(');
            let start = at + usize::from(is_bracketed);
            let digits: String = text
                .iter()
                .skip(start)
                .take_while(|one| one.is_ascii_digit())
                .collect();
            let end = start + digits.len();
            if digits.is_empty() || is_bracketed && text.get(end) != Some(&')') {
                break;
            }
            at = end + usize::from(is_bracketed);
            groups.push(digits);
            if is_bracketed {
                separators.push('(');
            }
            let next = |offset: usize| text.get(at + offset).copied();
            let begins =
                |one: Option<char>| one.is_some_and(|one| one.is_ascii_digit() || one == '(');
            match next(0) {
                Some(separator @ (' ' | '-' | '.' | '/' | '‑' | '–')) if begins(next(1)) => {
                    separators.push(separator);
                    at += 1;
                }
                Some(digit) if is_bracketed && digit.is_ascii_digit() => {}
                _ => break,
            }
        }
        let goes_on = text
            .get(at)
            .is_some_and(|next| next.is_alphanumeric() || "-/:%°".contains(*next));
        let number = Self {
            is_international,
            groups,
            length: at,
        };
        (!goes_on && number.is_surely_called(&separators, before)).then_some(number)
    }

    fn is_surely_called(&self, separators: &str, before: Option<&str>) -> bool {
        let lengths: Vec<usize> = self.groups.iter().map(String::len).collect();
        let digits: usize = lengths.iter().sum();
        if !(3..=15).contains(&digits) {
            return false;
        }
        let is_asked =
            before.is_some_and(|word| VERBS.iter().any(|verb| verb.eq_ignore_ascii_case(word)));
        let first = self.groups.first().map_or("", String::as_str);
        let has_spaces = separators.contains(' ') && !separators.contains('(');
        match lengths.as_slice() {
            _ if self.is_international => digits >= 7,
            [_] => is_asked && (digits >= 7 || SHORT.contains(&first)),
            [3, 3, 4] | [1, 3, 3, 4] => is_asked || !has_spaces,
            [3, 4] => is_asked || first == "555" && !has_spaces,
            // The code of a city, as in much of Europe.
            [length, ..] if *length > 2 && first.starts_with('0') => {
                digits >= 7 && (is_asked || !separators.contains('.'))
            }
            _ => is_asked && digits >= 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PhoneNumber;

    #[test]
    fn phone_numbers_are_told_from_others() {
        let read = |text: &str, before: Option<&str>| {
            let letters: Vec<char> = text.chars().collect();
            PhoneNumber::read(&letters, before).map(|number| number.groups.join(" "))
        };
        for (text, before, wanted) in [
            ("+1 555 123-4567.", None, Some("1 555 123 4567")),
            ("+49 (0)30 123456", None, Some("49 0 30 123456")),
            ("(555) 123-4567,", None, Some("555 123 4567")),
            ("555-0199", None, Some("555 0199")),
            ("1-800-555-0199", None, Some("1 800 555 0199")),
            ("030 1234567", None, Some("030 1234567")),
            ("911", Some("call"), Some("911")),
            ("100 people", Some("call"), None),
            ("911", Some("Porsche"), None),
            ("100-2000", None, None),
            ("2026-11-26", None, None),
            ("01-02-2026", None, None),
            ("192.168.1.10", None, None),
            ("+5", None, None),
            ("(555)", None, None),
            ("100 200 3000", None, None),
            ("5551234567", None, None),
        ] {
            assert_eq!(read(text, before).as_deref(), wanted, "{text}");
        }
    }
}
