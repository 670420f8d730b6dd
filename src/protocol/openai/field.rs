//! Fields of requests, declared once: name, shape, description and parser. Parsing, errors for unknown names and the
//! OpenAPI schema use the same table.

use serde_json::{Map, Value, json};

use crate::job::FailureKind;

use super::nearest::{nearest, shortened};
use super::{IgnoredFields, Problem, Shape, Strictness};

/// A field of a request, parsed into a `D`.
pub struct Field<D> {
    pub name: &'static str,
    pub about: &'static str,
    pub shape: Shape,
    pub take: fn(&mut D, Value) -> Result<(), Problem>,
}

/// A field as the conformance page shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRow {
    pub name: &'static str,
    pub about: &'static str,
    pub support: Support,
}

/// The support of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    Honoured,
    /// Only some values of the API have a meaning here; the others are refused.
    SomeValues,
    /// Accepted, and changes nothing, as the description says.
    NoEffect,
    Refused,
}

impl Support {
    /// Descriptions begin with the word for it.
    fn of(about: &str) -> Self {
        match about {
            about if about.starts_with("Not supported") => Self::Refused,
            about if about.starts_with("Only ") => Self::SomeValues,
            about if about.contains("no effect") || about.starts_with("No effect") => {
                Self::NoEffect
            }
            _ => Self::Honoured,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Honoured => "honoured",
            Self::SomeValues => "some values",
            Self::NoEffect => "no effect",
            Self::Refused => "refused",
        }
    }
}

/// The fields of a table, by name.
pub fn rows<D>(fields: &[Field<D>]) -> Vec<FieldRow> {
    let row = |field: &Field<D>| FieldRow {
        name: field.name,
        about: field.about,
        support: Support::of(field.about),
    };
    let mut rows: Vec<FieldRow> = fields.iter().map(row).collect();
    rows.sort_by_key(|row| row.name);
    rows
}

impl<D> Field<D> {
    /// The value as JSON Schema.
    pub fn schema(&self) -> Value {
        let mut schema = self.shape.schema();
        schema["description"] = self.about.into();
        schema
    }
}

/// Reads every entry of the body by its field. An entry that is null counts as not there.
pub fn read<D>(
    fields: &[Field<D>],
    body: Map<String, Value>,
    strictness: Strictness,
    into: &mut D,
) -> Result<(), Problem> {
    for (name, value) in body {
        match fields.iter().find(|field| field.name == name) {
            Some(_) if value.is_null() => {}
            Some(field) => {
                field.shape.check(field.name, &value)?;
                (field.take)(into, value)?;
            }
            None if strictness == Strictness::Tolerate => {}
            None => return Err(unknown("", &name, fields.iter().map(|field| field.name))),
        }
    }
    Ok(())
}

/// Paths of fields inside of others that are left out of one request: the body is read anew after each.
const MOST_PATHS: usize = 32;

/// Reads a body without the fields that the operator has the service ignore where they would be refused: unknown names,
/// and values that cannot be honoured, also inside of others. Gives back the rest of the body, and the names that were
/// left out.
pub fn leniently<T>(
    mut body: Value,
    wanted: &IgnoredFields,
    is_known: impl Fn(&str) -> bool,
    read: impl Fn(Value) -> Result<T, Problem>,
) -> Result<(T, Value, Vec<String>), Problem> {
    let mut ignored = Vec::new();
    if let Value::Object(entries) = &mut body {
        entries.retain(|name, _| {
            let is_kept = is_known(name) || !wanted.contain(name);
            if !is_kept {
                ignored.push(name.clone());
            }
            is_kept
        });
    }
    let known = ignored.len();
    loop {
        let problem = match read(body.clone()) {
            Ok(read) => return Ok((read, body, ignored)),
            Err(problem) => problem,
        };
        let name = problem.param.as_deref().unwrap_or_default();
        let path = wanted
            .path(&problem)
            .filter(|_| ignored.len() < known + MOST_PATHS);
        if let Some(path) = path {
            match path.remove(&mut body) {
                true => ignored.push(path.to_string()),
                false => return Err(problem),
            }
            continue;
        }
        let is_unsupported = problem.failure.kind == FailureKind::UnsupportedValue;
        let entries = body.as_object_mut().filter(|_| is_unsupported);
        let removed = entries.filter(|_| wanted.contain(name));
        match removed.and_then(|entries| entries.remove_entry(name)) {
            Some((name, _)) => ignored.push(name),
            None => return Err(problem),
        }
    }
}

/// An unknown name, with a suggestion. `place` is its parent, with a dot.
pub fn unknown<'a>(place: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Problem {
    let name = shortened(name);
    let meant = match nearest(name, known) {
        Some(meant) => format!("; did you mean {place}{meant}?"),
        None => String::new(),
    };
    let param = format!("{place}{name}");
    let message = format!("unknown field {param}{meant}");
    Problem {
        is_unknown: true,
        ..Problem::invalid(param, message)
    }
}

/// Refuses entries with other names. `place` is their parent, without a dot.
pub fn nothing_but(
    known: &[&str],
    place: &str,
    entries: &Map<String, Value>,
) -> Result<(), Problem> {
    match entries.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(unknown(&format!("{place}."), name, known.iter().copied())),
    }
}

/// The request as JSON Schema.
pub fn schema<D>(fields: &[Field<D>], required: &[&str]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| (field.name.to_owned(), field.schema()))
        .collect();
    json!({
        "type": "object",
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}
