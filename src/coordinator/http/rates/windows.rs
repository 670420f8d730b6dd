//! Fixed windows: each begins with the first request and ends a period later.
//!
//! Two generations bound the memory. When the young one is full it becomes the old one, and counters still in use move
//! back from there. So a flood of new clients ends windows early, and never takes more memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Windows in one generation: some tens of megabytes.
const MOST: usize = 250_000;

#[derive(Debug)]
pub struct Windows {
    young: HashMap<u64, Window>,
    old: HashMap<u64, Window>,
    most: usize,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    count: u32,
    ends: Instant,
}

/// A limit that applies to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Hash of the client and the scope.
    pub id: u64,
    /// Index among the route's limits.
    pub limit: usize,
    pub most: u32,
    pub period: Duration,
}

/// The state of a client's limit after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub most: u32,
    pub left: u32,
    pub left_of_window: Duration,
    /// The exceeded limit, if any.
    pub exceeded: Option<usize>,
}

impl Default for Windows {
    fn default() -> Self {
        Self::of(MOST)
    }
}

impl Windows {
    fn of(most: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            most,
        }
    }

    /// Counts a request under these limits, unless one of them is exceeded; `None` without limits.
    pub fn ask(&mut self, limits: &[Asked], now: Instant) -> Option<Standing> {
        let windows: Vec<Window> = limits.iter().map(|asked| self.find(asked, now)).collect();
        let both = || limits.iter().zip(&windows);
        let mut reached = both().filter(|(asked, window)| window.count >= asked.most);
        if let Some((asked, window)) = reached.next() {
            return Some(asked.standing(*window, now, true));
        }
        let counted = both().map(|(asked, window)| {
            let count = window.count.saturating_add(1);
            (asked, Window { count, ..*window })
        });
        let counted: Vec<(&Asked, Window)> = counted.collect();
        for (asked, window) in &counted {
            self.keep(asked.id, *window);
        }
        let standings = counted
            .into_iter()
            .map(|(asked, window)| asked.standing(window, now, false));
        standings.min_by_key(|standing| standing.left)
    }

    fn find(&mut self, asked: &Asked, now: Instant) -> Window {
        let known = self
            .young
            .get(&asked.id)
            .or_else(|| self.old.get(&asked.id));
        let open = known.filter(|window| window.ends > now);
        open.copied().unwrap_or(Window {
            count: 0,
            ends: now + asked.period,
        })
    }

    fn keep(&mut self, id: u64, window: Window) {
        if self.young.len() >= self.most && !self.young.contains_key(&id) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, window);
    }
}

impl Asked {
    fn standing(&self, window: Window, now: Instant, is_reached: bool) -> Standing {
        Standing {
            most: self.most,
            left: self.most.saturating_sub(window.count),
            left_of_window: window.ends.saturating_duration_since(now),
            exceeded: is_reached.then_some(self.limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Asked, Windows};

    fn asked(id: u64, limit: usize, most: u32, seconds: u64) -> Asked {
        Asked {
            id,
            limit,
            most,
            period: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn a_window_begins_with_the_first_question_and_ends_a_period_later() {
        let (mut windows, now) = (Windows::default(), Instant::now());
        let mut ask = |after| {
            let standing = windows.ask(&[asked(1, 0, 2, 60)], now + Duration::from_secs(after));
            let standing = standing.unwrap();
            let left_of_window = standing.left_of_window.as_secs();
            (standing.left, left_of_window, standing.exceeded.is_some())
        };
        assert_eq!(ask(0), (1, 60, false));
        assert_eq!(ask(30), (0, 30, false));
        assert_eq!(ask(59), (0, 1, true));
        assert_eq!(ask(60), (1, 60, false));
    }

    #[test]
    fn what_one_limit_refuses_is_counted_by_none() {
        let (mut windows, now) = (Windows::default(), Instant::now());
        let both = [asked(1, 0, 3, 60), asked(2, 1, 1, 1)];
        let mut ask = |millis| {
            windows
                .ask(&both, now + Duration::from_millis(millis))
                .unwrap()
        };
        assert_eq!((ask(0).exceeded, ask(1).exceeded), (None, Some(1)));
        assert_eq!((ask(1000).left, ask(2000).left), (0, 0));
        assert_eq!(ask(3000).exceeded, Some(0));
        assert_eq!(windows.ask(&[], now), None);
    }

    #[test]
    fn a_flood_of_clients_takes_no_more_room() {
        let (mut windows, now) = (Windows::of(100), Instant::now());
        windows.ask(&[asked(0, 0, 10, 60)], now);
        for id in 1..=10_000 {
            windows.ask(&[asked(id, 0, 10, 60)], now);
            let regular = windows.ask(&[asked(0, 0, 100_000, 60)], now).unwrap();
            assert_eq!(u64::from(regular.left), 100_000 - id - 1);
            assert!(windows.young.len() + windows.old.len() <= 200);
        }
    }
}
