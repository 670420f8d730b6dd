//! Rests of the threads of devices between two steps, so that the machine keeps to a power. Models and jobs stay where
//! they are meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Mutex, MutexGuard, OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error};

use super::engines::Engines;
use super::worker::Stock;
use muster_process::tasks::Tasks;

/// Devices compute for so long between two rests, or for one step where that takes longer.
const STRETCH: Duration = Duration::from_millis(200);
const LONGEST_REST: Duration = Duration::from_secs(10);
/// How long a rest waits for a job that is being handed to a thread; then it is left out.
const ADMISSION: Duration = Duration::from_secs(5);

/// Between the owner's pauses, the rests and the jobs of one device. Clones are the same.
#[derive(Clone, Default)]
pub struct Throttle(Arc<Gates>);

#[derive(Default)]
struct Gates {
    /// Locked while a job is passed to a thread, and by the throttle while the thread rests.
    admission: Arc<RwLock<()>>,
    /// Whether the owner has the threads paused.
    is_paused: Mutex<bool>,
}

impl Throttle {
    /// Waits until the threads of the device accept a job; they continue to accept jobs while the guard exists.
    pub async fn admit(&self) -> RwLockReadGuard<'_, ()> {
        self.0.admission.read().await
    }

    /// Whether the owner has the threads paused. No rest begins or ends meanwhile.
    pub async fn owner_pause(&self) -> MutexGuard<'_, bool> {
        self.0.is_paused.lock().await
    }
}

/// A resting device, which computes again when this is dropped.
struct Rest {
    engines: Option<Engines>,
    tasks: Tasks,
    admission: Option<OwnedRwLockWriteGuard<()>>,
}

impl Rest {
    /// Returns once no thread of the device computes; None where it must not rest now.
    async fn begin(engines: &Engines, tasks: &Tasks) -> Option<Self> {
        let gate = Arc::clone(&engines.throttle.0.admission);
        let admission = timeout(ADMISSION, gate.write_owned()).await.ok()?;
        let is_paused = engines.throttle.owner_pause().await;
        if *is_paused {
            return None;
        }
        let rest = Self {
            engines: Some(engines.clone()),
            tasks: tasks.clone(),
            admission: Some(admission),
        };
        if let Err(failure) = engines.stop_threads().await {
            debug!("a device that fails does not rest: {failure}");
        }
        Some(rest)
    }

    async fn end(mut self) {
        if let Some(engines) = self.engines.take() {
            go_on(&engines).await;
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let (Some(engines), admission) = (self.engines.take(), self.admission.take()) else {
            return;
        };
        // The task that kept the rest was stopped in the middle.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.tasks.start(async move {
                go_on(&engines).await;
                drop(admission);
            });
        }
    }
}

async fn go_on(engines: &Engines) {
    let is_paused = engines.throttle.owner_pause().await;
    if *is_paused {
        return;
    }
    if let Err(failure) = engines.start_threads().await {
        error!("a device did not go on after a rest: {failure}");
    }
}

/// Has the devices compute for this share of time until the tasks stop.
pub fn keep_duty(mut stock: watch::Receiver<Stock>, mut duty: watch::Receiver<f64>, tasks: &Tasks) {
    let (stopping, all_tasks) = (tasks.stopping(), tasks.clone());
    tasks.start(async move {
        let cycles = async {
            loop {
                if duty.wait_for(|share| *share < 1.0).await.is_err() {
                    return;
                }
                let began = Instant::now();
                sleep(STRETCH).await;
                let fleet = stock.borrow_and_update().fleet.clone();
                let rests =
                    join_all(fleet.iter().map(|engines| Rest::begin(engines, &all_tasks))).await;
                let rest = rest_after(began.elapsed(), *duty.borrow());
                sleep(rest).await;
                join_all(rests.into_iter().flatten().map(Rest::end)).await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = cycles => {}
        }
    });
}

/// The rest after a time of computing.
fn rest_after(computed: Duration, share: f64) -> Duration {
    let share = share.clamp(0.01, 1.0);
    computed.mul_f64((1.0 - share) / share).min(LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_engine::runtime::maker::{Maker, MakerLimits};
    use muster_engine::runtime::{DeviceChoice, EngineLimits, Runtime};
    use tokio::time::timeout;

    use super::{Engines, LONGEST_REST, Rest, Tasks, rest_after};

    #[tokio::test]
    async fn a_rest_keeps_jobs_waiting_and_leaves_the_owners_pause_alone() {
        let maker = Maker::start(MakerLimits::default()).unwrap();
        let runtime = Runtime::start(DeviceChoice::Cpu, EngineLimits::default()).unwrap();
        let engines = Engines {
            maker: Some(maker.clone()),
            ..runtime.into()
        };
        let tasks = Tasks::default();
        let is_paused = || maker.status().is_paused;
        let admits = async || {
            timeout(Duration::ZERO, engines.throttle.admit())
                .await
                .is_ok()
        };
        let rest = Rest::begin(&engines, &tasks).await.unwrap();
        assert!(is_paused() && !admits().await);
        rest.end().await;
        assert!(!is_paused() && admits().await);

        let rest = Rest::begin(&engines, &tasks).await.unwrap();
        engines.pause().await.unwrap();
        rest.end().await;
        assert!(is_paused(), "the owner has the machine");
        assert!(Rest::begin(&engines, &tasks).await.is_none());
        engines.resume().await.unwrap();
        assert!(!is_paused());
    }

    #[test]
    fn a_rest_is_as_long_as_the_share_says() {
        let millis = Duration::from_millis;
        assert_eq!(rest_after(millis(200), 0.5), millis(200));
        assert_eq!(rest_after(millis(300), 0.75), millis(100));
        assert_eq!(rest_after(millis(200), 1.0), Duration::ZERO);
        assert_eq!(rest_after(Duration::from_secs(5), 0.05), LONGEST_REST);
    }
}
