//! The energy of GPUs and processors within a minute, and means of the GPUs' readings.

use std::time::Duration;

use crate::daemon::report::GpuSample;
use crate::hardware::GpuLoad;

/// Readings since the last sample.
#[derive(Debug, Clone, Default)]
pub struct EnergyMeter {
    joules: Option<f64>,
    /// The readings before, for the counters of GPUs.
    last: Vec<GpuLoad>,
    sums: Vec<GpuSum>,
    /// In the last second.
    pub processor_watts: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct GpuSum {
    load: Mean,
    memory: Mean,
    watts: Mean,
    celsius: Mean,
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl EnergyMeter {
    /// Readings after a time since the last ones; the energy that the processors took within it.
    pub fn read(&mut self, passed: Duration, gpus: &[GpuLoad], processor_joules: Option<f64>) {
        let seconds = passed.as_secs_f64();
        let watts = processor_joules.map(|joules| joules / seconds.max(1e-3));
        self.processor_watts = watts;
        let before = std::mem::replace(&mut self.last, gpus.to_vec());
        let gpus_now = gpus.iter().enumerate();
        let of_gpus = gpus_now.filter_map(|(at, gpu)| gpu.joules_since(before.get(at), passed));
        for joules in of_gpus.chain(processor_joules) {
            *self.joules.get_or_insert(0.0) += joules;
        }
        self.sums.resize(gpus.len(), GpuSum::default());
        for (sum, gpu) in self.sums.iter_mut().zip(gpus) {
            sum.load.add(gpu.utilization);
            let used = gpu.memory_total_bytes.saturating_sub(gpu.memory_free_bytes);
            sum.memory.add(Some(used as f64));
            sum.watts.add(gpu.watts);
            sum.celsius.add(gpu.celsius.map(f64::from));
        }
    }

    pub fn watt_hours(&self) -> Option<f64> {
        self.joules.map(|joules| joules / 3600.0)
    }

    /// The energy and the means since the last call.
    pub fn take(&mut self) -> (Option<f64>, Vec<GpuSample>) {
        let watt_hours = self.watt_hours();
        self.joules = None;
        let sums = std::mem::take(&mut self.sums);
        let gpus = sums.iter().map(|sum| GpuSample {
            load: sum.load.value(),
            memory_used_bytes: sum.memory.value().unwrap_or_default().round() as u64,
            watts: sum.watts.value(),
            celsius: sum.celsius.value(),
        });
        (watt_hours, gpus.collect())
    }
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1;
        }
    }

    /// In thousandths, more than the precision of the readings.
    fn value(&self) -> Option<f64> {
        let mean = self.sum / f64::from(self.count.max(1));
        (self.count > 0).then(|| (mean * 1000.0).round() / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(watts: Option<f64>, joules: Option<f64>) -> GpuLoad {
        GpuLoad {
            memory_total_bytes: 100,
            memory_free_bytes: 40,
            utilization: Some(0.5),
            watts,
            joules,
            ..GpuLoad::default()
        }
    }

    #[test]
    fn energy_is_what_counters_say_and_else_power_times_time() {
        let mut meter = EnergyMeter::default();
        let second = Duration::from_secs(1);
        meter.read(second, &[gpu(Some(300.0), Some(1000.0))], None);
        assert_eq!(meter.watt_hours(), Some(300.0 / 3600.0));
        meter.read(second, &[gpu(Some(300.0), Some(1250.0))], Some(50.0));
        assert_eq!(meter.processor_watts, Some(50.0));
        // A counter that begins again.
        meter.read(2 * second, &[gpu(Some(100.0), Some(3.0))], None);
        let (watt_hours, gpus) = meter.take();
        assert_eq!(watt_hours, Some((300.0 + 250.0 + 50.0 + 200.0) / 3600.0));
        assert_eq!((gpus[0].load, gpus[0].memory_used_bytes), (Some(0.5), 60));
        assert_eq!(gpus[0].watts, Some(233.333));
        assert_eq!(meter.take(), (None, Vec::new()));
    }

    #[test]
    fn a_machine_that_tells_no_power_has_no_energy() {
        let mut meter = EnergyMeter::default();
        meter.read(Duration::from_secs(1), &[gpu(None, None)], None);
        assert_eq!(meter.watt_hours(), None);
    }
}
