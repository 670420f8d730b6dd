//! Limits of clients' JSON schemas and patterns. Refusals have the path in the schema: the API checks before it creates
//! a job, and the engine before it compiles.
//!
//! | file | content |
//! | --- | --- |
//! | `mend` | converts schemas of generators for the compiler |
//! | `repeats` | repetitions of a pattern |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

mod mend;
mod repeats;

use std::fmt;

use serde_json::{Number, Value};

use mend::allows_every_name;
pub use mend::mend;

/// The deepest nesting of a schema, and how many values it may hold.
const MOST_DEPTH: usize = 64;
const MOST_VALUES: usize = 20_000;
const MOST_BYTES: usize = 512 << 10;
/// Limit of branches of all `anyOf`, `oneOf` and `allOf` that can apply to one value: compile time grows with their
/// product.
const MOST_BRANCHES: usize = 4096;

/// The largest whole number that a schema may hold, in both directions: JSON's readers agree up to here, and the library
/// that compiles schemas recurses without end at the least number of 64 bits.
const LARGEST_NUMBER: i64 = (1 << 53) - 1;
/// A grammar of multiples has a state for each remainder.
const LARGEST_DIVISOR: u64 = 10_000;
/// Limit of decimal places of a divisor.
const MOST_DECIMALS: i64 = 8;

/// Keywords that bound numbers. Generated schemas are full of bounds that no number reaches.
const BOUNDS: &[&str] = &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];

/// Keywords that hold schemas by names of the client's.
const NAMED: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];

/// Keywords that restrict values and that no grammar can enforce.
const UNSUPPORTED: &[&str] = &[
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Why a grammar is not compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaRefusal {
    pub place: String,
    pub message: String,
    /// The schema is valid but uses an unsupported feature.
    pub is_unsupported: bool,
}

impl SchemaRefusal {
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
            is_unsupported: false,
        }
    }

    fn unsupported(place: &str, message: &str) -> Self {
        Self {
            is_unsupported: true,
            ..Self::new(place, message)
        }
    }
}

impl fmt::Display for SchemaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Checks the schema at `place`. Without `strict`, keywords that cannot be enforced are let through.
pub fn check(schema: &Value, place: &str, strict: bool) -> Result<(), SchemaRefusal> {
    let mut checked = SchemaCheck {
        strict,
        values: 0,
        bytes: 0,
        branches: 0,
        has_id: schema["$id"].is_string(),
    };
    match schema {
        Value::Bool(false) => Err(SchemaRefusal::new(place, "no value satisfies false")),
        Value::Bool(true) => Ok(()),
        Value::Object(_) => checked.schema(schema, &mut place.to_owned(), 0),
        _ => Err(SchemaRefusal::new(place, "must be an object")),
    }
}

/// Reduces bounds beyond the limits of numbers.
pub fn draw_in_bounds(schema: &mut Value) {
    match schema {
        Value::Array(values) => values.iter_mut().for_each(draw_in_bounds),
        Value::Object(entries) => {
            for (key, value) in entries.iter_mut() {
                match value.as_f64().filter(|_| BOUNDS.contains(&key.as_str())) {
                    Some(bound) if bound > LARGEST_NUMBER as f64 => *value = LARGEST_NUMBER.into(),
                    Some(bound) if bound < -LARGEST_NUMBER as f64 => {
                        *value = (-LARGEST_NUMBER).into();
                    }
                    Some(_) => {}
                    // Values are no schemas.
                    None if matches!(key.as_str(), "const" | "enum" | "default" | "examples") => {}
                    // The keys are names, not keywords.
                    None if NAMED.contains(&key.as_str()) => value
                        .as_object_mut()
                        .into_iter()
                        .flat_map(|schemas| schemas.values_mut())
                        .for_each(draw_in_bounds),
                    None => draw_in_bounds(value),
                }
            }
        }
        _ => {}
    }
}

/// The weight of a pattern, however it is written.
pub fn check_weight(place: &str, pattern: &str) -> Result<(), SchemaRefusal> {
    check_found(place, repeats::weight(pattern))
}

/// The same of the heaviest rule of a grammar in Lark's language.
pub fn check_weight_of_lark(place: &str, source: &str) -> Result<(), SchemaRefusal> {
    check_found(place, repeats::weight_of_lark(source))
}

fn check_found(place: &str, found: u64) -> Result<(), SchemaRefusal> {
    match found > repeats::MOST_WEIGHT {
        true => Err(SchemaRefusal::new(
            place,
            format!(
                "repeats itself too often: {found} characters when written out, of at most {}",
                repeats::MOST_WEIGHT
            ),
        )),
        false => Ok(()),
    }
}

fn check_type(value: &Value, place: &str) -> Result<(), SchemaRefusal> {
    const TYPES: [&str; 7] = [
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];
    let given = match value {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let is_known = |one: &&Value| one.as_str().is_some_and(|name| TYPES.contains(&name));
    match given.iter().find(|one| !is_known(one)) {
        Some(unknown) => {
            let found: String = unknown.to_string().chars().take(64).collect();
            let types = TYPES.join(", ");
            let message = format!("must be one of {types}, or a list of them, found {found}");
            Err(SchemaRefusal::new(place, message))
        }
        None => Ok(()),
    }
}

/// Replaces look-around patterns before the library parses them.
fn check_pattern(place: &str, pattern: &str) -> Result<(), SchemaRefusal> {
    let looks_around = ["(?=", "(?!", "(?<"]
        .iter()
        .any(|mark| pattern.contains(mark));
    let error = match regex_syntax::parse(pattern) {
        Err(error) if !looks_around => error.to_string(),
        _ => return Ok(()),
    };
    // The lines before show the pattern.
    let reason = error.lines().last().unwrap_or_default();
    let reason = reason.trim_start_matches("error: ");
    let message = format!("is not a regular expression: {reason}");
    Err(SchemaRefusal::new(place, message))
}

fn check_divisor(value: &Value, place: &str) -> Result<(), SchemaRefusal> {
    let Some(number) = value.as_number() else {
        return Ok(());
    };
    match digits(number).is_some_and(|digits| (1..=LARGEST_DIVISOR).contains(&digits)) {
        true => Ok(()),
        false => Err(SchemaRefusal::new(
            place,
            format!(
                "must have 1 to {LARGEST_DIVISOR} as its digits without the point, found {number}"
            ),
        )),
    }
}

/// The digits of a decimal without its point and the zeros around them; none of one that is too long, or too small for
/// the 32 bits in which the library computes.
fn digits(number: &Number) -> Option<u64> {
    let text = number.to_string();
    let (text, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let decimals = text
        .split_once('.')
        .map_or(0, |(_, behind)| behind.trim_end_matches('0').len());
    let exponent: i64 = exponent.parse().ok()?;
    if i64::try_from(decimals).ok()? - exponent > MOST_DECIMALS {
        return None;
    }
    let digits = match text.contains('.') {
        true => text.trim_end_matches('0').replace('.', ""),
        false => text.to_owned(),
    };
    digits.parse().ok()
}

/// A reduced bound must not allow values that the schema forbids.
fn check_bound(key: &str, value: &Value, place: &str) -> Result<(), SchemaRefusal> {
    let (is_wider, most) = match (key, value.as_f64()) {
        ("minimum" | "exclusiveMinimum", Some(bound)) => {
            (bound > LARGEST_NUMBER as f64, LARGEST_NUMBER)
        }
        ("maximum" | "exclusiveMaximum", Some(bound)) => {
            (bound < -LARGEST_NUMBER as f64, -LARGEST_NUMBER)
        }
        _ => return Ok(()),
    };
    match is_wider {
        true => Err(SchemaRefusal::new(
            place,
            format!("numbers beyond {most} cannot be enforced, found {value}"),
        )),
        false => Ok(()),
    }
}

fn check_numbers(value: &Value, place: &str) -> Result<(), SchemaRefusal> {
    match value {
        Value::Array(values) => values
            .iter()
            .try_for_each(|value| check_numbers(value, place)),
        Value::Object(entries) => entries
            .values()
            .try_for_each(|value| check_numbers(value, place)),
        Value::Number(number) => {
            let is_whole = number.is_i64() || number.is_u64();
            let size = number.as_i64().map(i64::unsigned_abs).or(number.as_u64());
            let is_large = size.is_some_and(|size| size > LARGEST_NUMBER.unsigned_abs());
            match is_whole && is_large {
                true => Err(SchemaRefusal::new(
                    place,
                    format!(
                        "whole numbers must not exceed {LARGEST_NUMBER} in size, found {number}"
                    ),
                )),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

struct SchemaCheck {
    strict: bool,
    values: usize,
    bytes: usize,
    branches: usize,
    /// The schema has an address, so it may refer to itself.
    has_id: bool,
}

impl SchemaCheck {
    fn schema(
        &mut self,
        value: &Value,
        place: &mut String,
        depth: usize,
    ) -> Result<(), SchemaRefusal> {
        self.count(value, place, depth)?;
        let Value::Object(entries) = value else {
            return Ok(());
        };
        for (key, value) in entries {
            let length = place.len();
            place.push('.');
            place.extend(key.chars().take(64));
            self.bytes += key.len();
            self.keyword(key, value, place, depth + 1)?;
            place.truncate(length);
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        key: &str,
        value: &Value,
        place: &mut String,
        depth: usize,
    ) -> Result<(), SchemaRefusal> {
        if key == "x-guidance" {
            return Err(SchemaRefusal::new(&*place, "is reserved"));
        }
        let is_idle = match key {
            "uniqueItems" => *value == Value::Bool(false),
            "propertyNames" => allows_every_name(value),
            _ => false,
        };
        if self.strict && UNSUPPORTED.contains(&key) && !is_idle {
            let message = "cannot be enforced: leave it out, and check it yourself";
            return Err(SchemaRefusal::unsupported(place, message));
        }
        match key {
            "properties" | "patternProperties" | "$defs" | "definitions" => {
                self.named(value, place, depth)
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => self.listed(value, key, place, depth),
            "items" if value.is_array() => self.listed(value, key, place, depth),
            "items" | "additionalItems" | "additionalProperties" => {
                self.schema(value, place, depth)
            }
            "$ref" => self.reference(value, place),
            "pattern" => {
                let pattern = value.as_str().unwrap_or_default();
                check_weight(place, pattern)?;
                match self.strict {
                    true => check_pattern(place, pattern),
                    false => Ok(()),
                }
            }
            "type" if self.strict => {
                check_type(value, place)?;
                self.plain(value, place, depth)
            }
            "multipleOf" => check_divisor(value, place),
            key if BOUNDS.contains(&key) => {
                check_bound(key, value, place)?;
                self.plain(value, place, depth)
            }
            "const" | "enum" => {
                check_numbers(value, place)?;
                self.plain(value, place, depth)
            }
            _ => self.plain(value, place, depth),
        }
    }

    fn named(
        &mut self,
        value: &Value,
        place: &mut String,
        depth: usize,
    ) -> Result<(), SchemaRefusal> {
        self.count(value, place, depth)?;
        for (name, value) in value.as_object().into_iter().flatten() {
            if place.ends_with(".patternProperties") {
                check_weight(place, name)?;
            }
            let length = place.len();
            place.push('.');
            place.extend(name.chars().take(64));
            self.bytes += name.len();
            self.schema(value, place, depth + 1)?;
            place.truncate(length);
        }
        Ok(())
    }

    fn listed(
        &mut self,
        value: &Value,
        key: &str,
        place: &mut String,
        depth: usize,
    ) -> Result<(), SchemaRefusal> {
        self.count(value, place, depth)?;
        let list = value.as_array().map_or(&[][..], Vec::as_slice);
        if matches!(key, "anyOf" | "oneOf" | "allOf") {
            self.branches += list.len();
        }
        if self.branches > MOST_BRANCHES {
            let message = format!("the schema may have {MOST_BRANCHES} branches in all");
            return Err(SchemaRefusal::new(&*place, message));
        }
        for (index, value) in list.iter().enumerate() {
            let length = place.len();
            place.push_str(&format!("[{index}]"));
            self.schema(value, place, depth + 1)?;
            place.truncate(length);
        }
        Ok(())
    }

    fn reference(&mut self, value: &Value, place: &mut str) -> Result<(), SchemaRefusal> {
        match value.as_str() {
            Some(target) if target.contains("://") && !self.has_id => Err(SchemaRefusal::new(
                &*place,
                "may refer to the schema itself only, not to another document",
            )),
            _ => Ok(()),
        }
    }

    /// A value that is no schema, such as those of `enum` and `default`.
    fn plain(
        &mut self,
        value: &Value,
        place: &mut String,
        depth: usize,
    ) -> Result<(), SchemaRefusal> {
        self.count(value, place, depth)?;
        match value {
            Value::Array(list) => {
                let mut each = list.iter();
                each.try_for_each(|value| self.plain(value, place, depth + 1))
            }
            Value::Object(entries) => {
                let mut each = entries.iter();
                each.try_for_each(|(key, value)| {
                    self.bytes += key.len();
                    self.plain(value, place, depth + 1)
                })
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, value: &Value, place: &str, depth: usize) -> Result<(), SchemaRefusal> {
        self.values += 1;
        if let Value::String(text) = value {
            self.bytes += text.len();
        }
        let too_much = if depth > MOST_DEPTH {
            format!("the schema is nested more than {MOST_DEPTH} levels deep")
        } else if self.values > MOST_VALUES {
            format!("the schema holds more than {MOST_VALUES} values")
        } else if self.bytes > MOST_BYTES {
            format!("the schema has more than {MOST_BYTES} bytes")
        } else {
            return Ok(());
        };
        Err(SchemaRefusal::new(place, too_much))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{LARGEST_NUMBER, check, draw_in_bounds};

    fn refused_at(schema: &Value) -> Option<String> {
        check(schema, "schema", true)
            .err()
            .map(|refusal| refusal.place)
    }

    #[test]
    fn bounds_are_drawn_in_only_where_that_allows_nothing_new() {
        let mut wide = json!({"minimum": i64::MIN, "maximum": u64::MAX, "exclusiveMaximum": 1e300});
        assert_eq!(refused_at(&wide), None);
        draw_in_bounds(&mut wide);
        let drawn = json!({"minimum": -LARGEST_NUMBER, "maximum": LARGEST_NUMBER,
            "exclusiveMaximum": LARGEST_NUMBER});
        assert_eq!(wide, drawn);
        for (key, bound) in [
            ("minimum", 1e20),
            ("exclusiveMinimum", 1e20),
            ("maximum", -1e20),
            ("exclusiveMaximum", -1e20),
        ] {
            let place = refused_at(&json!({"items": {key: bound}}));
            assert_eq!(place, Some(format!("schema.items.{key}")));
        }
    }

    #[test]
    fn types_and_patterns_that_nobody_knows_are_refused_at_their_place() {
        let refused = |schema: Value| check(&schema, "s", true).map_err(|error| error.to_string());
        let error = refused(json!({"properties": {"a": {"type": "objekt"}}})).unwrap_err();
        let expected = "s.properties.a.type: must be one of null, boolean, integer, number, string, array, object, or a \
                        list of them, found \"objekt\"";
        assert_eq!(error, expected);
        let error = refused(json!({"type": "string", "pattern": "("})).unwrap_err();
        assert_eq!(
            error,
            "s.pattern: is not a regular expression: unclosed group"
        );
        for sound in [
            json!({"type": ["string", "null"], "pattern": "^[\\w-]+\\/\\u0041$"}),
            json!({"pattern": "^(?=a).+$"}),
            json!({"properties": {"type": {"type": "object"}}, "enum": [{"type": "x"}]}),
        ] {
            refused(sound).unwrap();
        }
    }

    #[test]
    fn divisors_have_few_digits_and_decimals() {
        for divisor in [
            json!(7),
            json!(0.01),
            json!(1e-8),
            json!(2.5),
            json!(10_000),
        ] {
            assert_eq!(
                refused_at(&json!({"multipleOf": divisor})),
                None,
                "{divisor}"
            );
        }
        for divisor in [json!(7e-9), json!(1e-300), json!(10_001), json!(1.234e-6)] {
            let place = refused_at(&json!({"multipleOf": divisor}));
            assert_eq!(place.as_deref(), Some("schema.multipleOf"), "{divisor}");
        }
    }
}
