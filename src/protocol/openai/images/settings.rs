//! Settings that image models have and OpenAI's API does not: samplers, noise schedules and LoRAs, by their names in the
//! AI Horde API.

use serde_json::{Map, Value};

use super::fields::Schedule;
use crate::job::{Lora, samplers};
use crate::openai::field::nothing_but;
use crate::openai::nearest::{nearest, shortened};
use crate::openai::shape::{kind, text};
use crate::openai::{Problem, Shape};

const MOST_LORAS: usize = 5;
const LONGEST_NAME: usize = 255;
const LONGEST_TRIGGER: usize = 30;
const STRENGTH: Shape = Shape::Number(-2.0..=2.0);

/// The sampler by the name that jobs have.
pub fn sampler(name: &str) -> Result<String, Problem> {
    let known = samplers::sampler(name).map(str::to_owned);
    known.ok_or_else(|| {
        let names: Vec<_> = samplers::sampler_names().collect();
        unknown("sampler", name, &names)
    })
}

pub fn schedule(name: &str) -> Result<Schedule, Problem> {
    if !samplers::SCHEDULES.contains(&name) {
        return Err(unknown("scheduler", name, &samplers::SCHEDULES));
    }
    let other = ![samplers::KARRAS, samplers::NORMAL].contains(&name);
    Ok(Schedule {
        karras: Some(name == samplers::KARRAS),
        other: other.then(|| name.to_owned()),
    })
}

fn unknown(field: &'static str, name: &str, known: &[&str]) -> Problem {
    let name = shortened(name);
    let meant = match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("use one of {}", known.join(", ")),
    };
    Problem::unsupported(field, format!("{field} {name:?} is unknown; {meant}"))
}

pub fn loras(value: Value) -> Result<Vec<Lora>, Problem> {
    let Value::Array(list) = value else {
        return Ok(Vec::new());
    };
    if list.len() > MOST_LORAS {
        let message = format!(
            "loras must have at most {MOST_LORAS} entries, found {}",
            list.len()
        );
        return Err(Problem::invalid("loras", message));
    }
    let read = list.into_iter().enumerate();
    read.map(|(index, value)| lora(&format!("loras[{index}]"), value))
        .collect()
}

fn lora(place: &str, value: Value) -> Result<Lora, Problem> {
    const KNOWN: [&str; 5] = ["name", "model", "clip", "is_version", "inject_trigger"];
    let Value::Object(mut entries) = value else {
        let message = format!("{place} must be an object, found {}", kind(&value));
        return Err(Problem::invalid(place.to_owned(), message));
    };
    nothing_but(&KNOWN, place, &entries)?;
    let mut take = |name: &str, shape: &Shape| take(&mut entries, place, name, shape);
    let name = take("name", &Shape::Text)?.map(text).unwrap_or_default();
    check_name(place, &name)?;
    let strength = |value: Option<Value>| value.and_then(|value| value.as_f64()).unwrap_or(1.0);
    let (model, clip) = (take("model", &STRENGTH)?, take("clip", &STRENGTH)?);
    let trigger = take("inject_trigger", &Shape::Text)?.map(text);
    if trigger
        .as_ref()
        .is_some_and(|text| text.len() > LONGEST_TRIGGER)
    {
        let message = format!("{place}.inject_trigger must have at most {LONGEST_TRIGGER} bytes");
        return Err(Problem::invalid(format!("{place}.inject_trigger"), message));
    }
    Ok(Lora {
        name,
        model: strength(model),
        clip: strength(clip),
        is_version: take("is_version", &Shape::Flag)? == Some(Value::Bool(true)),
        inject_trigger: trigger.filter(|text| !text.is_empty()),
    })
}

/// An entry that is null counts as absent.
fn take(
    entries: &mut Map<String, Value>,
    place: &str,
    name: &str,
    shape: &Shape,
) -> Result<Option<Value>, Problem> {
    let value = entries.remove(name).filter(|value| !value.is_null());
    if let Some(value) = &value {
        shape.check(&format!("{place}.{name}"), value)?;
    }
    Ok(value)
}

/// Workers look the name up in a catalog; a path or an address could lead elsewhere.
fn check_name(place: &str, name: &str) -> Result<(), Problem> {
    let is_path = name.contains(['/', '\\']) || name.contains("..");
    let wanted = match name.len() {
        0 => "is missing: send the name or number of a LoRA",
        1..=LONGEST_NAME if is_path => "must be the name or number of a LoRA, not a path or URL",
        1..=LONGEST_NAME => return Ok(()),
        _ => "must have at most 255 bytes",
    };
    let message = format!("{place}.name {wanted}");
    Err(Problem::invalid(format!("{place}.name"), message))
}
