//! Samples of each minute of the last week: jobs, kudos, GPUs and energy. Restarts keep the samples.
//!
//! | file | content |
//! | --- | --- |
//! | `totals` | counts of jobs by model and coordinator |
//! | `energy` | energy and readings of GPUs within a minute |
//! | `file` | the samples in the data folder |

mod energy;
mod file;
mod totals;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Local, NaiveTime, Utc};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use super::report::{EnergyReport, GpuReport, HistorySample};
use super::state::WorkerState;
use crate::hardware::{GpuLoad, PowerReading, ProcessorPower, follow_gpus};
use muster_process::tasks::Tasks;

use energy::EnergyMeter;
use file::HistoryFile;
use totals::tallies;
pub use totals::{Totals, reports};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE_SECONDS: i64 = 60;
const WEEK_SECONDS: i64 = 7 * 24 * 3600;
/// Restarts add samples to those of the minutes.
const WEEK_SAMPLES: usize = 7 * 24 * 60 + 1000;

/// Clones are the same.
#[derive(Clone, Default)]
pub struct History(Arc<Mutex<Minutes>>);

#[derive(Default)]
struct Minutes {
    samples: Vec<HistorySample>,
    /// All jobs that are in the samples of this process.
    counted: Totals,
    meter: EnergyMeter,
    gpus: Option<watch::Receiver<Vec<GpuLoad>>>,
    processor_note: Option<String>,
}

impl History {
    /// Totals since midnight, local time, including the current minute.
    pub fn today(&self, now: &Totals) -> (Totals, Option<f64>) {
        let minutes = self.lock();
        let mut totals = now.since(&minutes.counted);
        let mut watt_hours = minutes.meter.watt_hours();
        let midnight = midnight(Local::now());
        let today = minutes.samples.iter().rev();
        for sample in today.take_while(|sample| sample.at > midnight) {
            totals.add_all(&Totals {
                models: tallies(&sample.models),
                coordinators: tallies(&sample.coordinators),
            });
            if let Some(more) = sample.watt_hours {
                *watt_hours.get_or_insert(0.0) += more;
            }
        }
        (totals, watt_hours)
    }

    /// The samples that ended after this second since the epoch.
    pub fn samples_after(&self, at: i64) -> Vec<HistorySample> {
        let minutes = self.lock();
        let samples = minutes.samples.iter();
        samples.filter(|sample| sample.at > at).cloned().collect()
    }

    /// The GPUs as they were read last.
    pub fn gpus(&self) -> Vec<GpuReport> {
        let minutes = self.lock();
        let gpus = minutes.gpus.as_ref().map(|gpus| gpus.borrow().clone());
        gpus.iter().flatten().map(GpuReport::from).collect()
    }

    /// Power now, and energy as given.
    pub fn energy(&self, today_watt_hours: Option<f64>, price: Option<f64>) -> EnergyReport {
        let gpu_watts = self
            .gpus()
            .iter()
            .filter_map(|gpu| gpu.watts)
            .reduce(|sum, watts| sum + watts);
        let minutes = self.lock();
        EnergyReport {
            gpu_watts,
            processor_watts: minutes.meter.processor_watts,
            processor_note: minutes.processor_note.clone(),
            today_watt_hours,
            computing: None,
            price,
            today_cost: today_watt_hours
                .zip(price)
                .map(|(watt_hours, price)| watt_hours / 1000.0 * price),
        }
    }

    /// Reads the machine each second and keeps a sample each minute, until the tasks stop; the last minute is kept
    /// as well.
    pub fn keep(&self, data_dir: &Path, state: &WorkerState, tasks: &Tasks) {
        let (history, data_dir) = (self.clone(), data_dir.to_owned());
        let (state, stopping) = (state.clone(), tasks.stopping());
        tasks.start(async move {
            let opened = spawn_blocking(move || {
                let now = Utc::now().timestamp();
                let (file, samples) = HistoryFile::open(&data_dir, now);
                (file, samples, follow_gpus(), ProcessorPower::open())
            });
            let Ok((mut file, samples, gpus, mut power)) = opened.await else {
                return;
            };
            history.begin(samples, gpus, &power);
            let mut seconds = interval(SECOND);
            seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let (mut last, mut begun) = (Instant::now(), Utc::now().timestamp());
            loop {
                let is_over = tokio::select! {
                    () = stopping.cancelled() => true,
                    _ = seconds.tick() => false,
                };
                let passed = last.elapsed();
                last = Instant::now();
                history.read(passed, power.joules());
                let now = Utc::now().timestamp();
                if is_over || now - begun >= MINUTE_SECONDS || now < begun {
                    begun = now;
                    let samples = history.add(now, &state);
                    file = match store(file, samples).await {
                        Some(file) => file,
                        None => return,
                    };
                }
                if is_over {
                    return;
                }
            }
        });
    }

    fn begin(
        &self,
        samples: Vec<HistorySample>,
        gpus: watch::Receiver<Vec<GpuLoad>>,
        power: &ProcessorPower,
    ) {
        let mut minutes = self.lock();
        minutes.samples = samples;
        minutes.gpus = Some(gpus);
        minutes.processor_note = match &power.reading {
            PowerReading::Available => None,
            PowerReading::Unavailable(reason) => Some(reason.clone()),
        };
    }

    fn read(&self, passed: Duration, processor_joules: Option<f64>) {
        let mut minutes = self.lock();
        let gpus = minutes.gpus.as_ref().map(|gpus| gpus.borrow().clone());
        let gpus = gpus.unwrap_or_default();
        minutes.meter.read(passed, &gpus, processor_joules);
    }

    /// Ends a minute. All samples.
    fn add(&self, at: i64, state: &WorkerState) -> Vec<HistorySample> {
        let (totals, is_paused) = (state.totals(), state.is_paused());
        let mut minutes = self.lock();
        let new = totals.since(&minutes.counted);
        minutes.counted = totals;
        let (watt_hours, gpus) = minutes.meter.take();
        minutes.samples.push(HistorySample {
            at,
            models: reports(&new.models),
            coordinators: reports(&new.coordinators),
            gpus,
            watt_hours,
            is_paused,
        });
        let old = minutes.samples.iter();
        let old = old
            .take_while(|sample| sample.at < at - WEEK_SECONDS)
            .count();
        let surplus = minutes.samples.len().saturating_sub(WEEK_SAMPLES);
        minutes.samples.drain(..old.max(surplus));
        minutes.samples.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Minutes> {
        self.0.lock()
    }
}

/// A history that cannot be stored is kept in memory.
async fn store(mut file: HistoryFile, samples: Vec<HistorySample>) -> Option<HistoryFile> {
    let stored = spawn_blocking(move || {
        let stored = file.append(&samples);
        (file, stored)
    });
    let (file, stored) = stored.await.ok()?;
    if let Err(error) = stored {
        warn!("storing the worker's history failed, trying again in a minute: {error}");
    }
    Some(file)
}

/// Seconds since the epoch at the last midnight.
fn midnight(now: DateTime<Local>) -> i64 {
    let begin = now.date_naive().and_time(NaiveTime::MIN);
    let begin = begin.and_local_timezone(Local).earliest();
    // A day that begins without a midnight, where clocks are set forward.
    begin.map_or_else(
        || now.timestamp() - i64::from(chrono::Timelike::num_seconds_from_midnight(&now)),
        |begin| begin.timestamp(),
    )
}

impl From<&GpuLoad> for GpuReport {
    fn from(gpu: &GpuLoad) -> Self {
        Self {
            name: gpu.name.clone(),
            load: gpu.utilization,
            memory_used_bytes: gpu.memory_total_bytes.saturating_sub(gpu.memory_free_bytes),
            memory_total_bytes: gpu.memory_total_bytes,
            watts: gpu.watts,
            celsius: gpu.celsius,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Tally;
    use muster_protocol::job::Kudos;

    #[test]
    fn today_holds_the_samples_since_midnight_and_the_minute_that_runs() {
        let history = History::default();
        let now = Local::now();
        let midnight = midnight(now);
        assert!(midnight <= now.timestamp() && now.timestamp() - midnight < 25 * 3600 + 1);
        let tally = |done| Tally {
            done,
            kudos: Kudos(500),
            ..Tally::default()
        };
        let sample = |at, done| {
            let mut totals = Totals::default();
            totals.add("here", "m", &tally(done));
            HistorySample {
                at,
                models: reports(&totals.models),
                coordinators: reports(&totals.coordinators),
                watt_hours: Some(2.5),
                ..HistorySample::default()
            }
        };
        history.lock().samples = vec![sample(midnight - 5, 100), sample(midnight + 1, 3)];
        let mut totals = Totals::default();
        totals.add("here", "m", &tally(7));
        totals.add("here", "", &tally(0));
        history.lock().counted.add("here", "m", &tally(5));
        let (today, watt_hours) = history.today(&totals);
        assert_eq!(today.models["m"].done, 3 + 2);
        assert_eq!(today.all().kudos, Kudos(500 + 500));
        assert_eq!(watt_hours, Some(2.5));
        let cost = history.energy(watt_hours, Some(0.4)).today_cost;
        assert_eq!(cost, Some(0.001));
        assert_eq!(history.samples_after(midnight).len(), 1);
    }
}
