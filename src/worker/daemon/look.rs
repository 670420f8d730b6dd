//! The worker's state for coordinators: its load, its speed, and the GPUs' free memory.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::jobs::Shop;
use super::registration::small;
use super::worker::Stock;
use crate::hardware::{GpuLoad, follow_gpus};
use crate::link::Condition;
use muster_engine::runtime::maker::Maker;
use muster_engine::runtime::{self, GpuTrial, Status, gpu_trials};
use muster_process::tasks::Tasks;
use muster_protocol::job::{Kind, MemoryStay};
use muster_protocol::link::{GpuState, ModelState, ModelStatus, State};

/// Interval of checks of the worker's state.
const LOOK: Duration = Duration::from_secs(1);
/// GPU readings change constantly: they are read only every so many checks, to limit updates.
const LOOKS_PER_READING: u32 = 5;

/// Keeps the condition up to date.
pub struct Look {
    stock: watch::Receiver<Stock>,
    shop: Shop,
    condition: watch::Sender<Condition>,
    gpus: Vec<GpuState>,
}

impl Look {
    pub fn new(
        stock: watch::Receiver<Stock>,
        shop: Shop,
        condition: watch::Sender<Condition>,
    ) -> Self {
        let look = Self {
            stock,
            shop,
            condition,
            gpus: Vec::new(),
        };
        look.look();
        look
    }

    pub async fn keep(mut self, tasks: Tasks) {
        let stopping = tasks.stopping();
        // Opening NVML may take its time.
        let gpus = spawn_blocking(follow_gpus).await.ok();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = 0_u32;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = self.condition.closed() => return,
                Ok(()) = self.stock.changed() => {}
                _ = ticks.tick() => {}
            }
            if let (0, Some(gpus)) = (looks % LOOKS_PER_READING, &gpus) {
                let trials = gpu_trials();
                let gpus = gpus.borrow();
                let states = gpus.iter().enumerate();
                self.gpus = states
                    .map(|(index, load)| gpu_state(load, failed_kernels(&trials, index)))
                    .collect();
            }
            looks = looks.wrapping_add(1);
            self.look();
        }
    }

    fn look(&self) {
        let stock = self.stock.borrow();
        let Stock { fleet, served } = &*stock;
        let status: Vec<Status> = fleet
            .iter()
            .map(|engines| engines.runtime.status())
            .collect();
        let is_paused = status.iter().any(|status| status.is_paused);
        let stay = |name: &str| {
            let residencies = fleet
                .iter()
                .filter_map(|engines| engines.residency.as_ref());
            let offering = residencies.filter(|residency| residency.offers(name));
            offering.map(|residency| residency.stay(name)).max()
        };
        let texts = served.models.iter().map(|info| {
            let pace = self.shop.paces.of(&info.name);
            let models = status.iter().flat_map(|status| &status.models);
            let copies: Vec<_> = models.filter(|one| one.info.name == info.name).collect();
            let sum = |of: fn(&runtime::ModelStatus) -> usize| {
                copies.iter().map(|one| of(one)).sum::<usize>()
            };
            let (loaded, expires_at) = told(stay(&info.name));
            ModelState {
                name: info.name.clone(),
                status: status_of(is_paused),
                max: Some(small(served.slots_of(&info.name))),
                running: pace.running,
                waiting: small(sum(|one| one.waiting)),
                context: Some(small(info.context)),
                kv_free: (!copies.is_empty())
                    .then(|| share(sum(|one| one.free_pages), sum(|one| one.pages))),
                prefill_per_second: pace.prefill_per_second.map(f64::round),
                decode_per_second: pace.decode_per_second.map(f64::round),
                loaded,
                expires_at,
                paused_until: None,
            }
        });
        let makers = fleet.iter().filter_map(|engines| engines.maker.as_ref());
        let makers: Vec<_> = makers.map(Maker::status).collect();
        let media = served.media.iter().map(|model| {
            let pipelines = makers.iter().flat_map(|maker| &maker.models);
            let copies = pipelines.filter(|one| one.name == model.name);
            let (loaded, expires_at) = told(stay(&model.name));
            ModelState {
                name: model.name.clone(),
                status: status_of(is_paused),
                max: Some(served.jobs_of(model)),
                running: self.shop.paces.of(&model.name).running,
                waiting: small(copies.map(|one| one.waiting).sum()),
                loaded,
                expires_at,
                ..ModelState::default()
            }
        });
        let upstreams = served.upstreams.iter().map(|model| {
            let pace = self.shop.paces.of(&model.name);
            ModelState {
                name: model.name.clone(),
                status: status_of(is_paused),
                max: Some(model.jobs),
                running: pace.running,
                context: (model.kind != Kind::Image).then_some(model.context),
                prefill_per_second: pace.prefill_per_second.map(f64::round),
                decode_per_second: pace.decode_per_second.map(f64::round),
                ..ModelState::default()
            }
        });
        let mut state = State {
            models: texts.chain(media).chain(upstreams).collect(),
            gpus: self.gpus.clone(),
        };
        self.condition.send_if_modified(|condition| {
            set_status(&mut state, condition.paused_until);
            let is_new = condition.state != state;
            condition.state = state;
            is_new
        });
    }
}

/// Formatted for a report: whether the model is in memory, and until when.
fn told(stay: Option<MemoryStay>) -> (Option<bool>, Option<i64>) {
    match stay {
        None => (None, None),
        Some(MemoryStay::Unloaded) => (Some(false), None),
        Some(MemoryStay::Until(at)) => (Some(true), Some(at)),
        Some(MemoryStay::Always) => (Some(true), None),
    }
}

fn failed_kernels(trials: &[GpuTrial], gpu: usize) -> Vec<String> {
    let of_gpu = trials.iter().filter(|trial| trial.gpu == gpu);
    let failed = of_gpu.flat_map(|trial| &trial.failed);
    failed.map(|kernel| (*kernel).to_owned()).collect()
}

fn gpu_state(load: &GpuLoad, failed_kernels: Vec<String>) -> GpuState {
    GpuState {
        name: load.name.clone(),
        vram_total: Some(gib(load.memory_total_bytes)),
        vram_free: Some(gib(load.memory_free_bytes)),
        util: load.utilization,
        failed_kernels,
    }
}

/// In tenths, to limit updates.
fn gib(bytes: u64) -> f64 {
    let tenths = bytes as f64 * 10.0 / (1_u64 << 30) as f64;
    tenths.round() / 10.0
}

/// Sets the status of a paused worker, with the end of the pause or 0.
pub fn set_status(state: &mut State, paused_until: Option<i64>) {
    for model in &mut state.models {
        model.status = status_of(paused_until.is_some());
        model.paused_until = paused_until;
    }
}

fn status_of(is_paused: bool) -> ModelStatus {
    match is_paused {
        true => ModelStatus::Draining,
        false => ModelStatus::Ready,
    }
}

/// In hundredths, to limit updates.
fn share(part: usize, whole: usize) -> f64 {
    match whole {
        0 => 0.0,
        whole => (100 * part / whole) as f64 / 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::{failed_kernels, gpu_state};
    use crate::hardware::GpuLoad;
    use muster_engine::runtime::GpuTrial;

    #[test]
    fn a_cards_memory_is_told_in_gibibytes() {
        let load = GpuLoad {
            name: "NVIDIA H200".to_owned(),
            memory_total_bytes: 150_754_820_096,
            memory_free_bytes: 44_023_414_784,
            utilization: Some(0.83),
            ..GpuLoad::default()
        };
        let state = gpu_state(&load, Vec::new());
        assert_eq!(
            (state.vram_total, state.vram_free, state.util),
            (Some(140.4), Some(41.0), Some(0.83))
        );
    }

    #[test]
    fn each_gpu_has_its_own_failed_kernels() {
        let trial = |gpu, failed: &[&'static str]| GpuTrial {
            gpu,
            kernels: 11,
            failed: failed.to_vec(),
            faults: Vec::new(),
            is_kept: false,
        };
        let trials = [trial(0, &[]), trial(1, &["attention", "products"])];
        assert_eq!(failed_kernels(&trials, 0), [""; 0]);
        assert_eq!(failed_kernels(&trials, 1), ["attention", "products"]);
    }
}
