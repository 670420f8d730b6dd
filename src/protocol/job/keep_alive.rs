//! How long models stay in the memory of workers.

use std::time::Duration;

use serde_json::Value;

/// How long a worker keeps a model in memory after a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAlive {
    For(Duration),
    Always,
}

/// Whether a worker has a model in memory; the longest stay is the greatest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryStay {
    Unloaded,
    /// Without a further job, until this time in seconds since the epoch.
    Until(i64),
    /// Also of a worker that says nothing about it.
    #[default]
    Always,
}

/// The longest time that is counted: a year.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl KeepAlive {
    pub const UNLOAD: Self = Self::For(Duration::ZERO);

    /// Seconds as a number, or a duration such as `5m`, `1h30m` or `500ms`; less than nothing is always.
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Self::of_seconds(number.as_f64()?),
            Value::String(text) => Self::of_seconds(seconds(text.trim())?),
            _ => None,
        }
    }

    fn of_seconds(seconds: f64) -> Option<Self> {
        if seconds.is_nan() {
            return None;
        }
        if seconds < 0.0 {
            return Some(Self::Always);
        }
        let time = Duration::try_from_secs_f64(seconds);
        Some(Self::For(time.unwrap_or(LONGEST).min(LONGEST)))
    }

    /// The link's form: milliseconds, -1 for always.
    pub fn to_millis(self) -> i64 {
        match self {
            Self::For(time) => i64::try_from(time.as_millis()).unwrap_or(i64::MAX),
            Self::Always => -1,
        }
    }

    pub fn of_millis(millis: i64) -> Self {
        match u64::try_from(millis) {
            Ok(millis) => Self::For(Duration::from_millis(millis).min(LONGEST)),
            Err(_) => Self::Always,
        }
    }

    /// None for always.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::For(time) => Some(time),
            Self::Always => None,
        }
    }
}

/// A number alone is seconds.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|sign: char| !sign.is_ascii_digit() && sign != '.')?;
        let (number, after) = rest.split_at(digits);
        let end = after
            .find(|sign: char| sign.is_ascii_digit() || sign == '.')
            .unwrap_or(after.len());
        let (unit, more) = after.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = more;
    }
    (!text.is_empty()).then_some(sign * total)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keep_alive_is_read_as_ollama_reads_it() {
        let check = |value: Value, expected: Option<KeepAlive>| {
            assert_eq!(KeepAlive::read(&value), expected, "{value}");
        };
        let seconds = |seconds: u64| Some(KeepAlive::For(Duration::from_secs(seconds)));
        check(json!("5m"), seconds(300));
        check(json!("1h30m"), seconds(5400));
        check(
            json!("500ms"),
            Some(KeepAlive::For(Duration::from_millis(500))),
        );
        check(json!(300), seconds(300));
        check(json!("300"), seconds(300));
        for nothing in [json!(0), json!("0"), json!("0s"), json!(0.0)] {
            check(nothing, Some(KeepAlive::UNLOAD));
        }
        for always in [json!(-1), json!("-1"), json!("-1m")] {
            check(always, Some(KeepAlive::Always));
        }
        check(json!(1e300), Some(KeepAlive::For(LONGEST)));
        for wrong in [
            json!("soon"),
            json!(""),
            json!("5x"),
            json!("m"),
            json!("NaN"),
            json!([]),
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn a_link_carries_it() {
        for keep_alive in [
            KeepAlive::UNLOAD,
            KeepAlive::Always,
            KeepAlive::For(Duration::from_millis(1500)),
        ] {
            assert_eq!(KeepAlive::of_millis(keep_alive.to_millis()), keep_alive);
        }
    }
}
