//! Moderators' filters, compiled, and their matches in a prompt.
//!
//! Types 10 and 11 are one group, type 20 is another; each group that finds something adds one to the suspicion. Other
//! types may be kept and tried, and count for nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::automaton::Automaton;
use super::forms::Forms;
use super::limit::TimeLimit;
use super::pattern::{NoPattern, Pattern};
use super::youth;
use crate::storage::FilterRow;

/// The filter type whose matches are replaced.
pub const REPLACED: i64 = 10;
/// Types that are counted as one group.
const GROUPS: [&[i64]; 2] = [&[REPLACED, 11], &[20]];
/// Types that are listed as one combined expression.
pub const LISTED: [i64; 3] = [10, 11, 20];
/// Bytes for all patterns together, each compiled alone. Bounds the automata of all types, and the work per character
/// of a prompt that their caches do not save.
pub const BUDGET: usize = 16 << 20;
/// Bytes of patterns that cost as much as one more read of the text.
const UNIT: usize = 4096;

/// A snapshot of all filters.
#[derive(Debug, Default)]
pub struct Filters {
    types: BTreeMap<i64, Arc<Type>>,
    size: usize,
    limit: TimeLimit,
}

/// Filters of one type, in the order of their creation.
#[derive(Debug)]
struct Type {
    filters: Vec<Filter>,
    automaton: Automaton,
}

#[derive(Debug)]
struct Filter {
    id: i64,
    pattern: Arc<Pattern>,
    replacement: String,
}

/// The suspicion level of a prompt.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Suspicion {
    pub level: u32,
    /// The matching texts.
    pub matches: Vec<String>,
}

impl Filters {
    /// Compiles filters, reusing those compiled before. Skips a pattern that the present limits refuse, accepted by an
    /// earlier version.
    pub fn compile(rows: &[FilterRow], before: &Self) -> Self {
        let known = before.all().map(|filter| &filter.pattern);
        let mut known: HashMap<String, Arc<Pattern>> = known
            .map(|pattern| (pattern.written().to_owned(), pattern.clone()))
            .collect();
        let (mut types, mut size) = (BTreeMap::<i64, Vec<Filter>>::new(), 0);
        for row in rows {
            let pattern = match known.get(&row.regex) {
                Some(pattern) => Ok(pattern.clone()),
                None => Pattern::compile(&row.regex).map(|pattern| Arc::new(pattern.asleep())),
            };
            let pattern = pattern.and_then(|pattern| fits(&pattern, size).map(|()| pattern));
            match pattern {
                Ok(pattern) => {
                    size += pattern.size();
                    known.insert(row.regex.clone(), pattern.clone());
                    types.entry(row.kind).or_default().push(Filter {
                        id: row.id,
                        pattern,
                        replacement: row.replacement.clone(),
                    });
                }
                Err(reason) => {
                    warn!(
                        filter.id = row.id,
                        "filter {} is not applied: {reason}", row.id
                    );
                }
            }
        }
        let types = types.into_iter();
        let types = types.map(|(kind, filters)| (kind, before.with(kind, filters)));
        Self {
            types: types.collect(),
            size,
            limit: TimeLimit::default(),
        }
    }

    /// Replaces the filters of a type. Reuses the automaton if the patterns are unchanged.
    fn with(&self, kind: i64, filters: Vec<Filter>) -> Arc<Type> {
        if let Some(before) = self.types.get(&kind).filter(|it| it.filters == filters) {
            return before.clone();
        }
        let patterns = filters.iter().map(|filter| filter.pattern.clone());
        let automaton = Automaton::of(&patterns.collect::<Vec<_>>());
        Arc::new(Type { filters, automaton })
    }

    /// Whether a pattern fits as a new filter, or in place of one.
    pub fn check(
        &self,
        regex: &str,
        kind: Option<i64>,
        instead: Option<i64>,
    ) -> Result<(), NoPattern> {
        let pattern = Pattern::compile(regex)?;
        let own = kind.and_then(|kind| self.types.get(&kind));
        let is_known = |filter: &Filter| filter.pattern.written() == regex;
        if own.is_some_and(|own| own.filters.iter().any(is_known)) {
            return Ok(());
        }
        let freed = self.all().find(|filter| Some(filter.id) == instead);
        let freed = freed.map_or(0, |filter| filter.pattern.size());
        fits(&pattern, self.size - freed)?;
        self.is_quick_with(pattern, kind, instead)
    }

    /// Times hard texts with all filters of the type including this one: filters that are fast alone may be slow
    /// together.
    fn is_quick_with(
        &self,
        pattern: Pattern,
        kind: Option<i64>,
        instead: Option<i64>,
    ) -> Result<(), NoPattern> {
        let texts = hard_texts(pattern.written());
        let own = kind.and_then(|kind| self.types.get(&kind));
        let own = own.into_iter().flat_map(|own| &own.filters);
        let others = own.filter(|filter| Some(filter.id) != instead);
        let mut patterns: Vec<_> = others.map(|filter| filter.pattern.clone()).collect();
        patterns.push(Arc::new(pattern));
        let automaton = Automaton::of(&patterns);
        for text in texts {
            let limit = TimeLimit::of(LONGEST_READING);
            automaton.matching(&Forms::only(&text), &limit);
            if limit.check() {
                return Err(NoPattern::Slow);
            }
        }
        Ok(())
    }

    /// The same filters with a time limit that starts now, on this thread.
    pub fn within(&self, time: Duration) -> Self {
        Self {
            types: self.types.clone(),
            size: self.size,
            limit: TimeLimit::of(time),
        }
    }

    /// Whether the time limit was reached, so that the results are invalid.
    pub fn ran_out_of_time(&self) -> bool {
        self.limit.is_over()
    }

    /// Bytes of the compiled patterns.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The cost of a text, in bytes read once.
    pub fn work(&self, bytes: usize) -> usize {
        (bytes + FORMS).saturating_mul(1 + self.size / UNIT)
    }

    /// Whether a prompt can be refused at all, which requires matches of both groups.
    pub fn can_block(&self) -> bool {
        let [_, second] = GROUPS;
        second.iter().any(|kind| self.types.contains_key(kind))
    }

    /// The suspicion of a prompt by all filters, or by those of one type. Emoji of children count as a match of the
    /// first group.
    pub fn test(&self, text: &str, only: Option<i64>) -> Suspicion {
        let forms = Forms::of(text);
        let mut suspicion = Suspicion::default();
        if let Some(kind) = only {
            self.find(&[kind], &forms, &mut suspicion.matches);
            suspicion.level = u32::from(!suspicion.matches.is_empty());
            return suspicion;
        }
        for (number, kinds) in GROUPS.into_iter().enumerate() {
            let known = suspicion.matches.len();
            self.find(kinds, &forms, &mut suspicion.matches);
            if number == 0 {
                suspicion.matches.extend(youth::drawings(text));
            }
            suspicion.level += u32::from(suspicion.matches.len() > known);
        }
        suspicion
    }

    /// Whether the text has matches to replace.
    pub fn replaces(&self, forms: &Forms) -> bool {
        !self.found(REPLACED, forms).is_empty()
    }

    /// Replaces all matches, in the order of the filters. `None` if the text would exceed `longest`.
    pub fn replace(&self, text: String, longest: usize) -> Option<String> {
        let mut text = text;
        // A replacement may match another filter.
        for _ in 0..ROUNDS {
            let found = self.found(REPLACED, &Forms::only(&text));
            if found.is_empty() {
                break;
            }
            for filter in found {
                if self.limit.check() {
                    return None;
                }
                text = filter.pattern.replace(&text, &filter.replacement);
                if text.len() > longest {
                    return None;
                }
            }
        }
        Some(text)
    }

    fn find(&self, kinds: &[i64], forms: &Forms, found: &mut Vec<String>) {
        for kind in kinds {
            let matching = self.found(*kind, forms).into_iter();
            let in_time = matching.take_while(|_| !self.limit.check());
            found.extend(in_time.filter_map(|filter| filter.pattern.find(forms)));
        }
    }

    fn found(&self, kind: i64, forms: &Forms) -> Vec<&Filter> {
        let Some(own) = self.types.get(&kind) else {
            return Vec::new();
        };
        let matching = own.automaton.matching(forms, &self.limit).into_iter();
        matching.map(|place| &own.filters[place]).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Filter> {
        self.types.values().flat_map(|own| &own.filters)
    }
}

/// Limit of processor time of all filters of a type for one of the [`hard_texts`] in one form; a prompt has about ten
/// forms.
const LONGEST_READING: Duration = Duration::from_millis(150);
/// Size of each hard text.
const HARD_BYTES: usize = 4096;

/// Texts that keep many states of a pattern active: runs, words of its own letters, and letters beyond ASCII, which the
/// fastest engines leave to slower ones.
fn hard_texts(pattern: &str) -> [String; 4] {
    let own: Vec<char> = pattern
        .chars()
        .filter(|letter| letter.is_alphanumeric())
        .collect();
    let latin: Vec<char> = ('a'..='z').chain(['é', '1', ' ']).collect();
    let own = if own.is_empty() { latin.clone() } else { own };
    let text = |letters: &[char], blank: usize| {
        // Deterministic.
        let mut state = 1_u32;
        let mut text = String::new();
        while text.len() < HARD_BYTES {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 16) as usize;
            let letter = letters[number % letters.len()];
            text.push(if number.is_multiple_of(blank) {
                ' '
            } else {
                letter
            });
        }
        text
    };
    let never = usize::MAX;
    [
        text(&own[..1], never),
        text(&own, never),
        text(&own, 7),
        text(&latin, 7),
    ]
}

/// Fixed cost of a text, besides its bytes.
const FORMS: usize = 64;
/// Limit of passes over texts whose replacements match again.
const ROUNDS: usize = 4;

fn fits(pattern: &Pattern, taken: usize) -> Result<(), NoPattern> {
    let (size, left) = (pattern.size(), BUDGET.saturating_sub(taken));
    match size <= left {
        true => Ok(()),
        false => Err(NoPattern::Full {
            size,
            left,
            most: BUDGET,
        }),
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.replacement == other.replacement
            && Arc::ptr_eq(&self.pattern, &other.pattern)
    }
}
