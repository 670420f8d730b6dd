//! A day or a week of samples for the plots of the owner's page: power, energy, earnings, load. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::daemon::report::{HistorySample, TallyReport};

/// The time that a plot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlotSpan {
    Day,
    Week,
}

/// Samples of a span, gathered into bins of equal length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlotReport {
    /// Seconds since the epoch at the beginning of the first bin.
    pub from: i64,
    pub bin_seconds: i64,
    pub bins: Vec<PlotBin>,
    pub models: Vec<PlotModel>,
    pub sums: PlotSums,
    /// `owner.energy_price`, for a kilowatt-hour.
    pub energy_price: Option<f64>,
    /// `owner.kudos_worth`, of 1000 kudos.
    pub kudos_worth: Option<f64>,
}

/// A bin of a plot. Values without a sample are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlotBin {
    /// Time in which the worker ran.
    pub seconds: i64,
    pub paused_seconds: i64,
    /// The mean while the worker ran.
    pub watts: Option<f64>,
    pub watt_hours: Option<f64>,
    pub cost: Option<f64>,
    pub done: u64,
    pub failed: u64,
    pub tokens: u64,
    pub earned_thousandths: i64,
    /// Mean of all GPUs, from 0 to 1.
    pub load: Option<f64>,
    /// Of the hottest GPU.
    pub celsius: Option<f64>,
    #[serde(skip)]
    gpus: GpuMeans,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct GpuMeans {
    load: f64,
    loads: u32,
}

/// A model's earnings, and its part of the energy, divided by kudos.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlotModel {
    pub name: String,
    pub done: u64,
    pub failed: u64,
    pub tokens: u64,
    pub earned_thousandths: i64,
    #[serde(flatten)]
    pub rates: PlotRates,
}

/// All bins together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlotSums {
    pub seconds: i64,
    pub paused_seconds: i64,
    pub watt_hours: Option<f64>,
    pub done: u64,
    pub failed: u64,
    pub tokens: u64,
    pub earned_thousandths: i64,
    #[serde(flatten)]
    pub rates: PlotRates,
}

/// Figures that follow from kudos, energy and the prices of the owner.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PlotRates {
    /// While the worker ran.
    pub kudos_per_hour: Option<f64>,
    pub cost: Option<f64>,
    pub cost_per_1000_kudos: Option<f64>,
    pub cost_per_job: Option<f64>,
    /// In the currency of the prices.
    pub worth: Option<f64>,
    /// Worth less cost.
    pub net: Option<f64>,
}

const MINUTE: i64 = 60;
/// Samples that are further apart have a gap between them, and each of them is a minute.
const LONGEST_MINUTE: i64 = 90;

impl PlotSpan {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "day" => Some(Self::Day),
            "week" => Some(Self::Week),
            _ => None,
        }
    }

    pub fn seconds(self) -> i64 {
        match self {
            Self::Day => 24 * 3600,
            Self::Week => 7 * 24 * 3600,
        }
    }

    /// The length of a bin.
    fn bin_seconds(self) -> i64 {
        match self {
            Self::Day => 10 * MINUTE,
            Self::Week => 60 * MINUTE,
        }
    }
}

/// The samples that ended within the span before `now`, with the owner's prices of energy and kudos.
pub fn plot(
    samples: &[HistorySample],
    span: PlotSpan,
    now: i64,
    prices: (Option<f64>, Option<f64>),
) -> PlotReport {
    let (bin_seconds, from) = (span.bin_seconds(), now - span.seconds());
    let count = usize::try_from(span.seconds() / bin_seconds).unwrap_or(0);
    let mut bins = vec![PlotBin::default(); count];
    let mut models: BTreeMap<&str, TallyReport> = BTreeMap::new();
    let mut before = None;
    for sample in samples {
        let seconds = length(before, sample.at);
        before = Some(sample.at);
        // A sample belongs to the bin of its last second.
        let Some(bin) = usize::try_from((sample.at - 1 - from).div_euclid(bin_seconds))
            .ok()
            .and_then(|at| bins.get_mut(at))
        else {
            continue;
        };
        bin.add(sample, seconds);
        for (name, tally) in &sample.models {
            add(models.entry(name).or_default(), tally);
        }
    }
    let (price, worth) = prices;
    let mut sums = PlotSums::default();
    for bin in &mut bins {
        bin.finish(price);
        sums.add(bin);
    }
    let cost = cost(sums.watt_hours, price);
    let all = (sums.done, sums.earned_thousandths);
    sums.rates = PlotRates::of(all, sums.seconds, cost, worth);
    let earned = sums.earned_thousandths;
    let models = models.into_iter().map(|(name, tally)| {
        let own = (tally.done, tally.earned_thousandths);
        let share = share(tally.earned_thousandths, earned);
        let cost = cost.zip(share).map(|(cost, share)| cost * share);
        PlotModel {
            name: name.to_owned(),
            done: tally.done,
            failed: tally.failed,
            tokens: tally.tokens,
            earned_thousandths: tally.earned_thousandths,
            rates: PlotRates::of(own, sums.seconds, cost, worth),
        }
    });
    let mut models: Vec<PlotModel> = models.collect();
    models.sort_by_key(|model| std::cmp::Reverse(model.earned_thousandths));
    PlotReport {
        from,
        bin_seconds,
        bins,
        models,
        sums,
        energy_price: price,
        kudos_worth: worth,
    }
}

/// The time that a sample covers.
fn length(before: Option<i64>, at: i64) -> i64 {
    let since = before.map(|before| at - before);
    since
        .filter(|since| (0..=LONGEST_MINUTE).contains(since))
        .unwrap_or(MINUTE)
}

fn cost(watt_hours: Option<f64>, price: Option<f64>) -> Option<f64> {
    Some(watt_hours? / 1000.0 * price?)
}

fn share(part: i64, all: i64) -> Option<f64> {
    (all > 0).then(|| part.max(0) as f64 / all as f64)
}

fn add(sum: &mut TallyReport, more: &TallyReport) {
    sum.done += more.done;
    sum.failed += more.failed;
    sum.tokens += more.tokens;
    sum.earned_thousandths += more.earned_thousandths;
}

impl PlotBin {
    fn add(&mut self, sample: &HistorySample, seconds: i64) {
        self.seconds += seconds;
        if sample.is_paused {
            self.paused_seconds += seconds;
        }
        if let Some(watt_hours) = sample.watt_hours {
            *self.watt_hours.get_or_insert(0.0) += watt_hours;
        }
        // Coordinators count all jobs, even those of unknown models.
        for tally in sample.coordinators.values() {
            self.done += tally.done;
            self.failed += tally.failed;
            self.tokens += tally.tokens;
            self.earned_thousandths += tally.earned_thousandths;
        }
        for gpu in &sample.gpus {
            if let Some(load) = gpu.load {
                self.gpus.load += load;
                self.gpus.loads += 1;
            }
            if let Some(celsius) = gpu.celsius {
                self.celsius = Some(self.celsius.map_or(celsius, |most| most.max(celsius)));
            }
        }
    }

    fn finish(&mut self, price: Option<f64>) {
        let hours = self.seconds as f64 / 3600.0;
        self.watts = self
            .watt_hours
            .filter(|_| self.seconds > 0)
            .map(|watt_hours| watt_hours / hours);
        self.cost = cost(self.watt_hours, price);
        let loads = self.gpus.loads;
        self.load = (loads > 0).then(|| self.gpus.load / f64::from(loads));
    }
}

impl PlotSums {
    fn add(&mut self, bin: &PlotBin) {
        self.seconds += bin.seconds;
        self.paused_seconds += bin.paused_seconds;
        if let Some(watt_hours) = bin.watt_hours {
            *self.watt_hours.get_or_insert(0.0) += watt_hours;
        }
        self.done += bin.done;
        self.failed += bin.failed;
        self.tokens += bin.tokens;
        self.earned_thousandths += bin.earned_thousandths;
    }
}

impl PlotRates {
    fn of(
        (done, earned_thousandths): (u64, i64),
        seconds: i64,
        cost: Option<f64>,
        kudos_worth: Option<f64>,
    ) -> Self {
        let kudos = earned_thousandths as f64 / 1000.0;
        let per = |amount: f64, count: f64| (count > 0.0).then(|| amount / count);
        let worth = kudos_worth.map(|worth| kudos / 1000.0 * worth);
        Self {
            kudos_per_hour: per(kudos, seconds as f64 / 3600.0),
            cost,
            cost_per_1000_kudos: cost.and_then(|cost| per(cost * 1000.0, kudos)),
            cost_per_job: cost.and_then(|cost| per(cost, done as f64)),
            worth,
            net: worth.zip(cost).map(|(worth, cost)| worth - cost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::report::GpuSample;

    const NOW: i64 = 10_000_000;

    fn sample(at: i64, kudos: i64, watt_hours: Option<f64>) -> HistorySample {
        let tally = TallyReport {
            done: 1,
            tokens: 10,
            earned_thousandths: kudos * 1000,
            ..TallyReport::default()
        };
        let tallies = BTreeMap::from([("m".to_owned(), tally)]);
        HistorySample {
            at,
            models: tallies.clone(),
            coordinators: tallies,
            watt_hours,
            gpus: vec![GpuSample {
                load: Some(0.5),
                celsius: Some(60.0),
                ..GpuSample::default()
            }],
            ..HistorySample::default()
        }
    }

    #[test]
    fn energy_kudos_and_cost_add_up_over_bins() {
        let samples = [
            // Before the day.
            sample(NOW - 24 * 3600, 99, Some(99.0)),
            sample(NOW - 660, 1, Some(2.0)),
            sample(NOW - 600, 2, Some(3.0)),
            sample(NOW - 540, 3, Some(4.0)),
            sample(NOW, 4, None),
        ];
        let report = plot(&samples, PlotSpan::Day, NOW, (Some(0.5), Some(7.0)));
        assert_eq!(report.bins.len(), 144);
        let (before, last) = (&report.bins[142], &report.bins[143]);
        assert_eq!((before.done, before.seconds), (2, 120));
        assert_eq!(before.watt_hours, Some(5.0));
        assert_eq!(before.watts, Some(150.0));
        assert_eq!((last.done, last.watt_hours), (2, Some(4.0)));
        assert_eq!((last.load, last.celsius), (Some(0.5), Some(60.0)));
        assert_eq!(report.bins[0], PlotBin::default());
        let sums = &report.sums;
        assert_eq!((sums.done, sums.tokens, sums.seconds), (4, 40, 240));
        assert_eq!(sums.earned_thousandths, 10_000);
        assert_eq!(sums.watt_hours, Some(9.0));
        let rates = &sums.rates;
        assert_eq!(rates.cost, Some(0.0045));
        assert_eq!(rates.kudos_per_hour, Some(150.0));
        assert_eq!(rates.cost_per_1000_kudos, Some(0.45));
        assert_eq!(rates.cost_per_job, Some(0.001125));
        assert_eq!(rates.worth, Some(0.07));
        assert!((rates.net.unwrap() - 0.0655).abs() < 1e-12);
        assert_eq!(report.models.len(), 1);
        assert_eq!(report.models[0].rates, *rates);
    }

    #[test]
    fn without_prices_and_power_there_are_no_costs() {
        let samples = [sample(NOW - 5, 0, None)];
        let report = plot(&samples, PlotSpan::Week, NOW, (Some(0.5), None));
        assert_eq!(report.bins.len(), 168);
        assert_eq!(report.sums.watt_hours, None);
        let rates = &report.sums.rates;
        assert_eq!((rates.cost, rates.net, rates.worth), (None, None, None));
        assert_eq!(rates.kudos_per_hour, Some(0.0));
        let report = plot(&[], PlotSpan::Week, NOW, (None, None));
        assert_eq!(report.sums.rates, PlotRates::default());
    }
}
