//! Hours of the week: `22:00-07:00`, `mon-fri 18:00-08:00`, `sat,sun`.

use std::fmt;

use super::raw::Raw;
use super::value::{Place, Value, quote};

/// Spans of time that come back each week. A span past midnight belongs to the day on which it begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hours(Vec<HourSpan>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct HourSpan {
    /// In its original spelling.
    text: String,
    /// Begins with Monday.
    days: [bool; 7],
    /// Minutes of the day; the end is before the start if midnight is in between.
    from: u32,
    to: u32,
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_MINUTES: u32 = 24 * 60;

impl Hours {
    /// `None` if a text is no valid span.
    pub fn parse_all(texts: &[String]) -> Option<Self> {
        let spans = texts.iter().map(|text| HourSpan::parse(text));
        spans.collect::<Option<Vec<_>>>().map(Self)
    }

    /// Whether a moment is within, given as the days since Monday and the minutes since midnight.
    pub fn contain(&self, day: usize, minute: u32) -> bool {
        let (day, before) = (day % 7, (day + 6) % 7);
        self.0.iter().any(|span| match span.from < span.to {
            true => span.days[day] && (span.from..span.to).contains(&minute),
            false => {
                (span.days[day] && minute >= span.from) || (span.days[before] && minute < span.to)
            }
        })
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<&str> = self.0.iter().map(|span| span.text.as_str()).collect();
        f.write_str(&texts.join(", "))
    }
}

impl HourSpan {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let (days, time) = match text.split_once(' ') {
            Some((days, time)) => (days, time.trim()),
            None if text.starts_with(|c: char| c.is_ascii_digit()) => ("mon-sun", text.as_str()),
            None => (text.as_str(), "00:00-24:00"),
        };
        let (from, to) = time.split_once('-')?;
        let (from, to) = (minutes(from)?, minutes(to)?);
        // A whole day and no time at all are written alike.
        if from == to || from == DAY_MINUTES {
            return None;
        }
        Some(Self {
            days: days_of(days)?,
            from,
            to,
            text,
        })
    }
}

fn minutes(text: &str) -> Option<u32> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str| match text.len() {
        1 | 2 if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse::<u32>().ok(),
        _ => None,
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let is_time = minutes < 60 && hours * 60 + minutes <= DAY_MINUTES;
    is_time.then_some(hours * 60 + minutes)
}

fn days_of(text: &str) -> Option<[bool; 7]> {
    let day = |name: &str| DAYS.iter().position(|day| *day == name.trim());
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (day(part)?, day(part)?),
        };
        let mut at = first;
        loop {
            days[at] = true;
            if at == last {
                break;
            }
            at = (at + 1) % 7;
        }
    }
    Some(days)
}

impl Value for Hours {
    fn wanted() -> String {
        "a list of hours such as [\"22:00-07:00\"] or [\"mon-fri 18:00-08:00\", \"sat,sun\"]"
            .to_owned()
    }

    fn parse(raw: &Raw, _: &Place<'_>) -> Result<Self, String> {
        let texts = raw.texts().ok_or_else(String::new)?;
        match Self::parse_all(&texts) {
            Some(hours) if !texts.is_empty() => Ok(hours),
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> Option<String> {
        let texts: Vec<String> = self.0.iter().map(|span| quote(&span.text)).collect();
        Some(format!("[{}]", texts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(texts: &[&str]) -> Option<Hours> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Hours::parse_all(&texts)
    }

    #[test]
    fn moments_are_within_hours_also_past_midnight() {
        let nights = hours(&["mon-fri 22:00-07:00", "Sat,Sun"]).unwrap();
        for (day, minute, wanted) in [
            (0, 0, false),
            (0, 21 * 60 + 59, false),
            (0, 22 * 60, true),
            (1, 6 * 60 + 59, true),
            (1, 7 * 60, false),
            (4, 23 * 60, true),
            (5, 12 * 60, true),
            (6, 23 * 60 + 59, true),
        ] {
            assert_eq!(nights.contain(day, minute), wanted, "{day} {minute}");
        }
        let around = hours(&["fri-mon 08:00-24:00"]).unwrap();
        let days: Vec<bool> = (0..7).map(|day| around.contain(day, 600)).collect();
        assert_eq!(days, [true, false, false, false, true, true, true]);
        assert!(around.contain(0, 1439) && !around.contain(1, 0));
        let daily = hours(&["9:30-17:00"]).unwrap();
        assert!(daily.contain(3, 570) && !daily.contain(3, 569));
        assert_eq!(daily.to_string(), "9:30-17:00");
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in [
            "",
            "night",
            "22-07",
            "22:00",
            "24:00-07:00",
            "25:00-26:00",
            "08:60-09:00",
            "08:00-08:00",
            "mon-tod 1:00-2:00",
            "mon- 1:00-2:00",
            "-1:00-2:00",
            "001:00-2:00",
        ] {
            assert_eq!(hours(&[text]), None, "{text}");
        }
    }
}
