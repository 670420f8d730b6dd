//! Running jobs and recent speeds of each model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// Weight of the newest job in the reported mean.
const NEWEST: f64 = 0.2;
/// Below it a job is too short for a speed.
pub const LEAST_TIME: Duration = Duration::from_millis(100);

/// Times of a finished job.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub read: u32,
    pub reading: Duration,
    pub written: u32,
    pub writing: Duration,
}

#[derive(Debug, Default)]
pub struct Paces {
    models: Mutex<BTreeMap<String, Model>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Model {
    pub running: u32,
    pub prefill_per_second: Option<f64>,
    pub decode_per_second: Option<f64>,
    /// The same of jobs that are long enough to be shown to people.
    pub shown_prefill_per_second: Option<f64>,
    pub shown_decode_per_second: Option<f64>,
}

/// A job that runs, until it is dropped.
pub struct Running {
    paces: Arc<Paces>,
    model: String,
}

impl Paces {
    pub fn begin(self: &Arc<Self>, model: &str) -> Running {
        self.lock().entry(model.to_owned()).or_default().running += 1;
        Running {
            paces: Arc::clone(self),
            model: model.to_owned(),
        }
    }

    pub fn note(&self, model: &str, pace: &Pace) {
        let mut models = self.lock();
        let model = models.entry(model.to_owned()).or_default();
        mix(&mut model.prefill_per_second, pace.read, pace.reading);
        if pace.reading >= LEAST_TIME {
            mix(&mut model.shown_prefill_per_second, pace.read, pace.reading);
        }
        // The first token is the prompt's work.
        let written = pace.written.saturating_sub(1);
        mix(&mut model.decode_per_second, written, pace.writing);
        if pace.writing >= LEAST_TIME {
            mix(&mut model.shown_decode_per_second, written, pace.writing);
        }
    }

    pub fn of(&self, model: &str) -> Model {
        self.lock().get(model).copied().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Model>> {
        self.models.lock()
    }
}

/// Jobs too short to measure are ignored.
fn mix(speed: &mut Option<f64>, tokens: u32, time: Duration) {
    const LEAST: u32 = 8;
    if tokens < LEAST || time.is_zero() {
        return;
    }
    let newest = f64::from(tokens) / time.as_secs_f64();
    *speed = Some(match *speed {
        Some(before) => before + (newest - before) * NEWEST,
        None => newest,
    });
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(model) = self.paces.lock().get_mut(&self.model) {
            model.running = model.running.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Pace, Paces};

    #[test]
    fn speeds_follow_the_newest_jobs_slowly_and_short_jobs_say_nothing() {
        let paces = Arc::new(Paces::default());
        let note = |written| {
            let pace = Pace {
                read: 100,
                reading: Duration::from_secs(1),
                written,
                writing: Duration::from_secs(1),
            };
            paces.note("m", &pace);
        };
        let running = paces.begin("m");
        note(11);
        note(21);
        note(3);
        let short = Pace {
            read: 1000,
            reading: Duration::from_millis(99),
            written: 1000,
            writing: Duration::from_millis(99),
        };
        paces.note("m", &short);
        let model = paces.of("m");
        assert_eq!(
            (model.running, model.shown_decode_per_second),
            (1, Some(12.0))
        );
        assert_eq!(model.shown_prefill_per_second, Some(100.0));
        // Coordinators compare workers by short jobs, too.
        assert!(model.decode_per_second > Some(1000.0));
        drop(running);
        assert_eq!(paces.of("m").running, 0);
    }
}
