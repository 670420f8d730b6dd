//! A filter's pattern. Matching takes linear time whatever the pattern; a pattern that is too large or matches every
//! text is refused when it is written.
//!
//! Prompts are matched against all patterns of a group at once, by [`super::automaton`]. A single pattern is compiled
//! when a prompt was found to match it: to report the match, and to replace it.

use std::sync::OnceLock;

use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::iter::Searcher;
use regex_automata::util::syntax;
use regex_automata::{Input, Match};

use super::forms::Forms;
use super::letters::folded;

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    written: Finder,
    /// The pattern with its letters as they look, if that differs.
    seen: Option<Finder>,
    size: usize,
}

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPattern {
    #[error("the pattern has {0} characters, at most {LONGEST} are allowed")]
    Long(usize),
    #[error(
        "the compiled pattern is larger than {LARGEST} bytes: use fewer or smaller repetitions"
    )]
    Large,
    #[error(
        "the compiled pattern takes {size} bytes, but {left} of the {most} for all filters are left: make it smaller \
         or delete other filters"
    )]
    Full {
        size: usize,
        left: usize,
        most: usize,
    },
    #[error(
        "with the other filters of its type the pattern takes too long to read hard texts: make it simpler, or \
         delete other filters"
    )]
    Slow,
    #[error("the pattern matches an empty text, and so every prompt")]
    Everything,
    #[error("the pattern is invalid: {0}")]
    Unreadable(String),
}

/// A form of a pattern, compiled at its first use.
#[derive(Debug)]
pub struct Finder {
    pattern: String,
    regex: OnceLock<Option<Regex>>,
    /// Keeps a cache for speed; other patterns keep nothing between texts.
    is_resident: bool,
}

const LONGEST: usize = 4096;
/// Compiled size. A thousand characters of a prompt take such a pattern some milliseconds at worst.
pub(super) const LARGEST: usize = 1 << 20;
/// Cache size of a resident pattern.
const CACHE: usize = 1 << 20;
/// Limit of nested brackets.
const DEEPEST: u32 = 50;

impl Pattern {
    pub fn compile(text: &str) -> Result<Self, NoPattern> {
        let length = text.chars().count();
        if length > LONGEST {
            return Err(NoPattern::Long(length));
        }
        let (written, size) = Finder::check(text)?;
        if written.find("").is_some() {
            return Err(NoPattern::Everything);
        }
        let seen = as_it_looks(text);
        let seen_size = seen.as_ref().map_or(0, |(_, size)| *size);
        Ok(Self {
            written,
            seen: seen.map(|(seen, _)| seen),
            size: size + seen_size,
        })
    }

    /// Drops the compiled regex; it is compiled again when a prompt matches.
    pub fn asleep(mut self) -> Self {
        self.written.regex = OnceLock::new();
        if let Some(seen) = &mut self.seen {
            seen.regex = OnceLock::new();
        }
        self
    }

    /// A pattern that every text is matched against alone; there are only a few.
    pub fn resident(text: &str) -> Result<Self, NoPattern> {
        let mut pattern = Self::compile(text)?;
        pattern.written = Finder::new(text, true);
        Ok(pattern)
    }

    /// Compiled bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    pub fn written(&self) -> &str {
        &self.written.pattern
    }

    pub fn seen(&self) -> Option<&str> {
        self.seen.as_ref().map(|seen| seen.pattern.as_str())
    }

    /// The first match, in any form.
    pub fn find(&self, forms: &Forms) -> Option<String> {
        let all = forms.written.iter().chain(&forms.seen);
        let found = all.filter_map(|form| self.written.found(form)).next();
        let seen = || {
            let seen = self.seen.as_ref()?;
            forms.seen.iter().find_map(|form| seen.found(form))
        };
        found.or_else(seen)
    }

    /// The text with all matches replaced.
    pub fn replace(&self, text: &str, replacement: &str) -> String {
        let replaced = self.written.replace(text, replacement);
        match &self.seen {
            Some(seen) => seen.replace(&replaced, replacement),
            None => replaced,
        }
    }
}

impl Finder {
    fn new(pattern: &str, is_resident: bool) -> Self {
        Self {
            pattern: pattern.to_owned(),
            regex: OnceLock::new(),
            is_resident,
        }
    }

    /// Compiles a pattern. Returns its size, too.
    fn check(pattern: &str) -> Result<(Self, usize), NoPattern> {
        let regex = build(pattern, false).map_err(|error| reason(&error))?;
        let (finder, size) = (Self::new(pattern, false), regex.memory_usage());
        let _ = finder.regex.set(Some(regex));
        Ok((finder, size))
    }

    fn regex(&self) -> Option<&Regex> {
        let build = || build(&self.pattern, self.is_resident).ok();
        self.regex.get_or_init(build).as_ref()
    }

    fn find(&self, text: &str) -> Option<Match> {
        let regex = self.regex()?;
        match self.is_resident {
            true => regex.find(text),
            false => regex.search_with(&mut regex.create_cache(), &Input::new(text)),
        }
    }

    fn found(&self, text: &str) -> Option<String> {
        self.find(text).map(|found| text[found.range()].to_owned())
    }

    fn replace(&self, text: &str, replacement: &str) -> String {
        let Some(regex) = self.regex() else {
            return text.to_owned();
        };
        let mut cache = regex.create_cache();
        let mut searcher = Searcher::new(Input::new(text));
        let (mut replaced, mut end) = (String::with_capacity(text.len()), 0);
        while let Some(found) = searcher.advance(|input| Ok(regex.search_with(&mut cache, input))) {
            replaced.push_str(&text[end..found.start()]);
            replaced.push_str(replacement);
            end = found.end();
        }
        replaced.push_str(&text[end..]);
        replaced
    }
}

pub(super) fn syntax() -> syntax::Config {
    syntax::Config::new()
        .case_insensitive(true)
        .nest_limit(DEEPEST)
}

fn build(pattern: &str, is_resident: bool) -> Result<Regex, Box<BuildError>> {
    let config = Config::new()
        .nfa_size_limit(Some(LARGEST))
        .which_captures(WhichCaptures::Implicit)
        .dfa(false)
        .onepass(false)
        .hybrid(is_resident)
        .hybrid_cache_capacity(CACHE);
    let mut builder = Regex::builder();
    builder.syntax(syntax()).configure(config);
    builder.build(pattern).map_err(Box::new)
}

/// The pattern with look-alikes folded. Folding may change the meaning of letter ranges, so the pattern as written is
/// matched as well.
fn as_it_looks(text: &str) -> Option<(Finder, usize)> {
    if text.is_ascii() {
        return None;
    }
    let look = |letter: char| match letter.is_ascii() {
        true => letter.to_string(),
        false => folded(letter.encode_utf8(&mut [0; 4])),
    };
    let look: String = text.chars().map(look).collect();
    if look == text {
        return None;
    }
    let (seen, size) = Finder::check(&look).ok()?;
    seen.find("").is_none().then_some((seen, size))
}

fn reason(error: &BuildError) -> NoPattern {
    if error.size_limit().is_some() {
        return NoPattern::Large;
    }
    let syntax = error.syntax_error().map(ToString::to_string);
    let text = syntax.unwrap_or_else(|| error.to_string());
    let last = text.rsplit("error: ").next().unwrap_or_default();
    NoPattern::Unreadable(last.trim().to_owned())
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
    fn patterns_that_take_others_forever_end_within_seconds() {
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
