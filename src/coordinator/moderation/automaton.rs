//! Combines many patterns into few automata: each reads a text once, for all its patterns, with one cache. The time
//! limit is checked between two reads, so automata are small enough for short reads.
//!
//! A thousand separate patterns took gigabytes: each had a cache for every thread.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use regex_automata::meta::{Cache, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Input, MatchKind, PatternSet};
use tracing::error;

use super::forms::Forms;
use super::limit::TimeLimit;
use super::pattern::{Pattern, syntax};

/// Several patterns, compiled together. Matches are reported by their index.
#[derive(Debug, Default)]
pub struct Automaton {
    written: Vec<Reader>,
    seen: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    regex: Regex,
    /// Indices of its patterns.
    places: Vec<usize>,
    /// Caches for reuse. Few are kept, since each may grow to [`CACHE`].
    caches: Mutex<Vec<Cache>>,
}

/// Cache limit of one reader.
const CACHE: usize = 8 << 20;
/// Limit of stored caches per automaton.
const KEPT: usize = 2;
/// Limit of compiled bytes per automaton.
const TOGETHER: usize = 2 << 20;

impl Automaton {
    pub fn of(patterns: &[Arc<Pattern>]) -> Self {
        let (mut written, mut seen) = (Vec::new(), Vec::new());
        for group in groups(patterns) {
            let all = group
                .clone()
                .map(|place| (place, patterns[place].written()));
            written.extend(Reader::of(all));
            let others = group.filter_map(|place| Some((place, patterns[place].seen()?)));
            seen.extend(Reader::of(others));
        }
        Self { written, seen }
    }

    /// Indexes of all matching patterns, in order, as far as checked within the time limit.
    pub fn matching(&self, forms: &Forms, limit: &TimeLimit) -> Vec<usize> {
        let mut found = BTreeSet::new();
        for written in &self.written {
            let all = forms.written.iter().chain(&forms.seen);
            written.read(all, limit, &mut found);
        }
        for seen in &self.seen {
            seen.read(forms.seen.iter(), limit, &mut found);
        }
        found.into_iter().collect()
    }
}

/// Groups adjacent patterns by size.
fn groups(patterns: &[Arc<Pattern>]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut size = 0;
    for (place, pattern) in patterns.iter().enumerate() {
        size += pattern.size();
        match groups.last_mut() {
            Some(last) if size <= TOGETHER => last.end = place + 1,
            _ => {
                groups.push(place..place + 1);
                size = pattern.size();
            }
        }
    }
    groups
}

impl Reader {
    fn of<'a>(patterns: impl Iterator<Item = (usize, &'a str)>) -> Option<Self> {
        let (places, patterns): (Vec<_>, Vec<_>) = patterns.unzip();
        if patterns.is_empty() {
            return None;
        }
        // Each pattern was checked alone, and their total size is limited before.
        let config = Config::new()
            .match_kind(MatchKind::All)
            // Captures would need slots for each state and each pattern: gigabytes.
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(None)
            .dfa(false)
            .onepass(false)
            .hybrid_cache_capacity(CACHE);
        let mut builder = Regex::builder();
        builder.syntax(syntax()).configure(config);
        match builder.build_many(&patterns) {
            Ok(regex) => Some(Self {
                regex,
                places,
                caches: Mutex::default(),
            }),
            Err(error) => {
                error!(
                    "compiling {} filters together failed, they are not applied: {error}",
                    patterns.len()
                );
                None
            }
        }
    }

    fn read<'a>(
        &self,
        texts: impl Iterator<Item = &'a String>,
        limit: &TimeLimit,
        found: &mut BTreeSet<usize>,
    ) {
        let mut cache = self.cache();
        let mut matching = PatternSet::new(self.regex.pattern_len());
        for text in texts {
            if limit.check() {
                break;
            }
            let input = Input::new(text);
            self.regex
                .which_overlapping_matches_with(&mut cache, &input, &mut matching);
        }
        self.keep(cache);
        found.extend(matching.iter().map(|pattern| self.places[pattern]));
    }

    fn cache(&self) -> Cache {
        let kept = self.caches.lock().pop();
        kept.unwrap_or_else(|| self.regex.create_cache())
    }

    fn keep(&self, cache: Cache) {
        let mut caches = self.caches.lock();
        if caches.len() < KEPT {
            caches.push(cache);
        }
    }
}
