//! How much a pattern repeats itself. Counted repetitions inside each other cost as much as their product, and no limit
//! of the library counts that while it works.

use std::collections::HashMap;

/// The largest weight of a pattern: its characters, each as often as it is repeated by count.
pub const MOST_WEIGHT: u64 = 100_000;

/// An estimate that needs no valid pattern: counts groups and counted repetitions.
pub fn weight(pattern: &str) -> u64 {
    weight_with(pattern, &mut |_| None)
}

/// The largest weight of a rule or terminal of a Lark grammar, with terminals expanded.
pub fn weight_of_lark(source: &str) -> u64 {
    let mut definitions: Vec<(&str, String)> = Vec::new();
    for line in source.lines() {
        match line.split_once(':') {
            Some((name, body)) if !line.trim_start().starts_with(['|', '/', '"']) => {
                definitions.push((name.trim().trim_start_matches(['?', '!']), body.to_owned()));
            }
            _ => match definitions.last_mut() {
                Some((_, body)) => body.push_str(line),
                None => definitions.push(("", line.to_owned())),
            },
        }
    }
    let bodies = definitions.iter().map(|(name, body)| (*name, &**body));
    let mut terminals = Terminals {
        bodies: bodies.clone().collect(),
        weights: HashMap::new(),
    };
    let weights = bodies.map(|(_, body)| terminals.expression(body, 0));
    weights.max().unwrap_or(0)
}

struct Terminals<'a> {
    bodies: HashMap<&'a str, &'a str>,
    /// Known counts; `None` for a rule whose count is being computed.
    weights: HashMap<&'a str, Option<u64>>,
}

impl Terminals<'_> {
    fn expression(&mut self, body: &str, depth: usize) -> u64 {
        weight_with(body, &mut |name| self.terminal(name, depth))
    }

    fn terminal(&mut self, name: &str, depth: usize) -> Option<u64> {
        let (&name, &body) = self.bodies.get_key_value(name)?;
        if let Some(known) = self.weights.get(name) {
            return *known;
        }
        if depth > DEEPEST_TERMINAL {
            return Some(u64::MAX);
        }
        self.weights.insert(name, None);
        let weight = self.expression(body, depth + 1);
        self.weights.insert(name, Some(weight));
        Some(weight)
    }
}

/// Terminals that are defined by each other.
const DEEPEST_TERMINAL: usize = 64;

/// `named` returns the weight of a name in capitals, if it is defined.
fn weight_with(pattern: &str, named: &mut dyn FnMut(&str) -> Option<u64>) -> u64 {
    let mut outer: Vec<u64> = Vec::new();
    let (mut total, mut last) = (0_u64, 0_u64);
    let mut rest = pattern.chars();
    loop {
        let here = rest.as_str();
        let Some(c) = rest.next() else {
            break;
        };
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
            'A'..='Z' | '_' => {
                let is_part = |c: char| matches!(c, 'A'..='Z' | '0'..='9' | '_');
                let length = here.find(|c| !is_part(c)).unwrap_or(here.len());
                total = total.saturating_add(last);
                match named(&here[..length]) {
                    Some(weight) => {
                        last = weight;
                        rest = here[length..].chars();
                    }
                    None => last = 1,
                }
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
    use super::{weight, weight_of_lark};

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
    #[test]
    fn a_terminal_weighs_what_it_stands_for() {
        let nested = "start: \"x\" B\nA: /a{1000}/\nB: A{1000}";
        assert!(weight_of_lark(nested) > 1_000_000);
        let plain = "start: WORD{1,20} END\nWORD: /[a-z]{1,20}/\n  | \"x\"\nEND: \".\"";
        assert!((400..1000).contains(&weight_of_lark(plain)));
        let mutual = "start: A\nA: B{3}\nB: A{3}";
        assert!(weight_of_lark(mutual) < 100);
        let chain = (0..1000).map(|i| format!("A{i}: A{}\n", i + 1));
        assert_eq!(weight_of_lark(&chain.collect::<String>()), u64::MAX);
    }
}
