//! Sizes and durations as people write them: `2 GiB`, `500 MB`, `20s`, `5 min`.

use std::fmt;
use std::time::Duration;

use super::raw::Raw;
use super::value::{Place, Value, quote};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size {
    pub bytes: u64,
}

/// Powers of 1024 and of 1000, largest first, so that showing finds the largest that divides.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

const DURATIONS: [(&[&str], u64); 5] = [
    (&["d", "day", "days"], 86_400_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["min", "m", "minute", "minutes"], 60_000),
    (&["s", "sec", "second", "seconds"], 1_000),
    (&["ms"], 1),
];

impl Size {
    pub fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let unit = SIZES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, bytes)| *bytes);
        let bytes = times(number, if unit_is_missing(text) { 1 } else { unit? })?;
        Some(Self { bytes })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = SIZES
            .iter()
            .find(|(_, unit)| self.bytes >= *unit && self.bytes.is_multiple_of(*unit));
        let (name, unit) = exact.copied().unwrap_or(("B", 1));
        write!(f, "{} {name}", self.bytes / unit)
    }
}

impl Value for Size {
    fn wanted() -> String {
        "a size such as \"2 GiB\"".to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        match raw {
            Raw::Whole(bytes) => u64::try_from(*bytes)
                .map(|bytes| Self { bytes })
                .map_err(|_| String::new()),
            _ => raw.text().and_then(Self::parse).ok_or_else(String::new),
        }
    }

    fn show(&self) -> Option<String> {
        Some(quote(&self.to_string()))
    }

    fn number(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn limit(bytes: u64) -> String {
        Self { bytes }.to_string()
    }
}

/// `20s`, `1.5 h`, `250ms`; several parts may follow each other: `1h 30min`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    while !rest.is_empty() || total.is_zero() && rest.len() == text.trim().len() {
        let (number, unit) = split(rest)?;
        let name_ends = unit
            .find(|letter: char| !letter.is_ascii_alphabetic())
            .unwrap_or(unit.len());
        let (name, after) = unit.split_at(name_ends);
        let millis = DURATIONS
            .iter()
            .find(|(names, _)| names.contains(&name))
            .map(|(_, millis)| *millis)?;
        total = total.checked_add(Duration::from_millis(times(number, millis)?))?;
        rest = after.trim_start();
    }
    Some(total)
}

/// The shortest exact way to write a duration.
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let exact = DURATIONS
        .iter()
        .find(|(_, unit)| millis >= u128::from(*unit) && millis.is_multiple_of(u128::from(*unit)));
    let (names, unit) = exact.copied().unwrap_or((&["s"], 1_000));
    format!("{}{}", millis / u128::from(unit), names[0])
}

/// The number at the start of a text, and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then(|| (number, unit.trim()))
}

fn unit_is_missing(text: &str) -> bool {
    split(text).is_some_and(|(_, unit)| unit.is_empty())
}

/// `number` times a unit, exactly for whole numbers and to the nearest for fractions; `None` when it overflows.
fn times(number: &str, unit: u64) -> Option<u64> {
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit),
        Err(_) => {
            let value = number.parse::<f64>().ok()? * unit as f64;
            (value.is_finite() && value < u64::MAX as f64).then_some(value.round() as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let bytes = |text| Size::parse(text).map(|size| size.bytes);
        assert_eq!(bytes("2 GiB"), Some(2 << 30));
        assert_eq!(bytes("1.5gib"), Some(3 << 29));
        assert_eq!(bytes("500MB"), Some(500_000_000));
        assert_eq!(bytes("4096"), Some(4096));
        for wrong in [
            "",
            "GiB",
            "2 GiBs",
            "-1 GiB",
            "1.2.3 MB",
            "99999999999 TiB",
            "2 apples",
        ] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        let millis = |text| parse_duration(text).map(|duration| duration.as_millis());
        assert_eq!(millis("20s"), Some(20_000));
        assert_eq!(millis("1h 30min"), Some(5_400_000));
        assert_eq!(millis("1h30m"), Some(5_400_000));
        assert_eq!(millis("0.5 s"), Some(500));
        assert_eq!(millis("0s"), Some(0));
        for wrong in ["", "20", "s", "20 sheep", "-1s", "1h 30"] {
            assert_eq!(millis(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same() {
        for bytes in [0, 1, 1023, 1024, 1_000_000, 3 << 29, u64::MAX] {
            let size = Size { bytes };
            assert_eq!(Size::parse(&size.to_string()), Some(size));
        }
        for millis in [0, 1, 999, 1000, 90_000, 3_600_000, 86_400_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
        }
    }
}
