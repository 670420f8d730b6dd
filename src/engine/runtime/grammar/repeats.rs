//! How much a pattern repeats itself. Counted repetitions inside each other cost as much as their product, and no limit
//! of the library counts that while it works.

/// The largest weight of a pattern: its characters, each as often as it is repeated by count.
pub const MOST_WEIGHT: u64 = 100_000;

/// An estimate that needs no valid pattern: groups and counted repetitions, whatever else there is.
pub fn weight(pattern: &str) -> u64 {
    let mut outer: Vec<u64> = Vec::new();
    let (mut total, mut last) = (0_u64, 0_u64);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match c {
            '(' => {
                outer.push(total.saturating_add(last));
                (total, last) = (0, 0);
            }
            ')' => {
                last = total.saturating_add(last);
                total = outer.pop().unwrap_or(0);
            }
            '{' => match count(rest.as_str()) {
                Some(count) => {
                    last = last.saturating_mul(count);
                    rest.find(|&c| c == '}');
                }
                None => (total, last) = (total.saturating_add(last), 1),
            },
            '\\' => {
                rest.next();
                (total, last) = (total.saturating_add(last), 1);
            }
            _ => (total, last) = (total.saturating_add(last), 1),
        }
    }
    let groups = outer.into_iter().fold(0, u64::saturating_add);
    groups.saturating_add(total).saturating_add(last)
}

/// The larger number of `n}`, `n,}` or `n,m}`.
fn count(text: &str) -> Option<u64> {
    let (inside, _) = text.split_once('}')?;
    let mut numbers = inside.split(',').map(str::trim);
    let first = numbers.next()?;
    if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A number that does not fit is as good as endless.
    let number = |text: &str| text.parse().unwrap_or(u64::MAX);
    let second = numbers.next().filter(|text| !text.is_empty());
    Some(second.map_or(0, number).max(number(first)).max(1))
}

#[cfg(test)]
mod tests {
    use super::weight;

    #[test]
    fn repetitions_inside_each_other_multiply() {
        assert_eq!(weight("abc"), 3);
        assert_eq!(weight("a{3}b"), 4);
        assert_eq!(weight("(ab){2,10}c"), 21);
        assert_eq!(weight("((a{1000}){1000}){1000}"), 1_000_000_000);
        assert_eq!(weight(r"\({5}x{2,}"), 7);
        assert_eq!(weight("{\"a\": 1}"), 8);
        assert_eq!(weight("a{99999999999999999999}"), u64::MAX);
        assert_eq!(weight(")))((("), 0);
    }
}
