//! The filters of moderators, compiled, and what they find in a prompt.
//!
//! Types 10 and 11 are one group, type 20 is another; each group that finds something adds one to the suspicion. Other
//! types may be kept and tried, and count for nothing.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::warn;

use super::forms::Forms;
use super::pattern::Pattern;
use super::youth;
use crate::coordinator::storage::FilterRow;

/// Those whose findings are replaced.
pub const REPLACED: i64 = 10;
/// Types that count together.
const GROUPS: [&[i64]; 2] = [&[REPLACED, 11], &[20]];
/// Types that are listed as one expression each.
pub const LISTED: [i64; 3] = [10, 11, 20];

/// All of them at one moment.
#[derive(Debug, Default)]
pub struct Filters(Vec<Filter>);

#[derive(Debug)]
struct Filter {
    kind: i64,
    text: String,
    pattern: Arc<Pattern>,
    replacement: String,
}

/// What a prompt looks like to them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Suspicion {
    pub level: u32,
    /// The texts that were found.
    pub matches: Vec<String>,
}

impl Filters {
    /// What was compiled before is not compiled again. A pattern that cannot be used any more is left aside: it was
    /// taken by a version with other limits.
    pub fn compile(rows: &[FilterRow], before: &Self) -> Self {
        let known: HashMap<&str, &Arc<Pattern>> = before
            .0
            .iter()
            .map(|filter| (filter.text.as_str(), &filter.pattern))
            .collect();
        let compiled = rows.iter().filter_map(|row| {
            let pattern = match known.get(row.regex.as_str()) {
                Some(pattern) => Arc::clone(pattern),
                None => Arc::new(usable(row)?),
            };
            Some(Filter {
                kind: row.kind,
                text: row.regex.clone(),
                pattern,
                replacement: row.replacement.clone(),
            })
        });
        Self(compiled.collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether any prompt can look so suspicious that it is not served: both groups have to find something.
    pub fn can_block(&self) -> bool {
        let [_, second] = GROUPS;
        self.0.iter().any(|filter| second.contains(&filter.kind))
    }

    /// How a prompt looks to all of them, or to those of one type. Drawings of children count as a finding of the
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

    /// What stands in for what, in the order of the filters.
    pub fn replacements(&self) -> Vec<(&Pattern, &str)> {
        let replaced = self.0.iter().filter(|filter| filter.kind == REPLACED);
        replaced
            .map(|filter| (&*filter.pattern, filter.replacement.as_str()))
            .collect()
    }

    fn find(&self, kinds: &[i64], forms: &Forms, found: &mut Vec<String>) {
        let asked = self.0.iter().filter(|filter| kinds.contains(&filter.kind));
        found.extend(asked.filter_map(|filter| filter.pattern.find(forms)));
    }
}

fn usable(row: &FilterRow) -> Option<Pattern> {
    match Pattern::compile(&row.regex) {
        Ok(pattern) => Some(pattern),
        Err(reason) => {
            warn!(
                filter.id = row.id,
                "filter {} is left aside: {reason}", row.id
            );
            None
        }
    }
}
