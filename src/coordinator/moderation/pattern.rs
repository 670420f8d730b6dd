//! A filter's pattern, compiled. It runs in linear time whatever it says, and is refused while it is written if it is
//! too large, or finds something in every text.

use regex::{NoExpand, Regex, RegexBuilder};

use super::forms::Forms;
use super::letters::folded;

/// A pattern that finds.
#[derive(Debug)]
pub struct Pattern {
    written: Regex,
    /// With its letters as they look, where that makes a difference.
    seen: Option<Regex>,
}

/// Why a pattern is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPattern {
    #[error("found a pattern of {0} characters, wanted at most {LONGEST}")]
    Long(usize),
    #[error(
        "compiled, the pattern is larger than {LARGEST} bytes: wanted fewer or smaller repetitions"
    )]
    Large,
    #[error("the pattern finds something in an empty text, and so in every prompt")]
    Everything,
    #[error("the pattern cannot be read: {0}")]
    Unreadable(String),
}

const LONGEST: usize = 4096;
/// Compiled. A thousand characters of a prompt take it some milliseconds at worst.
const LARGEST: usize = 1 << 20;
/// What it may keep in memory to be fast.
const CACHE: usize = 1 << 20;
/// Brackets in brackets.
const DEEPEST: u32 = 50;

impl Pattern {
    pub fn compile(text: &str) -> Result<Self, NoPattern> {
        let length = text.chars().count();
        if length > LONGEST {
            return Err(NoPattern::Long(length));
        }
        let written = build(text).map_err(|error| reason(&error))?;
        if written.is_match("") {
            return Err(NoPattern::Everything);
        }
        Ok(Self {
            written,
            seen: as_it_looks(text),
        })
    }

    /// What it finds first, in whichever form.
    pub fn find(&self, forms: &Forms) -> Option<String> {
        let all = forms.written.iter().chain(&forms.seen);
        let found = all.filter_map(|form| self.written.find(form)).next();
        let seen = || {
            let seen = self.seen.as_ref()?;
            forms.seen.iter().find_map(|form| seen.find(form))
        };
        found.or_else(seen).map(|found| found.as_str().to_owned())
    }

    /// The text with something else wherever it finds anything.
    pub fn replace(&self, text: &str, replacement: &str) -> String {
        let replaced = self.written.replace_all(text, NoExpand(replacement));
        match &self.seen {
            Some(seen) => seen
                .replace_all(&replaced, NoExpand(replacement))
                .into_owned(),
            None => replaced.into_owned(),
        }
    }
}

fn build(text: &str) -> Result<Regex, regex::Error> {
    let mut builder = RegexBuilder::new(text);
    builder.case_insensitive(true).nest_limit(DEEPEST);
    builder.size_limit(LARGEST).dfa_size_limit(CACHE).build()
}

/// Ranges of letters may mean something else then, or nothing: they still find what was written.
fn as_it_looks(text: &str) -> Option<Regex> {
    if text.is_ascii() {
        return None;
    }
    let look = |letter: char| match letter.is_ascii() {
        true => letter.to_string(),
        false => folded(letter.encode_utf8(&mut [0; 4])),
    };
    let look: String = text.chars().map(look).collect();
    let seen = build(&look).ok()?;
    (look != text && !seen.is_match("")).then_some(seen)
}

fn reason(error: &regex::Error) -> NoPattern {
    match error {
        regex::Error::CompiledTooBig(_) => NoPattern::Large,
        error => {
            let text = error.to_string();
            let last = text.rsplit("error: ").next().unwrap_or_default();
            NoPattern::Unreadable(last.trim().to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Forms, LARGEST, LONGEST, NoPattern, Pattern};

    fn unreadable(pattern: &str) -> String {
        match Pattern::compile(pattern).unwrap_err() {
            NoPattern::Unreadable(reason) => reason,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_used_is_refused_with_the_reason() {
        assert_eq!(unreadable("("), "unclosed group");
        assert_eq!(unreadable(r"(a)\1"), "backreferences are not supported");
        assert!(unreadable("a(?=b)").contains("look-around"));
        assert!(unreadable("[z-a]").contains("range"));
        assert!(
            unreadable(&"(".repeat(1000)).contains("nest")
                || unreadable(&"(".repeat(1000)).contains("unclosed")
        );
        let check = |pattern: &str, expected| {
            assert_eq!(
                Pattern::compile(pattern).unwrap_err(),
                expected,
                "{pattern}"
            );
        };
        check(r"\w{1000}", NoPattern::Large);
        check("(?:(?:(?:a{50}){50}){50}){50}", NoPattern::Large);
        check("x*", NoPattern::Everything);
        check("", NoPattern::Everything);
        check("a|", NoPattern::Everything);
        check(&"a".repeat(LONGEST + 1), NoPattern::Long(LONGEST + 1));
        assert!(NoPattern::Large.to_string().contains(&LARGEST.to_string()));
    }

    #[test]
    fn patterns_that_take_others_forever_take_us_no_time() {
        let prompt = format!("{}!", "a".repeat(50_000));
        let forms = Forms::of(&prompt);
        for pattern in [
            "(a+)+$",
            "(a|a)+$",
            "(a|aa)+$",
            "(.*a){20}x",
            "([a-z]+)*b",
            "(a?){30}a{30}x",
        ] {
            let began = Instant::now();
            let Ok(pattern) = Pattern::compile(pattern) else {
                continue;
            };
            let _ = pattern.find(&forms);
            assert!(began.elapsed() < Duration::from_secs(5), "{pattern:?}");
        }
    }

    #[test]
    fn a_pattern_of_another_script_finds_its_look_alikes() {
        let pattern = Pattern::compile("девочка").unwrap();
        for text in [
            "девочка",
            "ДЕВОЧКА",
            "дев\u{200b}очка",
            "дeвoчкa",
            "д\u{301}евочка",
        ] {
            assert!(pattern.find(&Forms::of(text)).is_some(), "{text}");
        }
        assert!(pattern.find(&Forms::of("мальчик")).is_none());
    }

    #[test]
    fn a_replacement_is_a_text_and_no_template() {
        let pattern = Pattern::compile("(cat)").unwrap();
        assert_eq!(pattern.replace("a cat", "$1 dog"), "a $1 dog");
    }
}
