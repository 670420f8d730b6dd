//! `strftime` for the few formats of dates in templates.

use std::fmt::Write as _;

const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Formats a time given in seconds since 1970, in UTC. Directives it does not know stay as they are.
pub fn format(format: &str, unix_secs: u64) -> String {
    let (days, second) = (unix_secs / 86_400, unix_secs % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let weekday = DAYS[(days % 7) as usize];
    let month_name = MONTHS[(month - 1) as usize];
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let _ = match letters.next() {
            Some('d') => write!(out, "{day:02}"),
            Some('m') => write!(out, "{month:02}"),
            Some('y') => write!(out, "{:02}", year % 100),
            Some('Y') => write!(out, "{year}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('B') => write!(out, "{month_name}"),
            Some('a') => write!(out, "{}", &weekday[..3]),
            Some('A') => write!(out, "{weekday}"),
            Some('H') => write!(out, "{hour:02}"),
            Some('I') => write!(out, "{:02}", (hour + 11) % 12 + 1),
            Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{:02}", second % 60),
            Some('%') => write!(out, "%"),
            Some(other) => write!(out, "%{other}"),
            None => write!(out, "%"),
        };
    }
    out
}

/// Year, month and day of a day counted from 1970, by counting years from the first of March, so that the leap
/// day comes last (Hinnant: chrono-compatible low-level date algorithms).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year + u64::from(month <= 2);
    (year, month, day - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |secs, wanted: &str| {
            assert_eq!(format("%A %d %B %Y, %a %b %y, %I:%M:%S %p", secs), wanted)
        };
        check(0, "Thursday 01 January 1970, Thu Jan 70, 12:00:00 AM");
        check(
            951_827_696,
            "Tuesday 29 February 2000, Tue Feb 00, 12:34:56 PM",
        );
        check(
            1_795_219_200,
            "Saturday 21 November 2026, Sat Nov 26, 12:00:00 AM",
        );
        assert_eq!(format("100%% %q %", 0), "100% %q %");
    }
}
