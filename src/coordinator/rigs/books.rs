//! Effects of ended jobs on their workers' records. Applied after the settlement, so that unsettled jobs do not count.

use crate::dispatch::Facts;
use crate::kudos::{Settlement, State};
use crate::settlements::Aside;
use muster_protocol::job::{Kudos, WorkerId};
use muster_protocol::legacy::words::Trade;

use super::live::Feat;
use super::records::Records;

/// The hook that applies settlements to workers' records.
pub fn notes(records: Records) -> impl Fn(&Facts, &Settlement) -> Aside {
    move |facts, settlement| {
        let records = records.clone();
        let (feats, dropped) = (feats(facts, settlement), facts.dropped.clone());
        Box::new(move || {
            for (worker, feat) in feats {
                records.add(worker, &feat);
            }
            for worker in dropped {
                records.dropped(worker);
            }
        })
    }
}

/// Workers paid for a job share its work in proportion; an unpaid delivered job counts for its last worker.
fn feats(facts: &Facts, settlement: &Settlement) -> Vec<(WorkerId, Feat)> {
    let mut earned = settlement.earned();
    if earned.is_empty() && settlement.state == State::Delivered {
        earned.extend(settlement.worker.map(|worker| (worker, Kudos(0))));
    }
    let whole: i64 = earned.values().map(|kudos| kudos.0).sum();
    let work = facts.job.work(settlement.paid_tokens);
    let shared = |part: Kudos| match whole {
        0 => work,
        whole => {
            let share = i128::from(work) * i128::from(part.0) / i128::from(whole);
            u64::try_from(share).unwrap_or(0)
        }
    };
    let feats = earned.into_iter().map(|(worker, reward)| {
        let feat = Feat {
            reward,
            work: shared(reward),
            ..feat(facts)
        };
        (worker, feat)
    });
    feats.collect()
}

fn feat(facts: &Facts) -> Feat {
    let took = facts
        .timing
        .queued
        .map(|queued| facts.timing.total.saturating_sub(queued));
    Feat {
        trade: Trade::of(facts.job.kind),
        reward: Kudos(0),
        work: 0,
        model: facts.parts.last().map(|part| part.model.clone()),
        together: facts.parts.last().map_or(1, |part| part.together),
        took: took.filter(|_| facts.attempts == 1),
    }
}
