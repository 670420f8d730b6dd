//! A worker's speed, and the limit below which it is too slow for requests without `slow_workers`.

use std::collections::VecDeque;
use std::time::Duration;

use muster_protocol::legacy::words::Trade;

/// Shorter durations measure the transport, not the generation.
const LEAST: Duration = Duration::from_millis(10);
/// Jobs in the moving average.
const MEASURED: usize = 20;
/// Speed of a worker without finished jobs, in pixelsteps and tokens per second.
const NEW_PAINTER: f64 = 1_000_000.0;
const NEW_WRITER: f64 = 1.0;
/// Pixelsteps per second of a fast image worker.
const FAST_PAINTER: f64 = 500_000.0;

/// Higher speeds are not credible.
const MOST_PAINTED: f64 = 20_000_000.0;
const MOST_WRITTEN: f64 = 150.0;

fn most_written(billions: f64) -> f64 {
    match billions {
        billions if billions >= 70.0 => 30.0,
        billions if billions >= 14.0 => 100.0,
        _ => MOST_WRITTEN,
    }
}

/// Only some experts of a mixture-of-experts model are active per token.
fn mixed(model: &str) -> f64 {
    if model.to_lowercase().contains("8x") {
        3.0
    } else {
        1.0
    }
}

#[derive(Debug, Default)]
pub struct Pace {
    recent: VecDeque<f64>,
    /// Work per second; zero before the first job.
    mean: f64,
}

impl Pace {
    /// The saved speed.
    pub fn known(per_second: f64) -> Self {
        Self {
            recent: VecDeque::new(),
            mean: per_second,
        }
    }

    pub fn note(&mut self, work: u64, took: Duration) {
        if took < LEAST {
            return;
        }
        self.recent.truncate(MEASURED - 1);
        self.recent.push_front(work as f64 / took.as_secs_f64());
        self.mean = self.recent.iter().sum::<f64>() / self.recent.len() as f64;
    }

    /// Whether a job was faster than any GPU allows for this model, as far as its size is known.
    pub fn is_incredible(
        trade: Trade,
        per_second: f64,
        model: &str,
        billions: Option<f64>,
    ) -> bool {
        let most = match (trade, billions) {
            (Trade::Image, _) => MOST_PAINTED,
            (Trade::Text, Some(billions)) => most_written(billions) * mixed(model),
            (Trade::Text, None) => MOST_WRITTEN,
            (Trade::Interrogation, _) => f64::INFINITY,
        };
        per_second > most
    }

    /// The stored form.
    pub fn thousandths(&self) -> i64 {
        (self.mean * 1000.0) as i64
    }

    /// Whether the worker is fast enough for its kind; text workers by the size of their largest model in billions of
    /// parameters, with the lowest limit if it is unknown.
    pub fn is_fast(&self, trade: Option<Trade>, largest: Option<f64>) -> bool {
        match (trade, largest) {
            (Some(Trade::Image), _) => self.or_new(NEW_PAINTER) >= FAST_PAINTER,
            (_, Some(billions)) if billions < 13.0 => self.or_new(NEW_WRITER) >= 5.0,
            (_, Some(billions)) if billions < 20.0 => self.or_new(NEW_WRITER) >= 4.0,
            _ => self.or_new(NEW_WRITER) >= 3.0,
        }
    }

    fn or_new(&self, new: f64) -> f64 {
        match self.mean > 0.0 {
            true => self.mean,
            false => new,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;
    use muster_protocol::legacy::words::Trade;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_speed_is_the_mean_of_the_last_twenty_jobs() {
        let mut pace = Pace::default();
        (0..50).for_each(|_| pace.note(1000, SECOND));
        (0..20).for_each(|_| pace.note(10, 2 * SECOND));
        pace.note(10, Duration::ZERO);
        assert_eq!(pace.thousandths(), 5000);
    }

    #[test]
    fn nobody_is_believed_to_be_faster_than_cards_are() {
        let check = |trade, model: &str, billions, most: f64| {
            assert!(
                !Pace::is_incredible(trade, most, model, billions),
                "{model}"
            );
            assert!(
                Pace::is_incredible(trade, most + 1.0, model, billions),
                "{model}"
            );
        };
        check(Trade::Image, "sdxl", None, 20_000_000.0);
        check(Trade::Text, "unheard", None, 150.0);
        check(Trade::Text, "small-7b", Some(7.0), 150.0);
        check(Trade::Text, "middle-14b", Some(14.0), 100.0);
        check(Trade::Text, "large-70b", Some(70.0), 30.0);
        check(Trade::Text, "mixture-8x22b", Some(141.0), 90.0);
        assert!(!Pace::is_incredible(
            Trade::Interrogation,
            1e9,
            "caption",
            None
        ));
    }

    #[test]
    fn painters_are_fast_from_half_a_megapixelstep_and_writers_by_their_model() {
        let check = |trade, largest, speed, expected| {
            let pace = Pace::known(speed);
            assert_eq!(pace.is_fast(Some(trade), largest), expected, "{speed}");
        };
        check(Trade::Image, None, 0.0, true);
        check(Trade::Image, None, 499_999.0, false);
        check(Trade::Image, None, 500_000.0, true);
        check(Trade::Text, Some(7.0), 0.0, false);
        check(Trade::Text, Some(7.0), 4.9, false);
        check(Trade::Text, Some(7.0), 5.0, true);
        check(Trade::Text, Some(13.0), 4.0, true);
        check(Trade::Text, Some(20.0), 3.0, true);
        check(Trade::Text, None, 3.0, true);
        check(Trade::Text, None, 2.9, false);
    }
}
