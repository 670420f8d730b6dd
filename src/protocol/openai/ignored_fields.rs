//! Fields of requests that are left aside.

use std::collections::BTreeSet;

use super::Problem;
use super::field_path::FieldPath;
use crate::job::FailureKind;

/// Fields of requests that the operator wants to be left aside where they would be refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum IgnoredFields {
    #[default]
    None,
    Named(BTreeSet<String>),
    All,
}

impl IgnoredFields {
    pub fn contain(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Named(names) => names.contains(name),
            Self::All => true,
        }
    }

    /// The field that a problem is about, where it stands inside of another and is to be ignored.
    pub fn path(&self, problem: &Problem) -> Option<FieldPath> {
        let is_refused =
            problem.is_unknown || problem.failure.kind == FailureKind::UnsupportedValue;
        let path = FieldPath::of(problem.param.as_deref()?)?;
        let is_wanted = match self {
            Self::None => false,
            Self::Named(names) => is_refused && names.contains(&path.to_string()),
            // A value that cannot be honoured may be essential to the message.
            Self::All => problem.is_unknown,
        };
        is_wanted.then_some(path)
    }
}
