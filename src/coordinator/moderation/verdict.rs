//! The verdict on a prompt: pure, from the prompt and the filters.
//!
//! Every prompt is checked by every filter. At a suspicion of two it is rewritten if the request allows that, and
//! refused otherwise. Prompts of suspicious accounts, and for models marked NSFW, have their words for minors replaced
//! in any case. Of an image prompt only the positive part is checked, and a rewritten one gets a longer negative
//! prompt.

use super::digits::spelt_out;
use super::filters::Filters;
use super::forms::{Forms, words};
use super::letters::folded;
use super::youth;
use muster_protocol::job::NEGATIVE;
use muster_protocol::legacy::{image, text};

/// From this suspicion on a prompt is refused or replaced.
pub const TOO_SUSPICIOUS: u32 = 2;
/// Limit of characters of a prompt to be replaced.
pub const LONGEST: usize = 7000;
/// Most bytes that replacements may add.
const LONGER: usize = 1 << 20;

/// A prompt and its circumstances.
#[derive(Debug, Clone)]
pub struct Case {
    pub prompt: String,
    pub medium: Medium,
    /// The request allows rewriting instead of a refusal.
    pub may_be_rewritten: bool,
    /// The account is suspicious, or a model is marked as unsafe.
    pub for_adults: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    Image,
    Text,
}

impl Medium {
    /// Most bytes of a prompt to check, by the longest allowed prompt.
    pub fn longest(self) -> usize {
        match self {
            Self::Image => image::check::LONGEST_PROMPT,
            Self::Text => text::check::LONGEST_PROMPT,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    AsItIs,
    Rewritten(String),
    /// Must be rewritten, and is longer than allowed.
    TooLong(usize),
    /// Rewriting left no text, or too much. Suspicious prompts cause a suspicion mark.
    Refused {
        suspicious: bool,
    },
}

pub const GUILTY: Verdict = Verdict::Refused { suspicious: true };
pub const EMPTY: Verdict = Verdict::Refused { suspicious: false };

pub fn of(case: &Case, filters: &Filters) -> Verdict {
    let (looked_at, excluded) = match (case.medium, case.prompt.split_once(NEGATIVE)) {
        (Medium::Image, Some((shown, excluded))) => (shown, excluded),
        _ => (case.prompt.as_str(), ""),
    };
    match cleared(looked_at, case, filters) {
        Err(verdict) => verdict,
        Ok(text) if text == looked_at => Verdict::AsItIs,
        Ok(text) => Verdict::Rewritten(match case.medium {
            Medium::Image => with_exclusions(&text, excluded.trim()),
            Medium::Text => text,
        }),
    }
}

/// The text to be served.
fn cleared(text: &str, case: &Case, filters: &Filters) -> Result<String, Verdict> {
    let mut cleared = text.to_owned();
    if filters.test(text, None).level >= TOO_SUSPICIOUS {
        let length = case.prompt.chars().count();
        match case.may_be_rewritten {
            false => return Err(GUILTY),
            true if length > LONGEST => return Err(Verdict::TooLong(length)),
            true => {}
        }
        let rewritten = replaced(text, filters);
        let rewritten = rewritten.filter(|text| filters.test(text, None).level < TOO_SUSPICIOUS);
        cleared = rewritten.ok_or(GUILTY)?;
    }
    if case.for_adults {
        cleared = grown_up(&cleared, filters).ok_or(EMPTY)?;
    }
    Ok(cleared)
}

/// Adds our exclusions and the client's to a rewritten prompt.
fn with_exclusions(text: &str, excluded: &str) -> String {
    match excluded.is_empty() {
        true => format!("{text} {NEGATIVE} {}", youth::EXCLUDED),
        false => format!("{text} {NEGATIVE} {}, {excluded}", youth::EXCLUDED),
    }
}

/// The text after the filters' replacements.
pub fn replaced(text: &str, filters: &Filters) -> Option<String> {
    let swaps = Swaps {
        filters,
        youth: false,
    };
    rewrite(text, &swaps)
}

/// The text without references to children.
pub fn grown_up(text: &str, filters: &Filters) -> Option<String> {
    let swaps = Swaps {
        filters,
        youth: true,
    };
    rewrite(text, &swaps)
}

/// Replacements: by filters, and of words for minors by [`youth::GROWN_UP`].
struct Swaps<'a> {
    filters: &'a Filters,
    youth: bool,
}

/// A text in which no filter matches any more: as it came if possible, else folded, else only its words. `None` if
/// nothing is left of it, or a filter still matches.
fn rewrite(text: &str, swaps: &Swaps<'_>) -> Option<String> {
    if is_clear(text, swaps) {
        return Some(text.to_owned()).filter(|text| says_something(text));
    }
    let look = folded(text);
    let read = words(&look);
    let spelt_out = spelt_out(&look).into_iter().chain(spelt_out(&read));
    let spelt_out = spelt_out.flat_map(|read| [words(&read), read]);
    let forms = [text.to_owned(), look.clone(), read.clone()];
    let forms = forms.into_iter().chain(spelt_out);
    let rewritten = forms.filter_map(|form| swapped(&form, swaps));
    let mut clear = rewritten.filter(|text| is_clear(text, swaps));
    clear
        .next()
        .map(|text| text.trim().to_owned())
        .filter(|text| says_something(text))
}

fn swapped(text: &str, swaps: &Swaps<'_>) -> Option<String> {
    let longest = text.len().saturating_add(LONGER);
    let text = youth::without_drawings(text);
    let mut text = swaps.filters.replace(text, longest)?;
    for (pattern, replacement) in youth::words().filter(|_| swaps.youth) {
        text = pattern.replace(&text, replacement);
        if text.len() > longest {
            return None;
        }
    }
    Some(text)
}

fn is_clear(text: &str, swaps: &Swaps<'_>) -> bool {
    let forms = Forms::of(text);
    let mut young = youth::words().filter(|_| swaps.youth);
    youth::drawings(text).next().is_none()
        && !swaps.filters.replaces(&forms)
        && !young.any(|(pattern, _)| pattern.find(&forms).is_some())
}

pub fn says_something(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}
