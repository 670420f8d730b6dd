//! Text normalization for speech: splits a text into sentences of words, punctuation and given phonemes, and expands
//! numbers, dates, money, times, units, signs and abbreviations to words.

use muster_characters::{GivenPhonemes, is_latin, readable};

use super::letters::spell;
use super::markdown::without_marks;
use super::numbers::{MONTHS, cardinal, digits, ordinal, spoken, year};
use super::phone::PhoneNumber;
use super::roman::{NextWord, numeral};
use super::signs::{ABBREVIATIONS, DOTTED, LARGE, LAST_WORDS, MONEY, SIGNS, UNITS};

/// The next thing to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    Word(String),
    /// Phonemes given in the text, or names of letters.
    Phonemes(String),
    Mark(char),
}

/// The sentences of a text.
pub fn read(text: &str) -> Vec<Vec<Reading>> {
    let text = readable(&without_marks(text));
    let mut reader = TextReader {
        letters: text.chars().collect(),
        at: 0,
        sentences: Vec::new(),
        sentence: Vec::new(),
    };
    while reader.at < reader.letters.len() {
        reader.step();
    }
    reader.end_sentence();
    reader.sentences
}

struct TextReader {
    letters: Vec<char>,
    at: usize,
    sentences: Vec<Vec<Reading>>,
    sentence: Vec<Reading>,
}

impl TextReader {
    fn peek(&self, offset: usize) -> Option<char> {
        self.letters.get(self.at + offset).copied()
    }

    fn before(&self) -> Option<char> {
        self.letters.get(self.at.checked_sub(1)?).copied()
    }

    /// The next `most` letters at most, as text.
    fn rest(&self, most: usize) -> String {
        self.letters.iter().skip(self.at).take(most).collect()
    }

    /// Letters from here on that fulfil a condition.
    fn run(&self, offset: usize, fits: impl Fn(char) -> bool) -> String {
        let letters = self.letters.iter().skip(self.at + offset);
        letters.take_while(|letter| fits(**letter)).collect()
    }

    fn words(&mut self, words: &str) {
        let words = words.split_whitespace();
        let words = words.map(|word| Reading::Word(word.to_owned()));
        self.sentence.extend(words);
    }

    fn mark(&mut self, mark: char) {
        self.sentence.push(Reading::Mark(mark));
    }

    fn end_sentence(&mut self) {
        if !self.sentence.is_empty() {
            self.sentences.push(std::mem::take(&mut self.sentence));
        }
    }

    fn step(&mut self) {
        let Some(letter) = self.peek(0) else {
            return;
        };
        match letter {
            '[' if self.given_phonemes() => {}
            '+' | '(' | '0'..='9' if self.phone_number() => {}
            '^' => self.power(),
            _ if letter.is_whitespace() => self.space(),
            _ if letter.is_ascii_digit() || self.begins_number() => self.number(),
            _ if is_latin(letter) => self.word(),
            '.' | '!' | '?' | '…' | '。' | '！' | '？' => self.stop(letter),
            '"' => {
                let opens = self
                    .before()
                    .is_none_or(|before| before.is_whitespace() || before == '(');
                self.mark(if opens { '“' } else { '”' });
                self.at += 1;
            }
            '-' => self.hyphen(),
            _ => {
                let sign = SIGNS.iter().find(|(sign, _)| *sign == letter);
                if let Some((_, words)) = sign {
                    self.words(words);
                }
                if let Some(mark) = mark_of(letter) {
                    self.mark(mark);
                }
                self.at += 1;
            }
        }
    }

    /// `[word](/phonemes/)`.
    fn given_phonemes(&mut self) -> bool {
        let rest = self.rest(600);
        let Some(given) = GivenPhonemes::read(&rest) else {
            return false;
        };
        self.at += given.whole.chars().count();
        let phonemes = given.phonemes.to_owned();
        self.sentence.push(Reading::Phonemes(phonemes));
        true
    }

    /// The word that was read last, unless a mark followed.
    fn last_word(&self) -> Option<&str> {
        match self.sentence.last() {
            Some(Reading::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn phone_number(&mut self) -> bool {
        if self.before().is_some_and(char::is_alphanumeric) {
            return false;
        }
        let rest: Vec<char> = self.rest(40).chars().collect();
        let Some(number) = PhoneNumber::read(&rest, self.last_word()) else {
            return false;
        };
        self.at += number.length;
        if number.is_international {
            self.words("plus");
        }
        for (at, group) in number.groups.iter().enumerate() {
            if at > 0 {
                self.mark(',');
            }
            self.words(&digits(group));
        }
        true
    }

    /// `10^6`, `x^2`, `10^{-3}`, `x^n`.
    fn power(&mut self) {
        let is_base = self
            .before()
            .is_some_and(|one| one.is_alphanumeric() || one == ')');
        self.at += 1;
        let has_brace = self.peek(0) == Some('{');
        let sign = usize::from(has_brace);
        let is_negative = matches!(self.peek(sign), Some('-' | '−'));
        let start = sign + usize::from(is_negative);
        let digits = self.run(start, |one| one.is_ascii_digit());
        let name = match digits.is_empty() {
            true => self.run(start, is_latin),
            false => digits.clone(),
        };
        let end = start + name.chars().count();
        if !is_base || name.is_empty() || has_brace && self.peek(end) != Some('}') {
            return;
        }
        self.at += end + usize::from(has_brace);
        let words = match digits.parse::<u64>() {
            Ok(2) if !is_negative => "squared".to_owned(),
            Ok(3) if !is_negative => "cubed".to_owned(),
            Ok(power) if is_negative => format!("to the minus {}", cardinal(power)),
            Ok(power) => format!("to the {}", ordinal(power)),
            Err(_) if is_negative => format!("to the minus {name}"),
            Err(_) => format!("to the {name}"),
        };
        self.words(&words);
    }

    /// An empty line ends a sentence.
    fn space(&mut self) {
        let spaces = self.run(0, char::is_whitespace);
        self.at += spaces.chars().count();
        if spaces.matches('\n').count() > 1 {
            self.end_sentence();
        }
    }

    fn stop(&mut self, letter: char) {
        let stops = self.run(0, |letter| ".!?…。！？".contains(letter));
        self.at += stops.chars().count();
        let mark = match letter {
            '.' if stops.len() > 1 && stops.starts_with("..") => '…',
            '。' => '.',
            '！' => '!',
            '？' => '?',
            _ => letter,
        };
        // A name such as example.com.
        if mark == '.' && self.peek(0).is_some_and(is_latin) {
            return self.words("dot");
        }
        self.mark(mark);
        let closing = self.run(0, |letter| "\"”’')]»".contains(letter));
        for letter in closing.chars() {
            if let Some(mark) = mark_of(letter) {
                self.mark(mark);
            }
        }
        self.at += closing.chars().count();
        if self.peek(0).is_none_or(char::is_whitespace) && mark != '…' {
            self.end_sentence();
        }
    }

    fn hyphen(&mut self) {
        let length = self.run(0, |letter| letter == '-').len();
        let stands_alone = self.before().is_none_or(char::is_whitespace)
            && self.peek(length).is_none_or(char::is_whitespace);
        if length > 1 || stands_alone {
            self.mark('—');
        }
        self.at += length;
    }

    fn word(&mut self) {
        let mut word = String::new();
        while let Some(letter) = self.peek(0) {
            let is_apostrophe = matches!(letter, '\'' | '’');
            let goes_on = is_apostrophe && self.peek(1).is_some_and(is_latin) && !word.is_empty();
            match () {
                () if is_latin(letter) => word.push(letter),
                () if goes_on => word.push('\''),
                () => break,
            }
            self.at += 1;
        }
        if self.peek(0) == Some('.') && self.dotted(&word) {
            return;
        }
        let is_plural_owner = word.ends_with('s') && matches!(self.peek(0), Some('\'' | '’'));
        if is_plural_owner {
            self.at += 1;
        }
        let spaces = self.run(0, char::is_whitespace).chars().count();
        let after = self.run(spaces, is_latin);
        let next = match after.is_empty() {
            true => NextWord::Stop,
            false => NextWord::Word(&after),
        };
        if let Some(words) = numeral(&word, self.last_word(), next) {
            return self.words(&words);
        }
        for part in humps(&word) {
            self.words(&part);
        }
    }

    /// Abbreviations, and letters with points between them.
    fn dotted(&mut self, word: &str) -> bool {
        let lower = word.to_lowercase();
        if word.chars().count() == 1
            && self.peek(1).is_some_and(is_latin)
            && self.peek(2) == Some('.')
        {
            let mut letters = word.to_owned();
            while self.peek(0) == Some('.') && self.peek(1).is_some_and(is_latin) {
                letters.extend(self.peek(1));
                self.at += 2;
            }
            if self.peek(0) == Some('.') {
                self.at += 1;
            }
            let known = DOTTED
                .iter()
                .find(|(name, _)| *name == letters.to_lowercase());
            match known {
                Some((_, words)) => self.words(words),
                None => {
                    self.sentence.push(Reading::Phonemes(spell(&letters)));
                    self.may_end();
                }
            }
            return true;
        }
        let Some((name, words)) = ABBREVIATIONS.iter().find(|(name, _)| *name == lower) else {
            return false;
        };
        // A small word that happens to end a sentence.
        let is_name = word.chars().next().is_some_and(char::is_uppercase);
        let is_certain = matches!(
            lower.as_str(),
            "mr" | "mrs" | "dr" | "prof" | "vs" | "etc" | "approx"
        );
        if !is_name && !is_certain {
            return false;
        }
        self.words(words);
        self.at += 1;
        if LAST_WORDS.contains(name) {
            self.may_end();
        }
        true
    }

    /// Ends the sentence where a new one begins.
    fn may_end(&mut self) {
        let spaces = self.run(0, char::is_whitespace).chars().count();
        let next = self.peek(spaces);
        if next.is_none() || spaces > 0 && next.is_some_and(char::is_uppercase) {
            self.mark('.');
            self.end_sentence();
        }
    }

    /// Money, a sign before digits, or a fraction without a whole.
    fn begins_number(&self) -> bool {
        let Some(letter) = self.peek(0) else {
            return false;
        };
        let is_next = |offset| self.peek(offset).is_some_and(|next| next.is_ascii_digit());
        match letter {
            '$' | '£' | '€' | '¥' => is_next(1),
            '-' | '−' => self.before().is_none_or(char::is_whitespace) && is_next(1),
            '.' => self.before().is_none_or(char::is_whitespace) && is_next(1),
            _ => false,
        }
    }

    fn number(&mut self) {
        let money = self
            .peek(0)
            .and_then(|sign| MONEY.iter().find(|one| one.0 == sign));
        if money.is_some() {
            self.at += 1;
        } else if matches!(self.peek(0), Some('-' | '−')) {
            self.words("minus");
            self.at += 1;
        }
        if money.is_none() && (self.date() || self.time() || self.fraction()) {
            return;
        }
        let number = self.take_number();
        if let Some(money) = money {
            return self.money(&number, money);
        }
        let rest = self.rest(16);
        let plain: Option<u64> = number.parse().ok();
        let ending = self.run(0, char::is_alphabetic);
        if let (Some(value), "st" | "nd" | "rd" | "th") = (plain, ending.as_str()) {
            self.at += 2;
            return self.words(&ordinal(value));
        }
        if let (Some(value), "s") = (plain, ending.as_str()) {
            self.at += 1;
            let words = year(value);
            return self.words(&match words.strip_suffix('y') {
                Some(stem) => format!("{stem}ies"),
                None => format!("{words}s"),
            });
        }
        let spaced = rest.strip_prefix(' ');
        let unit = UNITS.iter().find(|(unit, ..)| {
            let follows = |text: &str| {
                let after = text.strip_prefix(unit);
                after.is_some_and(|after| !after.starts_with(|next: char| next.is_alphanumeric()))
            };
            follows(&rest) || spaced.is_some_and(follows)
        });
        if let Some((unit, one, several)) = unit {
            let has_space = usize::from(!rest.starts_with(unit));
            self.at += unit.chars().count() + has_space;
            self.words(&spoken(&number));
            return self.words(if number == "1" { one } else { several });
        }
        let value = plain.filter(|_| !number.starts_with('0'));
        match value {
            Some(day @ 1..=31) if self.is_beside_month() => self.words(&ordinal(day)),
            Some(value @ 1100..=2099) if number.len() == 4 => self.words(&year(value)),
            _ => self.words(&spoken(&number)),
        }
        // A range.
        if matches!(self.peek(0), Some('–' | '-'))
            && self.peek(1).is_some_and(|next| next.is_ascii_digit())
        {
            self.at += 1;
            self.words("to");
        }
    }

    /// Digits, with commas between thousands and a point before a fraction.
    fn take_number(&mut self) -> String {
        let mut number = String::new();
        let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
        while let Some(letter) = self.peek(0) {
            let is_group = letter == ','
                && (1..=3).all(|offset| is_digit(self.peek(offset)))
                && !is_digit(self.peek(4))
                && !number.contains('.');
            let is_point = letter == '.' && is_digit(self.peek(1)) && !number.contains('.');
            if !letter.is_ascii_digit() && !is_group && !is_point {
                break;
            }
            number.push(letter);
            self.at += 1;
        }
        number.replace(',', "")
    }

    fn money(&mut self, number: &str, (_, one, several, hundredths): &(char, &str, &str, &str)) {
        let large = self.run(1, char::is_alphabetic);
        if self.peek(0) == Some(' ') && LARGE.contains(&large.as_str()) {
            self.at += 1 + large.len();
            return self.words(&format!("{} {large} {several}", spoken(number)));
        }
        let (whole, cents) = number.split_once('.').unwrap_or((number, ""));
        let unit = if whole == "1" { one } else { several };
        if let (2, Ok(cents)) = (cents.len(), cents.parse::<u64>()) {
            let whole_words = spoken(whole);
            return self.words(&match cents {
                0 => format!("{whole_words} {unit}"),
                _ => format!("{whole_words} {unit} and {} {hundredths}", cardinal(cents)),
            });
        }
        self.words(&format!("{} {unit}", spoken(number)));
    }

    /// Whether a month precedes or follows a day.
    fn is_beside_month(&self) -> bool {
        let is_month = |word: &str| MONTHS.contains(&word);
        let before = matches!(self.sentence.last(), Some(Reading::Word(word)) if is_month(word));
        before || self.peek(0) == Some(' ') && is_month(&self.run(1, char::is_alphabetic))
    }

    /// `2026-11-26`.
    fn date(&mut self) -> bool {
        let text = self.run(0, |letter| letter.is_ascii_digit() || letter == '-');
        let parts: Vec<&str> = text.split('-').collect();
        let [full_year, month, day] = parts.as_slice() else {
            return false;
        };
        if [full_year.len(), month.len(), day.len()] != [4, 2, 2] {
            return false;
        }
        let month = month
            .parse::<usize>()
            .ok()
            .and_then(|month| MONTHS.get(month.checked_sub(1)?));
        let day = day.parse().ok().filter(|day| (1..=31).contains(day));
        let (Some(month), Some(day), Ok(value)) = (month, day, full_year.parse()) else {
            return false;
        };
        self.at += text.len();
        self.words(&format!("{month} {} {}", ordinal(day), year(value)));
        true
    }

    /// `10:30`.
    fn time(&mut self) -> bool {
        let text = self.run(0, |letter| letter.is_ascii_digit() || letter == ':');
        let Some((hour, minute)) = text.split_once(':').filter(|(_, minute)| minute.len() == 2)
        else {
            return false;
        };
        let number = |text: &str, most| text.parse::<u64>().ok().filter(|number| *number <= most);
        let (Some(hour), Some(minute)) = (number(hour, 24), number(minute, 59)) else {
            return false;
        };
        self.at += text.len();
        let words = match minute {
            0 => cardinal(hour) + " o'clock",
            1..10 => format!("{} oh {}", cardinal(hour), cardinal(minute)),
            _ => format!("{} {}", cardinal(hour), cardinal(minute)),
        };
        self.words(&words);
        true
    }

    /// `1/2`, or a date with slashes, month first.
    fn fraction(&mut self) -> bool {
        let text = self.run(0, |letter| letter.is_ascii_digit() || letter == '/');
        let parts: Vec<&str> = text.split('/').collect();
        let numbers: Option<Vec<u64>> = parts.iter().map(|part| part.parse().ok()).collect();
        let words = match numbers.as_deref() {
            Some([1, 2]) => "one half".to_owned(),
            Some([1, 4]) => "one quarter".to_owned(),
            Some([3, 4]) => "three quarters".to_owned(),
            Some([over, under]) => format!("{} over {}", cardinal(*over), cardinal(*under)),
            Some([month @ 1..=12, day @ 1..=31, full_year]) => {
                let month = MONTHS.get(*month as usize - 1).copied().unwrap_or_default();
                format!("{month} {} {}", ordinal(*day), year(*full_year))
            }
            Some(many) if many.len() > 2 => digits(&text),
            _ => return false,
        };
        self.at += text.len();
        self.words(&words);
        true
    }
}

/// Parts of a word such as `OpenStreet`, where a small letter comes before a capital.
fn humps(word: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for letter in word.chars() {
        if was_small && letter.is_uppercase() && parts.last().is_some_and(|part| part.len() > 2) {
            parts.push(String::new());
        }
        was_small = letter.is_lowercase();
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts
}

fn mark_of(letter: char) -> Option<char> {
    Some(match letter {
        ';' | ':' | ',' | '.' | '!' | '?' | '—' | '…' | '(' | ')' | '“' | '”' => letter,
        '–' | '―' => '—',
        '[' | '{' => '(',
        ']' | '}' => ')',
        '«' | '„' | '‹' => '“',
        '»' | '›' => '”',
        '"' => '”',
        '、' | '，' => ',',
        _ => return None,
    })
}
