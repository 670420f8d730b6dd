//! Many patterns as one automaton: a text is read once, however many there are, and they share one cache.
//!
//! Alone, a thousand patterns took gigabytes: each kept a cache of its own for every thread.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use regex_automata::meta::{Cache, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Input, MatchKind, PatternSet};
use tracing::error;

use super::forms::Forms;
use super::pattern::{Pattern, syntax};

/// Some patterns, compiled together. What is found is said by their places among them.
#[derive(Debug, Default)]
pub struct Automaton {
    written: Option<Reader>,
    seen: Option<Reader>,
}

#[derive(Debug)]
struct Reader {
    regex: Regex,
    /// Which pattern each of its own is.
    places: Vec<usize>,
    /// For those who come next. Few are kept, since each may grow to [`CACHE`].
    caches: Mutex<Vec<Cache>>,
}

/// What one reader may keep in memory to be fast.
const CACHE: usize = 8 << 20;
/// Readers at a time whose caches are kept.
const KEPT: usize = 4;

impl Automaton {
    pub fn of(patterns: &[Arc<Pattern>]) -> Self {
        let written = patterns.iter().map(|pattern| pattern.written());
        let seen = patterns.iter().enumerate();
        let seen = seen.filter_map(|(place, pattern)| Some((place, pattern.seen()?)));
        Self {
            written: Reader::of(written.enumerate()),
            seen: Reader::of(seen),
        }
    }

    /// The places of all patterns that find something, in their order.
    pub fn matching(&self, forms: &Forms) -> Vec<usize> {
        let mut found = BTreeSet::new();
        if let Some(written) = &self.written {
            written.read(forms.written.iter().chain(&forms.seen), &mut found);
        }
        if let Some(seen) = &self.seen {
            seen.read(forms.seen.iter(), &mut found);
        }
        found.into_iter().collect()
    }
}

impl Reader {
    fn of<'a>(patterns: impl Iterator<Item = (usize, &'a str)>) -> Option<Self> {
        let (places, patterns): (Vec<_>, Vec<_>) = patterns.unzip();
        if patterns.is_empty() {
            return None;
        }
        // Each alone is known to be good, and what they take together is limited before they come here.
        let config = Config::new()
            .match_kind(MatchKind::All)
            // Slots for captures are kept for each state and each pattern: gigabytes.
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

    fn read<'a>(&self, texts: impl Iterator<Item = &'a String>, found: &mut BTreeSet<usize>) {
        let mut cache = self.cache();
        let mut matching = PatternSet::new(self.regex.pattern_len());
        for text in texts {
            let input = Input::new(text);
            self.regex
                .which_overlapping_matches_with(&mut cache, &input, &mut matching);
        }
        self.keep(cache);
        found.extend(matching.iter().map(|pattern| self.places[pattern]));
    }

    fn cache(&self) -> Cache {
        let kept = self
            .caches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        kept.unwrap_or_else(|| self.regex.create_cache())
    }

    fn keep(&self, cache: Cache) {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        if caches.len() < KEPT {
            caches.push(cache);
        }
    }
}
