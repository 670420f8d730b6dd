//! Example images of styles. If there are any, exactly one is the primary one.

use uuid::Uuid;

use muster_protocol::legacy::style::MOST_EXAMPLES;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub id: Uuid,
    pub url: String,
    pub primary: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExampleChange {
    /// The first example is primary, whatever its flag.
    Add(Example),
    /// `None` leaves a field unchanged.
    Change {
        id: Uuid,
        url: Option<String>,
        primary: Option<bool>,
    },
    Remove(Uuid),
}

/// Why a change of examples was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotChanged {
    NoStyle,
    NoExample,
    TooMany,
    SameUrl,
}

impl ExampleChange {
    /// The changed examples, the oldest first.
    pub fn apply(&self, mut examples: Vec<Example>) -> Result<Vec<Example>, NotChanged> {
        let main = match self {
            Self::Add(new) => {
                if examples.len() >= MOST_EXAMPLES {
                    return Err(NotChanged::TooMany);
                }
                refuse_twice(&examples, None, &new.url)?;
                examples.push(new.clone());
                new.primary.then_some(new.id)
            }
            Self::Change { id, url, primary } => {
                if let Some(url) = url {
                    refuse_twice(&examples, Some(*id), url)?;
                }
                let example = find(&mut examples, *id)?;
                example.url = url.clone().unwrap_or(example.url.clone());
                example.primary = primary.unwrap_or(example.primary);
                match primary {
                    Some(false) => another(&examples, *id),
                    Some(true) => Some(*id),
                    None => None,
                }
            }
            Self::Remove(id) => {
                find(&mut examples, *id)?;
                examples.retain(|example| example.id != *id);
                None
            }
        };
        keep_one_main(&mut examples, main);
        Ok(examples)
    }
}

fn refuse_twice(examples: &[Example], but: Option<Uuid>, url: &str) -> Result<(), NotChanged> {
    let is_same = |example: &Example| Some(example.id) != but && example.url == url;
    match examples.iter().any(is_same) {
        true => Err(NotChanged::SameUrl),
        false => Ok(()),
    }
}

fn find(examples: &mut [Example], id: Uuid) -> Result<&mut Example, NotChanged> {
    let found = examples.iter_mut().find(|example| example.id == id);
    found.ok_or(NotChanged::NoExample)
}

/// The new main example after the main one is demoted.
fn another(examples: &[Example], id: Uuid) -> Option<Uuid> {
    let is_main = |example: &&Example| example.primary && example.id != id;
    let others = || examples.iter().filter(|example| example.id != id);
    let next = others().find(is_main).or_else(|| others().next());
    next.map(|example| example.id)
}

/// Keeps one main example: the requested, the present or the oldest one.
fn keep_one_main(examples: &mut [Example], wanted: Option<Uuid>) {
    let is_main = examples.iter().find(|example| example.primary);
    let main = wanted.or(is_main.or(examples.first()).map(|example| example.id));
    for example in examples {
        example.primary = Some(example.id) == main;
    }
}
