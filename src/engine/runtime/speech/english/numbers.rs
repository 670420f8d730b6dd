//! Numbers in words.

const SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] = [
    "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
];
const GROUPS: [&str; 6] = [
    "",
    "thousand",
    "million",
    "billion",
    "trillion",
    "quadrillion",
];
const ORDINALS: [(&str, &str); 8] = [
    ("one", "first"),
    ("two", "second"),
    ("three", "third"),
    ("five", "fifth"),
    ("eight", "eighth"),
    ("nine", "ninth"),
    ("twelve", "twelfth"),
    ("ty", "tieth"),
];
pub const MONTHS: [&str; 12] = [
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
/// Larger numbers are read digit by digit.
const MOST: u64 = 999_999_999_999_999_999;

/// `forty two` for 42.
pub fn cardinal(number: u64) -> String {
    if number > MOST {
        return digits(&number.to_string());
    }
    if number == 0 {
        return SMALL[0].to_owned();
    }
    let mut words = Vec::new();
    for (at, name) in GROUPS.iter().enumerate().rev() {
        let group = number / 1000u64.pow(at as u32) % 1000;
        if group == 0 {
            continue;
        }
        below_thousand(group, &mut words);
        if at > 0 {
            words.push(name);
        }
    }
    words.join(" ")
}

fn below_thousand(number: u64, words: &mut Vec<&'static str>) {
    let small = |number: u64| SMALL.get(number as usize).copied().unwrap_or_default();
    let (hundreds, rest) = (number / 100, number % 100);
    if hundreds > 0 {
        words.extend([small(hundreds), "hundred"]);
    }
    if rest >= 20 {
        words.push(TENS.get(rest as usize / 10).copied().unwrap_or_default());
        if rest % 10 > 0 {
            words.push(small(rest % 10));
        }
    } else if rest > 0 {
        words.push(small(rest));
    }
}

/// `forty second` for 42.
pub fn ordinal(number: u64) -> String {
    let words = cardinal(number);
    let found = ORDINALS
        .iter()
        .find_map(|(end, ordinal)| Some(format!("{}{ordinal}", words.strip_suffix(end)?)));
    found.unwrap_or_else(|| format!("{words}th"))
}

/// `nineteen eighty four` for 1984.
pub fn year(number: u64) -> String {
    let (century, rest) = (number / 100, number % 100);
    match (century % 10, rest) {
        (0, 0..10) => cardinal(number),
        (_, 0) => format!("{} hundred", cardinal(century)),
        (_, 1..10) => format!("{} oh {}", cardinal(century), cardinal(rest)),
        _ => format!("{} {}", cardinal(century), cardinal(rest)),
    }
}

/// Digit after digit.
pub fn digits(text: &str) -> String {
    let digits = text.chars().filter_map(|letter| letter.to_digit(10));
    let words: Vec<&str> = digits
        .filter_map(|digit| SMALL.get(digit as usize).copied())
        .collect();
    words.join(" ")
}

/// A number as it is written, with commas between thousands and a point before a fraction.
pub fn spoken(text: &str) -> String {
    let plain = text.replace(',', "");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let has_leading_zero = whole.len() > 1 && whole.starts_with('0');
    let number = match whole.parse::<u64>() {
        Ok(number) if !has_leading_zero => cardinal(number),
        _ if whole.is_empty() => SMALL[0].to_owned(),
        _ => digits(whole),
    };
    match fraction.is_empty() {
        true => number,
        false => format!("{number} point {}", digits(fraction)),
    }
}
