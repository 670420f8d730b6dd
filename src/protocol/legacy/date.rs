//! Dates as in RFC 822, in UTC with the unknown zone: `Mon, 01 Jan 2024 00:00:00 -0000`.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::job::UnixMillis;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const SECONDS_A_DAY: i64 = 86_400;

/// A moment that is sent as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(pub UnixMillis);

impl Date {
    /// The same day and time of the next month, or its last day where it has no such day.
    #[must_use]
    pub fn a_month_later(self) -> Self {
        let seconds = self.0.0.div_euclid(1000);
        let (year, month, day) = civil(seconds.div_euclid(SECONDS_A_DAY));
        let (year, month) = if month == 12 {
            (year + 1, 1)
        } else {
            (year, month + 1)
        };
        let next = if month == 12 {
            (year + 1, 1)
        } else {
            (year, month + 1)
        };
        let first = days(year, month);
        let days = first + (day - 1).min(days(next.0, next.1) - first - 1);
        let in_day = self.0.0.rem_euclid(SECONDS_A_DAY * 1000);
        let moment = days.saturating_mul(SECONDS_A_DAY * 1000);
        Self(UnixMillis(moment.saturating_add(in_day)))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.0.div_euclid(1000);
        let (days, second) = (
            seconds.div_euclid(SECONDS_A_DAY),
            seconds.rem_euclid(SECONDS_A_DAY),
        );
        let (year, month, day) = civil(days);
        let weekday = DAYS[days.rem_euclid(7) as usize];
        let month = MONTHS[month as usize - 1];
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            formatter,
            "{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} -0000"
        )
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Year, month and day of a day counted from 1970. Years are counted from the first of March, so that the leap day
/// comes last (Hinnant: chrono-compatible low-level date algorithms).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month, day - (153 * shifted + 2) / 5 + 1)
}

/// The first day of a month, counted from 1970: the inverse of [`civil`].
fn days(year: i64, month: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, shifted) = (year.div_euclid(400), (month + 9) % 12);
    let year = year.rem_euclid(400);
    let day = 365 * year + year / 4 - year / 100 + (153 * shifted + 2) / 5;
    era * 146_097 + day - 719_468
}

#[cfg(test)]
mod tests {
    use super::Date;
    use crate::job::UnixMillis;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |seconds: i64, expected: &str| {
            assert_eq!(Date(UnixMillis(seconds * 1000 + 999)).to_string(), expected);
        };
        check(1_704_067_200, "Mon, 01 Jan 2024 00:00:00 -0000");
        check(0, "Thu, 01 Jan 1970 00:00:00 -0000");
        check(951_827_696, "Tue, 29 Feb 2000 12:34:56 -0000");
        check(-1, "Wed, 31 Dec 1969 23:59:59 -0000");
        check(4_107_542_399, "Sun, 28 Feb 2100 23:59:59 -0000");
    }

    #[test]
    fn a_month_later_is_the_same_day_where_there_is_one() {
        let check = |seconds: i64, expected: &str| {
            let later = Date(UnixMillis(seconds * 1000)).a_month_later();
            assert_eq!(later.to_string(), expected);
        };
        check(1_704_067_200, "Thu, 01 Feb 2024 00:00:00 -0000");
        // The last of January, of a leap year and of another.
        check(1_706_702_400, "Thu, 29 Feb 2024 12:00:00 -0000");
        check(1_738_324_800, "Fri, 28 Feb 2025 12:00:00 -0000");
        check(1_735_603_200, "Fri, 31 Jan 2025 00:00:00 -0000");
        check(1_733_788_800, "Fri, 10 Jan 2025 00:00:00 -0000");
    }

    #[test]
    fn no_moment_is_too_far_away_to_be_written() {
        for far in [i64::MIN, i64::MAX] {
            assert!(Date(UnixMillis(far)).to_string().ends_with(" -0000"));
            let _ = Date(UnixMillis(far)).a_month_later();
        }
        let written = serde_json::to_string(&Date(UnixMillis(0))).unwrap();
        assert_eq!(written, "\"Thu, 01 Jan 1970 00:00:00 -0000\"");
    }
}
