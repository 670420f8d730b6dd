//! Strict parsing of bodies as in the public service: no null, no coercion, unknown keys ignored, and all errors
//! reported at once, each under its dotted path (`params.loras.0.name`).

use std::fmt::{Display, Write as _};

use serde_json::{Map, Value};

use crate::openai::shape::kind;
use crate::openai::{Problem, json};

use super::error::{Code, Refusal};
use super::rules::{Rule, inner};

/// Most complaints about one body, so that a list of a million wrong values gets no list of a million complaints.
pub(super) const MOST_ERRORS: usize = 100;

/// A body that is read field by field. The tables of [`super::tables`] implement it.
pub trait Body: Sized {
    /// Takes the type's own fields. `None` if one of them was refused; [`Entries`] records the error.
    fn take(entries: &mut Entries<'_>) -> Option<Self>;

    fn read(value: Value) -> Result<Self, Refusal> {
        let mut reading = ReadState::default();
        let body = inner().read(value, &mut reading);
        reading.finish(body)
    }

    /// Reads a body as it came. Broken JSON is refused without naming a field.
    fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let value = json::parse(bytes).map_err(|problem| broken(&problem))?;
        Self::read(value)
    }
}

/// Half a character has a code of its own, which is called after prompts wherever it stands.
fn broken(problem: &Problem) -> Refusal {
    let message = problem.to_string();
    match json::is_half_a_character(problem) {
        true => Refusal::new(Code::InvalidPromptEncoding, message),
        false => Refusal::plain(400, message),
    }
}

/// The entries of one object, taken out one by one.
pub struct Entries<'a> {
    left: Map<String, Value>,
    reading: &'a mut ReadState,
}

/// The position in the body, and the errors so far.
#[derive(Debug, Default)]
pub struct ReadState {
    path: String,
    errors: Vec<(String, String)>,
    holds_nul: bool,
}

impl<'a> Entries<'a> {
    pub fn new(left: Map<String, Value>, reading: &'a mut ReadState) -> Self {
        Self { left, reading }
    }

    pub fn need<T>(&mut self, name: &str, rule: &impl Rule<T>) -> Option<T> {
        match self.take(name) {
            Some(value) => self.read(name, rule, value),
            None => {
                let wanted = format!("missing: must be {}", rule.wanted());
                self.reading
                    .within(plain(name), |reading| reading.note(wanted));
                None
            }
        }
    }

    pub fn fill<T>(&mut self, name: &str, rule: &impl Rule<T>, default: fn() -> T) -> Option<T> {
        match self.take(name) {
            Some(value) => self.read(name, rule, value),
            None => Some(default()),
        }
    }

    /// The outer `None` means that it was refused.
    pub fn may<T>(&mut self, name: &str, rule: &impl Rule<T>) -> Option<Option<T>> {
        match self.take(name) {
            Some(value) => self.read(name, rule, value).map(Some),
            None => Some(None),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(plain(name))
    }

    fn read<T>(&mut self, name: &str, rule: &impl Rule<T>, value: Value) -> Option<T> {
        self.reading
            .within(plain(name), |reading| rule.read(value, reading))
    }
}

/// A field called like a word of Rust is written `r#type` in the tables.
fn plain(name: &str) -> &str {
    name.trim_start_matches("r#")
}

impl ReadState {
    /// Reads something inside: a field, or an item of a list.
    pub fn within<T>(&mut self, part: impl Display, read: impl FnOnce(&mut Self) -> T) -> T {
        let outside = self.path.len();
        let dot = if outside == 0 { "" } else { "." };
        // Writing to a String cannot fail.
        let _ = write!(self.path, "{dot}{part}");
        let read = read(self);
        self.path.truncate(outside);
        read
    }

    /// Records a value of the wrong type. The text may be a prompt and is not repeated.
    pub fn refuse(&mut self, found: &Value, wanted: impl Display) {
        self.note(format!("must be {wanted}, found {}", kind(found)));
    }

    pub fn note(&mut self, complaint: String) {
        if self.errors.len() < MOST_ERRORS {
            self.errors.push((self.path.clone(), complaint));
        }
    }

    /// A database stores no NUL, so no body with one in a text gets further than here.
    pub fn look_for_nul(&mut self, text: &str) {
        self.holds_nul |= text.contains('\0');
    }

    fn finish<T>(self, body: Option<T>) -> Result<T, Refusal> {
        match body {
            Some(_) if self.holds_nul => Err(Code::NulByteInPayload.into()),
            Some(body) if self.errors.is_empty() => Ok(body),
            _ => Err(Refusal::Invalid(self.errors)),
        }
    }
}
