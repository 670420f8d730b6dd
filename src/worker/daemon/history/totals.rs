//! Counts of jobs by models and coordinators.

use std::collections::BTreeMap;

use crate::daemon::report::TallyReport;
use crate::link::{Link, Tally};
use muster_protocol::job::Kudos;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Totals {
    pub models: BTreeMap<String, Tally>,
    pub coordinators: BTreeMap<String, Tally>,
}

impl Totals {
    /// Since these lines were opened.
    pub fn of(lines: &[(String, Link)]) -> Self {
        let mut totals = Self::default();
        for (label, link) in lines {
            for (model, tally) in link.feedback().tallies() {
                totals.add(label, &model, &tally);
            }
        }
        totals
    }

    /// `model` is empty for a reward of an unknown job.
    pub fn add(&mut self, coordinator: &str, model: &str, tally: &Tally) {
        let by_coordinator = self.coordinators.entry(coordinator.to_owned());
        by_coordinator.or_default().add(tally);
        if !model.is_empty() {
            let by_model = self.models.entry(model.to_owned());
            by_model.or_default().add(tally);
        }
    }

    pub fn add_all(&mut self, other: &Self) {
        add(&mut self.models, &other.models);
        add(&mut self.coordinators, &other.coordinators);
    }

    /// The difference to an earlier count.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            models: since(&self.models, &earlier.models),
            coordinators: since(&self.coordinators, &earlier.coordinators),
        }
    }

    pub fn all(&self) -> Tally {
        let mut all = Tally::default();
        self.coordinators.values().for_each(|tally| all.add(tally));
        all
    }
}

fn add(sums: &mut BTreeMap<String, Tally>, others: &BTreeMap<String, Tally>) {
    for (name, tally) in others {
        sums.entry(name.clone()).or_default().add(tally);
    }
}

fn since(
    now: &BTreeMap<String, Tally>,
    earlier: &BTreeMap<String, Tally>,
) -> BTreeMap<String, Tally> {
    let mut changed = BTreeMap::new();
    for (name, tally) in now {
        let before = earlier.get(name).copied().unwrap_or_default();
        let tally = tally.since(&before);
        if tally != Tally::default() {
            changed.insert(name.clone(), tally);
        }
    }
    changed
}

impl From<&Tally> for TallyReport {
    fn from(tally: &Tally) -> Self {
        Self {
            done: tally.done,
            failed: tally.failed,
            handed_back: tally.handed_back,
            cancelled: tally.cancelled,
            tokens: tally.tokens,
            earned_thousandths: tally.kudos.0,
        }
    }
}

impl From<&TallyReport> for Tally {
    fn from(report: &TallyReport) -> Self {
        Self {
            done: report.done,
            failed: report.failed,
            handed_back: report.handed_back,
            cancelled: report.cancelled,
            tokens: report.tokens,
            kudos: Kudos(report.earned_thousandths),
        }
    }
}

/// Converts tallies to the reported and stored format.
pub fn reports(tallies: &BTreeMap<String, Tally>) -> BTreeMap<String, TallyReport> {
    let all = tallies.iter();
    all.map(|(name, tally)| (name.clone(), tally.into()))
        .collect()
}

/// Converts from the stored format.
pub fn tallies(reports: &BTreeMap<String, TallyReport>) -> BTreeMap<String, Tally> {
    let all = reports.iter();
    all.map(|(name, report)| (name.clone(), report.into()))
        .collect()
}
